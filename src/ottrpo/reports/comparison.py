"""Two sides compared: difference with interval, probability of improvement, settings, curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ottrpo.core.checks import Floats, require
from ottrpo.results.reading import CellResult

from .scores import CellScore, cell_scores
from .sides import Side
from .statistics import (
    REPORT_SEED,
    Difference,
    Interval,
    difference_by_seed,
    improvement_interval,
    probability_of_improvement,
)
from .tables import Entry, Table, columns, count, known, mean, number
from .verdicts import IDENTICAL, same_runs

HEIGHT, WIDTH = 12, 64  # of a plot, in characters


class Chance(NamedTuple):
    """How likely a run of the first side beats one of the second; no interval of single seeds."""

    value: float
    interval: Interval | None

    def __str__(self) -> str:
        told = self.interval and f" ({self.interval.low:.2f} to {self.interval.high:.2f})"
        return f"{self.value:.2f}{told or ''}"


@dataclass(frozen=True)
class Duel:
    """Both sides on one environment: their scores."""

    a: CellScore
    b: CellScore

    @property
    def environment(self) -> str:
        """Its id."""
        return self.a.cell.environment

    @cached_property
    def difference(self) -> Difference:
        """Of the means, first less second."""
        return difference_by_seed(self.a.by_seed, self.b.by_seed)

    @cached_property
    def identical(self) -> bool:
        """Whether the two did the same in every evaluation."""
        return same_runs(self.a.cell, self.b.cell)

    @cached_property
    def chance(self) -> Chance:
        """Of the first."""
        return _chance_of([self])

    @cached_property
    def settings(self) -> dict[str, tuple[Any, Any]]:
        """The two values of each in which they differ."""
        return different(*(_settings(score.cell) for score in (self.a, self.b)))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sides over the environments that both have.

    Attributes:
        names: of the sides.
        duels: one per environment.
        only: environments that one side has and the other has not.
    """

    names: tuple[str, str]
    duels: tuple[Duel, ...]
    only: tuple[str, ...] = ()

    @cached_property
    def chance(self) -> Chance:
        """Over all environments, each with the same weight."""
        return _chance_of(self.duels)

    @property
    def actions(self) -> str:
        """The way to act that scores are of."""
        return self.duels[0].a.actions


def compare(a: Side, b: Side) -> Comparison:
    """Compare two sides.

    Raises:
        ValueError: if they have no environment or no way to act in common.
    """
    shared = [name for name in a.cells if name in b.cells]
    require(
        bool(shared),
        f"{a.name} and {b.name} have no environment in common: "
        f"{', '.join(a.cells)} against {', '.join(b.cells)}",
    )
    return Comparison(
        names=(a.name, b.name),
        duels=tuple(Duel(*pair) for pair in _scored(a, b, shared)),
        only=tuple(sorted(set(a.cells) ^ set(b.cells))),
    )


