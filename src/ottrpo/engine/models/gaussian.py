"""What the models of Gaussian policies share: the discrepancy, and candidates as targets.

Between Gaussians whose covariance is the same, moving every point by the difference of the means
is optimal for any convex cost of the displacement, so the discrepancy is c(m, m'). For squared
costs and diagonal covariances a change of σ adds Σ_j M_jj (σ_j − σ'_j)².
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.core import Cost, Mahalanobis, Scaled, SquaredEuclidean, Summed
from ottrpo.engine.arrays import like, namespace
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Policy
from ottrpo.engine.spaces import BoxActions
from ottrpo.engine.update import Batch

from .base import Model, Options, Plan, PolicyLoss, Rows, Spent, solve_binding, summary

Array = Any
PLAN_POINTS, STANDARD_ERRORS = 16, 4.0


class GaussianModel(Model):
    """A model for a Gaussian policy; ``moves_std`` says whether it can move σ, too."""

    actions = BoxActions
    moves_std = False

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.size: int = options.actions.size
        self.metric = quadratic_metric(options.cost, self.size)
        if options.learn_std and not self.moves_std:
            raise ValueError(
                f"learn_std needs model 'linear', or 'candidates' with n_sources; model "
                f"{self.name!r} moves the mean only"
            )

    def spent(self) -> Spent:
        """The realised discrepancy."""
        if self.options.std_moves and self.metric is None:
            return coupled_spent(self.options.cost)
        return gaussian_spent(self.options.cost, self.metric, std_moves=self.options.std_moves)

    def region_rows(self, batch: Experience) -> dict[str, Any]:
        """The Gaussians that acted."""
        return {key: batch.drawn[key] for key in ("mean", "std")} | self.state_rows(batch)

    def typical_cost(self, batch: Experience) -> Array:
        """Mean cost of moving the mean to the action that was drawn."""
        drawn, state = batch.drawn, self.state_rows(batch).get("state")
        return like(batch.flat, self.options.cost(drawn["mean"], drawn["action"], state).mean())


class CandidatesModel(GaussianModel):
    """A model with finitely many targets for every source."""

    def loss(self) -> PolicyLoss:
        """Regression on the targets, or the paper's ascent."""
        ascends = self.options.update == "ascent"
        loss = regularised_gaussian_advantage if ascends else towards_gaussian_targets
        return loss(self.options.cost, learn_std=self.options.learn_std)

    def towards(
        self,
        batch: Experience,
        gain_rk: Array,
        candidate_rkd: Array,
        noise_sjd: Array,
        radius: Array,
    ) -> Plan:
        """The plan whose rows are the sources j of the states s; candidate 0 is the source."""
        state = self.state_rows(batch)
        sources = noise_sjd.shape[1]
        state_r = None if not state else state["state"].repeat(sources, axis=0)[:, None]
        xp = namespace(gain_rk)
        moved_rk = self.options.cost(candidate_rkd[:, :1], candidate_rkd[:, 1:], state_r)
        rows = len(gain_rk)
        problem = Rows(
            xp.full(rows, 1.0 / rows),
            gain_rk,
            xp.concatenate([xp.zeros((rows, 1)), moved_rk], axis=1),
            radius,
            None,
            xp.zeros(rows, dtype=int),
        )
        return candidates_plan(problem, candidate_rkd, noise_sjd, state, self.options.shrink)


