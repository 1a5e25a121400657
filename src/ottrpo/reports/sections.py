"""What the report page tells: the paper's tables and ours, side by side."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from ottrpo.envs import catalogue
from ottrpo.experiments import published
from ottrpo.experiments.published import Published
from ottrpo.results.reading import CellResult

from .entries import ABSENT, DASH, Entry, Table, columns, difference, optional, printed, share, word
from .exhibits import Claim, Exhibit, setting
from .scores import CellScore
from .tables import MISSING, number, seconds_per_step, violations, with_spread
from .tabular import CellAudit
from .verdicts import NOT_COMPARABLE, Verdict, judge, judge_claim

Scores = Mapping[tuple[str, str], Sequence[CellScore]]  # (study, cell) -> one per way to act
Audits = Mapping[tuple[str, str], CellAudit]
_WHO = "environment | agent | configuration | actions | seeds | steps"
_OURS = "mean | ± seeds | ± time | IQM (95 %)"
_NO_NUMBERS = (DASH, ABSENT, DASH, DASH, DASH)


def score_table(
    exhibit: Exhibit, cells: Sequence[CellResult], scores: Scores, full: Mapping[str, int]
) -> Table:
    """The paper's scores, and ours beside them; what has no runs is there as missing."""
    rows: list[list[Entry]] = []
    theirs = published.table(str(exhibit.published))
    places = [catalogue.resolve(row["environment"]) for row in theirs]
    used = set()
    for cell in cells:
        match = next((i for i, row in enumerate(theirs) if _about(row, cell, exhibit)), None)
        used.add(match)
        value = None if match is None else _published(theirs[match])
        rows += _score_rows(cell, scores, value, full.get(cell.environment))
    rows += [_missing_row(row) for i, row in enumerate(theirs) if i not in used]
    rows.sort(key=lambda row: places.index(row[0].text))
    names = f"{_WHO} | paper | ours | difference (95 %) | verdict | ± seeds | ± time | IQM (95 %)"
    return Table(columns(names), rows)


def headline_table(cells: Sequence[CellResult], scores: Scores, full: Mapping[str, int]) -> Table:
    """OT-TRPO on the paper's environments: the numbers that a reader wants first."""
    rows = []
    for cell in cells:
        value = published.trained_score(cell.environment, cell.agent)
        found = scores[cell.study, cell.name]
        seeds = list(found[0].by_seed.values()) if found else []
        verdict = judge(seeds, value, steps=cell.steps, full_steps=full.get(cell.environment))
        who = _who(cell, found[0] if found else None)
        told = [printed(value), _mean(found), difference(verdict), word(verdict)]
        rows.append([who[0], *who[2:], *told])
    names = (
        "environment | configuration | actions | seeds | paper | ours, ± seeds | difference (95 %) "
        "| verdict"
    )
    return Table(columns(names), rows)


def cell_table(cells: Sequence[CellResult], scores: Scores) -> Table:
    """Our numbers alone."""
    rows = []
    for cell in cells:
        found = scores[cell.study, cell.name]
        rows += [
            [*_who(cell, score), *_ours(score), Entry(number(score.lowest), score.lowest)]
            for score in found
        ]
        if not found:
            rows.append([*_who(cell, None), *_NO_NUMBERS, DASH])
    return Table(columns(f"{_WHO} | {_OURS} | lowest seed"), rows)


def baseline_table(cells: Sequence[CellResult], scores: Scores) -> Table:
    """Every agent as the paper prints it, and as it does with each of our configurations."""
    configs = sorted(
        {cell.config for cell in cells},
        key=lambda name: (not name.startswith("paper"), name != "default", name),
    )
    places: dict[tuple[str, str], dict[str, CellResult]] = {
        (catalogue.resolve(row["environment"]), row["algorithm"]): {}
        for row in published.table("tab_trained_scores")
    }
    for cell in cells:
        places.setdefault((cell.environment, cell.agent), {})[cell.config] = cell
    rows = []
    for (environment, agent), held in places.items():
        ours = [
            _mean(scores[held[name].study, held[name].name])
            if name in held
            else (DASH if held else ABSENT)
            for name in configs
        ]
        value = published.trained_score(environment, agent)
        rows.append([Entry(environment), Entry(agent), printed(value), *ours])
    return Table(["environment", "agent", "as the paper prints it", *configs], rows)


