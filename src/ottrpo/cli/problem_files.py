"""Trust-region problems as JSON objects, and what is told about their solutions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ottrpo.core import (
    DualProblem,
    DualSolution,
    FiniteProblem,
    LinearProblem,
    PolicyUpdate,
    dual_value,
    finite_problem,
    solve_dual,
)
from ottrpo.core.checks import require
from ottrpo.core.cost_data import cost_from_data

Problem = DualProblem | FiniteProblem | LinearProblem

_GAINS = ("gain", "q", "advantage")
# form -> (the key it is known by, required keys, optional keys)
_FORMS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "rows": ("gain_rk", ("weight_r", "gain_rk", "cost_rk", "radius"), ("allowed_rk", "stay_r")),
    "finite": ("policy", ("policy", "occupancy", "cost", "radius"), (*_GAINS, "allowed")),
    "linear": ("gradient_rd", ("gradient_rd", "radius"), ("weight_r", "metric")),
}


def read_problem(data: Any) -> Problem:
    """The problem that a JSON object describes.

    Raises:
        ValueError: if it is none of the three forms, or its numbers make no problem.
    """
    require(
        isinstance(data, Mapping),
        f"a problem is one JSON object, got {type(data).__name__}; see: ottrpo solve --help",
    )
    form = _form(data)
    _, required, optional = _FORMS[form]
    missing = [key for key in required if key not in data]
    require(not missing, f"a {form} problem needs {', '.join(required)}; missing: {missing}")
    unknown = sorted(set(data) - {*required, *optional})
    require(not unknown, f"not a key of a {form} problem: {unknown}; optional: {optional}")
    for key in (key for key in data if key not in ("allowed", "allowed_rk")):
        require(not _has_truth(data[key]), f"{key} must be made of numbers, got true or false")
    if form == "rows":
        return DualProblem(**data)
    if form == "linear":
        gradient = data["gradient_rd"]
        rows = max(len(gradient), 1) if isinstance(gradient, list) else 1
        weight_r = data.get("weight_r", [1.0 / rows] * rows)
        return LinearProblem(weight_r, gradient, data["radius"], data.get("metric"))
    given = [key for key in _GAINS if key in data]
    require(len(given) == 1, f"a finite problem needs exactly one of {_GAINS}, got {given}")
    return finite_problem(
        data["policy"],
        data["occupancy"],
        data[given[0]],
        cost_from_data(data["cost"]),
        data["radius"],
        data.get("allowed"),
    )


def solve_report(problem: Problem) -> dict[str, Any]:
    """What is told about the solution: plain numbers and lists."""
    if not isinstance(problem, FiniteProblem):
        return _report(problem, solve_dual(problem))
    solution = solve_dual(problem.dual)
    return {
        **_report(problem.dual, solution),
        "state_r": problem.state_r.tolist(),
        "action_r": problem.action_r.tolist(),
        "policy": PolicyUpdate.by(problem, solution).policy_sa.tolist(),
    }


def _report(problem: DualProblem | LinearProblem, solution: DualSolution) -> dict[str, Any]:
    found = {
        "multiplier": solution.multiplier,
        "split": solution.split,
        "farthest_share": solution.farthest_share,
        "spent": solution.spent,
        "value": solution.value,
    }
    _require_finite(found)
    with np.errstate(all="ignore"):  # what is no number is refused below
        gap = dual_value(problem, solution.multiplier) - _primal_value(problem, solution)
    found["gap"] = gap
    _require_finite(found)
    return {
        **found,
        "binding": bool(solution.binding),
        "radius": problem.radius,
        "rows": problem.rows,
        "nearest_r": solution.nearest_r.tolist(),
        "farthest_r": solution.farthest_r.tolist(),
    }


def _require_finite(found: Mapping[str, float]) -> None:
    wrong = [f"{name} {value}" for name, value in found.items() if not np.isfinite(value)]
    require(not wrong, f"its numbers are too far apart for float64: {', '.join(wrong)}")


def _primal_value(problem: DualProblem | LinearProblem, solution: DualSolution) -> float:
    """The gain of the plan itself: both maps, in their shares."""
    if isinstance(problem, LinearProblem):
        return float(problem.weight_r @ (problem.gradient_rd * solution.nearest_r).sum(axis=1))
    row = np.arange(problem.rows)
    nearest = problem.weight_r @ problem.gain_rk[row, solution.nearest_r]
    farthest = problem.weight_r @ problem.gain_rk[row, solution.farthest_r]
    return float(nearest + solution.farthest_share * (farthest - nearest))


def _has_truth(value: Any) -> bool:
    """Whether there is a true or a false in it, which NumPy would take for 1 and 0."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return any(map(_has_truth, value)) if isinstance(value, list) else isinstance(value, bool)


def _form(data: Mapping[str, Any]) -> str:
    for form, (key, _, _) in _FORMS.items():
        if key in data:
            return form
    keys = ", ".join(f"{key!r} ({form})" for form, (key, _, _) in _FORMS.items())
    raise ValueError(f"an object is known as a problem by one of {keys}; got keys {list(data)[:8]}")
