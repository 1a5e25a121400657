"""What the report page tells: the paper's tables and ours, side by side.

Where agents are held together over several environments, these are strata, and seeds the unit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.experiments import published
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

from .exhibits import Aggregate, Claim, Exhibit, select, setting
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
from .tables import (
    ABSENT,
    DASH,
    MISSING,
    Entry,
    Line,
    Table,
    columns,
    count,
    difference,
    known,
    lines_of,
    mean,
    printed,
    seconds_per_step,
    table_of,
    word,
)
from .verdicts import NOT_COMPARABLE, Verdict, judge_claim, judge_share

_VIOLATIONS = (
    "environment | agent | configuration | study | steps | updates | over the radius "
    "| audited anew | by POT | paper | verdict"
)
_TIMES = (
    "environment | agent | configuration | runs | steps | seconds, median | steps per second "
    "| time per step / TRPO's | paper, seconds | paper, time / TRPO's"
)
_NO_TIME = {"seconds, median": ABSENT, "steps per second": DASH}
Place = tuple[str, str]  # environment and agent
_WHO = "environment | agent | configuration | actions | seeds | steps"


def score_table(exhibit: Exhibit, cells: Sequence[CellResult], full: Mapping[str, int]) -> Table:
    """The paper's scores, and ours beside them; what has no runs is there as missing."""
    theirs = published.table(str(exhibit.published))
    places = [catalogue.resolve(row["environment"]) for row in theirs]
    lines: list[Line] = []
    used = set()
    for cell in cells:
        match = next((i for i, row in enumerate(theirs) if _about(row, cell, exhibit)), None)
        used.add(match)
        value = None if match is None else _published(theirs[match])
        full_steps = full.get(cell.environment)
        lines += lines_of(cell, published=value, full_steps=full_steps)
    for row in (row for i, row in enumerate(theirs) if i not in used):
        who = ("environment", "algorithm", "score", "spread")
        settings = " ".join(value for key, value in row.items() if key not in who and value)
        cell = _nobody(catalogue.resolve(row["environment"]), row.get("algorithm"), settings)
        lines.append(Line(cell=cell, published=_published(row)))
    lines.sort(key=lambda line: places.index(line.cell.environment))
    ours = "paper | ours | difference (95 %) | verdict | ± seeds | ± time | IQM (95 %)"
    return table_of(lines, f"{_WHO} | {ours}")


def headline_table(cells: Sequence[CellResult], full: Mapping[str, int]) -> Table:
    """OT-TRPO on the paper's environments: the numbers that a reader wants first."""
    lines = [lines_of(cell, full_steps=full.get(cell.environment))[0] for cell in cells]
    who = _WHO.replace("agent | ", "")
    return table_of(lines, f"{who} | paper | ours, ± seeds | difference (95 %) | verdict")


def cell_table(cells: Sequence[CellResult]) -> Table:
    """Our numbers alone."""
    lines = [line for cell in cells for line in lines_of(cell)]
    return table_of(lines, f"{_WHO} | mean | ± seeds | ± time | IQM (95 %) | lowest seed")


def baseline_table(cells: Sequence[CellResult]) -> Table:
    """Every agent as the paper prints it, and as it does with each of our configurations."""
    configs = sorted(
        {cell.config for cell in cells},
        key=lambda name: (not name.startswith("paper"), name != "default", name),
    )
    places: dict[tuple[str, str], dict[str, Entry]] = {
        (catalogue.resolve(row["environment"]), row["algorithm"]): {}
        for row in published.table("tab_trained_scores")
    }
    for cell in cells:
        ours = mean(next(iter(cell_scores(cell)), None))
        places.setdefault((cell.environment, cell.agent), {})[cell.config] = ours
    rows = [
        [
            Entry(environment),
            Entry(agent),
            printed(published.trained_score(environment, agent)),
            *(held.get(name, DASH if held else ABSENT) for name in configs),
        ]
        for (environment, agent), held in places.items()
    ]
    return Table(["environment", "agent", "as the paper prints it", *configs], rows)


def time_table(exhibit: Exhibit, cells: Sequence[CellResult]) -> Table:
    """Seconds per run, and each agent's time as a multiple of TRPO's: printed and ours."""
    theirs = _by_place(exhibit, "seconds")
    ours: dict[Place, list[CellResult]] = {place: [] for place in theirs}
    for cell in (cell for cell in cells if cell.runs):
        ours.setdefault((cell.environment, cell.agent), []).append(cell)
    lines = []
    for (environment, agent), held in ours.items():
        value, base = theirs.get((environment, agent)), theirs.get((environment, "trpo"))
        trpo = [seconds_per_step(cell) for cell in ours.get((environment, "trpo"), ())]
        for cell in held or [_nobody(environment, agent)]:
            ratio = seconds_per_step(cell) / min(trpo) if trpo and cell.runs else None
            own = {"steps": known(cell.runs[0].steps, count)} if cell.runs else _NO_TIME
            times = {
                "time per step / TRPO's": known(ratio, "{:.2f}".format),
                "paper, seconds": printed(value),
                "paper, time / TRPO's": known(
                    value.score / base.score if value and base else None, "{:.2f}".format
                ),
            }
            lines.append(Line(cell=cell, own=own | times))
    return table_of(lines, _TIMES)


