"""The advantage to first order around the Gaussian: all actions are candidates."""

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from ottrpo.core.traceable import lift, solve_linear
from ottrpo.engine.arrays import namespace
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Policy
from ottrpo.engine.update import Batch, Spent

from .base import GaussianModel, Given, Options, Plan, PolicyLoss, Price, closed_plan
from .divergence import (
    gaussian_kl,
    gaussian_kl_plan,
    gaussian_kl_spent,
    gaussian_kl_spent_at,
    towards_gaussian_in_nats,
)

Array = Any
# a slope says nothing of actions beyond two standard deviations: on average, 4 times their cost
LINEAR_REACH = 4.0


@final
class Linear(GaussianModel):
    """A(s, a') = g(s)·(a' − m(s)), with g from one sample per state or from a learned advantage."""

    name = "linear"
    advantages = ("gae", "network", "mixed")
    regions = ("transport", "kl")
    moves_std = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if self.metric is None:
            raise ValueError(
                "model 'linear' needs a quadratic cost (SquaredEuclidean, Mahalanobis, their "
                f"sums and multiples), got {options.cost!r}; use model 'sample' or 'antithetic'"
            )
        if options.update == "ascent":
            raise ValueError(
                "update 'ascent' needs model 'sample', 'antithetic' or 'candidates'; 'linear' "
                "knows its targets in closed form"
            )

    def plan(self, given: Given) -> Plan:
        """Slopes, and where they lead within the radius, or within what was tried."""
        batch, options, radius = given.batch, self.options, given.radius
        mean, std, action = given.batch.recorded("mean", "std", "action")
        slope = None
        if given.network is not None:
            slope = given.network.slope(batch.flat, batch.images, mean)
        gradient = score_gradient(
            mean, std, action, given.advantage_r, slope, learn_std=options.learn_std
        )
        if isinstance(radius, Price):
            radius = self._spent_at(radius, std, gradient)
        reach = LINEAR_REACH * self.typical_cost(batch)
        too_large = options.shrink & (reach > 0) & (reach < radius)
        within = namespace(mean).where(too_large, reach, radius)
        if options.region == "kl":
            plan = gaussian_kl_plan(mean, std, gradient, within)
        else:
            plan = linear_plan(mean, std, gradient, self.metric, within)
        return plan._replace(inactive=plan.inactive | too_large)

    def _spent_at(self, price: Price, std_rd: Array, gradient_rd: Array) -> Array:
        """What the best step at a price spends."""
        if self.options.region == "kl":
            return price.radius(gaussian_kl_spent_at(std_rd, gradient_rd, price))
        metric = _metric(self.metric, self.size, learn_std=self.options.learn_std)
        _, energy = lift(_alike(gradient_rd), gradient_rd, metric)
        return price.radius(energy / (4.0 * price.multiplier**2))

    def loss(self) -> PolicyLoss:
        """Regression on the targets."""
        if self.options.region == "kl":
            return towards_gaussian_in_nats(learn_std=self.options.learn_std)
        return towards_displaced_gaussian(compact(self.metric), learn_std=self.options.learn_std)

    def spent(self) -> Spent:
        """The realised discrepancy, or the divergence."""
        return gaussian_kl_spent() if self.options.region == "kl" else super().spent()

    def typical_cost(self, batch: Experience) -> Array:
        """Mean cost, or divergence, of moving the mean to the action that was drawn."""
        if self.options.region == "transport":
            return super().typical_cost(batch)
        mean, std, action = batch.recorded("mean", "std", "action")
        return gaussian_kl((mean, std), (action, std)).mean()


def score_gradient(
    mean_rd: Array,
    std_rd: Array,
    action_rd: Array,
    advantage_r: Array,
    slope_rd: Array | None,
    *,
    learn_std: bool,
) -> Array:
    """How the expected advantage grows with the Gaussian's mean, and with σ if it may move.

    One sample per state gives the unbiased estimates A (a − m)/σ² and A (z² − 1)/σ. A learned
    advantage gives its own slope at the mean instead of the first.
    """
    z = (action_rd - mean_rd) / std_rd
    gradient = advantage_r[:, None] * z / std_rd if slope_rd is None else slope_rd
    if not learn_std:
        return gradient
    along_std = advantage_r[:, None] * (z**2 - 1.0) / std_rd
    return namespace(z).concatenate([gradient, along_std], axis=1)


def linear_plan(
    mean_rd: Array, std_rd: Array, gradient_rd: Array, metric: Array | None, radius: Array
) -> Plan:
    """The best move of every state is known in closed form, m + M⁻¹g/(2λ); the budget binds.

    A gradient of twice the action's size has the slope along σ in its second half: the squared
    Wasserstein distance of diagonal Gaussians is |Δm|² + |Δσ|², so they move as the points (m, σ).
    """
    rows, size = mean_rd.shape
    xp = namespace(mean_rd)
    learn_std = gradient_rd.shape[1] == 2 * size
    within = _metric(metric, size, learn_std=learn_std)
    solution = solve_linear(_alike(gradient_rd), gradient_rd, radius, within)
    displacement_rd = solution.nearest_r
    targets = {"target_mean": mean_rd + displacement_rd[:, :size]}
    if learn_std:
        targets["target_std"] = xp.maximum(std_rd + displacement_rd[:, size:], 0.0)
    primal = (gradient_rd * displacement_rd).sum() / rows
    return closed_plan(solution, radius, targets, displacement_rd, primal)


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


def _alike(gradient_rd: Array) -> Array:
    """The same weight for all rows."""
    rows = len(gradient_rd)
    return namespace(gradient_rd).full(rows, 1.0 / rows)


def _metric(metric: Array | None, size: int, *, learn_std: bool) -> Array | None:
    """Of all that moves."""
    return compact(_with_std(metric, size) if learn_std else metric)


def _with_std(metric: Array | None, size: int) -> Array:
    full = np.eye(2 * size)
    if metric is not None:
        full[:size, :size] = metric
        full[size:, size:] = np.diag(np.diag(metric))
    return full


def compact(metric: Array | None) -> Array | None:
    """``None`` stands for the identity, and saves its product."""
    if metric is None or np.array_equal(metric, np.eye(len(metric))):
        return None
    return metric
