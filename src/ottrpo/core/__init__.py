"""The mathematics of the paper's sections 3 and 4: pure functions on arrays."""

from .cost_data import register_cost
from .costs import (
    Binary,
    Cost,
    Mahalanobis,
    Ordinal,
    PNorm,
    Scaled,
    SquaredEuclidean,
    StateCost,
    Summed,
    TableCost,
)
from .discrepancy import (
    Audit,
    audit,
    average_discrepancy,
    discrepancy,
    discrepancy_by_state,
    gaussian_w2_squared,
    mean_shift_squared,
    total_variation,
    violation,
)
from .dual import dual_value, regularised_advantage, solve_dual
from .entropic import SinkhornProblem, SinkhornSolution, kl_problem, solve_sinkhorn
from .improvement import improvement_bound, surrogate
from .nearby import Nearby
from .priced import multiplier_of_step, solve_at
from .problems import (
    DualProblem,
    FiniteProblem,
    LinearProblem,
    antithetic_problem,
    candidates_problem,
    finite_problem,
    mean_and_sample_problem,
)
from .sensitivity import sensitivity_cost
from .solution import DualSolution, split_weight
from .traceable import rows_at, solve_linear, solve_rows
from .transport_maps import PolicyUpdate, push_forward, push_plan, update_policy

__all__ = [
    "Audit",
    "Binary",
    "Cost",
    "DualProblem",
    "DualSolution",
    "FiniteProblem",
    "LinearProblem",
    "Mahalanobis",
    "Nearby",
    "Ordinal",
    "PNorm",
    "PolicyUpdate",
    "Scaled",
    "SinkhornProblem",
    "SinkhornSolution",
    "SquaredEuclidean",
    "StateCost",
    "Summed",
    "TableCost",
    "antithetic_problem",
    "audit",
    "average_discrepancy",
    "candidates_problem",
    "discrepancy",
    "discrepancy_by_state",
    "dual_value",
    "finite_problem",
    "gaussian_w2_squared",
    "improvement_bound",
    "kl_problem",
    "mean_and_sample_problem",
    "mean_shift_squared",
    "multiplier_of_step",
    "push_forward",
    "push_plan",
    "register_cost",
    "regularised_advantage",
    "rows_at",
    "sensitivity_cost",
    "solve_at",
    "solve_dual",
    "solve_linear",
    "solve_rows",
    "solve_sinkhorn",
    "split_weight",
    "surrogate",
    "total_variation",
    "update_policy",
    "violation",
]
