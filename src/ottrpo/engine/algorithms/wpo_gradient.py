"""Wasserstein policy optimisation of Pfau et al. (2025): a gradient flow, projected on policies.

In the Wasserstein geometry the steepest ascent of E Q moves every action along ∇ₐQ. A family of
policies follows it as well as it can by

    dθ/dt = F⁻¹ E[ ∇_θ ∇ₐ log π_θ(a|s) · ∇ₐQ(s, a) ]

with F the Fisher information. Of a Gaussian's outputs F is diagonal, 1/σ² for the mean and 2/σ² for
σ, and so the gradient that reaches the network is multiplied by σ² and σ²/2. A penalty holds the
policy near the one that acted: KL divergences of its mean and of its σ, each with a weight.
"""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from ottrpo.engine.networks import Policy
from ottrpo.engine.update import Batch

from .pathwise import Pathwise, action_slopes, normals

Array = Any


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class WassersteinFlow(Pathwise):
    """Steps of the projected flow.

    Attributes:
        kl_mean: weight of the divergence of the means.
        kl_std: weight of the divergence of the standard deviations.
    """

    kl_mean: float
    kl_std: float

    def policy_loss(
        self, policy: Policy, rows: Batch, weight: Array, constants: dict[str, Any]
    ) -> tuple[Array, dict[str, Array]]:
        """The flow's gradient, and the penalty's."""
        mean, std = policy.gaussian(rows["flat"], ())
        z = normals(rows["seed"], self.n_samples, mean.shape[-1])
        action = jax.lax.stop_gradient(mean[:, None] + std[:, None] * z)
        slope = action_slopes(constants["critics"], rows["flat"], action)
        ascent = weight @ flow(mean, std, action, slope)
        of_mean, of_std = decoupled_kl(constants["before"].gaussian(rows["flat"], ()), mean, std)
        penalty = self.kl_mean * of_mean + self.kl_std * of_std
        terms = {
            "slope": jnp.sqrt(weight @ (slope.mean(1) ** 2).sum(-1)),
            "kl_mean": weight @ of_mean,
            "kl_std": weight @ of_std,
        }
        return weight @ penalty - ascent, terms


def flow(mean_rd: Array, std_rd: Array, action_rkd: Array, slope_rkd: Array) -> Array:
    """A function [r] of mean and σ whose gradient is that of the projected flow.

    mean_k ∇ₐ log π(a_k) · ∇ₐQ(a_k), with F⁻¹ on its way back. Actions and slopes are constants.
    """
    fixed_mean, fixed_std = (jax.lax.stop_gradient(x) for x in (mean_rd, std_rd))
    mean = fixed_mean + fixed_std**2 * (mean_rd - fixed_mean)
    std = fixed_std + 0.5 * fixed_std**2 * (std_rd - fixed_std)
    score = -(action_rkd - mean[:, None]) / std[:, None] ** 2
    return (score * jax.lax.stop_gradient(slope_rkd)).sum(-1).mean(1)


def decoupled_kl(before: tuple[Array, Array], mean: Array, std: Array) -> tuple[Array, Array]:
    """KL(old | new) [r] where only the mean has changed, and where only σ has."""
    old_mean, old_std = before
    of_mean = ((mean - old_mean) ** 2 / (2.0 * old_std**2)).sum(-1)
    ratio = old_std / std
    of_std = (0.5 * (ratio**2 - 1.0) - jnp.log(ratio)).sum(-1)
    return of_mean, of_std
