"""Steps 4 and 5 for Gaussian policies: three models of the advantage, one exact dual."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ottrpo.core import (
    Cost,
    DualProblem,
    LinearProblem,
    Mahalanobis,
    Scaled,
    SquaredEuclidean,
    Summed,
    antithetic_problem,
    candidates_problem,
    mean_and_sample_problem,
    solve_dual,
)
from ottrpo.deep.advantage_network import AdvantageNetwork
from ottrpo.deep.losses import (
    PolicyLoss,
    regularised_gaussian_advantage,
    towards_displaced_gaussian,
    towards_gaussian_targets,
)
from ottrpo.deep.networks import Policy
from ottrpo.deep.region import gaussian_spent
from ottrpo.deep.update import Batch

from .experience import Experience
from .plan import Plan, solve_binding, summary

Array = Any
Floats = NDArray[np.float64]
PLAN_POINTS, STANDARD_ERRORS = 16, 4.0
# a slope says nothing of actions beyond two standard deviations: on average, 4 times their cost
LINEAR_REACH = 4.0


@final
@dataclass(frozen=True)
class GaussianSteps:
    """What OTTRPO does with a Gaussian policy.

    Attributes:
        cost: of moving an action.
        size: number of action coordinates.
        model: ``linear``, ``sample``, ``antithetic`` or ``candidates``.
        update: ``regression`` or ``ascent``.
        learn_std: whether σ is moved by the update.
        std_moves: whether σ(s) may change at all (annealed, learnt or state-dependent).
        n_candidates: sampled targets per state (``candidates``).
        n_sources: sampled sources per state (``candidates``); 0: the mean is the source.
        shrink: shrink a radius that is too large for the data: one that binds nowhere, where the
            update would have no direction, or, with ``linear``, one beyond what was tried.
    """

    cost: Cost
    size: int
    model: str
    update: str
    learn_std: bool
    std_moves: bool
    n_candidates: int
    n_sources: int
    shrink: bool = True

    def __post_init__(self) -> None:
        if self.model == "linear" and self.metric is None:
            raise ValueError(
                "model 'linear' needs a quadratic cost (SquaredEuclidean, Mahalanobis, their "
                f"sums and multiples), got {self.cost!r}; use model 'sample' or 'antithetic'"
            )
        if self.model == "linear" and self.update == "ascent":
            raise ValueError(
                "update 'ascent' needs model 'sample', 'antithetic' or 'candidates'; 'linear' "
                "knows its targets in closed form"
            )
        if self.n_sources and self.model != "candidates":
            raise ValueError(
                f"n_sources needs advantage 'network' and model 'candidates', got {self.model!r}"
            )
        if self.learn_std and self.model != "linear" and not self.n_sources:
            raise ValueError(
                f"learn_std needs model 'linear', or 'candidates' with n_sources; model "
                f"{self.model!r} moves the mean only"
            )

    @property
    def metric(self) -> Floats | None:
        """M, if the cost is (a − a')ᵀM(a − a')."""
        return quadratic_metric(self.cost, self.size)

    def loss(self) -> PolicyLoss:
        """What the update minimises."""
        if self.model == "linear":
            return towards_displaced_gaussian(_compact(self.metric), learn_std=self.learn_std)
        if self.update == "ascent":
            return regularised_gaussian_advantage(self.cost, learn_std=self.learn_std)
        return towards_gaussian_targets(self.cost, learn_std=self.learn_std)

    def spent(self) -> Callable[..., Any]:
        """The realised discrepancy."""
        if self.std_moves and self.metric is None:
            return coupled_spent(self.cost)
        return gaussian_spent(self.cost, self.metric, std_moves=self.std_moves)

    def region_rows(self, batch: Experience) -> dict[str, Any]:
        """What the discrepancy is measured against: the Gaussians that acted."""
        return {"mean": batch.drawn["mean"], "std": batch.drawn["std"]} | self._state(batch)

    def typical_cost(self, batch: Experience) -> float:
        """Mean cost of moving the mean to the action that was drawn."""
        return float(np.mean(self.cost(batch.drawn["mean"], batch.drawn["action"], self._s(batch))))

    def plan(
        self,
        batch: Experience,
        advantage_r: Floats,
        radius: float,
        network: AdvantageNetwork | None,
        rng: np.random.Generator,
    ) -> Plan:
        """Step 4: build the dual problem of the model, solve it, say where to go."""
        mean, std, action = (
            batch.drawn[key].astype(np.float64) for key in ("mean", "std", "action")
        )
        if self.model == "linear":
            slope = None if network is None else network.slope(batch.flat, batch.images, mean)
            gradient = score_gradient(
                mean, std, action, advantage_r, slope, learn_std=self.learn_std
            )
            reach = LINEAR_REACH * self.typical_cost(batch)
            too_large = self.shrink and 0 < reach < radius
            plan = linear_plan(mean, std, gradient, self.metric, reach if too_large else radius)
            return replace(plan, inactive=plan.inactive or too_large)
        state = self._s(batch)
        if network is not None:
            return self._network_plan(batch, mean, std, radius, network, rng)
        build = antithetic_problem if self.model == "antithetic" else mean_and_sample_problem
        problem = build(mean, action, advantage_r, self.cost, radius, state_r=state)
        if self.model == "antithetic":
            action = np.where(advantage_r[:, None] >= 0, action, 2.0 * mean - action)
        candidate_rkd = np.stack([mean, action], axis=1)
        noise = np.zeros((len(mean), 1, self.size))
        state_rows = self._state(batch)
        return candidates_plan(problem, candidate_rkd, noise, state_rows, shrink=self.shrink)

    def _network_plan(
        self,
        batch: Experience,
        mean: Floats,
        std: Floats,
        radius: float,
        network: AdvantageNetwork,
        rng: np.random.Generator,
    ) -> Plan:
        """The paper's learned advantage: n sampled targets, from the mean or sampled sources."""
        rows, sources = len(mean), max(self.n_sources, 1)
        noise = rng.standard_normal((rows, sources, self.size))
        if not self.n_sources:
            noise[:] = 0.0
        draws = rng.standard_normal((rows, self.n_candidates, self.size))
        source = mean[:, None] + std[:, None] * noise
        candidate = mean[:, None] + std[:, None] * draws
        gain = network.gain(batch.flat, batch.images, np.concatenate([source, candidate], axis=1))
        stay_gain, move_gain = gain[:, :sources], gain[:, sources:]
        state = self._s(batch)
        spread_rkd = np.repeat(candidate, sources, axis=0)
        problem = candidates_problem(
            source.reshape(-1, self.size),
            spread_rkd,
            np.repeat(move_gain, sources, axis=0),
            self.cost,
            radius,
            stay_gain.reshape(-1),
            state_r=None if state is None else np.repeat(state, sources, axis=0),
        )
        with_source = np.concatenate([source.reshape(-1, 1, self.size), spread_rkd], axis=1)
        state_rows = self._state(batch)
        return candidates_plan(problem, with_source, noise, state_rows, shrink=self.shrink)

    def _s(self, batch: Experience) -> Array | None:
        return batch.state if self.cost.depends_on_state else None

    def _state(self, batch: Experience) -> dict[str, Any]:
        return {"state": batch.state} if self.cost.depends_on_state else {}


