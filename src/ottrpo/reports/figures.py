"""Curves with bands: panels of them, as a picture or as SVG for a page.

In SVG the colours are CSS variables and the text is text, so that a page can show it dark or
light, and one panel is a few kilobytes.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import escape
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.experiments import published
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

# Of one study: where it has hundreds of problems, its first are shown.
PANELS_AT_MOST = 12
COLUMNS = 3
INSIDE = 4  # curves whose legend finds room among them
POINTS = 40  # of a curve in a page: more than a panel of this size can show
ORDERS = 20  # returns that begin so many times further from zero than they end need a log scale
# the palette of the pictures, and what stands for each colour in SVG
PALETTE = (
    *("#1f6fb4", "#d1620f", "#2a8c3c", "#b3283b", "#7a55a8"),
    *("#8a6142", "#c24f9b", "#5c6670", "#8f8a1a", "#1498a8"),
)
STYLES = ("-", "--", ":", "-.")
INK, FAINT = "#0a0b0c", "#8a8b8c"
_VARIABLES = {
    **{colour: f"var(--series-{i})" for i, colour in enumerate(PALETTE)},
    INK: "currentColor",
    FAINT: "var(--faint)",
}
_SVG: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ottrpo",  # the same results give the same page
    "font.size": 8.5,
    "font.family": "sans-serif",
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
}


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


def save_panels(panels: Sequence[Panel], path: Path) -> None:
    """All panels in one picture file, whose suffix says the format."""
    rows, width = -(-len(panels) // COLUMNS), min(COLUMNS, len(panels))
    figure = Figure(figsize=(5.6 * width, 3.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    for i, panel in enumerate(panels, start=1):
        _draw(figure.add_subplot(rows, width, i), panel)
    figure.savefig(path, dpi=110)


def panel_svg(panel: Panel) -> str:
    """One panel as an ``<svg>`` element."""
    with mpl.rc_context(_SVG):
        figure, axes = _svg_figure([curve.label for curve in panel.curves])
        thin = tuple(curve.thinned(POINTS) for curve in panel.curves)
        _draw(axes, replace(panel, curves=thin))
        return _svg(figure, panel.title)


@dataclass(frozen=True, kw_only=True)
class Chances:
    """How likely one beats another, environment by environment, with an interval each."""

    label: str
    agent: str
    by_environment: Mapping[str, tuple[float, float, float]]


def forest_svg(rivals: Sequence[Chances], xlabel: str, title: str) -> str:
    """A line per environment and rival: the chance and its interval, and where it is even."""
    names = list(dict.fromkeys(name for rival in rivals for name in rival.by_environment))
    height = 0.3 * len(names) + 0.9
    with mpl.rc_context(_SVG):
        figure = Figure(figsize=(7.2, height))
        figure.patch.set_alpha(0.0)
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.27, 0.5 / height, 0.71, 1 - 0.8 / height))
        axes.patch.set_alpha(0.0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        styles = line_styles(["ottrpo", *(rival.agent for rival in rivals)])[1:]
        for i, (rival, (colour, _)) in enumerate(zip(rivals, styles, strict=True)):
            for name, (value, low, high) in rival.by_environment.items():
                y = names.index(name) + 0.24 * (i - (len(rivals) - 1) / 2)
                axes.plot([low, high], [y, y], color=colour, linewidth=1.6)
                axes.plot(value, y, marker="osD^"[i % 4], color=colour, markersize=4.5)
            axes.plot([], [], marker="osD^"[i % 4], color=colour, label=plain(rival.label))
        axes.axvline(0.5, color=FAINT, linewidth=1, linestyle="--")
        axes.set_yticks(range(len(names)), [plain(name) for name in names])
        axes.tick_params(left=False)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xlabel(xlabel)
        axes.legend(
            frameon=False, fontsize=8, ncols=len(rivals), loc="lower left", bbox_to_anchor=(0, 1)
        )
        return _svg(figure, title)


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


def _draw(axes: Any, panel: Panel) -> None:
    styles = line_styles([curve.agent for curve in panel.curves])
    for curve, (colour, style) in zip(panel.curves, styles, strict=True):
        drawn = {"color": colour, "linestyle": style, "linewidth": 1.2}
        axes.plot(curve.x_t, curve.y_bt[0], label=plain(curve.label), **drawn)
        axes.fill_between(curve.x_t, *curve.y_bt[1:], color=colour, alpha=0.15, linewidth=0)
    faint = {"color": FAINT, "linewidth": 1}
    if panel.paper is not None:
        axes.axhline(panel.paper.score, linestyle="--", label="printed score", **faint)
    if panel.best is not None:
        axes.axhline(panel.best, linestyle=":", **faint)
    use_orders_if_needed(axes, panel)
    if panel.title:
        axes.set_title(plain(panel.title), fontsize=9, y=1.0)  # a fixed place is quick
    if panel.xlabel == Panel.xlabel:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    _legend(axes)


def use_orders_if_needed(axes: Any, panel: Panel) -> None:
    """A scale of orders where a linear one would not show what is learnt.

    That is where most curves begin at minus thousands and end near zero.
    """
    drawn = [curve.y_bt for curve in panel.curves if curve.x_t.size]
    if not drawn:
        return
    extreme = max(float(np.abs(y_bt[0]).max()) for y_bt in drawn)
    late = float(np.median([np.abs(y_bt[0, y_bt.shape[1] // 2 :]).max() for y_bt in drawn]))
    if extreme <= ORDERS * late or late == 0.0:
        return
    near = 10.0 ** np.ceil(np.log10(late))  # linear up to here
    axes.set_yscale("symlog", linthresh=near, linscale=0.7)
    highest = max(float(y_bt[2].max()) for y_bt in drawn)
    axes.set_ylim(top=max(highest, panel.best or highest) + 0.5 * near)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    powers = 10.0 ** np.arange(np.log10(near), np.ceil(np.log10(extreme)) + 1)
    low, high = axes.get_ylim()
    ticks = [*-powers[::-1], -near / 2, 0.0, near / 2, *powers]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])


def _legend(axes: Any) -> None:
    """Inside where there is room, below the panel where there are many curves."""
    _, labels = axes.get_legend_handles_labels()
    if len(labels) <= INSIDE + 1:  # the paper's line is one of them
        axes.legend(frameon=False, fontsize=7)
        return
    below = axes.transAxes + ScaledTranslation(0, -32 / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        frameon=False,
        fontsize=7,
        ncols=_legend_columns(labels),
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=below,
    )


def _legend_columns(labels: Sequence[str]) -> int:
    longest = max(map(len, labels))
    return 3 if longest <= 18 else 2 if longest <= 30 else 1


def line_styles(drawn: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and line style of the curves of the given agents.

    Where there are several agents each has its colour, in every figure the same, and a line style
    per curve; the curves of a single agent differ in colour.
    """
    if len(set(drawn)) == 1:
        return [_nth_style(i) for i in range(len(drawn))]
    compared = [row["algorithm"] for row in published.table("tab_trained_scores")]
    known = dict.fromkeys([*compared, *drawn])
    colour = {agent: PALETTE[i % len(PALETTE)] for i, agent in enumerate(known)}
    return [
        (colour[agent], STYLES[drawn[:i].count(agent) % len(STYLES)])
        for i, agent in enumerate(drawn)
    ]


