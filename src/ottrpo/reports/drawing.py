"""Panels of curves as SVG, written element by element.

In a page the colours are CSS variables and the text is text, so that it can be shown dark or light
and one panel is a few kilobytes; in a file the colours are those of a light page.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import escape

from ottrpo.core.checks import Floats
from ottrpo.persistence.bundle import write_atomically

from .figures import PALETTE, POINTS, Chances, Curve, Panel, line_styles
from .scales import Scale, scale_of, steps_of

COLUMNS = 3
INSIDE = 4  # curves whose legend finds room among them
WIDTH, HEIGHT = 317.0, 223.0  # of a panel without a legend below, in points
LEFT, RIGHT, TOP, BOTTOM = 48.0, 311.0, 20.0, 190.0  # where its curves are
TEXT, SMALL, ROW = 8.5, 7.0, 12.0  # sizes of letters; height of a line of the legend
LETTER = 0.55  # width of a letter, in sizes
SAMPLE = 16.0  # length of the piece of line in a legend
INK, FAINT = "currentColor", "var(--faint)"
DASHES = {"-": "", "--": "4.5 2", ":": "1.2 2", "-.": "6 2 1.2 2"}
_LIGHT = {
    **{f"var(--series-{i})": colour for i, colour in enumerate(PALETTE)},
    INK: "#1c2126",
    FAINT: "#6d757d",
}


def panel_svg(panel: Panel) -> str:
    """One panel as an ``<svg>`` element of a page."""
    return _element(_Drawing(panel).parts(), WIDTH, _height(panel), panel.title)


def save_panels(panels: Sequence[Panel], path: Path) -> None:
    """All panels in one file."""
    columns = min(COLUMNS, len(panels))
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    parts, y = [], 0.0
    for row in rows:
        for i, panel in enumerate(row):
            inner = "".join(_Drawing(panel).parts())
            parts.append(f'<g transform="translate({_n(i * WIDTH)} {_n(y)})">{inner}</g>')
        y += max(map(_height, row))
    width = columns * WIDTH
    back = f'<path d="M0 0H{_n(width)}V{_n(y)}H0Z" fill="#ffffff"/>'
    title = ", ".join(panel.title for panel in panels) or "learning curve"
    text = _element([back, *parts], width, y, title)
    for variable, colour in _LIGHT.items():
        text = text.replace(variable, colour)
    write_atomically(path, text.encode())


def forest_svg(rivals: Sequence[Chances], xlabel: str, title: str) -> str:
    """A line per environment and rival: the chance and its interval, and where it is even."""
    names = list(dict.fromkeys(name for rival in rivals for name in rival.by_environment))
    left, right, top, row = 140.0, 510.0, 22.0, 21.6
    bottom = top + row * len(names)
    scale = Scale(-0.02, 1.02)

    def x(value: float) -> float:
        return left + (right - left) * scale.place(value)

    parts = _axis_x(steps_of(0.0, 1.0, 5), x, bottom, "{:.1f}".format)
    parts += [
        _line((left, bottom), (right, bottom)),
        _text(xlabel, (left + right) / 2, bottom + 28),
    ]
    parts.append(_line((x(0.5), top), (x(0.5), bottom), FAINT, dash="4 2"))
    parts += [
        _text(name, left - 8, top + row * (i + 0.5) + 3, anchor="end")
        for i, name in enumerate(names)
    ]
    styles = line_styles(["ottrpo", *(rival.agent for rival in rivals)])[1:]
    beside = left
    for i, (rival, (series, _)) in enumerate(zip(rivals, styles, strict=True)):
        colour = _series(series)
        for name, (value, low, high) in rival.by_environment.items():
            y = top + row * (names.index(name) + 0.5 + 0.24 * (i - (len(rivals) - 1) / 2))
            parts.append(_line((x(low), y), (x(high), y), colour, 1.6))
            parts.append(_marker(i, x(value), y, colour))
        parts.append(_marker(i, beside + 4, 9, colour))
        parts.append(_text(rival.label, beside + 12, 12, anchor="start"))
        beside += 12 + TEXT * LETTER * len(rival.label) + 18
    return _element(parts, 518.0, bottom + 34, title)


class _Drawing:
    """Curves of a panel with axes and a legend."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.curves = [curve.thinned(POINTS) for curve in panel.curves if curve.x_t.size]
        styles = line_styles([curve.agent for curve in panel.curves])
        pairs = zip(panel.curves, styles, strict=True)
        self.styles = [style for curve, style in pairs if curve.x_t.size]
        x = [float(at) for curve in self.curves for at in (curve.x_t.min(), curve.x_t.max())]
        self.across = Scale.around(x or [0.0, 1.0], margin=0.03)
        self.upward = scale_of(panel)

    def x(self, value: float) -> float:
        return LEFT + (RIGHT - LEFT) * self.across.place(value)

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * self.upward.place(value)

    def parts(self) -> list[str]:
        parts = self._axes()
        for curve, (series, style) in zip(self.curves, self.styles, strict=True):
            colour, (line, low, high) = _series(series), curve.y_bt
            band = self._path(curve, high) + self._path(curve, low, back=True) + "Z"
            parts.append(f'<path d="{band}" fill="{colour}" fill-opacity="0.15"/>')
            parts.append(_stroke(self._path(curve, line), colour, 1.2, DASHES[style]))
        for level, dash in self._levels():
            height = self.y(level)
            parts.append(_line((LEFT, height), (RIGHT, height), FAINT, 1.0, dash))
        return parts + self._legend()

    def _levels(self) -> list[tuple[float, str]]:
        paper, best = self.panel.paper, self.panel.best
        levels = [] if paper is None else [(paper.score, DASHES["--"])]
        return levels + ([] if best is None else [(best, DASHES[":"])])

    def _axes(self) -> list[str]:
        panel, middle = self.panel, (TOP + BOTTOM) / 2
        of_steps = panel.xlabel == Panel.xlabel
        parts = [_stroke(f"M{_n(LEFT)} {_n(TOP)}V{_n(BOTTOM)}H{_n(RIGHT)}", INK, 0.8)]
        parts += _axis_x(
            self.across.ticks(5), self.x, BOTTOM, _short if of_steps else "{:g}".format
        )
        ticks = self.upward.ticks(6)
        decimals = _decimals(ticks)
        for tick in ticks:
            at = self.y(tick)
            parts.append(_line((LEFT - 3, at), (LEFT, at)))
            told = f"{tick:,.{decimals}f}".replace("-", "−")
            parts.append(_text(told, LEFT - 5, at + 3, anchor="end"))
        parts.append(_text(panel.title, (LEFT + RIGHT) / 2, 12))
        parts.append(_text(panel.xlabel, (LEFT + RIGHT) / 2, BOTTOM + 26))
        turn = f' transform="rotate(-90 9 {_n(middle)})"'
        return [*parts, _text(panel.ylabel, 9, middle, more=turn)]

    def _path(self, curve: Curve, y_t: Floats, *, back: bool = False) -> str:
        points = [
            f"{_n(self.x(float(x)))} {_n(self.y(float(y)))}"
            for x, y in zip(curve.x_t, y_t, strict=True)
        ]
        return ("L" if back else "M") + "L".join(points[::-1] if back else points)

    def _legend(self) -> list[str]:
        """Inside where there is room, below the panel where there are many curves."""
        rows = [
            (curve.label, _series(series), DASHES[style])
            for curve, (series, style) in zip(self.curves, self.styles, strict=True)
        ]
        if self.panel.paper is not None:
            rows.append(("printed score", FAINT, DASHES["--"]))
        if _below(self.panel):
            columns = _legend_columns([label for label, *_ in rows])
            apart, left, top = (WIDTH - 8) / columns, 8.0, BOTTOM + 40
        else:
            columns, apart = 1, 0.0
            left, top = self._corner([label for label, *_ in rows])
        lines = -(-len(rows) // columns)
        parts = []
        for i, (label, colour, dash) in enumerate(rows):
            x, y = left + apart * (i // lines), top + ROW * (i % lines)
            parts.append(_line((x, y), (x + SAMPLE, y), colour, 1.4, dash))
            parts.append(_text(label, x + SAMPLE + 4, y + 2.5, anchor="start", size=SMALL))
        return parts

    def _corner(self, labels: Sequence[str]) -> tuple[float, float]:
        """Where a legend hides least: in a corner of the panel, or else between them."""
        wide = SAMPLE + 4 + SMALL * LETTER * max(map(len, labels), default=0)
        tall = ROW * len(labels)
        lefts = (RIGHT - wide - 4, LEFT + 6, (LEFT + RIGHT - wide) / 2)
        lowest, highest = BOTTOM - tall, TOP + 6
        tops = (lowest, highest, *np.linspace(highest, lowest, 7)[1:-1])
        x_k = np.linspace(LEFT, RIGHT, 4 * POINTS)
        lines = [np.full(x_k.size, self.y(level)) for level, _ in self._levels()]
        for curve in self.curves:
            place_t = [self.x(float(x)) for x in curve.x_t]
            height_t = [self.y(float(y)) for y in curve.y_bt[0]]
            lines.append(np.interp(x_k, place_t, height_t, left=np.nan, right=np.nan))

        def hidden(corner: tuple[float, float]) -> int:
            left, top = corner
            beside = (left - 4 <= x_k) & (x_k <= left + wide + 4)
            return sum(
                int((beside & (y_k >= top - 8) & (y_k <= top + tall)).sum()) for y_k in lines
            )

        return min(((left, float(top)) for top in tops for left in lefts), key=hidden)


def _below(panel: Panel) -> bool:
    return len(panel.curves) > INSIDE


def _height(panel: Panel) -> float:
    if not _below(panel):
        return HEIGHT
    labels = [curve.label for curve in panel.curves]
    entries = len(labels) + (panel.paper is not None)
    return HEIGHT + 6 + ROW * -(-entries // _legend_columns(labels))


def _legend_columns(labels: Sequence[str]) -> int:
    longest = max(map(len, labels))
    return 3 if longest <= 18 else 2 if longest <= 30 else 1


def _axis_x(
    ticks: Sequence[float], x: Callable[[float], float], y: float, told: Callable[[float], str]
) -> list[str]:
    marks = [_line((x(tick), y), (x(tick), y + 3)) for tick in ticks]
    return marks + [_text(told(tick).replace("-", "−"), x(tick), y + 12) for tick in ticks]


def _decimals(ticks: Sequence[float]) -> int:
    """How many tell neighbouring ticks apart."""
    apart = float(np.diff(ticks).min()) if len(ticks) > 1 else 1.0
    return max(0, -math.floor(math.log10(apart) + 1e-9) + (not _round(apart)))


def _round(apart: float) -> bool:
    """Whether a distance of ticks has one digit only."""
    leading = apart / 10.0 ** math.floor(math.log10(apart) + 1e-9)
    return abs(leading - round(leading)) < 1e-6


def _short(steps: float) -> str:
    """A number of steps: 200k, 1.5M.

    >>> _short(200_000.0), _short(1_500_000.0), _short(0.0)
    ('200k', '1.5M', '0')
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(steps) >= unit:
            return f"{steps / unit:g}{letter}"
    return f"{steps:g}"


def _series(colour: str) -> str:
    return f"var(--series-{PALETTE.index(colour)})"


def _marker(kind: int, x: float, y: float, colour: str) -> str:
    shapes = (
        "m-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0-5.2 0z",
        "m-2.3-2.3h4.6v4.6h-4.6z",
        "m0-3l3 3l-3 3l-3-3z",
        "m0-3l3 5h-6z",
    )
    return f'<path d="M{_n(x)} {_n(y)}{shapes[kind % 4]}" fill="{colour}"/>'


def _line(
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    width: float = 0.8,
    dash: str = "",
) -> str:
    path = f"M{_n(start[0])} {_n(start[1])}L{_n(end[0])} {_n(end[1])}"
    return _stroke(path, colour, width, dash)


def _stroke(path: str, colour: str, width: float, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'


def _text(
    text: str, x: float, y: float, *, anchor: str = "middle", size: float = TEXT, more: str = ""
) -> str:
    shown = escape("".join(c if c.isprintable() else "?" for c in text))
    place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{more}'
    return f'<text {place} font-size="{size:g}">{shown}</text>'


def _n(number: Any) -> str:
    """Coordinates to a tenth of a point."""
    return f"{number:.1f}".removesuffix(".0")


def _element(parts: Sequence[str], width: float, height: float, title: str) -> str:
    box = f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}pt" height="{_n(height)}pt"'
    shown = escape("".join(c if c.isprintable() else "?" for c in title))
    about = f'role="img" aria-label="{shown}" font-family="sans-serif" fill="{INK}"'
    inner = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {about}>\n{inner}\n</svg>'