def violation_table(exhibit: Exhibit, cells: Sequence[CellResult]) -> Table:
    """The share of updates that spent more than the radius: logged, audited, and by POT."""
    theirs = _by_place(exhibit, "percent")
    lines = []
    for cell in (cell for cell in cells if cell.has_region):
        value = theirs.get((cell.environment, cell.agent))
        paper = known(value.score if value else None, "{:.0f} %".format)
        verdict = DASH if value is None else word(judge_share(cell, value.score))
        lines.append(Line(cell=cell, own={"paper": paper, "verdict": verdict}))
    return table_of(lines, _VIOLATIONS)


def settings_tables(exhibit: Exhibit, cells: Sequence[CellResult]) -> list[Table]:
    """For each environment: the paper's value of each setting, and those of our cells."""
    theirs = published.table(str(exhibit.published))
    tables = []
    for paper_id in (name for name in theirs[0] if name != "parameter"):
        here = [cell for cell in cells if catalogue.paper_id(cell.environment) == paper_id]
        rows = [
            [Entry(name), Entry(value), *(Entry(_value(setting(cell, key))) for cell in here)]
            for name, value, key in _parameters(exhibit, theirs, paper_id)
        ]
        titles = [f"{cell.agent}, {cell.title}" for cell in here]
        tables.append(Table(["parameter", "paper", *titles], rows, caption=paper_id))
    return tables


def claim_tables(claims: Iterable[Claim], cells: Sequence[CellResult]) -> list[Table]:
    """For each thing that the text says: whether our runs say so too."""
    names = columns("environment | above | below | statistic | steps | difference (95 %) | verdict")
    nothing = [*[DASH] * 6, word(Verdict(word=NOT_COMPARABLE, why=MISSING))]
    tables = []
    for claim in claims:
        times = f", {claim.factor:g} times" if claim.factor != 1 else ""
        rows = []
        for above, below in claim.pairs(cells):
            verdict = judge_claim(claim, above, below)
            who = (above.environment, _name(above, below), _name(below, above) + times)
            compared = [Entry(x) for x in (*who, claim.statistic)]
            rows.append([*compared, _steps(above, below), difference(verdict), word(verdict)])
        tables.append(Table(names, rows or [nothing], caption=f"Claim: {claim.text}"))
    return tables


def mapping_table() -> Table:
    """Which installed environment stands for which of the paper's."""
    rows = [
        [
            Entry(entry.paper_id),
            Entry(entry.env_id),
            Entry(entry.difference or "the same"),
            known(entry.optimum, "{:g}".format),
        ]
        for entry in catalogue.CATALOGUE
        if entry.paper_id
    ]
    return Table(columns("paper | installed | differences | best possible return"), rows)


def _about(row: Mapping[str, str], cell: CellResult, exhibit: Exhibit) -> bool:
    """Whether the paper's row is about this cell."""
    if row["environment"] != catalogue.paper_id(cell.environment):
        return False
    if row.get("algorithm", cell.agent) != cell.agent:
        return False
    return all(row[name] in ("", str(setting(cell, key))) for name, key in exhibit.keys.items())


def _published(row: Mapping[str, str], column: str = "score") -> Published:
    return Published(float(row[column]), float(row.get("spread", 0)))


def _by_place(exhibit: Exhibit, column: str) -> dict[Place, Published]:
    """The paper's numbers by environment and agent."""
    return {
        (catalogue.resolve(row["environment"]), row["algorithm"]): _published(row, column)
        for row in published.table(str(exhibit.published))
    }


def _nobody(environment: str, agent: str | None, config: str = "") -> CellResult:
    """The paper has a number, we have no cell."""
    return CellResult(
        study="", name="", environment=environment, agent=agent or "ottrpo", config=config
    )


def _steps(above: CellResult, below: CellResult) -> Entry:
    """Of both; said apart where they differ, as scores of different lengths do not compare."""
    both = [count(cell.steps) for cell in (above, below) if cell.steps]
    return Entry(" and ".join(dict.fromkeys(both)) or DASH.text)


def _parameters(
    exhibit: Exhibit, theirs: Sequence[Mapping[str, str]], paper_id: str
) -> Iterable[tuple[str, str, str]]:
    """Name, printed value and our setting of each line; one parameter may be several of ours."""
    for row in theirs:
        parameter = row["parameter"]
        keys = exhibit.names.get(parameter, [parameter])
        for key in keys:
            name = parameter if key == parameter else f"{parameter} ({key})"
            yield name, row[paper_id], key


def _value(value: Any) -> str:
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _name(cell: CellResult, other: CellResult) -> str:
    """What tells the cell from the other."""
    return cell.title if cell.agent == other.agent else f"{cell.agent}, {cell.title}"


THRESHOLDS = np.linspace(-0.25, 2.0, 46)
SHOWN = 10  # profiles in one picture; more can't be told apart


@dataclass(frozen=True, kw_only=True)
class Group:
    """One agent in one configuration: normalised scores of its seeds, by environment.

    It should have all the ``environments``.
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