def coupled_spent(cost: Cost) -> Callable[[Policy, Batch], Array]:
    """What moving every point m + σz to m' + σ'z costs, as a compiled function.

    A plan between the old and the new Gaussian, so no less than their discrepancy. Its mean over
    z has no closed form for general costs. It is estimated from points of their own for every row
    and coordinate, and several standard errors are added, so that chance does not lead out of the
    region. Where σ stays and costs are those of displacements, that error is 0.
    """

    def spent(policy: Policy, rows: Batch) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        z = jax.random.normal(jax.random.key(0), (PLAN_POINTS, *mean.shape))
        cost_jr = cost(rows["mean"] + rows["std"] * z, mean + std * z, rows.get("state"))
        error = jnp.sqrt(cost_jr.var(0, ddof=1).mean() / cost_jr.size)
        return cost_jr.mean() + STANDARD_ERRORS * error

    compiled: Callable[[Policy, Batch], Array] = eqx.filter_jit(spent)
    return compiled


def quadratic_metric(cost: Cost, size: int) -> Floats | None:
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


def score_gradient(
    mean_rd: Floats,
    std_rd: Floats,
    action_rd: Floats,
    advantage_r: Floats,
    slope_rd: Floats | None,
    *,
    learn_std: bool,
) -> Floats:
    """How the expected advantage grows with the Gaussian's mean, and with σ if it may move.

    One sample per state gives the unbiased estimates A (a − m)/σ² and A (z² − 1)/σ. A learned
    advantage gives its own slope at the mean instead of the first.
    """
    z = (action_rd - mean_rd) / std_rd
    gradient = advantage_r[:, None] * z / std_rd if slope_rd is None else slope_rd
    if not learn_std:
        return gradient
    return np.concatenate([gradient, advantage_r[:, None] * (z**2 - 1.0) / std_rd], axis=1)


