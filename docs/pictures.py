"""The figures of the pages, each computed by the library: ``python docs/pictures.py``."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ottrpo.core import (
    Binary,
    DualProblem,
    PNorm,
    SquaredEuclidean,
    TableCost,
    average_discrepancy,
    discrepancy,
    dual_value,
    finite_problem,
    gaussian_w2_squared,
    push_forward,
    regularised_advantage,
    solve_dual,
    update_policy,
)

BLUE, RED, GREEN, GREY = "#1f77b4", "#c0392b", "#2e8b57", "#888888"
STYLE = {
    "svg.hashsalt": "ottrpo",  # the same file every time
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.facecolor": "white",
}


def envelope() -> Figure:
    """One row: a line per candidate, their upper envelope, and where it changes hands."""
    gain, cost = np.array([0.0, 1.0, 1.6, 1.2]), np.array([0.0, 1.0, 3.0, 2.5])
    problem = DualProblem([1.0], [gain], [cost], radius=1.0)
    price = np.linspace(0, 1.4, 400)
    figure = Figure(figsize=(5.4, 3.0), layout="constrained")
    axes = figure.subplots()
    labels = (("stay", 0.04), ("near", 0.72), ("far", 0.44), ("never best", 0.68))
    for k, (name, at) in enumerate(labels):
        axes.plot(price, gain[k] - price * cost[k], "--", lw=0.9, color=GREY)
        spot = (at, gain[k] - at * cost[k])
        axes.annotate(name, spot, xytext=(4, 4), textcoords="offset points", color=GREY)
    axes.plot(price, [regularised_advantage(problem, x)[0] for x in price], color=BLUE, lw=2)
    for at, text in ((0.3, "near overtakes far"), (1.0, "stay overtakes near")):
        axes.axvline(at, color=RED, lw=0.8, ls=":")
        axes.annotate(text, (at, 1.45), xytext=(4, 0), textcoords="offset points", color=RED)
    axes.set(xlabel="price λ", ylabel="A(s, a') − λ c(a, a')", ylim=(-0.9, 1.8), xlim=(0, 1.4))
    axes.annotate("Φ(λ), the envelope", (0.36, 0.75), color=BLUE)
    return figure


def dual() -> Figure:
    """G(λ) of a problem with a few rows, for three radii, each with its minimiser."""
    rng = np.random.default_rng(3)
    policy_sa, occupancy_s = rng.dirichlet(np.ones(3), 6), rng.dirichlet(np.ones(6))
    gain_sa = rng.normal(size=(6, 3))
    last = 2.2
    price = np.linspace(0, last, 500)
    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for radius, colour in ((0.2, RED), (0.6, BLUE), (2.0, GREEN)):
        problem = finite_problem(policy_sa, occupancy_s, gain_sa, SquaredEuclidean(), radius).dual
        solution = solve_dual(problem)
        axes.plot(price, [dual_value(problem, x) for x in price], color=colour, lw=1.6)
        axes.plot(solution.multiplier, solution.value, "o", color=colour)
        axes.annotate(
            f"ε = {radius}:  λ* = {solution.multiplier:.3f}",
            (last, dual_value(problem, last)),
            xytext=(4, -3),
            textcoords="offset points",
            color=colour,
            annotation_clip=False,
        )
    axes.set(xlabel="price λ", ylabel="G(λ)", xlim=(0, last))
    return figure


def splitting() -> Figure:
    """One state, mass on the worse action: nearest map, farthest map, and the optimal mixture."""
    policy, gain, radius = [[0.9, 0.1]], [[0.0, 1.0]], 0.3
    update = update_policy(policy, [1.0], gain, Binary(), radius)
    solution, problem = update.solution, update.problem
    figure = Figure(figsize=(7.0, 2.4), layout="constrained")
    shown = {
        "before": np.array(policy),
        "nearest map alone": push_forward(problem, [(solution.nearest_r, 1.0)]),
        "farthest map alone": push_forward(problem, [(solution.farthest_r, 1.0)]),
        f"shares {solution.split:.3f} and {1 - solution.split:.3f}": update.policy_sa,
    }
    for axes, (title, policy_sa) in zip(
        figure.subplots(1, 4, sharey=True), shown.items(), strict=True
    ):
        spent = average_discrepancy(policy, policy_sa, [1.0], Binary())
        axes.bar(["worse", "better"], policy_sa[0], color=[GREY, BLUE], width=0.6)
        value = float((policy_sa * np.array(gain)).sum())
        verdict = "leaves the region" if spent > radius + 1e-12 else "inside"
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(f"spent {spent:.2f} of {radius}\ngain {value:.2f}, {verdict}", fontsize=8)
    return figure


def cliff() -> Figure:
    """Two policies on the edge of the cliff that differ in one state, and their distance."""
    right, down, length = 1, 2, 12
    best = np.eye(4)[[right] * (length - 1) + [down]]
    other = best.copy()
    other[length - 2] = np.eye(4)[down]
    occupancy = np.full(length, 1 / length)
    spent = average_discrepancy(other, best, occupancy, Binary())
    figure = Figure(figsize=(7.0, 1.35), layout="constrained")
    for axes, (title, policy) in zip(
        figure.subplots(1, 2),
        (("π, falls one step early", other), ("π*, reaches the goal", best)),
        strict=True,
    ):
        for column in range(length):
            cliff_below = 0 < column < length - 1
            axes.add_patch(mpl.patches.Rectangle((column, 1), 1, 1, fc="white", ec=GREY))
            colour = "#444444" if cliff_below else ("#bfe3c8" if column else "#dddddd")
            axes.add_patch(mpl.patches.Rectangle((column, 0), 1, 1, fc=colour, ec=GREY))
            arrow = "→" if policy[column, right] else "↓"
            differs = column == length - 2
            axes.text(
                column + 0.5,
                1.5,
                arrow,
                ha="center",
                va="center",
                color=RED if differs else "black",
                fontsize=12,
            )
        axes.text(0.5, 0.5, "S", ha="center", va="center")
        axes.text(length - 0.5, 0.5, "G", ha="center", va="center")
        axes.set(xlim=(-0.1, length + 0.1), ylim=(-0.1, 2.1), title=title, aspect="equal")
        axes.set_axis_off()
    with np.errstate(divide="ignore"):
        divergence = float(occupancy @ [_kl(*pair) for pair in zip(best, other, strict=True)])
    figure.supxlabel(
        f"transport from π to π*: {spent:.4f} (one state of {length}, binary cost)"
        f"      KL(π* ‖ π) = {'∞' if np.isinf(divergence) else divergence}",
        fontsize=9,
    )
    return figure


def _on_the_triangle(point: np.ndarray) -> np.ndarray:
    """Corners left, right, top; barycentric to plane."""
    return point @ np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def _kl(new: np.ndarray, old: np.ndarray) -> float:
    kept = new > 0
    return float((new[kept] * np.log(new[kept] / old[kept])).sum())


def regions() -> Figure:
    """All policies over three actions within a radius of one, for three costs and for KL."""
    steps = 24
    old = np.array([0.6, 0.25, 0.15])
    points = (
        np.array(
            [(i, j, steps - i - j) for i in range(steps + 1) for j in range(steps + 1 - i)], float
        )
        / steps
    )
    line, wall = SquaredEuclidean().matrix(3), np.array([[0, 1, 4], [1, 0, 4], [4, 4, 0.0]])
    kinds: dict[str, Any] = {
        "binary cost: total variation": lambda p: discrepancy(old, p, Binary().matrix(3)),
        "squared distance on a line": lambda p: discrepancy(old, p, line),
        "a table: the third is far": lambda p: discrepancy(old, p, wall),
        "KL(new ‖ old)": lambda p: _kl(p, old),
    }
    xy = _on_the_triangle(points)
    figure = Figure(figsize=(8.4, 2.5), layout="constrained")
    for axes, (title, far) in zip(figure.subplots(1, 4), kinds.items(), strict=True):
        distance = np.array([far(point) for point in points])
        levels = (0.05, 0.1, 0.2, 0.4)
        axes.tricontourf(
            xy[:, 0], xy[:, 1], distance, levels=(0, *levels), cmap="Blues_r", alpha=0.9
        )
        axes.tricontour(
            xy[:, 0], xy[:, 1], distance, levels=levels, colors="#1b4f72", linewidths=0.7
        )
        corners = _on_the_triangle(np.eye(3)[[0, 1, 2, 0]])
        axes.plot(corners[:, 0], corners[:, 1], color="black", lw=0.8, clip_on=False)
        axes.plot(*_on_the_triangle(old), "o", color=RED, ms=4)
        for k, name in enumerate("012"):
            axes.annotate(
                name,
                _on_the_triangle(np.eye(3)[k]),
                xytext=((-8, -8), (3, -8), (-2, 3))[k],
                textcoords="offset points",
            )
        axes.set_title(title, fontsize=8.5, pad=18)
        axes.set_aspect("equal")
        axes.set_axis_off()
    return figure


def costs() -> Figure:
    """One update, four costs: where the mass of five actions goes."""
    policy = np.array([[0.4, 0.3, 0.1, 0.1, 0.1]])
    gain = np.array([[0.0, 0.1, 0.35, 0.5, 1.0]])
    groups = np.array([0, 0, 0, 1, 1])
    grouped = TableCost(np.where(groups[:, None] == groups, 0.2, 2.0) * (1 - np.eye(5)))
    kinds = {
        "Binary()": Binary(),
        "PNorm(p=1, power=1)": PNorm(p=1, power=1),
        "SquaredEuclidean()": SquaredEuclidean(),
        "TableCost: 0–2 and 3–4": grouped,
    }
    figure = Figure(figsize=(8.4, 2.6), layout="constrained")
    for axes, (title, cost) in zip(figure.subplots(1, 4, sharey=True), kinds.items(), strict=True):
        radius = 0.2 * float(policy[0] @ cost.matrix(5) @ policy[0])
        update = update_policy(policy, [1.0], gain, cost, radius)
        axes.bar(np.arange(5) - 0.2, policy[0], width=0.4, color=GREY, label="before")
        axes.bar(np.arange(5) + 0.2, update.policy_sa[0], width=0.4, color=BLUE, label="after")
        gained = float(((update.policy_sa - policy) * gain).sum())
        axes.set_title(title, fontsize=8.5)
        axes.set_xlabel(f"action\ngain {gained:+.3f} for ε = {radius:.3f}", fontsize=8)
        axes.set_xticks(range(5))
    figure.axes[0].legend(frameon=False, fontsize=7.5)
    figure.axes[0].set_ylabel("probability")
    return figure


def gaussians() -> Figure:
    """Two Gaussians whose means are 0.1 apart, as both become narrow."""
    std = np.geomspace(0.01, 1, 100)
    transport = [float(gaussian_w2_squared([0.0], [[s**2]], [0.1], [[s**2]])) for s in std]
    figure = Figure(figsize=(4.6, 2.7), layout="constrained")
    axes = figure.subplots()
    axes.loglog(std, transport, color=BLUE, lw=2)
    axes.loglog(std, 0.1**2 / (2 * std**2), color=RED, lw=2, ls="--")
    axes.annotate("transport, squared distance", (0.012, 0.0125), color=BLUE)
    axes.annotate("KL", (0.02, 20), color=RED)
    axes.set(xlabel="standard deviation of both", ylabel="how far apart")
    return figure


PICTURES = {
    made.__name__: made for made in (envelope, dual, splitting, cliff, regions, costs, gaussians)
}


def draw_all(folder: Path) -> None:
    """Write every picture as SVG."""
    folder.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        with mpl.rc_context(STYLE):
            picture().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw_all(Path(__file__).parent / "pictures")
