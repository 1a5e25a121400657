"""Environments on the host: made by their ids, stepped, and what happened kept and checked."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper

from ottrpo.core.checks import NonFiniteError as NonFiniteError
from ottrpo.engine.acting import Actor
from ottrpo.engine.estimate import CutOff, Rollout
from ottrpo.engine.spaces import BoxActions, Encoded, FiniteActions, ObservationLayout
from ottrpo.envs import catalogue, make_vec
from ottrpo.persistence.environments.proof import made_again

Array = Any
Infos = list[dict[str, Any]]  # one per environment


class Source(Protocol):
    """Environments to collect from, one or many."""

    rows: int
    name: str

    def step(self, t: int, action: Array, rollout: "Recorder") -> Infos:
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
    ) -> None:
        self._step, self._reset = env.step, env.reset
        self._encode = layout.encode
        self._plain = layout.is_plain
        self.name = name
        self.masks = masks

    def step(self, t: int, action: Array, rollout: "Recorder") -> Infos:
        """Step the environment; start a new episode if this one ended."""
        observation, reward, terminated, truncated, info = self._step(action[0])
        rollout.reward[t] = reward
        if terminated or truncated:
            cut_off = bool(truncated and not terminated)
            observation = deepcopy(observation)  # who begins anew may write into the same array
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

    def step(self, t: int, action: Array, rollout: "Recorder") -> Infos:
        """Step all environments."""
        observation, rollout.reward[t], ended, infos = self._advance(action)
        for i, info in ended:
            final = None
            if info.get("TimeLimit.truncated", False):
                final = self._layout.encode(with_axis(info["terminal_observation"]), 1)
            rollout.end(t, i, info, final)
        rollout.see(t + 1, self._layout.encode(observation, self.rows))
        return infos

    def _advance(self, action: Array) -> tuple[Any, Array, Iterable[tuple[int, Any]], Infos]:
        """Observations, rewards, who ended with what it said, and what all of them said."""
        observation, reward, done, infos = self._env.step(action)
        return observation, reward, [(i, infos[i]) for i in np.flatnonzero(done).tolist()], infos


class BatchSource(VectorSource):
    """Environments simulated together: a `VecEnv` with `advance`, `told` and `endings` as well.

    Attributes:
        watched: whether somebody wants to know what every environment says at every step.
    """

    watched = True

    def _advance(self, action: Array) -> tuple[Any, Array, Iterable[tuple[int, Any]], Infos]:
        step = self._env.advance(action)
        endings = self._env.endings(step) if step.ended.size else ()
        ended = zip(step.ended.tolist(), endings, strict=True)
        told = self._env.told(step) if self.watched else []
        return step.observation, step.reward, ended, told


class Recorder:
    """Keeps what happens in n environments over T steps; observations as they come.

    Attributes:
        flat: [T + 1, n, f].
        images: arrays [T + 1, n, channels, h, w].
        reward: [T, n].
        done: the episode ended with this step, [T, n].
        terminated: it ended for good rather than by a time limit, [T, n].
        cut_off: final observations of the episodes that were cut off, by (step, environment).
        endings: what the environments had to say at the end of each episode.
    """

    def __init__(self, start: Encoded, steps: int) -> None:
        rows, features = start.flat.shape
        self.flat = np.zeros((steps + 1, rows, features))
        self.images = tuple(np.empty((steps + 1, *x.shape), x.dtype) for x in start.images)
        self.reward = np.zeros((steps, rows))
        self.done, self.terminated = np.zeros((2, steps, rows), np.bool_)
        self.cut_off: dict[tuple[int, int], Encoded] = {}
        self.endings: list[dict[str, Any]] = []
        self.see(0, start)

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
            self.cut_off[t, index] = final

    def at(self, t: int) -> Encoded:
        """The observations before step t."""
        return Encoded(self.flat[t], tuple(image[t] for image in self.images))

    def rollout(self, drawn: dict[str, Array]) -> Rollout:
        """All of it, ready to learn from."""
        ends = None
        if self.cut_off:
            step, environment = np.transpose(list(self.cut_off))
            finals = list(self.cut_off.values())
            images = tuple(map(np.concatenate, zip(*(f.images for f in finals), strict=True)))
            ends = CutOff((step, environment), np.concatenate([f.flat for f in finals]), images)
        return Rollout(self.flat, self.images, self.reward, self.done, self.terminated, drawn, ends)


# (step, actions, the rollout so far, what else the environments said) -> whether to go on
OnStep = Callable[[int, Array, Recorder, Infos], bool]


def collect(
    source: Source,
    actor: Actor,
    start: Encoded,
    steps: int,
    on_step: OnStep | None = None,
    *,
    taken: int = 0,
) -> tuple[Rollout, Recorder] | None:
    """Act for ``steps`` steps from ``start``.

    Args:
        source: the environments.
        actor: the policy.
        start: the present observations.
        steps: steps per environment.
        on_step: called after each step; returning False ends the rollout.
        taken: steps that all environments took together before, to tell which step went wrong.

    Returns:
        The experience and who kept it, or ``None`` if ``on_step`` ended it.

    Raises:
        NonFiniteError: an observation or a reward was NaN or infinite.
    """
    recorder = Recorder(start, steps)
    flat, images = recorder.flat, recorder.images
    act, advance, masks = actor.act, source.step, source.masks
    t = 0
    try:
        for t in range(steps):
            seen = tuple(image[t] for image in images) if images else ()
            action = act(t, flat[t], seen, masks())
            infos = advance(t, action, recorder)
            if on_step is not None and not on_step(t, action, recorder, infos):
                return None
    except Exception:
        # an environment that choked on what a NaN led to: say where the NaN came from
        check_finite(source, recorder, until=t, taken=taken)
        raise
    check_finite(source, recorder, until=steps, taken=taken)
    return recorder.rollout(actor.record()), recorder


@np.errstate(over="ignore", invalid="ignore")  # a sum may overflow where its terms do not
def check_finite(source: Source, recorder: Recorder, until: int, taken: int = 0) -> None:
    """Raise unless everything that was seen in the first ``until`` steps is finite."""
    # step t, counted from 1, returns observation t and reward t - 1; 0 is what came before
    seen = (recorder.flat, *(image for image in recorder.images if image.dtype.kind == "f"))
    named = [("observation", array[: until + 1], 0) for array in seen]
    named.append(("reward", recorder.reward[:until], 1))
    found = []
    for quantity, array, offset in named:
        if np.isfinite(array.sum()):
            continue
        for first in np.argwhere(~np.isfinite(array))[:1]:  # none if only the sum overflowed
            what = f"{quantity} of {array[tuple(first)]}"
            found.append((int(first[0]) + offset, int(first[1]), what))
    found += [
        (t + 1, index, "final observation that is not finite")
        for (t, index), final in recorder.cut_off.items()
        if not all(np.isfinite(array).all() for array in (final.flat, *final.images))
    ]
    if found:  # the earliest: the others may be what it led to
        raise NonFiniteError(_complaint(source, *min(found, key=lambda what: what[0]), taken))


def _complaint(source: Source, step: int, index: int, what: str, taken: int) -> str:
    return (
        f"{source.name}: environment {index} returned {'an' if what[0] == 'o' else 'a'} {what} at "
        f"step {taken + step * source.rows}, step {step} of the rollout; the agent is as it was "
        "before this rollout and can be saved. Look at the environment's own arithmetic there"
    )


def with_axis(observation: Any) -> Any:
    """One observation as a batch of one."""
    if isinstance(observation, dict):
        return {key: np.asarray(leaf)[None] for key, leaf in observation.items()}
    return np.asarray(observation)[None]


def source_of(
    env: VecEnv,
    layout: ObservationLayout,
    actions: BoxActions | FiniteActions,
    name: str,
    *,
    watched: bool = True,
) -> tuple[Source, bool]:
    """The environments as the engine sees them, and whether they offer action masks.

    ``watched``: whether somebody wants to know all that they say.
    """
    if hasattr(type(env), "advance"):  # not by a wrapper, which would have a part in the step
        together = BatchSource(env, layout, name, _no_masks)
        together.watched = watched
        return together, False
    masked = isinstance(actions, FiniteActions) and offers_masks(env)
    masks: Callable[[], Array | None] = _no_masks
    if isinstance(actions, FiniteActions) and masked:
        masks = lambda: allowed(actions, np.stack(env.env_method("action_masks")))  # noqa: E731
    if type(env) is DummyVecEnv and env.num_envs == 1:
        return SingleSource(env.envs[0], layout, name, masks), masked
    return VectorSource(env, layout, name, masks), masked


def allowed(actions: FiniteActions, mask_n: Array) -> Array:
    """Action masks [n, f, k]; something must be left to choose from."""
    mask_nfk = actions.pad_mask(mask_n)
    if not mask_nfk.any(-1).all():
        index = int(np.argwhere(~mask_nfk.any(-1))[0][0])
        raise ValueError(f"the action mask of environment {index} allows no action at all")
    return mask_nfk


def offers_masks(env: VecEnv) -> bool:
    """Whether environments say which actions are allowed."""
    try:
        return bool(env.has_attr("action_masks"))
    except Exception:  # a VecEnv of somebody's that can't be asked
        return False


def _no_masks() -> None:
    return None


def fresh_env(env: VecEnv, **keywords: Any) -> Any:
    """A new environment like those in ``env``, made with these keywords as well."""
    spec = _spec_of(env)
    if spec is None:
        raise ValueError(
            "a fresh environment can't be made: the training one was not made by gym.make; "
            "pass one: evaluate(..., env=env)"
        )
    return made_again(spec, **keywords)


def made(env: Any, n_envs: int = 1, threads: int | None = None) -> Any:
    """The environment of an id, or so many together; any other environment as it is."""
    if not isinstance(env, str):
        if env is not None and not hasattr(env, "action_space"):
            raise ValueError(f"env must be an id, a Gymnasium environment or a VecEnv, got {env!r}")
        if isinstance(env, gym.vector.VectorEnv):
            raise ValueError(
                f"several environments must be a VecEnv of Stable-Baselines3, got {env}; pass an "
                "id with n_envs, or stable_baselines3.common.env_util.make_vec_env(id, n_envs)"
            )
        given = n_envs if env is None else getattr(env, "num_envs", 1)
        if n_envs not in (1, given):
            raise ValueError(f"n_envs is {n_envs}, but {given} are given; pass an id to have more")
        return env
    translation = catalogue.translation(env)
    if translation is not None:
        print(translation)  # noqa: T201  # another environment than asked for is never silent
    if n_envs > 1:
        return make_vec(catalogue.resolve(env), n_envs, threads=threads)
    if threads is not None:
        raise ValueError(f"threads is {threads}, but one environment has one; set n_envs as well")
    return catalogue.make(env, disable_env_checker=True)


def name_of(env: Any) -> str:
    """What to call it in messages."""
    try:
        spec = _spec_of(env)
        if spec is not None:
            return str(spec.id)
        inner = env.unwrapped  # of a VecEnv: without its wrappers
        return type(inner.envs[0].unwrapped if isinstance(inner, DummyVecEnv) else inner).__name__
    except (OSError, EOFError):  # its processes are gone; what was learnt in them is not
        return "an environment that was closed"


def _spec_of(env: Any) -> Any:
    """What it was made by, if it can tell; many a VecEnv can't."""
    if not isinstance(env, VecEnv):
        return getattr(env, "spec", None)
    try:
        return env.get_attr("spec")[0]
    except (OSError, EOFError):
        raise
    except Exception:
        return None


