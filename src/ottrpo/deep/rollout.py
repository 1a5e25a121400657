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


@dataclass(frozen=True)
class Ending:
    """The end of an episode of one environment."""

    index: int
    truncated: bool
    final: Encoded


@dataclass(slots=True)
class Step:
    """What one step of all environments gave; ``endings`` is empty on most steps."""

    observation: Encoded
    reward: Any
    endings: tuple[Ending, ...]
    infos: list[dict[str, Any]]


class Source(Protocol):
    """Environments to collect from, one or many."""

    rows: int
    name: str

    def step(self, action: Array) -> Step:
        """Step every environment; those whose episode ended start a new one."""

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

    def step(self, action: Array) -> Step:
        """Step the environment; start a new episode if this one ended."""
        act = int(action[0]) if self._scalar_action else action[0]
        observation, reward, terminated, truncated, info = self._step(act)
        if not (terminated or truncated):
            if self._plain:
                return Step(Encoded(observation[None]), reward, (), [info])
            return Step(self._encode(observation, 1), reward, (), [info])
        cut_off = bool(truncated and not terminated)
        ending = Ending(0, cut_off, self._encode(observation, 1))
        info["terminal_observation"] = observation  # what SB3's callbacks look for
        info["TimeLimit.truncated"] = cut_off
        observation, _ = self._reset()
        return Step(self._encode(observation, 1), reward, (ending,), [info])


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

    def step(self, action: Array) -> Step:
        """Step all environments."""
        observation, reward, done, infos = self._env.step(action)
        endings: tuple[Ending, ...] = ()
        if done.any():
            endings = tuple(
                Ending(
                    int(i),
                    bool(infos[i].get("TimeLimit.truncated", False)),
                    self._layout.encode(_with_axis(infos[i]["terminal_observation"]), 1),
                )
                for i in np.flatnonzero(done)
            )
        return Step(self._layout.encode(observation, self.rows), reward, endings, infos)


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

    @property
    def last(self) -> Encoded:
        """Where the next rollout starts."""
        return Encoded(self.flat[-1], tuple(image[-1] for image in self.images))


def collect(
    source: Source,
    actor: Actor,
    start: Encoded,
    steps: int,
    on_step: Callable[[Step, Array], bool] | None = None,
) -> Rollout | None:
    """Act for ``steps`` steps from ``start``.

    Args:
        source: the environments.
        actor: the policy.
        start: the present observations.
        steps: steps per environment.
        on_step: called after each step; returning False ends the rollout.

    Returns:
        The experience, or ``None`` if ``on_step`` ended it.

    Raises:
        NonFiniteError: an observation or a reward was NaN or infinite.
    """
    rollout = _empty(start, steps)
    flat, images, reward = rollout.flat, rollout.images, rollout.reward
    act, advance, masks = actor.act, source.step, source.masks
    flat[0] = start.flat
    observation, t = start, 0
    try:
        for t in range(steps):
            action = act(t, observation.flat, observation.images, masks())
            step = advance(action)
            reward[t] = step.reward
            observation = step.observation
            flat[t + 1] = observation.flat
            if images:
                for kept, image in zip(images, observation.images, strict=True):
                    kept[t + 1] = image
            if step.endings:
                for ending in step.endings:
                    _note(rollout, t, ending, step.infos[ending.index])
            if on_step is not None and not on_step(step, action):
                return None
    except Exception:
        # an environment that choked on what a NaN led to: say where the NaN came from
        check_finite(source, rollout, until=t)
        raise
    rollout.drawn = actor.record()
    check_finite(source, rollout, until=steps)
    return rollout


@np.errstate(over="ignore", invalid="ignore")  # a sum may overflow where its terms do not
def check_finite(source: Source, rollout: Rollout, until: int) -> None:
    """Raise unless everything that was seen in the first ``until`` steps is finite."""
    named = (("observation", rollout.flat[: until + 1]), ("reward", rollout.reward[:until]))
    for quantity, array in named:
        if np.isfinite(array.sum()):
            continue
        bad = np.argwhere(~np.isfinite(array))
        if len(bad) == 0:  # only the sum overflowed
            continue
        step, index = int(bad[0][0]), int(bad[0][1])
        raise NonFiniteError(
            f"{source.name}: environment {index} returned a {quantity} of "
            f"{array[tuple(bad[0])]} at step {step} of the rollout; the agent is as it was before "
            "this rollout and can be saved. Look at the environment's own arithmetic there"
        )
    for (step, index), final in rollout.final.items():
        if not np.isfinite(final.flat).all():
            raise NonFiniteError(
                f"{source.name}: environment {index} returned a final observation that is not "
                f"finite at step {step} of the rollout; the agent is as it was before"
            )


def _empty(start: Encoded, steps: int) -> Rollout:
    rows, features = start.flat.shape
    images = tuple(np.empty((steps + 1, *image.shape), image.dtype) for image in start.images)
    for kept, image in zip(images, start.images, strict=True):
        kept[0] = image
    return Rollout(
        flat=np.zeros((steps + 1, rows, features)),
        images=images,
        reward=np.zeros((steps, rows)),
        done=np.zeros((steps, rows), np.bool_),
        terminated=np.zeros((steps, rows), np.bool_),
        drawn={},
    )


def _note(rollout: Rollout, t: int, ending: Ending, info: dict[str, Any]) -> None:
    rollout.endings.append(info)
    rollout.done[t, ending.index] = True
    rollout.terminated[t, ending.index] = not ending.truncated
    if ending.truncated:
        rollout.final[t, ending.index] = ending.final


def _with_axis(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.asarray(leaf)[None] for key, leaf in observation.items()}
    return np.asarray(observation)[None]
