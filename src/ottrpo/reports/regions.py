"""Regions of transport and of KL side by side.

Where a study has several radii, as many for one region as for the other, two differences are told:
of the best radius of each, which flatters both alike or the noisier one a little more, and of the
means over all radii, for which nothing is chosen. ``tests/reports/test_regions.py`` measures how
often the intervals hold what they should. Where a study has one radius for each, it was chosen
before, by the rule of `best`. Differences are paired: runs of one seed begin alike.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ottrpo.results.reading import CellResult

from .scores import cell_scores
from .statistics import Difference, difference_by_seed, mean_interval
from .tables import ABSENT, DASH, Entry, Table, number, signed

REGIONS = ("transport", "kl")
TITLES = {"transport": "transport", "kl": "KL"}
FEWEST = 2  # seeds, to have an interval

OF_ALL = "of all radii"
HEADS = (
    *("environment", "policy", *TITLES.values()),
    *("difference", OF_ALL, "of all training", "seeds"),
)

BySeed = dict[int, float]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one radius did.

    Attributes:
        radius: as it was asked for; of a schedule its start.
        last: mean return of the last tenth of training, by seed.
        whole: mean return of all evaluations, by seed.
    """

    radius: str
    last: BySeed
    whole: BySeed


class Match(NamedTuple):
    """A problem and a kind of policy, and what every radius of each region did there."""

    environment: str
    policy: str
    trials: dict[str, list[Trial]]

    @property
    def seeds(self) -> list[int]:
        """Those of all trials."""
        every = [set(trial.last) for trials in self.trials.values() for trial in trials]
        return sorted(set.intersection(*every)) if every else []

    @property
    def complete(self) -> bool:
        """Whether both regions can be scored."""
        return self.trials.keys() == set(REGIONS) and len(self.seeds) >= FEWEST

    @property
    def name(self) -> str:
        """For a sentence."""
        return f"{self.environment} ({self.policy})" if self.policy else self.environment


def best(trials: Sequence[Trial], seeds: Collection[int]) -> Trial:
    """The highest mean score; of equal ones the highest mean of all evaluations, then the first."""
    return max(
        trials,
        key=lambda trial: (
            fmean(trial.last[seed] for seed in seeds),
            fmean(trial.whole[seed] for seed in seeds),
        ),
    )


def differences(match: Match) -> tuple[Difference, Difference, Difference]:
    """Transport less KL: at the end of training with the best radius of each, then with all.

    The third is over the whole of training, again with those that are best at its end.
    """
    seeds, (transport, kl) = match.seeds, (match.trials[region] for region in REGIONS)
    chosen, other = best(transport, seeds), best(kl, seeds)
    pairs = (
        (chosen.last, other.last),
        tuple({s: fmean(t.last[s] for t in trials) for s in seeds} for trials in (transport, kl)),
        (chosen.whole, other.whole),
    )
    of_end, of_all, of_whole = (
        difference_by_seed(*({seed: one[seed] for seed in seeds} for one in pair)) for pair in pairs
    )
    return of_end, of_all, of_whole


def matches(cells: Sequence[CellResult]) -> list[Match]:
    """The cells by problem and kind of policy, which is what a title says before the region."""
    found: dict[tuple[str, str], Match] = {}
    for cell in cells:
        region, scores = cell.resolved.get("region"), cell_scores(cell)
        if region not in REGIONS or not scores:
            continue
        policy = cell.title.partition(region)[0].strip("-")
        key = cell.environment, policy
        curves = cell.curves[scores[0].deterministic]
        whole = np.nanmean(curves.return_nt, axis=1).tolist()
        trial = Trial(
            radius=_radius(cell.resolved.get("radius")),
            last=scores[0].by_seed,
            whole=dict(zip(curves.seed_n, whole, strict=True)),
        )
        match = found.setdefault(key, Match(*key, {}))
        match.trials.setdefault(region, []).append(trial)
    return list(found.values())