def candidates_plan(
    problem: Rows, candidate_rkd: Array, noise_sjd: Array, state: dict[str, Any], shrink: bool
) -> Plan:
    """Solve a candidate problem whose rows are the sources j of the states s, in that order.

    The targets are those of the nearest and the farthest map, with shares t* and 1 − t*. Source j
    of a state is its mean plus σ times ``noise_sjd``.
    """
    solution, radius, inactive = solve_binding(problem, shrink=shrink)
    xp = namespace(candidate_rkd)
    row = xp.arange(len(candidate_rkd))
    near, far = candidate_rkd[row, solution.nearest_r], candidate_rkd[row, solution.farthest_r]
    leading = noise_sjd.shape[:2]
    shares = xp.stack([xp.asarray(solution.split), 1.0 - xp.asarray(solution.split)])

    def by_state(array: Array) -> Array:
        return array.reshape(*leading, *array.shape[1:])

    rows = {
        "noise": noise_sjd,
        "target": by_state(xp.stack([near, far], axis=1)),
        "share": xp.broadcast_to(shares, (*leading, 2)),
        "candidate": by_state(candidate_rkd),
        "gain": by_state(problem.gain_rk),
    }
    return Plan(solution, radius, inactive, rows | state, **summary(problem, solution))


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


def regularised_gaussian_advantage(cost: Cost, *, learn_std: bool) -> PolicyLoss:
    """The paper's ascent: maximise mean_r mean_j max_k { A_rjk − λ c(a_θ,rj, a_rjk) }."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        source = _sources(policy, rows, learn_std=learn_std)
        moved = cost(source[:, :, None], rows["candidate"], _state(rows))
        return -weight @ (rows["gain"] - constants["multiplier"] * moved).max(-1).mean(-1)

    return loss


def gaussian_spent(cost: Cost, metric: Array | None, *, std_moves: bool) -> Spent:
    """Mean discrepancy between the rows' old Gaussians and the policy's, as a compiled function.

    Args:
        cost: of moving an action.
        metric: M, if the cost is (a − a')ᵀM(a − a'); needed if σ moves.
        std_moves: whether σ(s) may have changed.
    """

    @eqx.filter_jit
    def spent(policy: Policy, rows: Batch) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        old_mean, old_std, state = rows["mean"], rows["std"], rows.get("state")
        total = cost(old_mean, mean, state).mean()
        if std_moves:
            scale = jnp.diagonal(jnp.asarray(metric, jnp.float32))
            total += (scale * (std - old_std) ** 2).sum(-1).mean()
        return total

    return spent


def coupled_spent(cost: Cost) -> Spent:
    """What moving every point m + σz to m' + σ'z costs, as a compiled function.

    A plan between the old and the new Gaussian, so no less than their discrepancy. Its mean over
    z has no closed form for general costs. It is estimated from points of their own for every row
    and coordinate, and several standard errors are added, so that chance does not lead out of the
    region. Where σ stays and costs are those of displacements, that error is 0.
    """

    @eqx.filter_jit
    def spent(policy: Policy, rows: Batch) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        z = jax.random.normal(jax.random.key(0), (PLAN_POINTS, *mean.shape))
        cost_jr = cost(rows["mean"] + rows["std"] * z, mean + std * z, rows.get("state"))
        error = jnp.sqrt(cost_jr.var(0, ddof=1).mean() / cost_jr.size)
        return cost_jr.mean() + STANDARD_ERRORS * error

    return spent


def quadratic_metric(cost: Cost, size: int) -> Array | None:
    """M of a cost (a − a')ᵀM(a − a'); ``None`` if the cost is not of that form."""
    if isinstance(cost, SquaredEuclidean):
        return np.eye(size)
    if isinstance(cost, Mahalanobis):
        return cost.metric
    if isinstance(cost, Scaled):
        inner = quadratic_metric(cost.cost, size)
        return None if inner is None else cost.factor * inner
    if isinstance(cost, Summed):
        first, second = quadratic_metric(cost.first, size), quadratic_metric(cost.second, size)
        return None if first is None or second is None else first + second
    return None


def _sources(policy: Policy, rows: Batch, *, learn_std: bool) -> Array:
    """The policy's actions [r, j, d] for the noise that each source was drawn with."""
    mean, std = policy.gaussian(rows["flat"], rows["images"])
    std = std if learn_std else jax.lax.stop_gradient(std)
    return mean[:, None] + std[:, None] * rows["noise"]


def _state(rows: Batch) -> Array | None:
    """The state of each row for costs that depend on it, against [r, j, k] actions."""
    state = rows.get("state")
    return None if state is None else state[:, None, None]
