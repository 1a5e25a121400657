"""What `DeepAgent` says of itself to files, and becomes from them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import numpy as np

from ottrpo.core.checks import Refused, require_one_of
from ottrpo.engine import runtime
from ottrpo.engine.algorithms.critics import empty_replay
from ottrpo.engine.schedules import Schedules
from ottrpo.engine.spaces import Encoded, ObservationLayout
from ottrpo.engine.state import Learner, Moments, Observations, Played, Rewards, Signal, TrainState
from ottrpo.persistence import bundle

from .copying import NOT_COPIED, copied_along, kept
from .settings import NOT_SAVED, DeepSettings
from .snapshots import VectorSnapshot

Arrays = dict[str, Any]
# SB3 keeps these; once an agent is built, assigning them would change nothing
BUILT_WITH = {
    "n_envs": "set_env(...) takes any number of environments",
    "seed": "set_random_seed(...) begins all that is random anew",
    "device": "make another, or load(path, device=...)",
}
ACTING_SCALE = ("observations.mean", "observations.scale")  # what the policy acts with


class SavedAgent(VectorSnapshot):
    """Saving and loading of an agent whose training is a `TrainState`."""

    train_state: TrainState
    layout: ObservationLayout
    rng: np.random.Generator
    _predict_rng: np.random.Generator
    policy_class: Any
    schedules: Schedules
    _schedules: Any
    _algorithm: Any
    verbose: int
    settings_type: ClassVar[type[DeepSettings]]
    told: DeepSettings
    _seen: Any = None  # what was seen last, encoded once a rollout has begun

    @property
    def _last_obs(self) -> Any:
        """What was seen last, as the environments gave it: SB3's programs ask for it."""
        encoded = isinstance(self._seen, Encoded)
        return self.layout.decode(self._seen) if encoded else self._seen

    @_last_obs.setter
    def _last_obs(self, seen: Any) -> None:
        self._seen = seen

    @property
    def jax_device(self) -> Any:
        """Where the networks are trained."""
        return runtime.device_for(str(self.told.device))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in BUILT_WITH and "schedules" in vars(self) and value != vars(self).get(name):
            raise Refused(f"{name} can't change once an agent is built; {BUILT_WITH[name]}")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: no logger, no environment that can't be copied, new episodes."""
        state = kept(self, (*NOT_COPIED, "schedules", "algorithm", "rollout_buffer"))
        if copied_along(self.env) is None:
            state |= {"env": None, "_vec_normalize_env": None}
        return state | {"_seen": None, "_custom_logger": False, "_predictors": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.schedules, self.algorithm = self._schedules(), self._algorithm()

    def settings(self) -> dict[str, Any]:
        """The constructor's keywords as plain data, from which an equal agent can be built."""
        kept = {name: getattr(self, name) for name in ("n_envs", "verbose", "seed")}
        return {**self.told.data, **kept}

    def _learnt(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = state_arrays(self.train_state) | observation_arrays(self._seen)
        random = {
            "rng": self.rng.bit_generator.state,
            "predict_rng": self._predict_rng.bit_generator.state,
        }
        return arrays, self._said(state_counts(self.train_state) | random)

    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        state = data["state"]
        self.train_state = restored(self.train_state, arrays, state)
        self.rng.bit_generator.state = state["rng"]
        self._predict_rng.bit_generator.state = state["predict_rng"]
        self._restore_counters(state)
        self._seen = last_observation(arrays)

    def _start_from(self, observation: Any) -> Any:
        self._seen = self.layout.encode(observation, self.n_envs)
        rewards = self.train_state.rewards
        rewards = rewards._replace(return_n=np.zeros_like(rewards.return_n))
        self.train_state = self.train_state._replace(rewards=rewards)
        return self._seen

    def _observed(self) -> Any:
        return self._seen

    def _policy_name(self) -> str:
        policy_class: Any = self.policy_class
        return str(policy_class.__name__)

    def _functions(self) -> list[str]:
        return self.told.functions

    @classmethod
    def _bare(cls, data: Mapping[str, Any], settings: Mapping[str, Any]) -> Self:
        saved, known = dict(data["settings"]), cls.settings_type.saved_names()
        for name in (*saved, *(name for name in settings if name not in NOT_SAVED)):
            require_one_of(name, known, "a setting")
        make: Any = cls
        agent: Self = make(data["policy"], None, _init_setup_model=False, **{**saved, **settings})
        return agent

    def get_parameters(self) -> dict[str, Any]:
        """The trained arrays, by their path, and the normalisation the policy acts with."""
        seen = self.train_state.observations
        return {
            key: array
            for name, learner in self.train_state.learners.items()
            for key, array in flatten(name, learner.networks).items()
        } | dict(zip(ACTING_SCALE, (seen.mean, seen.scale), strict=True))

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto"
    ) -> None:
        """Replace the trained arrays by those of a file or of `get_parameters`.

        Raises:
            ValueError: if names (with ``exact_match``) or shapes differ; nothing is changed then.
        """
        given = load_path_or_dict
        if isinstance(given, Mapping):
            given = dict(given)
        else:
            saved, _ = bundle.read(given, type(self).__name__)
            given = {
                k.replace(".networks", "", 1): v
                for k, v in saved.items()
                if ".networks" in k or k in ACTING_SCALE
            }
        known = self.get_parameters()
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"this agent has no parameter {unknown[0]!r}; it has {list(known)}")
        learners = {
            name: learner._replace(
                networks=unflatten(name, learner.networks, given, exact=exact_match)
            )
            for name, learner in self.train_state.learners.items()
        }
        seen, wanted = self.train_state.observations, given if exact_match else known | given
        mean, scale = acting_scale(wanted, seen.mean.shape)
        if "played" in learners and not any(name.startswith("played") for name in given):
            policy = learners["agent"].networks.policy
            played = Learner(Played(policy, mean, scale), ())
            learners |= {"average": Learner(policy, ()), "played": played}
        self.train_state = self.train_state._replace(
            learners=learners, observations=seen._replace(mean=mean, scale=scale)
        )


