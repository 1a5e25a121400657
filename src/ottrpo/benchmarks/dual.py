"""The exact dual solver beside SciPy's scalar minimiser.

The reference minimises the same G(λ) on the same arrays, as the paper does; a second reference does
so with G written for two candidates by hand.
"""

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ottrpo.core import DualProblem, TableCost, dual_value, finite_problem, solve_dual
from ottrpo.core.checks import Floats

from .harness import Benchmark, Figures, Row, in_turns

SEED = 0
RADIUS_SHARE = 0.1  # of what moving every sample would cost
GROWTH_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def sample_problem(rows: int) -> DualProblem:
    """Gaussian advantages and squared distances of sampled actions: the rows of a rollout."""
    rng = np.random.default_rng(SEED)
    gain_rk, cost_rk = np.zeros((rows, 2)), np.zeros((rows, 2))
    gain_rk[:, 1] = rng.standard_normal(rows)
    cost_rk[:, 1] = rng.chisquare(3, rows)
    radius = RADIUS_SHARE * float(cost_rk[:, 1].mean())
    return DualProblem(np.full(rows, 1 / rows), gain_rk, cost_rk, radius)


def taxi_sized_problem() -> DualProblem:
    """500 states, 6 actions, a general asymmetric cost."""
    rng = np.random.default_rng(SEED)
    policy_sa, occupancy_s = rng.dirichlet(np.ones(6), 500), rng.dirichlet(np.ones(500))
    cost = TableCost((0.5 + rng.random((6, 6))) * (1 - np.eye(6)))
    return finite_problem(policy_sa, occupancy_s, rng.standard_normal((500, 6)), cost, 0.01).dual


def by_hand(problem: DualProblem) -> Callable[[float], float]:
    """G for two candidates, the first of which stays, with as few operations as NumPy allows."""
    gain_r, cost_r = problem.gain_rk[:, 1].copy(), problem.cost_rk[:, 1].copy()
    weight_r, radius = problem.weight_r, problem.radius

    def dual(multiplier: float) -> float:
        moved: Floats = np.maximum(gain_r - multiplier * cost_r, 0.0)
        return multiplier * radius + float(weight_r @ moved)

    return dual


def compare(name: str, problem: DualProblem, seconds: float) -> Row:
    """Time the exact solver against `minimize_scalar` on one problem."""
    from scipy.optimize import minimize_scalar

    functions: dict[str, Callable[[], object]] = {
        "exact": partial(solve_dual, problem),
        "minimise": partial(minimize_scalar, partial(dual_value, problem)),
    }
    if problem.gain_rk.shape[1] == 2:
        functions["minimise_by_hand"] = partial(minimize_scalar, by_hand(problem))
    best: Row = {"minimise_by_hand": None} | in_turns(functions, seconds)
    lean = best["minimise_by_hand"]
    return {
        "problem": name,
        **{key: best[key] for key in ("exact", "minimise", "minimise_by_hand")},
        "ratio": best["minimise"] / best["exact"],
        "ratio_by_hand": lean and lean / best["exact"],
    }


def growth(sizes: Sequence[int], seconds: float) -> list[Row]:
    """Time, also over N log N (1 for the first), and peak memory over that of the problem."""
    measured: list[Row] = []
    first = 0.0
    for rows in sizes:
        problem = sample_problem(rows)
        best = in_turns({"exact": partial(solve_dual, problem)}, seconds)["exact"]
        unit = best / (rows * np.log(rows))
        first = first or unit
        given = problem.weight_r.nbytes + problem.gain_rk.nbytes + problem.cost_rk.nbytes
        tracemalloc.start()
        solve_dual(problem)
        peak = given + tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        row = {"rows": rows, "seconds": best, "per_row_log": unit / first}
        measured.append(row | {"peak_over_input": peak / given})
    return measured


@dataclass(frozen=True, kw_only=True)
class Dual(Benchmark):
    """The exact dual solver beside SciPy's scalar minimiser, and how it grows."""

    titles: ClassVar = {
        "comparisons": "exact solver against scipy.optimize.minimize_scalar, seconds",
        "growth": "growth (two candidates per row)",
    }

    def measure(self) -> Figures:
        """Two problems, with a million rows three; then growing ones."""
        seconds = 0.5 if self.quick else 2.0
        comparisons = [
            compare("1,024 sample rows", sample_problem(1024), seconds),
            compare("Taxi-sized, general cost", taxi_sized_problem(), seconds),
        ]
        if not self.quick:
            million = sample_problem(1_000_000)
            comparisons.append(compare("1,000,000 sample rows", million, 2 * seconds))
        sizes = GROWTH_SIZES[:3] if self.quick else GROWTH_SIZES
        return {"comparisons": comparisons, "growth": growth(sizes, seconds / 2)}