def time_table(exhibit: Exhibit, cells: Sequence[CellResult]) -> Table:
    """Seconds per run, and each agent's time as a multiple of TRPO's: printed and ours."""
    theirs = {
        (catalogue.resolve(row["environment"]), row["algorithm"]): _published(row, "seconds")
        for row in published.table(str(exhibit.published))
    }
    ours: dict[tuple[str, str], list[CellResult]] = {place: [] for place in theirs}
    for cell in cells:
        if cell.runs:
            ours.setdefault((cell.environment, cell.agent), []).append(cell)
    rows: list[list[Entry]] = []
    for (environment, agent), held in ours.items():
        value, base = theirs.get((environment, agent)), theirs.get((environment, "trpo"))
        ratio = None if value is None or base is None else value.score / base.score
        trpo = [seconds_per_step(cell) for cell in ours.get((environment, "trpo"), ())]
        times = [_time(cell, min(trpo, default=None)) for cell in held]
        rows += [
            [Entry(environment), Entry(agent), *time, printed(value), optional(ratio, "{:.2f}")]
            for time in times or [[Entry(""), Entry("0", 0), DASH, ABSENT, DASH, DASH]]
        ]
    names = (
        "environment | agent | configuration | runs | steps | seconds, median | steps per second "
        "| time per step / TRPO's | paper, seconds | paper, time / TRPO's"
    )
    return Table(columns(names), rows)


def violation_table(exhibit: Exhibit, cells: Sequence[CellResult], audits: Audits) -> Table:
    """The share of updates that spent more than the radius: logged, audited, and by POT."""
    theirs = {
        (catalogue.resolve(row["environment"]), row["algorithm"]): float(row["percent"])
        for row in published.table(str(exhibit.published))
    }
    rows = []
    for cell in (cell for cell in cells if cell.has_region):
        over, updates = violations(cell)
        audit = audits.get((cell.study, cell.name))
        percent = theirs.get((cell.environment, cell.agent))
        rows.append(
            [
                *(Entry(x) for x in (cell.environment, cell.agent, cell.title, cell.study)),
                Entry(f"{updates:,}", updates) if updates else ABSENT,
                share(over, updates),
                share(audit.violations, audit.audited) if audit else DASH,
                share(audit.pot_violations, audit.pot_checked) if audit else DASH,
                optional(percent, "{:.0f} %"),
                DASH if percent is None else word(_judge_share(cell, percent)),
            ]
        )
    names = (
        "environment | agent | configuration | study | updates | over the radius | audited anew "
        "| by POT | paper | verdict"
    )
    return Table(columns(names), rows)


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
    names = columns("environment | above | below | statistic | difference (95 %) | verdict")
    nothing = [*[DASH] * 5, word(Verdict(word=NOT_COMPARABLE, why=MISSING))]
    tables = []
    for claim in claims:
        times = f", {claim.factor:g} times" if claim.factor != 1 else ""
        rows = []
        for above, below in claim.pairs(cells):
            verdict = judge_claim(claim, above, below)
            who = (above.environment, _name(above, below), _name(below, above) + times)
            compared = [Entry(x) for x in (*who, claim.statistic)]
            rows.append([*compared, difference(verdict), word(verdict)])
        tables.append(Table(names, rows or [nothing], caption=f"Claim: {claim.text}"))
    return tables