def markdown_regions(cells: Sequence[CellResult]) -> str:
    """A row per problem and kind of policy, and in a sentence which region is ahead where."""
    every = matches(cells)
    table = Table([*HEADS], [_row(match) for match in every])
    spared = [] if any(match.policy for match in every) else ["policy"]
    chosen_before = all(len(trials) == 1 for match in every for trials in match.trials.values())
    if chosen_before:
        spared.append(OF_ALL)
    told = {match.name: differences(match) for match in every if match.complete}
    whens = {
        "At the end of training": 0,
        "With all radii alike": 1,
        "Over the whole of training": 2,
    }
    said = [
        _sentence(when, {name: found[i] for name, found in told.items()})
        for when, i in whens.items()
        if told and not (chosen_before and i == 1)
    ]
    return table.without(spared).markdown() + "".join(f"\n{sentence}" for sentence in said)


def _row(match: Match) -> list[Entry]:
    row = [Entry(match.environment), Entry(match.policy)]
    if not match.complete:
        return [*row, *[ABSENT] * 5, DASH]
    seeds = match.seeds
    for region in REGIONS:
        trial = best(match.trials[region], seeds)
        row.append(with_interval({seed: trial.last[seed] for seed in seeds}))
    row += [difference_entry(each) for each in differences(match)]
    return [*row, Entry(str(len(seeds)), len(seeds))]


def markdown_radii(cells: Sequence[CellResult]) -> str:
    """A row per problem, kind of policy and region, and what each radius did; the best is bold."""
    every = [t for match in matches(cells) for trials in match.trials.values() for t in trials]
    columns = sorted({trial.radius for trial in every}, key=lambda told: float(told.strip("%")))
    rows = []
    for match in matches(cells):
        for region, trials in match.trials.items():
            by_radius = {trial.radius: trial for trial in trials}
            chosen = best(trials, match.seeds) if len(match.seeds) >= FEWEST else None
            row = [Entry(match.environment), Entry(f"{match.policy} {TITLES[region]}".strip())]
            row += [_mean(by_radius.get(radius), chosen, match.seeds) for radius in columns]
            rows.append(row)
    return Table(["environment", "region", *columns], rows).markdown()


def _radius(told: Any) -> str:
    if isinstance(told, dict):
        return f"{told['start']:g}" if isinstance(told["start"], float) else str(told["start"])
    return str(told)


def _interval(by_seed: BySeed) -> tuple[float, float]:
    return mean_interval(list(by_seed.values()))


def with_interval(by_seed: BySeed) -> Entry:
    """The mean over seeds and Student's interval."""
    mean, (low, high) = fmean(by_seed.values()), _interval(by_seed)
    text = number(mean) if low == high else f"{number(mean)} ({number(low)} to {number(high)})"
    return Entry(text, mean)


def difference_entry(found: Difference) -> Entry:
    """The difference and its interval."""
    low, high = found.interval or (found.value, found.value)
    text = f"{signed(found.value)} ({signed(low)} to {signed(high)})"
    return Entry(text if found.value or low != high else "0", found.value)


def _mean(trial: Trial | None, chosen: Trial | None, seeds: Sequence[int]) -> Entry:
    """The mean, and half of its interval, over the seeds that all radii have."""
    if trial is None or not seeds:
        return DASH
    values = [trial.last[seed] for seed in seeds]
    text = number(fmean(values))
    if len(values) > 1:
        low, high = mean_interval(values)
        text += f" ± {number((high - low) / 2)}"
    return Entry(f"**{text}**" if trial is chosen else text, fmean(values))


def _sentence(when: str, found: Mapping[str, Difference]) -> str:
    """Where transport is ahead and where behind, with 95 % confidence each."""
    ends = {name: each.interval for name, each in found.items() if each.interval}
    sides = {
        "ahead": [name for name, (low, _) in ends.items() if low > 0],
        "behind": [name for name, (_, high) in ends.items() if high < 0],
    }
    said = " and ".join(
        f"{side} in {len(names)} ({', '.join(names)})" if names else f"{side} in none"
        for side, names in sides.items()
    )
    return f"{when} transport is {said}, of {len(found)} comparisons.\n"
