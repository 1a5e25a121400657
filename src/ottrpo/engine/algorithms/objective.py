"""What BGPG and WNPG descend: PPO's actor-critic loss plus a penalty on behaviour that moved."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ottrpo.engine.update import Batch

from .behaviour import EXPONENT_LIMIT

Array = Any
Terms = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What the policy and the value function descend.

    Attributes:
        clip_range: PPO's clipping of the ratio; 10 is as good as none.
        clip_range_vf: clipping of the value's change; ``None`` for none.
        normalize_advantage: standardise the advantages of each minibatch.
        ent_coef: weight of the entropy bonus.
        vf_coef: weight of the value function's mean squared error.
        wasserstein_coef: κ, weight of the behaviour penalty.
    """

    clip_range: float = 10.0
    clip_range_vf: float | None = 10.0
    normalize_advantage: bool = True
    ent_coef: float = 0.0
    vf_coef: float = 0.25
    wasserstein_coef: float = 0.1


class Outputs(NamedTuple):
    """What the networks say about a minibatch's states."""

    mean: Array  # [n, d]
    std: Array  # [n, d]
    value: Array  # [n]


def guided_loss(
    outputs: Outputs, penalty_n: Array, rows: Batch, weight: Array, objective: Objective
) -> tuple[Array, Terms]:
    """PPO's actor-critic loss plus κ W, weighted means over the rows of a minibatch."""
    clip, normalize = objective.clip_range, objective.normalize_advantage
    log_probability = gaussian_log_probability(rows["action"], outputs.mean, outputs.std)
    policy_loss, log_ratio = clipped_loss(log_probability, rows, weight, clip, normalize=normalize)
    ratio = jnp.exp(log_ratio)
    error = (outputs.value - rows["return"]) ** 2
    if objective.clip_range_vf is not None:
        error = jnp.maximum(error, nearer(outputs.value, rows, objective.clip_range_vf) ** 2)
    value_loss = weight @ error
    # of a Gaussian up to a constant, which has no slope
    entropy = weight @ jnp.log(outputs.std).sum(-1)
    moved = weight @ penalty_n
    total = (
        policy_loss
        + objective.vf_coef * value_loss
        + objective.wasserstein_coef * moved
        - objective.ent_coef * entropy
    )
    terms = {
        "loss": total,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "penalty": moved,
        "approx_kl": weight @ (ratio - 1.0 - log_ratio),
        "clip_fraction": weight @ (jnp.abs(ratio - 1.0) > clip),
    }
    return total, terms


def nearer(value: Array, rows: Batch, clip: float) -> Array:
    """The error of a value that goes no further than ``clip`` from the one of the rollout."""
    change = value - rows["value"]
    near = rows["value"] + jnp.clip(change, -clip, clip)
    return near - rows["return"]


def clipped_loss(
    log_probability: Array, rows: Batch, weight: Array, clip: float, *, normalize: bool
) -> tuple[Array, Array]:
    """PPO's: the ratio of probabilities times the advantage, no further than ``clip`` from 1.

    Args:
        log_probability: [n] of the actions that were taken, now.
        rows: with their ``advantage`` and the ``log_probability`` that they were taken with.
        weight: of the rows.
        clip: of the ratio.
        normalize: standardise the advantages of the minibatch.

    Returns:
        the loss, and the logarithm of the ratio [n].
    """
    advantage = rows["advantage"]
    if normalize:
        centred = advantage - weight @ advantage
        advantage = centred / (jnp.sqrt(weight @ centred**2) + 1e-8)
    log_ratio = jnp.minimum(log_probability - rows["log_probability"], EXPONENT_LIMIT)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return weight @ jnp.maximum(-advantage * ratio, -advantage * clipped), log_ratio


def gaussian_log_probability(action: Array, mean: Array, std: Array) -> Array:
    """Log density [n] of a diagonal Gaussian."""
    z = (action - mean) / std
    return -(0.5 * z**2 + jnp.log(std) + 0.5 * np.log(2.0 * np.pi)).sum(-1)