def different(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ; tables are compared entry by entry.

    >>> different({"radius": 0.1, "net": {"depth": 1}}, {"radius": 0.1, "net": {"depth": 2}})
    {'net.depth': (1, 2)}
    """
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*a, *b]):
        left, right = a.get(key), b.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found |= {f"{key}.{name}": pair for name, pair in different(left, right).items()}
        elif left != right:
            found[key] = (left, right)
    return found


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The comparison for machines."""

    def told(score: CellScore) -> dict[str, Any]:
        statistics = score.statistics()
        found = {name: statistics[name] for name in ("mean", "std_seeds", "seeds")}
        return {"study": score.cell.study, "steps": score.cell.steps, **found}

    return {
        "a": comparison.names[0],
        "b": comparison.names[1],
        "actions": comparison.actions,
        "probability": comparison.chance.value,
        "probability_interval": comparison.chance.interval,
        "environments": {
            duel.environment: {
                "a": told(duel.a),
                "b": told(duel.b),
                "difference": duel.difference.value,
                "difference_interval": duel.difference.interval,
                "paired": duel.difference.paired,
                "identical": duel.identical,
                "probability": duel.chance.value,
                "probability_interval": duel.chance.interval,
                "settings": duel.settings,
            }
            for duel in comparison.duels
        },
        "only_one_side": list(comparison.only),
    }


def duel_table(comparison: Comparison) -> Table:
    """A line per environment."""
    rows = []
    for duel in comparison.duels:
        value, interval, paired = duel.difference
        low_high = "-" if interval is None else " to ".join(map(number, interval))
        how = "" if interval is None else "seed by seed" if paired else "Welch"
        chance = Entry(str(duel.chance), value)
        compared = [known(value), Entry(low_high, value), Entry(how), chance]
        if duel.identical:
            compared = [Entry(IDENTICAL, value), Entry("-"), Entry(""), Entry("-")]
        seeds, steps = (
            ", ".join(dict.fromkeys(count(getattr(side, of)) for side in (duel.a, duel.b)))
            for of in ("seeds", "steps")
        )
        who = [Entry(duel.environment), mean(duel.a), mean(duel.b), Entry(seeds, 0)]
        rows.append([*who, Entry(steps, 0), *compared])
    names = "environment | a, ± seeds | b, ± seeds | seeds | steps | a - b | 95 % | how | P(a > b)"
    return Table(columns(names), rows)


def plot(a: CellScore, b: CellScore) -> list[str]:
    """Both mean curves in characters: a, b, and * where they meet; nothing for single points."""
    curves = [_mean_curve(side) for side in (a, b)]
    if min(mark_t.size for mark_t, _ in curves) < 2:
        return []
    furthest = max(float(mark_t[-1]) for mark_t, _ in curves)
    low = min(float(mean_t.min()) for _, mean_t in curves)
    high = max(float(mean_t.max()) for _, mean_t in curves)
    span = high - low or 1.0
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    middles = (np.arange(WIDTH) + 0.5) / WIDTH * furthest
    for letter, (mark_t, mean_t) in zip("ab", curves, strict=True):
        inside = (middles >= mark_t[0]) & (middles <= mark_t[-1])
        height = np.interp(middles, mark_t, mean_t)
        rows = ((high - height) / span * (HEIGHT - 1)).round().astype(int)
        for column in np.flatnonzero(inside):
            held = canvas[rows[column]][column]
            canvas[rows[column]][column] = letter if held == " " else "*"
    labels = [f"{high:,.6g}", *[""] * (HEIGHT - 2), f"{low:,.6g}"]
    margin = max(map(len, labels))
    lines = [
        f"{label:>{margin}} |{''.join(row)}" for label, row in zip(labels, canvas, strict=True)
    ]
    end = f"{furthest:,.0f} steps"
    return [*lines, f"{'':>{margin}} +{'-' * WIDTH}", f"{end:>{margin + 2 + WIDTH}}"]


def _scored(a: Side, b: Side, shared: Sequence[str]) -> list[tuple[CellScore, CellScore]]:
    """Scores of deterministic actions where all runs were evaluated so, else of sampled ones."""
    for way in (True, False):
        if all(way in side.cells[name].curves for side in (a, b) for name in shared):
            return [(_acting(a.cells[name], way), _acting(b.cells[name], way)) for name in shared]
    raise ValueError(
        f"{a.name} and {b.name} were evaluated in different ways, one with deterministic and one "
        f"with sampled actions only, or not at all"
    )


def _acting(cell: CellResult, deterministic: bool) -> CellScore:
    return next(score for score in cell_scores(cell) if score.deterministic == deterministic)


def _settings(cell: CellResult) -> dict[str, Any]:
    named = {"agent": cell.agent, "config": cell.title, "steps": cell.steps}
    return {**named, **cell.resolved}


def _chance_of(duels: Sequence[Duel]) -> Chance:
    """That a run of the first side beats one of the second; environments have the same weight."""
    a, b = ([getattr(duel, side).score_n for duel in duels] for side in "ab")
    value = probability_of_improvement(a, b)
    if min(scores.size for scores in (*a, *b)) < 2:
        return Chance(value, None)
    rng = np.random.default_rng(REPORT_SEED)
    return Chance(value, improvement_interval(a, b, rng=rng))


def _mean_curve(score: CellScore) -> tuple[Any, Floats]:
    cell = score.cell
    mark_t, return_nt = cell.curves[score.deterministic].common()
    require(mark_t.size > 0, f"{cell.study}: its seeds were never evaluated at the same step")
    return mark_t, return_nt.mean(axis=0)