def _nth_style(i: int) -> tuple[str, str]:
    """Colours first, then line styles."""
    return PALETTE[i % len(PALETTE)], STYLES[i // len(PALETTE) % len(STYLES)]


def plain(text: str) -> str:
    """Matplotlib reads dollars as mathematics, and hides labels that begin with a line."""
    return "\u200a" + text.replace("$", r"\$")


def _svg_figure(labels: Sequence[str]) -> tuple[Figure, Any]:
    rows = -(-(len(labels) + 1) // _legend_columns(labels)) if len(labels) > INSIDE else 0
    extra = 0.17 * rows
    height = 3.1 + extra
    figure = Figure(figsize=(4.4, height))
    figure.patch.set_alpha(0.0)
    FigureCanvasSVG(figure)
    # a fixed place: working one out draws everything twice
    axes = figure.add_axes((0.15, (0.45 + extra) / height, 0.83, 2.37 / height))
    axes.patch.set_alpha(0.0)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r' (?:d|x|y|transform)="[^"]+"', _shortened, text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = _named_apart(text)
    named = f'<svg role="img" aria-label="{escape(title)}"'
    return re.sub(r"\n\s*", "\n", text).replace("<svg", named, 1)


def _named_apart(text: str) -> str:
    """Only what is used has a name, and no two drawings of a page share one."""
    text = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: sans-serif", text)
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    used = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', text))
    short = {name: f"f{mark}{i}" for i, name in enumerate(used)}
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{short[m[1]]}"' if m[1] in short else "", text)
    return re.sub(r'((?:href="|url\()#)([^")]+)', lambda m: m[1] + short[m[2]], text)


def _shortened(attribute: re.Match[str]) -> str:
    """Coordinates to a tenth of a point; a line goes on without saying so."""
    text = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", attribute[0])
    return re.sub(r" ?\nL ", " ", text) if text.startswith(" d=") else text
