"""Wasserstein proximal policy gradient (Zhu et al. 2026): transport, then heat.

With an entropy bonus of weight τ, a proximal step of size η in the Wasserstein geometry is split
into two that are simple:

    transport   every action goes where Q(s, a') − |a' − a|²/(2η) is largest
    heat        and is blurred by Gaussian noise of variance 2ητ

The first is a' = a + η ∇ₐQ(s, a'): a map, found by iterating it, from which a Gaussian takes what
a Gaussian can, the change of its mean and of the slope in its own noise. Where the step leads is
fixed before the policy moves, and is then regressed on; or gradient steps would know of no η. The
transport is our linear model at a price, λ = 1/(2η), with slopes of critics.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp

from ottrpo.engine.critic import Twins
from ottrpo.engine.models.base import PolicyLoss
from ottrpo.engine.models.linear import towards_displaced_gaussian
from ottrpo.engine.networks import Policy
from ottrpo.engine.update import Batch, compiled

from .pathwise import Pathwise, action_slopes, normals

Array = Any


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ProximalTransport(Pathwise):
    """Regression on proximal steps.

    Attributes:
        step: η.
        temperature: τ.
        prox_steps: iterations of the map; 1: the slope where the action was.
    """

    step: float
    temperature: float
    prox_steps: int

    @cached_property
    def plan(self) -> Any:
        """The compiled targets of states in minibatches, one of these at a time."""

        def plan(critics: Twins, policy: Policy, chunks: tuple[Array, Array]) -> Any:
            def one(chunk: tuple[Array, Array]) -> tuple[Array, Array]:
                flat, seed = chunk
                mean, std = policy.gaussian(flat, ())
                z = normals(seed, self.n_samples, mean.shape[-1])
                source = mean[:, None] + std[:, None] * z
                moved = proximal_step(critics, flat, source, self.step, self.prox_steps)
                heat = 2.0 * self.step * self.temperature
                return gaussian_targets(mean, std, z, moved - source, heat)

            return jax.lax.map(one, chunks)

        return compiled(plan)

    @cached_property
    def regression(self) -> PolicyLoss:
        """What is left of the step, in the squared Wasserstein distance."""
        return towards_displaced_gaussian(None, learn_std=True)

    def targets(self, critics: Twins, policy: Policy, rows: Batch) -> Batch:
        """Where the step leads the mean and σ of every state."""
        chunks = tuple(
            rows[key].reshape(-1, self.batch_size, *rows[key].shape[1:]) for key in ("flat", "seed")
        )
        mean, std = (x.reshape(-1, x.shape[-1]) for x in self.plan(critics, policy, chunks))
        return {"target_mean": mean, "target_std": std}

    def policy_loss(
        self, policy: Policy, rows: Batch, weight: Array, constants: dict[str, Any]
    ) -> tuple[Array, dict[str, Array]]:
        """Regression."""
        left = self.regression(policy, rows, weight, constants)
        return left, {"policy_loss": left}


def proximal_step(
    critics: Any, flat_rf: Array, action_rkd: Array, step: float, iterations: int
) -> Array:
    """Where Q(s, a') − |a' − a|²/(2η) is largest, by a' ← a + η ∇ₐQ(s, a') from a' = a.

    A contraction where η times the curvature of Q is below 1.
    """

    def iterate(_: int, moved: Array) -> Array:
        return action_rkd + step * action_slopes(critics, flat_rf, moved)

    return jax.lax.fori_loop(0, iterations, iterate, action_rkd)


def gaussian_targets(
    mean_rd: Array, std_rd: Array, z_rkd: Array, displacement_rkd: Array, heat: Array
) -> tuple[Array, Array]:
    """The Gaussian nearest to the displaced samples m + σz + δ, blurred by a variance ``heat``.

    Least squares in m' + σ'z: the mean of δ moves the mean, and its slope in z moves σ.
    """
    centred = z_rkd - z_rkd.mean(1, keepdims=True)
    spread = jnp.maximum((centred**2).sum(1), 1e-6)
    slope = (centred * displacement_rkd).sum(1) / spread
    shift = displacement_rkd.mean(1) - slope * z_rkd.mean(1)
    return mean_rd + shift, jnp.sqrt((std_rd + slope) ** 2 + heat)
