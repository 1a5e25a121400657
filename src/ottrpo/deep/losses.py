"""What the update minimises: the paper's regularised advantage, or distance to transport targets.

Every loss is a weighted mean over the rows of a minibatch, plus the value function's squared
error. Rows carry the flat features under ``flat`` and images under ``images``.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ottrpo.core.costs import Cost

from .acting import FORBIDDEN
from .networks import Networks, Policy
from .update import Batch, Loss

Array = Any
PolicyLoss = Callable[[Policy, Batch, Array, dict[str, Array]], Array]


def actor_critic_loss(policy_loss: PolicyLoss, vf_coef: float) -> Loss:
    """Policy loss + vf_coef · mean squared error of the value function."""

    def loss(
        networks: Networks, rows: Batch, weight: Array, constants: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        value = networks.value(rows["flat"], rows["images"])
        value_loss = weight @ (value - rows["return"]) ** 2
        policy = policy_loss(networks.policy, rows, weight, constants)
        return policy + vf_coef * value_loss, {"policy_loss": policy, "value_loss": value_loss}

    return loss


def towards_gaussian_targets(cost: Cost, *, learn_std: bool) -> PolicyLoss:
    """Regression of a Gaussian's sources on where the transport maps send them.

    minimises mean_r Σ_j Σ_k share_rjk c(a_θ,rj, target_rjk), the cost of the plan that is left to
    be done. Source j is m_θ + σ_θ z_j; the mean is the source with z = 0. The targets are those
    of the nearest and the farthest map, with shares t* and 1 − t*.
    """

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        source = _sources(policy, rows, learn_std=learn_std)
        left = cost(source[:, :, None], rows["target"], _state(rows))
        return weight @ (rows["share"] * left).sum(-1).mean(-1)

    return loss


def towards_displaced_gaussian(metric: Array | None, *, learn_std: bool) -> PolicyLoss:
    """Regression on the linear model's targets, m + M⁻¹g/(2λ), in the metric M of the cost.

    Up to a constant and the factor λ this is the paper's regularised advantage
    g·(m_θ − m) − λ (m_θ − m)ᵀM(m_θ − m). With ``learn_std`` the standard deviation has a target
    of its own: for squared costs Gaussians move like points (m, σ).
    """

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        gap = mean - rows["target_mean"]
        pull = gap if metric is None else gap @ metric
        total = weight @ (pull * gap).sum(-1)
        if learn_std:
            scale = 1.0 if metric is None else jnp.diagonal(metric)
            total += weight @ (scale * (std - rows["target_std"]) ** 2).sum(-1)
        return total

    return loss


def regularised_gaussian_advantage(cost: Cost, *, learn_std: bool) -> PolicyLoss:
    """The paper's ascent: maximise mean_r mean_j max_k { A_rjk − λ c(a_θ,rj, a_rjk) }."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        source = _sources(policy, rows, learn_std=learn_std)
        moved = cost(source[:, :, None], rows["candidate"], _state(rows))
        return -weight @ (rows["gain"] - constants["multiplier"] * moved).max(-1).mean(-1)

    return loss


def _sources(policy: Policy, rows: Batch, *, learn_std: bool) -> Array:
    """The policy's actions [r, j, d] for the noise that each source was drawn with."""
    mean, std = policy.gaussian(rows["flat"], rows["images"])
    std = std if learn_std else jax.lax.stop_gradient(std)
    return mean[:, None] + std[:, None] * rows["noise"]


def _state(rows: Batch) -> Array | None:
    """The state of each row for costs that depend on it, against [r, j, k] actions."""
    state = rows.get("state")
    return None if state is None else state[:, None, None]


def choice_log_probabilities(policy: Policy, rows: Batch, choices: int) -> Array:
    """Log π(k | s, factor) [r, f, k]; what is not allowed has probability 0."""
    logits = policy.logits(rows["flat"], rows["images"], choices)
    return jax.nn.log_softmax(jnp.where(rows["allowed"], logits, FORBIDDEN))


def towards_finite_targets(choices: int) -> PolicyLoss:
    """mean_r Σ_a (π_θ(a|s_r) − π*(a|s_r))², the paper's loss for finite actions."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        probability = jnp.exp(choice_log_probabilities(policy, rows, choices))
        return weight @ ((probability - rows["target"]) ** 2).sum((1, 2))

    return loss


def regularised_finite_advantage(choices: int) -> PolicyLoss:
    """The paper's ascent for finite actions: Σ_a π_θ(a|s) max_b { A(s, b) − λ c(a, b) }."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        probability = jnp.exp(choice_log_probabilities(policy, rows, choices))
        return -weight @ (probability * rows["worth"]).sum((1, 2))

    return loss
