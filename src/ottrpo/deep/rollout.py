"""Collecting experience: step the environments, keep what happened, check that it is finite."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ottrpo.core.checks import NonFiniteError as NonFiniteError

from .acting import Actor
from .observations import Encoded, ObservationLayout

Array = Any
Infos = list[dict[str, Any]]  # one per environment


class Source(Protocol):
    """Environments to collect from, one or many."""

    rows: int
    name: str

    def step(self, t: int, action: Array, rollout: "Rollout") -> Infos:
        """Step every environment, write step t to the rollout, and return what else they said.

        Environments whose episode ended start a new one.
        """

    def masks(self) -> Array | None:
        """Which actions are allowed now, [n, f, k]; ``None`` if all."""


class SingleSource:
    """One Gymnasium environment, stepped without the detour through a vector environment."""

    rows = 1

    def __init__(
        self,
        env: Any,
        layout: ObservationLayout,
        name: str,
        masks: Callable[[], Array | None],
        *,
        scalar_action: bool,
    ) -> None:
        self._step, self._reset = env.step, env.reset
        self._encode = layout.encode
        self._plain = layout.is_plain
        self._scalar_action = scalar_action
        self.name = name
        self.masks = masks

    def step(self, t: int, action: Array, rollout: "Rollout") -> Infos:
        """Step the environment; start a new episode if this one ended."""
        act = int(action[0]) if self._scalar_action else action[0]
        observation, reward, terminated, truncated, info = self._step(act)
        rollout.reward[t] = reward
        if terminated or truncated:
            cut_off = bool(truncated and not terminated)
            info["terminal_observation"] = observation  # what SB3's callbacks look for
            info["TimeLimit.truncated"] = cut_off
            rollout.end(t, 0, info, self._encode(observation, 1) if cut_off else None)
            observation, _ = self._reset()
        if self._plain:
            rollout.flat[t + 1] = observation
        else:
            rollout.see(t + 1, self._encode(observation, 1))
        return [info]


class VectorSource:
    """An SB3 ``VecEnv``."""

    def __init__(
        self, env: Any, layout: ObservationLayout, name: str, masks: Callable[[], Array | None]
    ) -> None:
        self._env = env
        self._layout = layout
        self.rows = env.num_envs
        self.name = name
        self.masks = masks

    def step(self, t: int, action: Array, rollout: "Rollout") -> Infos:
        """Step all environments."""
        observation, rollout.reward[t], done, infos = self._env.step(action)
        for i in np.flatnonzero(done).tolist():
            final = None
            if infos[i].get("TimeLimit.truncated", False):
                final = self._layout.encode(_with_axis(infos[i]["terminal_observation"]), 1)
            rollout.end(t, i, infos[i], final)
        rollout.see(t + 1, self._layout.encode(observation, self.rows))
        return infos  # type: ignore[no-any-return]


@dataclass
class Rollout:
    """Experience of n environments over T steps; observations as they came, not normalised.

    Attributes:
        flat: [T + 1, n, f]; the last entry is where the next rollout starts.
        images: arrays [T + 1, n, channels, h, w].
        reward: [T, n].
        done: the episode ended with this step, [T, n].
        terminated: it ended for good rather than by a time limit, [T, n].
        final: final observations of the episodes that were cut off, by (step, environment).
        drawn: the actor's record of actions and distributions, [T, n, ...].
        endings: what the environments had to say at the end of each episode.
    """

    flat: Array
    images: tuple[Array, ...]
    reward: NDArray[np.float64]
    done: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    drawn: dict[str, Array]
    final: dict[tuple[int, int], Encoded] = field(default_factory=dict)
    endings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Number of steps T."""
        return len(self.reward)

    @classmethod
    def starting_at(cls, start: Encoded, steps: int) -> "Rollout":
        """Nothing but the first observations yet."""
        rows, features = start.flat.shape
        rollout = cls(
            flat=np.zeros((steps + 1, rows, features)),
            images=tuple(np.empty((steps + 1, *x.shape), x.dtype) for x in start.images),
            reward=np.zeros((steps, rows)),
            done=np.zeros((steps, rows), np.bool_),
            terminated=np.zeros((steps, rows), np.bool_),
            drawn={},
        )
        rollout.see(0, start)
        return rollout

    def see(self, t: int, observation: Encoded) -> None:
        """Keep the observations before step t."""
        self.flat[t] = observation.flat
        for kept, image in zip(self.images, observation.images, strict=True):
            kept[t] = image

    def end(self, t: int, index: int, info: dict[str, Any], final: Encoded | None) -> None:
        """An episode ended with step t: for good, or cut off at the observation ``final``."""
        self.endings.append(info)
        self.done[t, index] = True
        if final is None:
            self.terminated[t, index] = True
        else:
            self.final[t, index] = final

    @property
    def last(self) -> Encoded:
        """Where the next rollout starts."""
        return Encoded(self.flat[-1], tuple(image[-1] for image in self.images))


