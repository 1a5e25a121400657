"""Two sides compared: difference with interval, probability of improvement, settings, curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ottrpo.core.checks import Floats, require

from .sides import Measured, Side
from .statistics import (
    REPORT_SEED,
    Interval,
    difference_interval,
    improvement_interval,
    probability_of_improvement,
)

HEIGHT, WIDTH = 12, 64  # of a plot, in characters


@dataclass(frozen=True, kw_only=True)
class Duel:
    """Both sides on one environment.

    Attributes:
        environment: its id.
        a: scores of the first side's seeds.
        b: scores of the second side's seeds.
        difference: of the means, first less second.
        interval: of the difference; None if a side has one seed only.
        probability: that a run of the first beats one of the second.
        probability_interval: its bootstrap interval; None if a side has one seed only.
    """

    environment: str
    a: Floats
    b: Floats
    difference: float
    interval: Interval | None
    probability: float
    probability_interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sides over the environments that both have.

    Attributes:
        names: of the sides.
        deterministic: whether the scores are those of the policy's mode.
        duels: one per environment.
        probability: of improvement over all environments, each with the same weight.
        probability_interval: of it.
        settings: environment -> setting -> the two values, where they differ.
        only: environments that one side has and the other has not.
    """

    names: tuple[str, str]
    deterministic: bool
    duels: tuple[Duel, ...]
    probability: float
    probability_interval: Interval | None
    settings: Mapping[str, Mapping[str, tuple[Any, Any]]]
    only: tuple[str, ...]


def compare(a: Side, b: Side) -> Comparison:
    """Compare two sides.

    Raises:
        ValueError: if they have no environment or no way to act in common.
    """
    shared = [name for name in a.measured if name in b.measured]
    require(
        bool(shared),
        f"{a.name} and {b.name} have no environment in common: "
        f"{', '.join(a.measured)} against {', '.join(b.measured)}",
    )
    deterministic = _way_to_act(a, b, shared)
    pairs = [
        (a.measured[name].scores(deterministic=deterministic),
         b.measured[name].scores(deterministic=deterministic))
        for name in shared
    ]  # fmt: skip
    a_strata, b_strata = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Comparison(
        names=(a.name, b.name),
        deterministic=deterministic,
        duels=tuple(_duel(name, *pair) for name, pair in zip(shared, pairs, strict=True)),
        probability=probability_of_improvement(a_strata, b_strata),
        probability_interval=_chances(a_strata, b_strata),
        settings={
            name: different(a.measured[name].settings, b.measured[name].settings) for name in shared
        },
        only=tuple(sorted(set(a.measured) ^ set(b.measured))),
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
    return {
        "a": comparison.names[0],
        "b": comparison.names[1],
        "actions": "deterministic" if comparison.deterministic else "sampled",
        "probability": comparison.probability,
        "probability_interval": comparison.probability_interval,
        "environments": {
            duel.environment: {
                "a": _summary(duel.a),
                "b": _summary(duel.b),
                "difference": duel.difference,
                "difference_interval": duel.interval,
                "probability": duel.probability,
                "probability_interval": duel.probability_interval,
                "settings": comparison.settings[duel.environment],
            }
            for duel in comparison.duels
        },
        "only_one_side": list(comparison.only),
    }


def plot(a: Measured, b: Measured, *, deterministic: bool) -> list[str]:
    """Both mean curves in characters: a, b, and * where they meet; nothing for single points."""
    curves = [_mean_curve(side, deterministic=deterministic) for side in (a, b)]
    if min(mark_t.size for mark_t, _ in curves) < 2:
        return []
    furthest = max(float(mark_t[-1]) for mark_t, _ in curves)
    low = min(float(mean_t.min()) for _, mean_t in curves)
    high = max(float(mean_t.max()) for _, mean_t in curves)
    span = high - low or 1.0
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    columns = (np.arange(WIDTH) + 0.5) / WIDTH * furthest
    for letter, (mark_t, mean_t) in zip("ab", curves, strict=True):
        inside = (columns >= mark_t[0]) & (columns <= mark_t[-1])
        height = np.interp(columns, mark_t, mean_t)
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


def _way_to_act(a: Side, b: Side, shared: Sequence[str]) -> bool:
    """Deterministic actions where all runs were evaluated so, else sampled ones."""
    for way in (True, False):
        if all(way in side.measured[name].curves for side in (a, b) for name in shared):
            return way
    raise ValueError(
        f"{a.name} and {b.name} were evaluated in different ways, one with deterministic and one "
        f"with sampled actions only, or not at all"
    )


def _duel(environment: str, a: Floats, b: Floats) -> Duel:
    several = min(a.size, b.size) > 1
    return Duel(
        environment=environment,
        a=a,
        b=b,
        difference=float(a.mean() - b.mean()),
        interval=difference_interval(a, b) if several else None,
        probability=probability_of_improvement([a], [b]),
        probability_interval=_chances([a], [b]),
    )


def _chances(a_strata: Sequence[Floats], b_strata: Sequence[Floats]) -> Interval | None:
    if min(scores.size for scores in (*a_strata, *b_strata)) < 2:
        return None
    return improvement_interval(a_strata, b_strata, rng=np.random.default_rng(REPORT_SEED))


def _summary(score_n: Floats) -> dict[str, Any]:
    spread = float(score_n.std(ddof=1)) if score_n.size > 1 else None
    return {"mean": float(score_n.mean()), "std_seeds": spread, "seeds": score_n.size}


def _mean_curve(side: Measured, *, deterministic: bool) -> tuple[Any, Floats]:
    mark_t, return_nt = side.curves[deterministic].common()
    require(mark_t.size > 0, f"{side.name}: its seeds were never evaluated at the same step")
    return mark_t, return_nt.mean(axis=0)
