"""The exact dual solver beside SciPy's scalar minimiser, measured side by side in one run.

Every figure is a ratio of two times taken alternately, the best of several rounds each, so that
a busy machine slows both alike. The reference minimises the same G(λ) on the same arrays, as the
paper does; a second reference does so with G written for two candidates by hand.
"""

import argparse
import json
import time
import timeit
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from ottrpo.core import DualProblem, TableCost, dual_value, finite_problem, solve_dual
from ottrpo.core.checks import Floats

SEED = 0
RADIUS_SHARE = 0.1  # of what moving every sample would cost
TURN = 5e-3  # seconds
GROWTH_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class Comparison:
    """Seconds of the exact solver and of the references, and their ratios."""

    name: str
    exact: float
    minimise: float
    minimise_by_hand: float | None
    ratio: float
    ratio_by_hand: float | None


@dataclass(frozen=True)
class Growth:
    """How time and memory grow with the number of rows."""

    rows: int
    seconds: float
    per_row_log: float  # seconds / (N log N), relative to the smallest size
    peak_over_input: float


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


def alternate(functions: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """The best time of each function, in turns for about ``seconds`` in all.

    A turn repeats a function for a few milliseconds at least, so that each is measured warm.
    """
    repeats = [max(1, int(TURN / timeit.timeit(function, number=1))) for function in functions]
    best = [np.inf] * len(functions)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for i, function in enumerate(functions):
            best[i] = min(best[i], timeit.timeit(function, number=repeats[i]) / repeats[i])
        rounds += 1
    return best


def compare(name: str, problem: DualProblem, *, hand: bool, seconds: float) -> Comparison:
    """Time the exact solver against `minimize_scalar` on one problem."""
    functions: list[Callable[[], object]] = [
        lambda: solve_dual(problem),
        lambda: minimize_scalar(lambda x: dual_value(problem, x)),
    ]
    if hand:
        dual = by_hand(problem)
        functions.append(lambda: minimize_scalar(dual))
    exact, minimise, *rest = alternate(functions, seconds)
    lean = rest[0] if rest else None
    return Comparison(
        name, exact, minimise, lean, minimise / exact, None if lean is None else lean / exact
    )


def growth(sizes: Sequence[int], seconds: float) -> list[Growth]:
    """Time and peak memory of the exact solver over growing numbers of rows."""
    measured: list[Growth] = []
    first = 0.0
    for rows in sizes:
        problem = sample_problem(rows)
        (best,) = alternate([lambda problem=problem: solve_dual(problem)], seconds)  # type: ignore[misc]
        unit = best / (rows * np.log(rows))
        first = first or unit
        given = problem.weight_r.nbytes + problem.gain_rk.nbytes + problem.cost_rk.nbytes
        tracemalloc.start()
        solve_dual(problem)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        measured.append(Growth(rows, best, unit / first, (given + peak) / given))
    return measured


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table; ``--json`` prints the figures for machines."""
    parser = argparse.ArgumentParser(prog="ottrpo bench dual", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="up to 100,000 rows only")
    options = parser.parse_args(list(arguments))
    seconds = 0.5 if options.quick else 2.0
    comparisons = [
        compare("1,024 sample rows", sample_problem(1024), hand=True, seconds=seconds),
        compare("Taxi-sized, general cost", taxi_sized_problem(), hand=False, seconds=seconds),
    ]
    if not options.quick:
        million = sample_problem(1_000_000)
        comparisons.append(
            compare("1,000,000 sample rows", million, hand=True, seconds=2 * seconds)
        )
    sizes = GROWTH_SIZES[:3] if options.quick else GROWTH_SIZES
    grown = growth(sizes, seconds / 2)
    if options.json:
        figures = {
            "comparisons": [asdict(c) for c in comparisons],
            "growth": [asdict(g) for g in grown],
        }
        print(json.dumps(figures, indent=2))
    else:
        _print_tables(comparisons, grown)
    return 0


def _print_tables(comparisons: Sequence[Comparison], grown: Sequence[Growth]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="exact solver against scipy.optimize.minimize_scalar")
    for column in (
        "problem",
        "exact",
        "minimize_scalar",
        "times faster",
        "G by hand",
        "times faster",
    ):
        table.add_column(column, justify="left" if column == "problem" else "right")
    for c in comparisons:
        lean = "-" if c.minimise_by_hand is None else f"{c.minimise_by_hand * 1e3:.2f} ms"
        lean_ratio = "-" if c.ratio_by_hand is None else f"{c.ratio_by_hand:.1f}"
        table.add_row(
            c.name,
            f"{c.exact * 1e3:.3f} ms",
            f"{c.minimise * 1e3:.2f} ms",
            f"{c.ratio:.1f}",
            lean,
            lean_ratio,
        )
    console = Console()
    console.print(table)
    table = Table(title="growth (two candidates per row)")
    for column in ("rows", "time", "time / (N log N), first = 1", "peak memory / input"):
        table.add_column(column, justify="right")
    for g in grown:
        table.add_row(
            f"{g.rows:,}",
            f"{g.seconds * 1e3:.2f} ms",
            f"{g.per_row_log:.2f}",
            f"{g.peak_over_input:.2f}",
        )
    console.print(table)
