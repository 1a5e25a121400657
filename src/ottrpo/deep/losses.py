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
    """policy loss + vf_coef · mean squared error of the value function."""

    def loss(
        networks: Networks, rows: Batch, weight: Array, constants: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        value = networks.value(rows["flat"], rows["images"])
        value_loss = weight @ (value - rows["return"]) ** 2
        policy = policy_loss(networks.policy, rows, weight, constants)
        return policy + vf_coef * value_loss, {"policy_loss": policy, "value_loss": value_loss}

    return loss


def towards_gaussian_targets(cost: Cost) -> PolicyLoss:
    """Regression of a Gaussian's mean on where the transport maps send it.

    minimises mean_r Σ_k share_rk c(m_θ(s_r), target_rk), the cost of the plan that is left to be
    done. The targets are those of the nearest and the farthest map, with shares t* and 1 − t*.
    """

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        mean, _ = policy.gaussian(rows["flat"], rows["images"])
        return weight @ (rows["share"] * cost(mean[:, None], rows["target"])).sum(-1)

    return loss


def towards_displaced_gaussian(metric: Array | None, *, learn_std: bool) -> PolicyLoss:
    """Regression on the linear model's targets, m + M⁻¹g/(2λ), in the metric M of the cost.

    Up to a constant and the factor λ this is the paper's regularised advantage
    g·(m_θ − m) − λ (m_θ − m)ᵀM(m_θ − m). With ``learn_std`` the standard deviation has a target
    of its own: for squared costs Gaussians move like points (m, σ).
    """

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        if not learn_std:
            policy = jax.lax.stop_gradient(policy)
        gap = mean - rows["target_mean"]
        pull = gap if metric is None else gap @ metric
        total = weight @ (pull * gap).sum(-1)
        if learn_std:
            scale = 1.0 if metric is None else jnp.diagonal(metric)
            total += weight @ (scale * (std - rows["target_std"]) ** 2).sum(-1)
        return total

    return loss


def regularised_gaussian_advantage(cost: Cost) -> PolicyLoss:
    """The paper's ascent: maximise mean_r max_k { A_rk − λ c(m_θ(s_r), a_rk) }."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        mean, _ = policy.gaussian(rows["flat"], rows["images"])
        moved = cost(mean[:, None], rows["candidate"])
        return -weight @ (rows["gain"] - constants["multiplier"] * moved).max(-1)

    return loss


def choice_log_probabilities(policy: Policy, rows: Batch, choices: int) -> Array:
    """log π(k | s, factor) [r, f, k]; what is not allowed has probability 0."""
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