# (step, actions, the rollout so far, what else the environments said) -> whether to go on
OnStep = Callable[[int, Array, Rollout, Infos], bool]


def collect(
    source: Source,
    actor: Actor,
    start: Encoded,
    steps: int,
    on_step: OnStep | None = None,
    *,
    taken: int = 0,
) -> Rollout | None:
    """Act for ``steps`` steps from ``start``.

    Args:
        source: the environments.
        actor: the policy.
        start: the present observations.
        steps: steps per environment.
        on_step: called after each step; returning False ends the rollout.
        taken: steps that all environments took together before, to tell which step went wrong.

    Returns:
        The experience, or ``None`` if ``on_step`` ended it.

    Raises:
        NonFiniteError: an observation or a reward was NaN or infinite.
    """
    rollout = Rollout.starting_at(start, steps)
    flat, images = rollout.flat, rollout.images
    act, advance, masks = actor.act, source.step, source.masks
    t = 0
    try:
        for t in range(steps):
            seen = tuple(image[t] for image in images) if images else ()
            action = act(t, flat[t], seen, masks())
            infos = advance(t, action, rollout)
            if on_step is not None and not on_step(t, action, rollout, infos):
                return None
    except Exception:
        # an environment that choked on what a NaN led to: say where the NaN came from
        check_finite(source, rollout, until=t, taken=taken)
        raise
    rollout.drawn = actor.record()
    check_finite(source, rollout, until=steps, taken=taken)
    return rollout


@np.errstate(over="ignore", invalid="ignore")  # a sum may overflow where its terms do not
def check_finite(source: Source, rollout: Rollout, until: int, taken: int = 0) -> None:
    """Raise unless everything that was seen in the first ``until`` steps is finite."""
    # step t, counted from 1, returns observation t and reward t - 1; 0 is what came before
    named = (("observation", rollout.flat[: until + 1], 0), ("reward", rollout.reward[:until], 1))
    found = []
    for quantity, array, offset in named:
        if np.isfinite(array.sum()):
            continue
        for first in np.argwhere(~np.isfinite(array))[:1]:  # none if only the sum overflowed
            what = f"{quantity} of {array[tuple(first)]}"
            found.append((int(first[0]) + offset, int(first[1]), what))
    found += [
        (t + 1, index, "final observation that is not finite")
        for (t, index), final in rollout.final.items()
        if not np.isfinite(final.flat).all()
    ]
    if found:  # the earliest: the others may be what it led to
        raise NonFiniteError(_complaint(source, *min(found, key=lambda what: what[0]), taken))


def _complaint(source: Source, step: int, index: int, what: str, taken: int) -> str:
    return (
        f"{source.name}: environment {index} returned {'an' if what[0] == 'o' else 'a'} {what} at "
        f"step {taken + step * source.rows}, step {step} of the rollout; the agent is as it was "
        "before this rollout and can be saved. Look at the environment's own arithmetic there"
    )


def _with_axis(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.asarray(leaf)[None] for key, leaf in observation.items()}
    return np.asarray(observation)[None]
