"""All that an agent is at the border between two rollouts, as arrays and plain data.

Counters and environments are not part of it; `VectorSnapshot` keeps those.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ottrpo.deep.normaliser import RunningMoments
from ottrpo.deep.observations import Encoded
from ottrpo.deep.update import Learner

from .trees import flatten, unflatten

Arrays = dict[str, Any]
ACTING_SCALE = ("observations.mean", "observations.scale")  # what the policy acts with


def agent_arrays(agent: Any) -> Arrays:
    """Parameters, optimiser moments, normalisers and the observation to go on from."""
    arrays: Arrays = {}
    for name, learner in agent.learners().items():
        arrays |= flatten(f"{name}.networks", learner.networks)
        arrays |= flatten(f"{name}.moments", learner.moments)
    observations, rewards = agent.observation_normaliser, agent.reward_normaliser
    arrays |= {
        "observations.mean": observations.mean,
        "observations.scale": observations.scale,
        "rewards.return": rewards.return_n,
        **_moments("observations", observations.moments),
        **_moments("rewards", rewards.moments),
    }
    if isinstance(agent._last_obs, Encoded):
        arrays["last.flat"] = agent._last_obs.flat
        for i, image in enumerate(agent._last_obs.images):
            arrays[f"last.image{i}"] = image
    return arrays


def agent_data(agent: Any) -> dict[str, Any]:
    """Random states, and how much the normalisers have seen."""
    return {
        "observation_count": agent.observation_normaliser.moments.count,
        "reward_count": agent.reward_normaliser.moments.count,
        "rng": agent.rng.bit_generator.state,
        "predict_rng": agent._predict_rng.bit_generator.state,
    }


def restore(agent: Any, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Make ``agent`` what the arrays and the data describe.

    Raises:
        ValueError: if something is missing or has another shape; the agent is then unchanged.
    """
    learners = {
        name: Learner(
            unflatten(f"{name}.networks", learner.networks, arrays),
            unflatten(f"{name}.moments", learner.moments, arrays),
        )
        for name, learner in agent.learners().items()
    }
    observations, rewards = agent.observation_normaliser, agent.reward_normaliser
    shape = observations.mean.shape
    observation_moments = _restored("observations", arrays, data["observation_count"], shape)
    reward_moments = _restored("rewards", arrays, data["reward_count"], (1,))
    scale = acting_scale(arrays, shape)
    returns = _array(arrays, "rewards.return", (len(arrays["rewards.return"]),))
    agent.set_learners(learners)
    observations.moments, rewards.moments = observation_moments, reward_moments
    observations.mean, observations.scale = scale
    if len(returns) == len(rewards.return_n):
        rewards.return_n = returns
    agent.rng.bit_generator.state = data["rng"]
    agent._predict_rng.bit_generator.state = data["predict_rng"]


def acting_scale(arrays: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Mean and scale of the observations that the policy acts with."""
    mean, scale = (_array(arrays, name, shape).astype(np.float32) for name in ACTING_SCALE)
    return mean, scale


def last_observation(arrays: Mapping[str, Any]) -> Encoded | None:
    """The observation to go on from, if the agent was in the middle of training."""
    if "last.flat" not in arrays:
        return None
    count = sum(name.startswith("last.image") for name in arrays)
    return Encoded(arrays["last.flat"], tuple(arrays[f"last.image{i}"] for i in range(count)))


def _moments(name: str, moments: RunningMoments) -> Arrays:
    return {f"{name}.moments.mean": moments.mean, f"{name}.moments.variance": moments.variance}


def _restored(
    name: str, arrays: Mapping[str, Any], count: float, shape: tuple[int, ...]
) -> RunningMoments:
    mean, variance = (_array(arrays, f"{name}.moments.{p}", shape) for p in ("mean", "variance"))
    if not 0 <= count < np.inf or (variance < 0).any():
        raise ValueError(f"the saved statistics of the {name} are no statistics")
    return RunningMoments(mean, variance, float(count))


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
