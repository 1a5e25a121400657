"""Learning curves as a figure for a paper: its size, its fonts, legible without colour.

Whatever is compared has a dash and a marker of its own beside its colour, so that a copy in black
and white tells them apart. Letters stay letters in PDF and SVG.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from ottrpo.core.checks import require
from ottrpo.persistence.bundle import write_atomically

from .figures import Curve, Panel, cell_curve
from .scales import NEAR, linear_up_to, scale_of
from .sides import Side

FORMATS = (".pdf", ".svg", ".png")
COLUMN_INCHES, TEXT_INCHES = 3.25, 5.5  # of most conferences' pages
COLUMNS = 3
AT_MOST = 8  # lines that can be told apart
MARKERS_PER_LINE = 6
_LOOKS: tuple[Mapping[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "marker": "o"},
    {"color": "#c0392b", "linestyle": "--", "marker": "s"},
    {"color": "#2471a3", "linestyle": "-.", "marker": "^"},
    {"color": "#d68910", "linestyle": (0, (1, 1)), "marker": "D"},
    {"color": "#1e8449", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#7d3c98", "linestyle": (0, (7, 2)), "marker": "P"},
    {"color": "#5d6d7e", "linestyle": (0, (3, 1, 1, 1)), "marker": "X"},
    {"color": "#a04000", "linestyle": (0, (2, 2)), "marker": "<"},
)
_PRINT: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # fonts that publishers take, whose text can be searched
    "svg.fonttype": "none",
    "svg.hashsalt": "ottrpo",
}


def panels_of(sides: Sequence[Side], wanted: Sequence[str] = ()) -> list[Panel]:
    """A panel for every environment, if it is ``wanted``, of which all sides have results.

    Raises:
        ValueError: if there is none, or a wanted one is not among them.
    """
    shared = [name for name in sides[0].cells if all(name in side.cells for side in sides)]
    require(
        bool(shared),
        "there is no environment that all of them have results of: "
        + "; ".join(f"{side.name} has {', '.join(side.cells)}" for side in sides),
    )
    for name in wanted:
        require(name in shared, f"not all have results of {name!r}; they have {', '.join(shared)}")
    return [
        Panel(
            title=name,
            curves=tuple(cell_curve(side.cells[name], side.name) for side in sides),
        )
        for name in wanted or shared
    ]


def save_figure(panels: Sequence[Panel], labels: Sequence[str], path: Path, width: float) -> None:
    """Write a figure of the panels, with one legend for all of them, so many inches wide.

    The n-th curves of the panels belong to the n-th label; the suffix of the path is the format.

    Raises:
        ValueError: if there are more curves than can be told apart.
    """
    require(len(labels) <= AT_MOST, f"at most {AT_MOST} curves can be told apart in print")
    columns = min(COLUMNS, len(panels), max(1, int(width // 1.7)))
    rows = -(-len(panels) // columns)
    columns = -(-len(panels) // rows)  # four are two by two, not three and one
    height = (1.35 if columns > 1 else 2.0) * rows + 0.25 * -(-len(labels) // 3) + 0.3
    with mpl.rc_context(_PRINT):
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _draw(axes, panel)
        for spare in grid[len(panels) :]:
            spare.set_axis_off()
        figure.supxlabel("environment steps", fontsize=8)
        figure.supylabel("return of an episode", fontsize=8)
        figure.legend(
            grid[0].get_lines(),
            [plain(label) for label in labels],
            loc="outside upper center",
            ncols=min(3, len(labels)),
            frameon=False,
        )
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix.lower()[1:], dpi=300)
    write_atomically(path, drawn.getvalue())


def _draw(axes: Any, panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        look = _LOOKS[i]
        axes.plot(curve.x_t, curve.y_bt[0], markevery=_marks(curve, i), **look)
        axes.fill_between(curve.x_t, *curve.y_bt[1:], color=look["color"], alpha=0.13, linewidth=0)
    _use_orders_if_needed(axes, panel)
    axes.set_title(plain(panel.title))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _use_orders_if_needed(axes: Any, panel: Panel) -> None:
    near, scale = linear_up_to(panel), scale_of(panel)
    if near is not None:
        axes.set_yscale("symlog", linthresh=near, linscale=NEAR)
        axes.set_ylim(scale.low, scale.high)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_yticks(scale.ticks(6))


def plain(text: str) -> str:
    """Matplotlib reads dollars as mathematics, and hides labels that begin with a line."""
    return "\u200a" + text.replace("$", r"\$")


def _marks(curve: Curve, i: int) -> list[int]:
    """Which points are marked: spread over the steps, and not where other curves have theirs."""
    first, last = float(curve.x_t[0]), float(curve.x_t[-1])
    apart = (last - first) / MARKERS_PER_LINE
    wanted = [first + apart * (k + (i % 4) / 4) for k in range(MARKERS_PER_LINE)]
    return sorted({int(abs(curve.x_t - at).argmin()) for at in wanted})