def mapping_table() -> Table:
    """Which installed environment stands for which of the paper's."""
    rows = [
        [
            Entry(entry.paper_id),
            Entry(entry.env_id),
            Entry(entry.difference or "the same"),
            optional(entry.optimum, "{:g}"),
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
    return Published(float(row[column]), float(row["spread"]))


def _score_rows(
    cell: CellResult, scores: Scores, value: Published | None, full: int | None
) -> list[list[Entry]]:
    rows = []
    for score in scores[cell.study, cell.name]:
        by_seed = list(score.by_seed.values())
        verdict = judge(by_seed, value, steps=score.steps, full_steps=full)
        steps, mean, *rest = _ours(score)
        told = [steps, printed(value), mean, difference(verdict), word(verdict), *rest]
        rows.append([*_who(cell, score), *told])
    if not rows:
        rows.append([*_who(cell, None), *_nothing(value)])
    return rows


def _missing_row(row: Mapping[str, str]) -> list[Entry]:
    """The paper has a number, we have no cell."""
    who = ("environment", "algorithm", "score", "spread")
    rest = " ".join(value for key, value in row.items() if key not in who and value)
    agent, value = row.get("algorithm", "ottrpo"), _published(row)
    names = [Entry(x) for x in (catalogue.resolve(row["environment"]), agent, rest, "")]
    return [*names, Entry("0", 0), *_nothing(value)]


def _nothing(value: Published | None) -> list[Entry]:
    """The line of a cell without runs, from its steps on."""
    steps, mean, *rest = _NO_NUMBERS
    return [steps, printed(value), mean, DASH, word(judge([], value)), *rest]


def _who(cell: CellResult, score: CellScore | None) -> list[Entry]:
    seeds = 0 if score is None else score.seeds
    of = f" of {cell.planned}" if cell.planned and cell.planned != seeds else ""
    return [
        Entry(cell.environment),
        Entry(cell.agent),
        Entry(cell.title, hint=f"{cell.study}: {cell.name}"),
        Entry("" if score is None else score.actions),
        Entry(f"{seeds}{of}", seeds, "missing" if of else ""),
    ]


def _ours(score: CellScore) -> list[Entry]:
    known = ""
    if score.interval is not None:
        known = f" ({number(score.interval.low)} to {number(score.interval.high)})"
    return [
        Entry(_count(score.steps), score.steps),
        *(
            DASH if x is None else Entry(number(x), x)
            for x in (score.mean, score.std_seeds, score.std_time)
        ),
        Entry(f"{number(score.iqm)}{known}", score.iqm),
    ]


def _mean(scores: Sequence[CellScore]) -> Entry:
    if not scores:
        return ABSENT
    score = scores[0]
    text = with_spread(score.mean, score.std_seeds)
    hint = f"{score.seeds} seeds, {score.steps:,} steps, {score.actions} actions"
    return Entry(text, score.mean, hint=hint)


def _time(cell: CellResult, trpo: float | None) -> list[Entry]:
    seconds = median(run.train_seconds for run in cell.runs)
    steps, per_step = cell.runs[0].steps, seconds_per_step(cell)
    return [
        Entry(cell.title),
        Entry(str(len(cell.runs)), len(cell.runs)),
        Entry(_count(steps), steps),
        Entry(f"{seconds:,.1f}", seconds),
        Entry(f"{1 / per_step:,.0f}", 1 / per_step),
        optional(None if trpo is None else per_step / trpo, "{:.2f}"),
    ]


def _judge_share(cell: CellResult, percent: float) -> Verdict:
    """Violations are no merit: fewer is better."""
    shares = [-100 * run.violations / run.updates for run in cell.runs if run.updates]
    return judge(shares, Published(-percent, 0.0))


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


def _count(steps: int) -> str:
    """A large number in few letters.

    >>> _count(4_000_000), _count(1_001_472), _count(151_552), _count(900)
    ('4M', '1M', '152k', '900')
    """
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= unit:
            return f"{steps / unit:.3g}{letter}"
    return str(steps)


def _value(value: Any) -> str:
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _name(cell: CellResult, other: CellResult) -> str:
    """What tells the cell from the other."""
    return cell.title if cell.agent == other.agent else f"{cell.agent}, {cell.title}"
