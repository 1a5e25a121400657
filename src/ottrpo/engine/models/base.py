"""What a trust-region model is: how the advantage is thought to behave around the policy.

It plans (step 4: where the rows of a rollout should go, by the dual), says what the update descends
(step 5), and what a step has spent of the radius.

Between Gaussians whose covariance is the same, moving every point by the difference of the means
is optimal for any convex cost of the displacement, so the discrepancy is c(m, m'). For squared
costs and diagonal covariances a change of σ adds Σ_j M_jj (σ_j − σ'_j)².
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.core import Cost, DualSolution, Mahalanobis, Scaled, SquaredEuclidean, Summed
from ottrpo.engine.advantage import AdvantageNetwork
from ottrpo.engine.arrays import Generator, like, namespace, program
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Policy
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.update import Batch, Spent

Array = Any
# (policy, rows of a minibatch, their weights, constants) -> loss
PolicyLoss = Callable[[Policy, Batch, Array, dict[str, Array]], Array]
N_CANDIDATES = 8
PLAN_POINTS, STANDARD_ERRORS = 16, 4.0
# where a radius that binds nowhere is put, as a share of what the best plan would spend
BINDING_SHARE = 0.5
LEAST_SPENT = 1e-6  # that float32 tells from nothing


class Plan(NamedTuple):
    """The solved step: where the policy should go, and the dual that says so.

    Attributes:
        solution: of the dual.
        radius: the radius that was used.
        inactive: the asked radius was too large to bind; unless told not to, it was shrunk.
        rows: arrays for the loss, rows first.
        split_mass: share of the weight whose nearest and farthest targets differ.
        active_fraction: share of the weight that moves.
        dual_gap: value of the dual minus value of the plan.
    """

    solution: DualSolution
    radius: Array
    inactive: Array
    rows: dict[str, Any]
    split_mass: Array
    active_fraction: Array
    dual_gap: Array


def closed_plan(
    solution: DualSolution, radius: Array, rows: dict[str, Any], moved_rd: Array, gain: Array
) -> Plan:
    """A plan that is known in closed form, with the displacements of its rows and its gain."""
    return Plan(
        solution,
        radius,
        inactive=namespace(gain).logical_not(solution.binding),
        rows=rows,
        split_mass=0.0,
        active_fraction=moved_rd.any(1).mean(),
        dual_gap=abs(solution.value - gain),
    )


class Price(NamedTuple):
    """λ in the place of a radius, which is then what the plan of that price spends.

    Attributes:
        multiplier: λ > 0.
    """

    multiplier: Array

    def radius(self, spent: Array) -> Array:
        """Of a plan that spends so much; one that moves nothing leaves room for rounding."""
        return namespace(spent).maximum(spent, LEAST_SPENT)


class Given(NamedTuple):
    """What a plan is made from.

    Attributes:
        batch: the rollout.
        advantage_r: of the actions that were taken.
        radius: ε, or a `Price`.
        network: a learned advantage, if that is what is used.
        draws: the random numbers that the model asked for.
    """

    batch: Experience
    advantage_r: Array
    radius: Array | Price
    network: AdvantageNetwork | None = None
    draws: Any = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """What a model is told.

    Attributes:
        cost: of moving an action.
        actions: the space of actions.
        update: ``regression``, ``ascent`` or ``gain``; ``None`` for what suits the model.
        learn_std: whether σ is moved by the update.
        std_moves: whether σ(s) may change at all (annealed, learnt or state-dependent).
        n_candidates: sampled targets per state.
        n_sources: sampled sources per state; 0: the mean is the source.
        region: what the radius limits: ``transport``, ``kl`` or ``sinkhorn``.
        entropy: τ of ``sinkhorn``; ``None``: a tenth of the radius, at most.
        shrink: shrink a radius that is too large for the data: one that binds nowhere, where the
            update would have no direction, or, with ``linear``, one beyond what was tried.
    """

    cost: Cost
    actions: Any
    update: str | None = None
    learn_std: bool = False
    std_moves: bool = False
    n_candidates: int = N_CANDIDATES
    n_sources: int = 0
    region: str = "transport"
    entropy: float | None = None
    shrink: bool = True


class Model(ABC):
    """A trust-region model; one for Gaussians and one for labels may share a name.

    Class attributes say what it needs: ``actions`` of which kind, which estimates of the
    ``advantages`` it can use, and in which ``regions`` it can plan; what it cannot do with the
    options it is given, it refuses when it is made.
    """

    name: ClassVar[str]
    actions: ClassVar[type[BoxActions] | type[FiniteActions]]
    advantages: ClassVar[tuple[str, ...]]
    regions: ClassVar[tuple[str, ...]] = ("transport",)
    samples: ClassVar[bool] = False  # whether it draws candidates

    def __init__(self, options: Options) -> None:
        self.options = options
        if options.region not in self.regions:
            raise ValueError(
                f"region {options.region!r} is none of model {self.name!r} for actions like these; "
                f"allowed: {', '.join(self.regions)}"
            )
        for setting, given in (
            ("n_candidates", options.n_candidates != N_CANDIDATES),
            ("n_sources", options.n_sources > 0),
        ):
            if given and not self.samples:
                raise ValueError(
                    f"{setting} needs advantage 'network' and model 'candidates', got {self.name!r}"
                )

    def draw(self, rows: int, rng: Generator) -> Any:
        """The random numbers that a plan for so many rows needs."""
        return None

    @abstractmethod
    def plan(self, given: Given) -> Plan:
        """Step 4: the dual problem of the model, solved, and where to go."""

    @abstractmethod
    def loss(self) -> PolicyLoss:
        """Step 5: what the update minimises."""

    @abstractmethod
    def spent(self) -> Spent:
        """The realised discrepancy, as a compiled function."""

    @abstractmethod
    def region_rows(self, batch: Experience) -> dict[str, Any]:
        """What the discrepancy is measured against: the policy that acted."""

    @abstractmethod
    def typical_cost(self, batch: Experience) -> Array:
        """The unit of a radius that is a percentage: what a draw of the policy costs on average."""

    @abstractmethod
    def gained(self, policy: Policy, batch: Experience, seen: Batch, advantage_r: Array) -> Array:
        """What the step from the policy that acted to ``policy`` gains in each row, unbiased.

        Args:
            policy: the new one.
            batch: the rollout.
            seen: what the new policy sees of it.
            advantage_r: of the actions that were taken.
        """

    def state_rows(self, batch: Experience) -> dict[str, Any]:
        """The states of the rows, for a cost that depends on them."""
        return {"state": batch.state} if self.options.cost.depends_on_state else {}


class GaussianModel(Model):
    """A model for a Gaussian policy; ``moves_std`` says whether it can move σ, too."""

    actions = BoxActions
    moves_std = False

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.size: int = options.actions.size
        self.metric = quadratic_metric(options.cost, self.size)
        if options.update == "gain":
            raise ValueError("update 'gain' needs finite actions; a Gaussian's is 'regression'")
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

    def gained(self, policy: Policy, batch: Experience, seen: Batch, advantage_r: Array) -> Array:
        """To first order: A (a − m)/σ² is an unbiased slope of the expected advantage."""
        mean, std, action = batch.recorded("mean", "std", "action")
        moved = like(mean, _means(policy, seen)) - mean
        return advantage_r * ((action - mean) / std**2 * moved).sum(-1)


@eqx.filter_jit
def _means(policy: Policy, seen: Batch) -> Array:
    return policy.gaussian(seen["flat"], seen["images"])[0]


def gaussian_spent(cost: Cost, metric: Array | None, *, std_moves: bool) -> Spent:
    """Mean discrepancy between the rows' old Gaussians and the policy's, as a compiled function.

    Args:
        cost: of moving an action.
        metric: M, if the cost is (a − a')ᵀM(a − a'); needed if σ moves.
        std_moves: whether σ(s) may have changed.
    """

    @program
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

    @program
    def spent(policy: Policy, rows: Batch) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        z = jax.random.normal(jax.random.key(0), (PLAN_POINTS, *mean.shape))
        cost_jr = cost(rows["mean"] + rows["std"] * z, mean + std * z, rows.get("state"))
        return from_above(cost_jr)

    return spent


def from_above(cost_jr: Array) -> Array:
    """The mean of points j of rows r, and several standard errors of it."""
    error = jnp.sqrt(cost_jr.var(0, ddof=1).mean() / cost_jr.size)
    return cost_jr.mean() + STANDARD_ERRORS * error


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
