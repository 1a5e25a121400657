"""What a trust-region model is: how the advantage is thought to behave around the policy.

It plans (step 4: where the rows of a rollout should go, by the dual), says what the update descends
(step 5), and what a step has spent of the radius.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ottrpo.core import Cost, DualProblem, DualSolution, solve_dual
from ottrpo.core.traceable import solve_rows
from ottrpo.engine.advantage import AdvantageNetwork
from ottrpo.engine.arrays import Generator, namespace, on_host, sum_of, wide
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Policy
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.update import Batch

Array = Any
# (policy, rows of a minibatch, their weights, constants) -> loss
PolicyLoss = Callable[[Policy, Batch, Array, dict[str, Array]], Array]
# (policy, rows) -> discrepancy between what the rows say and the policy
Spent = Callable[[Policy, Batch], Array]
# where a radius that binds nowhere is put, as a share of what the best plan would spend
BINDING_SHARE = 0.5
N_CANDIDATES = 8


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """What a model is told.

    Attributes:
        cost: of moving an action.
        actions: the space of actions.
        update: ``regression`` or ``ascent``; ``None`` for what suits the model.
        learn_std: whether σ is moved by the update.
        std_moves: whether σ(s) may change at all (annealed, learnt or state-dependent).
        n_candidates: sampled targets per state.
        n_sources: sampled sources per state; 0: the mean is the source.
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
    shrink: bool = True


class Model(ABC):
    """A trust-region model; one for Gaussians and one for labels may share a name.

    Class attributes say what it needs: ``actions`` of which kind, and which estimates of the
    ``advantages`` it can use; what it cannot do with the options it is given, it refuses when it is
    made.
    """

    name: ClassVar[str]
    actions: ClassVar[type[BoxActions] | type[FiniteActions]]
    advantages: ClassVar[tuple[str, ...]]
    samples: ClassVar[bool] = False  # whether it draws candidates

    def __init__(self, options: Options) -> None:
        self.options = options
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
    def plan(
        self,
        batch: Experience,
        advantage_r: Array,
        radius: Array,
        network: AdvantageNetwork | None,
        draws: Any,
    ) -> Plan:
        """Step 4: the dual problem of the model, solved, and where to go.

        Args:
            batch: the rollout.
            advantage_r: of the actions that were taken.
            radius: ε.
            network: a learned advantage, if that is what is used.
            draws: of `draw`.
        """

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

    def state_rows(self, batch: Experience) -> dict[str, Any]:
        """The states of the rows, for a cost that depends on them."""
        return {"state": batch.state} if self.options.cost.depends_on_state else {}


class Rows(NamedTuple):
    """A `DualProblem` as arrays, of NumPy or of JAX."""

    weight_r: Array
    gain_rk: Array
    cost_rk: Array
    radius: Array
    allowed_rk: Array | None
    stay_r: Array

    def solve(self) -> DualSolution:
        """The minimiser of its dual."""
        return solve_dual(DualProblem(*self)) if on_host(self.gain_rk) else solve_rows(*self)


def solve_binding(problem: Rows, *, shrink: bool = True) -> tuple[DualSolution, Array, Array]:
    """Solve the dual; if the radius binds nowhere and ``shrink`` is set, shrink it until it does.

    At multiplier 0 the regularised advantage is flat in the policy, and gradient ascent would
    stop for good. A radius of half of what the unconstrained plan spends always binds.

    Returns:
        the solution, the radius it belongs to, and whether the asked radius was inactive.
    """
    solution = problem.solve()
    xp = namespace(problem.gain_rk)
    inactive = xp.logical_not(solution.binding)
    if not shrink:
        return solution, problem.radius, inactive
    loose, radius = inactive & (solution.spent > 0), BINDING_SHARE * solution.spent
    if not on_host(problem.gain_rk):
        radius = xp.where(loose, radius, problem.radius)
    elif not loose:
        return solution, problem.radius, inactive
    return problem._replace(radius=radius).solve(), radius, inactive


def summary(problem: Rows, solution: DualSolution) -> dict[str, Array]:
    """What is worth logging about a solved candidate problem."""
    xp = namespace(problem.gain_rk)
    near, far, split = solution.nearest_r, solution.farthest_r, solution.split
    moved = (near != problem.stay_r) | ((far != problem.stay_r) & (split < 1))
    mass = problem.weight_r.sum()
    divided = sum_of(problem.weight_r, near != far) / mass
    row = xp.arange(len(near))
    gain_r = split * problem.gain_rk[row, near] + (1.0 - split) * problem.gain_rk[row, far]
    return {
        "split_mass": xp.where((split > 0) & (split < 1), divided, 0.0),
        "active_fraction": sum_of(problem.weight_r, moved) / mass,
        # rounding, if all is well
        "dual_gap": abs(solution.value - problem.weight_r @ gain_r),
    }


def recorded(batch: Experience, *names: str) -> tuple[Array, ...]:
    """What the actor recorded, in the precision of the dual."""
    return tuple(wide(batch.drawn[name]) for name in names)