def remade_by_id(env: VecEnv, *, copies: bool = False) -> bool:
    """Whether its id alone is enough to make it again; ``copies``: as many as there are."""
    if type(env).__module__.startswith("ottrpo.envs."):  # by `make_vec`, as `n_envs` has it
        by_id = not copies
    else:
        by_id = type(env) is DummyVecEnv and (copies or env.num_envs == 1)
    return by_id and all(_says_all(spec) for spec in env.get_attr("spec"))


def beyond_its_id(env: Any) -> bool:
    """Whether its id alone makes another one, as far as it tells: it has keywords, or wrappers."""
    if isinstance(env, VecEnvWrapper):
        plain = type(env).__name__ in ("VecMonitor", "VecTransposeImage")
        return not plain or beyond_its_id(env.venv)
    try:
        specs = env.get_attr("spec")
    except Exception:  # many a VecEnv can't tell
        return False
    return not all(spec is None or _says_all(spec) for spec in specs)


def _says_all(spec: EnvSpec | None) -> bool:
    if spec is None or any(wrapper.name != "Monitor" for wrapper in spec.additional_wrappers):
        return False
    try:
        registered = gym.spec(spec.id)
    except gym.error.Error:
        return False
    cap = spec.max_episode_steps
    capped = cap == registered.max_episode_steps or cap == catalogue.step_cap(spec.id)
    shown = {"render_mode": None}  # how it is shown changes nothing
    return capped and bool(spec.kwargs | shown == registered.kwargs | shown)
