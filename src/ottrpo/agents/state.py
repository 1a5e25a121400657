"""A training state as named arrays, and back: what a file can hold.

Counters and environments are not part of it; `VectorSnapshot` keeps those.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ottrpo.engine.spaces import Encoded
from ottrpo.engine.state import Learner, Moments, Observations, Rewards, TrainState

Arrays = dict[str, Any]
ACTING_SCALE = ("observations.mean", "observations.scale")  # what the policy acts with


def state_arrays(state: TrainState) -> Arrays:
    """Parameters, optimiser moments and the statistics of the normalisers."""
    arrays: Arrays = {}
    for name, learner in state.learners.items():
        arrays |= flatten(f"{name}.networks", learner.networks)
        arrays |= flatten(f"{name}.moments", learner.moments)
    return arrays | {
        "observations.mean": state.observations.mean,
        "observations.scale": state.observations.scale,
        "rewards.return": state.rewards.return_n,
        **_moments("observations", state.observations.moments),
        **_moments("rewards", state.rewards.moments),
    }


def state_counts(state: TrainState) -> dict[str, float]:
    """How much the normalisers have seen."""
    return {
        "observation_count": float(state.observations.moments.count),
        "reward_count": float(state.rewards.moments.count),
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
    }
    shape = state.observations.mean.shape
    seen = _restored("observations", arrays, data["observation_count"], shape)
    rewards = _restored("rewards", arrays, data["reward_count"], (1,))
    returns = _array(arrays, "rewards.return", (len(arrays["rewards.return"]),))
    if len(returns) != len(state.rewards.return_n):  # of other environments
        returns = state.rewards.return_n
    return state._replace(
        learners=learners,
        observations=Observations(seen, *acting_scale(arrays, shape)),
        rewards=Rewards(rewards, returns),
    )


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
