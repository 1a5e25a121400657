"""Curves with bands, and the panels they stand in: what is drawn, and in which colours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.experiments import published
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

# Of one study: where it has hundreds of problems, its first are shown.
PANELS_AT_MOST = 12
POINTS = 40  # of a curve in a page: more than a panel of this size can show
PALETTE = (
    *("#1f6fb4", "#d1620f", "#2a8c3c", "#b3283b", "#7a55a8"),
    *("#8a6142", "#c24f9b", "#5c6670", "#8f8a1a", "#1498a8"),
)
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Curve:
    """A line with a band around it.

    Attributes:
        label: in the legend.
        agent: whose it is; agents have their colours.
        x_t: where.
        y_bt: the line, and the lower and the upper edge of the band.
    """

    label: str
    agent: str
    x_t: NDArray[Any]
    y_bt: Floats

    def thinned(self, points: int) -> "Curve":
        """The curve with no more points than that."""
        last = self.x_t.size - 1
        kept = np.unique(np.linspace(0, last, min(points, last + 1)).round().astype(int))
        return Curve(self.label, self.agent, self.x_t[kept], self.y_bt[:, kept])


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves that belong together.

    Attributes:
        title: over the panel.
        curves: what is drawn.
        paper: published score, a dashed line.
        best: best possible return, a dotted line.
        xlabel: below the panel.
        ylabel: beside it.
    """

    title: str
    curves: tuple[Curve, ...]
    paper: Published | None = None
    best: float | None = None
    xlabel: str = "environment steps"
    ylabel: str = "return of an episode"


def families(cells: Iterable[CellResult]) -> list[Panel]:
    """A panel per study, environment, agent and configuration that has finished runs.

    The cells of a family differ in what their labels say, such as the radius or the cost.
    """
    groups = _grouped(cells, ("study", "environment", "agent", "config"))
    return [
        Panel(
            title=" · ".join(key[1:]),
            curves=tuple(cell_curve(cell, _label(cell, held)) for cell in held),
            best=catalogue.optimum(key[1]),
        )
        for key, held in groups.items()
    ]


def by_environment(cells: Iterable[CellResult]) -> list[Panel]:
    """A panel per environment that has finished runs, with the paper's OT-TRPO."""
    return [
        Panel(
            title=environment,
            curves=tuple(cell_curve(cell, _label(cell, held)) for cell in held),
            paper=published.trained_score(environment, "ottrpo"),
            best=catalogue.optimum(environment),
        )
        for (environment,), held in _grouped(cells, ("environment",)).items()
    ]


def cell_curve(cell: CellResult, label: str) -> Curve:
    """Mean over seeds ± one standard deviation, no wider than the seeds reach.

    A few runs of minus thousands have no mirror image above.
    """
    mark_t, return_nt = next(iter(cell.curves.values())).common()
    mean_t, std_t = return_nt.mean(axis=0), return_nt.std(axis=0)
    low_t = np.maximum(mean_t - std_t, return_nt.min(axis=0))
    high_t = np.minimum(mean_t + std_t, return_nt.max(axis=0))
    return Curve(label, cell.agent, mark_t, np.array([mean_t, low_t, high_t]))


def run_panel(evaluations: Iterable[Mapping[str, Any]], paper: Published | None = None) -> Panel:
    """The learning curves of one run: mean over episodes, and their range.

    Evaluations that fall on one step, which is where updates are far apart, are one point.

    Args:
        evaluations: the records of a run's ``evaluations.jsonl``.
        paper: a published score.
    """
    by_way: dict[bool, dict[int, list[float]]] = {}
    for record in evaluations:
        returns = by_way.setdefault(record["deterministic"], {})
        returns.setdefault(record["timestep"], []).extend(record["returns"])
    curves = []
    for way, by_step in sorted(by_way.items(), reverse=True):
        label = f"{'deterministic' if way else 'sampled'} actions"
        y_tb = [(np.mean(found), min(found), max(found)) for found in by_step.values()]
        curves.append(Curve(label, "", np.array(list(by_step)), np.array(y_tb).T))
    return Panel(title="", curves=tuple(curves), paper=paper)


@dataclass(frozen=True, kw_only=True)
class Chances:
    """How likely one beats another, environment by environment, with an interval each."""

    label: str
    agent: str
    by_environment: Mapping[str, tuple[float, float, float]]


def _grouped(
    cells: Iterable[CellResult], keys: Sequence[str]
) -> dict[tuple[str, ...], list[CellResult]]:
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for cell in cells:
        if cell.curves:
            groups.setdefault(tuple(getattr(cell, key) for key in keys), []).append(cell)
    return groups


def _label(cell: CellResult, among: Sequence[CellResult]) -> str:
    """The agent, the configuration, or both: whatever tells the cell from the others."""
    title = cell.title
    if len({other.config for other in among}) == 1:
        title = title.removeprefix(cell.config).strip() or cell.config
    if len({other.agent for other in among}) == 1:
        return title
    alone = sum(other.agent == cell.agent for other in among) == 1
    return cell.agent if alone else f"{cell.agent}, {title}"


def line_styles(drawn: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and line style of the curves of the given agents.

    Where there are several agents each has its colour, in every figure the same, and a line style
    per curve; the curves of a single agent differ in colour.
    """
    if len(set(drawn)) == 1:
        every = [(colour, style) for style in STYLES for colour in PALETTE]  # colours first
        return [every[i % len(every)] for i in range(len(drawn))]
    compared = [row["algorithm"] for row in published.table("tab_trained_scores")]
    known = dict.fromkeys([*compared, *drawn])
    colour = {agent: PALETTE[i % len(PALETTE)] for i, agent in enumerate(known)}
    return [
        (colour[agent], STYLES[drawn[:i].count(agent) % len(STYLES)])
        for i, agent in enumerate(drawn)
    ]
