"""Going on exactly with an interrupted training in the vector environments of SB3."""

import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Self, final

import numpy as np
from stable_baselines3.common.utils import get_system_info
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper

from ottrpo.collect.host import beyond_its_id, fresh_env, name_of, remade_by_id
from ottrpo.core.checks import Refused, require, require_one_of
from ottrpo.engine.spaces import space_from_data, space_to_data
from ottrpo.envs import catalogue
from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Saved
from ottrpo.persistence.environments import Capturable, proof
from ottrpo.persistence.environments.layers import (
    capture_layer,
    capture_layers,
    class_name,
    first_of,
    keeps_itself,
    restore_each,
    restore_layer,
    restore_layers,
    try_layer,
)
from ottrpo.persistence.snapshot import Data, Snapshot
from ottrpo.persistence.strict_json import Arrays, decode, encode

# wrappers of which all state stands in their attributes
KNOWN = ("stable_baselines3.common.vec_env.", "ottrpo.")
NAME = "environment"  # what the names of all their arrays begin with


@final
@dataclass(frozen=True)
class VectorWorld:
    """Vector environments of SB3, as agents train in them."""

    env: VecEnv

    def why_not_exact(self) -> str | None:
        """Why it can't be relied on to go on exactly; ``None`` if its environments did in a trial.

        It need not have been reset, and is not touched.
        """
        wrappers, base = _unwrapped(self.env)
        reasons = [_captured(wrapper, {}, "wrapper")[1] for wrapper in wrappers]
        return first_of((*reasons, _why_not_inside(base)))

    def capture(self, arrays: Arrays) -> tuple[dict[str, Any], str | None]:
        """The state as JSON, its arrays in ``arrays``, and why it is not whole, if so.

        What can't be captured is left out: whoever goes on from there must seed and reset first.
        """
        wrappers, base = _unwrapped(self.env)
        around = [_captured(one, arrays, f"{NAME}.wrapper{i}") for i, one in enumerate(wrappers)]
        inside, reason = _capture_base(base, arrays)
        states = [state for state, _ in around]
        data = {"wrappers": states, "base": class_name(base), "environments": inside}
        return data, first_of((*(why for _, why in around), reason))

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Put the environments, which have been reset, into the state that was captured.

        Raises:
            ValueError: if they are made of other parts.
        """
        wrappers, base = _unwrapped(self.env)
        inside = {"class": state["base"], "state": None}  # its own comes after
        restore_each([*wrappers, base], [*state["wrappers"], inside], arrays)
        _restore_base(base, state["environments"], arrays)

    def reseed(self, seed: int) -> Any:
        """Seed and reset the environments; what is seen first."""
        self.env.seed(seed)
        return self.env.reset()


class VectorSnapshot(Snapshot):
    """What agents with SB3's face share of saving and going on, ours and those imported."""

    env: VecEnv | None
    n_envs: int
    observation_space: Any
    action_space: Any
    last_update: dict[str, float]
    _trained_in: str | None = None  # the name that its file has for its environment
    _trained_elsewhere: bool = False  # it was not as that name alone makes one
    get_env: Any
    _last_obs: Any
    _n_updates: int
    _current_progress_remaining: float
    _stats_window_size: int
    _setup_model: Any
    _excluded_save_params: Any
    set_env: Any
    ep_info_buffer: deque[Any] | None
    ep_success_buffer: deque[Any] | None

    def save(
        self, path: Any, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> None:
        """Write the agent, normalisers and all, to one file of safetensors and JSON.

        Args:
            path: where; ``.zip`` is added if it has no ending.
            exclude: settings to leave out: who loads the agent gets their defaults. What SB3's
                agents never save may be named too: it is in no file of ours either.
            include: settings to save though they are in ``exclude``.

        Raises:
            ValueError: if anything else is to be left out or to be saved.
        """
        arrays, data = self._learnt()
        settings, kept = data["settings"], set(include or ())
        # of a policy SB3's files hold the parameters all the same, and so do ours
        never = set(self._excluded_save_params()) - {"policy"}
        left_out = set(exclude or ()) - never - kept
        for name in (*left_out, *kept):
            require_one_of(name, settings, "a setting, and but for these a bundle is always whole")
        data["settings"] = {k: v for k, v in settings.items() if k not in left_out}
        bundle.write(path, type(self).__name__, arrays, data)

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: Any = None,
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **settings: Any,
    ) -> Self:
        """An agent that `save` wrote; it predicts without an environment and learns with one.

        Args:
            path: the file, or the directory of a run.
            env: to go on learning in.
            device: where to compute; by default where a new agent does.
            custom_objects: replacements for settings; other names are ignored.
            print_system_info: print the versions of now, as SB3 does.
            force_reset: reset the environment when learning goes on.
            settings: replacements for saved settings.
        """
        if print_system_info:
            get_system_info()
        saved = Saved(*bundle.read(path, cls.__name__), path)
        # as in SB3, custom objects stand in for what was saved and are else ignored
        known = set(signature(cls).parameters) - {"policy", "env", "_init_setup_model"}
        replaced = {k: v for k, v in (custom_objects or {}).items() if k in known}
        where = {} if device is None else {"device": device}
        agent = cls._read(saved, env, replaced | settings | where)
        if env is None or force_reset:
            agent._last_obs = None
        return agent

    # ------------------------------------------------------------------ inside

    @classmethod
    def _made_again(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        return cls._read(saved, _environment_again(saved.data) if env is None else env, settings)

    @classmethod
    def _read(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        """The agent that was saved, with some settings replaced, in ``env`` if that is given."""
        data = saved.data
        with bundle.interpreting(saved.path):
            agent = cls._bare(data, settings)
            agent.observation_space = space_from_data(data["observation_space"])
            agent.action_space = space_from_data(data["action_space"])
            agent._trained_in = data.get("environment")
            require(isinstance(agent._trained_in, str | None), "an environment has a name")
            agent._trained_elsewhere = bool(data.get("beyond_its_id", False))  # older files
            bundle.require_room(agent._planned_entries(), saved.arrays)
        if env is not None:
            agent.set_env(env)
        with bundle.interpreting(saved.path):
            agent._setup_model()
            agent._restore(saved.arrays, data)
        return agent

    @classmethod
    @abstractmethod
    def _bare(cls, data: Mapping[str, Any], settings: Mapping[str, Any]) -> Self:
        """An agent with the settings that were saved or are given, without spaces and networks."""

    @abstractmethod
    def _planned_entries(self) -> int:
        """How many numbers, at least, an agent holds that is built for its spaces."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's keywords as plain data, from which an equal agent can be built."""

    @abstractmethod
    def _policy_name(self) -> str:
        """SB3's name for the kind of policy."""

    @abstractmethod
    def _functions(self) -> list[str]:
        """Settings that are functions of somebody else's: plain data only comes close to them."""

    def _environment(self) -> VecEnv:
        if self.env is None:
            raise Refused("this agent has no environment; give it one: agent.set_env(env)")
        return self.env

    def fresh_env(self, **keywords: Any) -> Any:
        """A new environment like that of the agent, or the one that its file names.

        Args:
            keywords: for `gymnasium.make`, such as ``render_mode``.
        """
        if self.env is None and self._trained_in is not None:
            if self._trained_elsewhere:
                raise Refused(
                    f"{self._trained_in} alone is not what it was trained in, which had keywords "
                    "or wrappers of its own; pass one like it: load(path, env=...)"
                )
            catalogue.require_no_import(self._trained_in)
            return catalogue.make(self._trained_in, disable_env_checker=True, **keywords)
        return fresh_env(self._environment(), **keywords)

    def _said(self, state: Data) -> Data:
        """All that is saved beside the arrays; ``state`` is what the agent adds to the counters."""
        # without their time of day: the same training gives the same bytes
        episodes = [{key: float(e[key]) for key in ("r", "l")} for e in self.ep_info_buffer or ()]
        counters = {
            "num_timesteps": self.num_timesteps,
            "n_updates": self._n_updates,
            "total_timesteps": self._total_timesteps,
            "progress_remaining": self._current_progress_remaining,
            "episodes": episodes,
            "successes": [float(success) for success in self.ep_success_buffer or ()],
            "last_update": self.last_update,
        }
        return {
            "policy": self._policy_name(),
            "settings": self.settings(),
            "observation_space": space_to_data(self.observation_space),
            "action_space": space_to_data(self.action_space),
            "environment": self._trained_in if self.env is None else name_of(self.env),
            "beyond_its_id": self._trained_elsewhere
            if self.env is None
            else beyond_its_id(self.get_env()),
            "state": counters | state,
        }

    def _restore_counters(self, state: Mapping[str, Any]) -> None:
        """Take over the counters of `_said`; older files of imported agents lack some."""
        self.num_timesteps = int(state["num_timesteps"])
        self._n_updates = int(state["n_updates"])
        self._total_timesteps = int(state.get("total_timesteps", 0))
        self._current_progress_remaining = float(state["progress_remaining"])
        self.last_update = {str(key): float(value) for key, value in state["last_update"].items()}
        window = self._stats_window_size
        self.ep_info_buffer = deque(state.get("episodes", ()), maxlen=window)
        self.ep_success_buffer = deque(state.get("successes", ()), maxlen=window)

    def _world(self) -> VectorWorld:
        return VectorWorld(self._environment())

    def _description(self) -> Data:
        return {
            "functions": self._functions(),
            "n_envs": self.n_envs,
            "remade_by_id": remade_by_id(self._environment()),
        }

    def _require_fitting(self, training: Mapping[str, Any]) -> None:
        if training["n_envs"] != self.n_envs:
            raise ValueError(
                f"the checkpoint is of {training['n_envs']} environments, there are {self.n_envs}; "
                "pass as many: resume(path, env=...)"
            )

    def _kept(self) -> Data:
        return {"actions": self.action_space.np_random}

    def _observed(self) -> Any:
        """What was seen last, in the form that `_start_from` returns."""
        return self._last_obs

    def _go_on(self, kept: Data, first: Any) -> None:
        self.action_space._np_random = kept["actions"]
        if self.why_not_exact() is None or getattr(self, "_vec_normalize_env", None) is not None:
            return  # statistics were not yet restored when ``first`` was normalised
        # the same seed has led elsewhere than before: then no promise can be kept
        pairs = zip(_leaves(first), _leaves(self._observed()), strict=True)
        if not all(np.array_equal(now, before) for now, before in pairs):
            warnings.warn(
                f"{name_of(self.env)} does not start alike when it is seeded alike: training goes "
                "on, but not bit for bit as it would have",
                stacklevel=4,
            )


def _environment_again(data: Mapping[str, Any]) -> str:
    """The id of the environment that a checkpoint is of, if that is all it takes to make it.

    Raises:
        ValueError: if it takes more, or would import a module that the file names.
    """
    name = data["environment"]
    if not data["training"]["remade_by_id"]:
        raise ValueError(
            f"{name} can't be made by its id alone as it was; pass one like it: "
            "resume(path, env=...)"
        )
    catalogue.require_no_import(name)
    return str(name)


def _leaves(observation: Any) -> list[Any]:
    if isinstance(observation, dict):
        return list(observation.values())
    images = getattr(observation, "images", None)
    return [observation] if images is None else [observation.flat, *images]


def _why_not_inside(base: VecEnv) -> str | None:
    if keeps_itself(base):
        return None
    if isinstance(base, DummyVecEnv):
        each = {tuple(map(class_name, proof.layers(env))): env for env in base.envs}
        return first_of(proof.why_not_exact(env) for env in each.values())
    reason: str | None = _why_not_remote(base) or base.env_method("why_not_exact", indices=0)[0]
    return reason


def _why_not_remote(base: VecEnv) -> str | None:
    if type(base) is not SubprocVecEnv:
        return f"{type(base).__name__} is none of the vector environments that are known"
    # the outermost wrapper: it captures what is inside of it only
    if set(_outermost(base)) != {Capturable.__name__}:
        return "environments in other processes need the wrapper Capturable around each"
    return None


def _unwrapped(env: VecEnv) -> tuple[list[VecEnvWrapper], VecEnv]:
    wrappers = []
    while isinstance(env, VecEnvWrapper):
        wrappers.append(env)
        env = env.venv
    return wrappers, env


def _captured(layer: Any, arrays: Arrays, name: str) -> tuple[dict[str, Any], str | None]:
    if keeps_itself(layer) or class_name(layer).startswith(KNOWN):
        return try_layer(layer, arrays, name)
    reason = f"{type(layer).__name__} is none of the vector wrappers that are known"
    return {"class": class_name(layer), "state": None}, reason


def _capture_base(base: VecEnv, arrays: Arrays) -> tuple[list[Any], str | None]:
    if keeps_itself(base):
        return [capture_layer(base, arrays, NAME)], None
    if isinstance(base, DummyVecEnv):
        both = [capture_layers(env, arrays, f"{NAME}.{i}") for i, env in enumerate(base.envs)]
        return [states for states, _ in both], first_of(why for _, why in both)
    # ask first: a worker that raises is a worker that is gone
    reason = _why_not_remote(base) or first_of(base.env_method("why_not_captured"))
    if reason is not None:
        return [], reason
    states = base.env_method("capture_state")
    return [encode(state, arrays, f"{NAME}.{i}") for i, state in enumerate(states)], None


def _outermost(base: VecEnv) -> list[str]:
    return base.env_method("class_name") if base.has_attr("class_name") else []


def _restore_base(base: VecEnv, states: list[Any], arrays: Mapping[str, Any]) -> None:
    if keeps_itself(base):
        restore_layer(base, states[0], arrays)
        return
    if states and len(states) != base.num_envs:
        raise ValueError(
            f"there are {base.num_envs} environments, the saved ones are {len(states)}"
        )
    for i, state in enumerate(states):
        if isinstance(base, DummyVecEnv):
            restore_layers(base.envs[i], state, arrays)
        else:
            base.env_method("restore_state", decode(state, arrays), indices=i)