def linear_plan(
    mean_rd: Floats, std_rd: Floats, gradient_rd: Floats, metric: Floats | None, radius: float
) -> Plan:
    """The advantage to first order around the Gaussian, A(s, a') = g(s)·(a' − m(s)).

    The best move of every state is known in closed form, m + M⁻¹g/(2λ), and the budget always
    binds. A gradient of twice the action's size has the slope along σ in its second half: the
    squared Wasserstein distance of diagonal Gaussians is |Δm|² + |Δσ|², so they move as the
    points (m, σ).
    """
    rows, size = mean_rd.shape
    learn_std = gradient_rd.shape[1] == 2 * size
    problem = LinearProblem(
        np.full(rows, 1.0 / rows),
        gradient_rd,
        radius,
        _compact(_with_std(metric, size) if learn_std else metric),
    )
    solution = solve_dual(problem)
    displacement_rd = solution.nearest_r
    targets = {"target_mean": mean_rd + displacement_rd[:, :size]}
    if learn_std:
        targets["target_std"] = np.maximum(std_rd + displacement_rd[:, size:], 0.0)
    primal = float((gradient_rd * displacement_rd).sum() / rows)
    return Plan(
        solution,
        radius,
        inactive=not solution.binding,
        rows=targets,
        split_mass=0.0,
        active_fraction=float(displacement_rd.any(1).mean()),
        dual_gap=abs(solution.value - primal),
    )


def candidates_plan(
    problem: DualProblem,
    candidate_rkd: Floats,
    noise_sjd: Floats,
    state: dict[str, Any],
    *,
    shrink: bool = True,
) -> Plan:
    """Solve a candidate problem whose rows are the sources j of the states s, in that order.

    The targets are those of the nearest and the farthest map, with shares t* and 1 − t*. Source j
    of a state is its mean plus σ times ``noise_sjd``.
    """
    solution, radius, inactive = solve_binding(problem, shrink=shrink)
    row = np.arange(problem.rows)
    near, far = candidate_rkd[row, solution.nearest_r], candidate_rkd[row, solution.farthest_r]
    leading = noise_sjd.shape[:2]
    shares = np.array([solution.split, 1.0 - solution.split])

    def by_state(array: Array) -> Array:
        return array.reshape(*leading, *array.shape[1:])

    rows = {
        "noise": noise_sjd,
        "target": by_state(np.stack([near, far], axis=1)),
        "share": np.broadcast_to(shares, (*leading, 2)),
        "candidate": by_state(candidate_rkd),
        "gain": by_state(problem.gain_rk),
    }
    return Plan(solution, radius, inactive, rows | state, **summary(problem, solution))


def _with_std(metric: Floats | None, size: int) -> Floats:
    full = np.eye(2 * size)
    if metric is not None:
        full[:size, :size] = metric
        full[size:, size:] = np.diag(np.diag(metric))
    return full


def _compact(metric: Floats | None) -> Floats | None:
    """``None`` stands for the identity, and saves its product."""
    if metric is None or np.array_equal(metric, np.eye(len(metric))):
        return None
    return metric
