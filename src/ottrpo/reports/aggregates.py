"""Agents over several environments at once: environments are strata, seeds the unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.experiments import published
from ottrpo.results.reading import CellResult

from .exhibits import Aggregate, select
from .figures import Curve, Panel
from .scores import cell_scores
from .statistics import (
    REPORT_SEED,
    improvement_interval,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
    stratified_iqm,
)
from .tables import ABSENT, DASH, Entry, Table, columns

THRESHOLDS = np.linspace(-0.25, 2.0, 46)
SHOWN = 10  # profiles in one picture; more can't be told apart


@dataclass(frozen=True, kw_only=True)
class Group:
    """One agent in one configuration.

    Attributes:
        agent: its name.
        title: of the configuration.
        scores: normalised, by environment; one per seed.
        environments: all that it should have.
    """

    agent: str
    title: str
    scores: Mapping[str, Floats]
    environments: Sequence[str]

    @property
    def missing(self) -> list[str]:
        """The environments without runs."""
        return [name for name in self.environments if name not in self.scores]

    @property
    def strata(self) -> list[Floats]:
        """Its scores, one array per environment."""
        return [self.scores[name] for name in self.environments if name in self.scores]


def find_groups(aggregate: Aggregate, cells: Sequence[CellResult]) -> list[Group]:
    """Every agent and configuration that has runs on one of the environments."""
    held: dict[tuple[str, str], dict[str, Floats]] = {}
    for cell in select(cells, aggregate.cells):
        found = cell_scores(cell) if cell.environment in aggregate.environments else []
        if found:
            scores = normalised(cell.environment, found[0].score_n)
            held.setdefault((cell.agent, cell.title), {})[cell.environment] = scores
    return [
        Group(agent=agent, title=title, scores=scores, environments=aggregate.environments)
        for (agent, title), scores in held.items()
    ]


def normalised(environment: str, score_n: Floats) -> Floats:
    """0 is the lowest score that the paper prints for the environment, 1 its OT-TRPO.

    >>> normalised("Taxi-v4", np.array([-200.0, 3.0]))
    array([0., 1.])
    """
    paper_id = catalogue.paper_id(environment)
    printed = {
        row["algorithm"]: float(row["score"])
        for row in published.table("tab_trained_scores")
        if row["environment"] == paper_id
    }
    low, high = min(printed.values()), printed["ottrpo"]
    return (score_n - low) / (high - low)


def aggregate_table(groups: Sequence[Group]) -> Table:
    """IQM over all environments, and how likely the first complete OT-TRPO is to beat each."""
    complete = [group for group in groups if not group.missing]
    reference = next((group for group in complete if group.agent == "ottrpo"), None)
    rows = []
    for group in groups:
        runs = sum(stratum.size for stratum in group.strata)
        who = [Entry(group.agent), Entry(group.title), Entry(str(runs), runs)]
        if group.missing:
            hint = Entry(f"missing on {', '.join(group.missing)}", kind="missing")
            rows.append([*who, hint, ABSENT, ABSENT, ABSENT])
        else:
            rows.append([*who, *_iqm(group), *_improvement(reference, group)])
    beats = "P(OT-TRPO beats it)"
    if reference is not None:
        beats = f"P({reference.agent}, {reference.title} beats it)"
    names = columns("agent | configuration | runs | IQM, normalised | 95 %")
    return Table([*names, beats, "95 % of the probability"], rows)


def aggregate_panel(aggregate: Aggregate, groups: Sequence[Group]) -> Panel | None:
    """The performance profiles of the complete groups; None if there are none."""
    curves = []
    for group in [group for group in groups if not group.missing][:SHOWN]:
        rng = np.random.default_rng(REPORT_SEED)
        band = performance_profile(group.strata, THRESHOLDS, rng=rng, resamples=500)
        label = f"{group.agent}, {group.title}"
        curves.append(Curve(label, group.agent, THRESHOLDS, band))
    if not curves:
        return None
    return Panel(
        title=f"{aggregate.title}: performance profiles",
        curves=tuple(curves),
        xlabel="normalised score",
        ylabel="share of runs above it",
    )


def _iqm(group: Group) -> list[Entry]:
    iqm = stratified_iqm(group.strata)
    low, high = stratified_interval(group.strata, rng=np.random.default_rng(REPORT_SEED))
    return [Entry(f"{iqm:.3f}", iqm), Entry(f"{low:.3f} to {high:.3f}", low)]


def _improvement(reference: Group | None, group: Group) -> list[Entry]:
    if reference is None or reference is group:
        return [DASH] * 2
    chance = probability_of_improvement(reference.strata, group.strata)
    low, high = improvement_interval(
        reference.strata, group.strata, rng=np.random.default_rng(REPORT_SEED), resamples=1000
    )
    return [Entry(f"{chance:.2f}", chance), Entry(f"{low:.2f} to {high:.2f}", low)]