def streams(seed: int | None) -> list[np.random.Generator]:
    """Independent ones for training, for `predict` and for the first weights."""
    return [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(3)]


def state_arrays(state: TrainState) -> Arrays:
    """Parameters, optimiser moments and the statistics of the normalisers."""
    arrays: Arrays = {}
    for name, learner in state.learners.items():
        arrays |= flatten(f"{name}.networks", learner.networks)
        arrays |= flatten(f"{name}.moments", learner.moments)
    if state.replay is not None:
        arrays |= flatten("replay", state.replay)
    return arrays | {
        "observations.mean": state.observations.mean,
        "observations.scale": state.observations.scale,
        "rewards.return": state.rewards.return_n,
        **_moments("observations", state.observations.moments),
        **_moments("rewards", state.rewards.moments),
    }


def state_counts(state: TrainState) -> dict[str, Any]:
    """How much the normalisers have seen."""
    return {
        "observation_count": float(state.observations.moments.count),
        "reward_count": float(state.rewards.moments.count),
        "signal": {name: float(x) for name, x in state.signal._asdict().items()},
    }


def restored(state: TrainState, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> TrainState:
    """The training state that the arrays and the counts describe; ``state`` says what it must be.

    Raises:
        ValueError: if something is missing or has another shape.
    """
    learners = {
        name: Learner(
            unflatten(f"{name}.networks", learner.networks, arrays),
            unflatten(f"{name}.moments", learner.moments, arrays),
        )
        for name, learner in state.learners.items()
        if name != "played" or any(array.startswith("played") for array in arrays)
    }
    shape = state.observations.mean.shape
    acting = acting_scale(arrays, shape)
    if learners.keys() != state.learners.keys():  # of before one was kept: the average was played
        learners["played"] = Learner(Played(learners["average"].networks, *acting), ())
    seen = _restored("observations", arrays, data["observation_count"], shape)
    rewards = _restored("rewards", arrays, data["reward_count"], (1,))
    returns = _array(arrays, "rewards.return", (len(arrays["rewards.return"]),))
    if len(returns) != len(state.rewards.return_n):  # of other environments
        returns = state.rewards.return_n
    return state._replace(
        learners=learners,
        observations=Observations(seen, *acting),
        rewards=Rewards(rewards, returns),
        replay=_window(state.replay, arrays),
        signal=_signal(data.get("signal", {})),
    )


def _signal(data: Mapping[str, Any]) -> Signal:
    """What steps gained; of a file from before that was kept, nothing yet."""
    values = {name: np.float64(data[name]) for name in Signal._fields if name in data}
    if not np.isfinite(list(values.values())).all():
        raise ValueError("what the saved agent's steps gained is no number")
    return Signal(**values)


def _window(replay: Any, arrays: Mapping[str, Any]) -> Any:
    """The saved window of past rollouts; an agent with other environments begins a new one.

    Raises:
        ValueError: if it is no window, of whatever number of environments.
    """
    if replay is None:
        return None
    saved = arrays.get("replay.reward", replay.reward).shape
    if saved == replay.reward.shape or len(saved) != 2:
        return jax.tree.map(np.asarray, unflatten("replay", replay, arrays))
    features, size = replay.flat.shape[-1], replay.action.shape[-1]
    unflatten("replay", empty_replay(saved[0], saved[1], features, size), arrays)
    return replay


def acting_scale(arrays: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and scale of the observations that the policy acts with."""
    mean, scale = (_array(arrays, name, shape).astype(np.float32) for name in ACTING_SCALE)
    return mean, scale


def observation_arrays(observation: Any) -> Arrays:
    """The observation to go on from, if there is one."""
    if not isinstance(observation, Encoded):
        return {}
    images = {f"last.image{i}": image for i, image in enumerate(observation.images)}
    return {"last.flat": observation.flat} | images


def last_observation(arrays: Mapping[str, Any]) -> Encoded | None:
    """The observation to go on from, if the agent was in the middle of training."""
    if "last.flat" not in arrays:
        return None
    count = sum(name.startswith("last.image") for name in arrays)
    return Encoded(arrays["last.flat"], tuple(arrays[f"last.image{i}"] for i in range(count)))


def flatten(name: str, tree: Any) -> Arrays:
    """The arrays of a tree of modules, by their path in it."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        name + jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    }


def unflatten(name: str, tree: Any, arrays: Mapping[str, Any], *, exact: bool = True) -> Any:
    """``tree`` with its arrays replaced by those saved under ``name``.

    Raises:
        ValueError: if an array is missing (unless ``exact`` is off), of another shape or kind of
            numbers, or not finite.
    """

    def replaced(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        key = name + jax.tree_util.keystr(path)
        if key not in arrays:
            if exact:
                raise ValueError(f"the saved agent has no array {key!r}")
            return leaf
        array = np.asarray(arrays[key])
        if array.dtype.kind != leaf.dtype.kind:
            raise ValueError(f"{key!r} holds {array.dtype}, the agent needs {leaf.dtype}")
        if array.shape != leaf.shape:
            raise ValueError(f"{key!r} has shape {array.shape}, the agent needs {leaf.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{key!r} holds NaN or infinity")
        return jax.numpy.asarray(array, dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(replaced, tree)


def _moments(name: str, moments: Moments) -> Arrays:
    return {f"{name}.moments.mean": moments.mean, f"{name}.moments.variance": moments.variance}


def _restored(
    name: str, arrays: Mapping[str, Any], count: float, shape: tuple[int, ...]
) -> Moments:
    mean, variance = (_array(arrays, f"{name}.moments.{p}", shape) for p in ("mean", "variance"))
    if not 0 <= count < np.inf or (variance < 0).any():
        raise ValueError(f"the saved statistics of the {name} are no statistics")
    return Moments(mean, variance, np.float64(count))


def _array(arrays: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Any:
    if name not in arrays:
        raise ValueError(f"the saved agent has no array {name!r}")
    array = np.array(arrays[name])
    if array.dtype.kind != "f" or array.shape != shape:
        found = f"{array.dtype} of shape {array.shape}"
        raise ValueError(f"{name!r} holds {found}, the agent needs numbers of shape {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name!r} holds NaN or infinity")
    return array
