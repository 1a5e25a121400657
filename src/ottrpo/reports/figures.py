"""Learning curves with bands: one panel per group of cells, as a picture or as SVG for a page.

In SVG the colours are CSS variables and the text is text, so that a page can show it dark or
light, and one panel is a few kilobytes.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation

from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.experiments import published
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

from .statistics import Profile

COLUMNS = 3
INSIDE = 4  # curves whose legend finds room among them
POINTS = 50  # of a curve in a page: more than a panel of this size can show
# the palette of the pictures, and what stands for each colour in SVG
PALETTE = (
    "#1f6fb4",
    "#d1620f",
    "#2a8c3c",
    "#b3283b",
    "#7a55a8",
    "#8a6142",
    "#c24f9b",
    "#5c6670",
    "#8f8a1a",
    "#1498a8",
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
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves that belong together.

    Attributes:
        title: over the panel.
        cells: label and cell of each curve.
        paper: published score, drawn as a dashed line with its spread.
        best: best possible return, a dotted line.
    """

    title: str
    cells: tuple[tuple[str, CellResult], ...]
    paper: Published | None = None
    best: float | None = None


def families(cells: Sequence[CellResult]) -> list[Panel]:
    """A panel per study, environment, agent and configuration that has finished runs.

    The cells of a family differ in what their labels say, such as the radius or the cost.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[str, CellResult]]] = {}
    for cell in cells:
        if cell.curves:
            label = cell.title.removeprefix(cell.config).strip() or cell.config
            key = (cell.study, cell.environment, cell.agent, cell.config)
            groups.setdefault(key, []).append((label, cell))
    return [
        Panel(title=" · ".join(key[1:]), cells=tuple(members), best=catalogue.optimum(key[1]))
        for key, members in groups.items()
    ]


def save_panels(panels: Sequence[Panel], path: Path) -> None:
    """All panels in one picture file."""
    rows, width = -(-len(panels) // COLUMNS), min(COLUMNS, len(panels))
    figure = Figure(figsize=(5.2 * width, 3.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    for i, panel in enumerate(panels, start=1):
        _draw(figure.add_subplot(rows, width, i), panel)
    figure.savefig(path, dpi=110)


def panel_svg(panel: Panel) -> str:
    """One panel as an ``<svg>`` element."""
    with mpl.rc_context(_SVG):
        figure, axes = _svg_figure([label for label, _ in panel.cells])
        _draw(axes, panel, points=POINTS)
        return _svg(figure, panel.title)


def profiles_svg(title: str, profiles: Sequence[tuple[str, str, Profile]], xlabel: str) -> str:
    """Performance profiles, one curve for each agent, label and profile."""
    with mpl.rc_context(_SVG):
        figure, axes = _svg_figure([label for _, label, _ in profiles])
        styles = line_styles([agent for agent, _, _ in profiles])
        for (_, label, profile), (colour, style) in zip(profiles, styles, strict=True):
            axes.plot(
                profile.threshold_k, profile.share_k, color=colour, linestyle=style, label=label
            )
            axes.fill_between(
                profile.threshold_k,
                profile.low_k,
                profile.high_k,
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        axes.set_title(_plain(title), fontsize=9, y=1.0)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("share of runs above it")
        _legend(axes)
        return _svg(figure, title)


def _draw(axes: Any, panel: Panel, points: int | None = None) -> None:
    lowest, highest = np.inf, -np.inf
    styles = line_styles([cell.agent for _, cell in panel.cells])
    for (label, cell), (colour, style) in zip(panel.cells, styles, strict=True):
        mark_t, return_nt = next(iter(cell.curves.values())).common()
        mark_t, return_nt = _thinned(mark_t, return_nt, points)
        mean_t, std_t = return_nt.mean(axis=0), return_nt.std(axis=0)
        axes.plot(mark_t, mean_t, linewidth=1.2, color=colour, linestyle=style, label=_plain(label))
        # no wider than the seeds reach: a few runs of minus thousands have no mirror image above
        low_t = np.maximum(mean_t - std_t, return_nt.min(axis=0))
        high_t = np.minimum(mean_t + std_t, return_nt.max(axis=0))
        axes.fill_between(mark_t, low_t, high_t, color=colour, alpha=0.15, linewidth=0)
        lowest = min(lowest, float(mean_t.min(initial=np.inf)))
        highest = max(highest, float(high_t.max(initial=-np.inf)))
    if panel.paper is not None:
        axes.axhline(
            panel.paper.score, linestyle="--", color=FAINT, linewidth=1, label="printed score"
        )
    if panel.best is not None:
        axes.axhline(panel.best, linestyle=":", color=FAINT, linewidth=1)
    if lowest < -100:  # returns run from minus thousands to a handful: show both ends
        axes.set_yscale("symlog", linthresh=20)
        axes.set_ylim(top=max(highest, panel.best or highest) + 10)
    axes.set_title(_plain(panel.title), fontsize=9, y=1.0)  # a fixed place is quick
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return of an episode")
    _legend(axes)


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


def _plain(text: str) -> str:
    """Matplotlib reads dollars as mathematics, and hides labels that begin with a line."""
    return "\u200a" + text.replace("$", r"\$")


def _thinned(mark_t: Any, return_nt: Floats, points: int | None) -> tuple[Any, Floats]:
    if points is None or mark_t.size <= points:
        return mark_t, return_nt
    kept = np.unique(np.linspace(0, mark_t.size - 1, points).round().astype(int))
    return mark_t[kept], return_nt[:, kept]


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
    text = re.sub(r' id="(?!m|p|c)[^"]*"', "", text)  # names of groups; what is used stays
    return re.sub(r"\n\s*", "\n", text)


def _shortened(attribute: re.Match[str]) -> str:
    """Coordinates to a tenth of a point; a line goes on without saying so."""
    text = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", attribute[0])
    return re.sub(r" ?\nL ", " ", text) if text.startswith(" d=") else text
