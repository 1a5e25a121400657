"""The mathematics of the paper's sections 3 and 4: pure functions on arrays."""

from .cost_data import register_cost
from .costs import (
    Binary,
    Cost,
    Mahalanobis,
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
from .improvement import improvement_bound, surrogate
from .problems import (
    DualProblem,
    FiniteProblem,
    LinearProblem,
    antithetic_problem,
    candidates_problem,
    finite_problem,
    mean_and_sample_problem,
)
from .solution import DualSolution, split_weight
from .traceable import solve_linear, solve_rows
from .transport_maps import PolicyUpdate, push_forward, update_policy

__all__ = [
    "Audit",
    "Binary",
    "Cost",
    "DualProblem",
    "DualSolution",
    "FiniteProblem",
    "LinearProblem",
    "Mahalanobis",
    "PNorm",
    "PolicyUpdate",
    "Scaled",
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
    "mean_and_sample_problem",
    "mean_shift_squared",
    "push_forward",
    "register_cost",
    "regularised_advantage",
    "solve_dual",
    "solve_linear",
    "solve_rows",
    "split_weight",
    "surrogate",
    "total_variation",
    "update_policy",
    "violation",
]
