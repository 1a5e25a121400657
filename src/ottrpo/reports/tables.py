"""Tables of results: columns known by name, shown on a page, in Markdown or in a terminal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from ottrpo.envs import catalogue
from ottrpo.experiments.published import Published, trained_score
from ottrpo.results.reading import CellAudit, CellResult, StudyResult

from .scores import CellScore, cell_scores
from .verdicts import Verdict, judge

if TYPE_CHECKING:
    from rich.console import Console

MISSING = "no finished run"
# What a narrow terminal does without, first things first.
_SPARED = ("± time", "lowest seed", "over the radius", "95 %", "IQM", "± seeds", "steps")
_STUDY = (
    "environment | agent | configuration | actions | steps | mean | ± seeds | ± time | IQM | 95 % "
    "| lowest seed | seeds | over the radius | paper"
)
NARROW = 16  # letters of a name, where there is little room
FOLDED = 72  # letters; on less even numbers would be folded
SHORTEST = 0.05  # seconds; a run of a few milliseconds is told as 0.0


@dataclass(frozen=True)
class Entry:
    """One field of a table.

    Attributes:
        text: what is shown.
        sort: what it sorts by; the text if None.
        kind: classes of the style sheet.
        hint: told when pointed at.
    """

    text: str
    sort: float | None = None
    kind: str = ""
    hint: str = ""

    @property
    def key(self) -> str | None:
        """What the page's script sorts by."""
        return None if self.sort is None else f"{self.sort:.7g}"


@dataclass(frozen=True)
class Table:
    """Columns, rows, and a caption."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    caption: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers: they are set to the right."""
        return [any(row[i].sort is not None for row in self.rows) for i in range(len(self.columns))]

    def markdown(self) -> str:
        """For a page of text."""
        rules = ["--:" if right else "---" for right in self.numeric]
        lines = [self.columns, rules, *([entry.text for entry in row] for row in self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def without(self, spared: Sequence[str]) -> "Table":
        """The table with fewer columns."""
        kept = [i for i, name in enumerate(self.columns) if name not in spared]
        rows = [[row[i] for i in kept] for row in self.rows]
        return Table([self.columns[i] for i in kept], rows, self.caption)


DASH = Entry("–", kind="faint")
ABSENT = Entry("missing", kind="missing", hint=MISSING)


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a line of a table is about: a cell, acting in one way.

    Attributes:
        cell: which one.
        score: None if no run has finished.
        published: what the paper prints beside it.
        full_steps: how long a full run is, if one can be too short.
        own: entries of columns that this line has in place of the usual ones.
    """

    cell: CellResult
    score: CellScore | None = None
    published: Published | None = None
    full_steps: int | None = None
    own: Mapping[str, Entry] = field(default_factory=dict)

    @cached_property
    def verdict(self) -> Verdict:
        """On our score and the paper's."""
        by_seed = [] if self.score is None else list(self.score.by_seed.values())
        steps = self.cell.steps
        return judge(by_seed, self.published, steps=steps, full_steps=self.full_steps)


Column = Callable[[Line], Entry]


def table_of(lines: Iterable[Line], names: str) -> Table:
    """The columns ``names``, written with bars between them, of each line."""
    heads = columns(names)
    return Table(heads, [[line.own.get(n) or COLUMNS[n](line) for n in heads] for line in lines])


def columns(names: str) -> list[str]:
    """Column names, written with bars between them."""
    return [name.strip() for name in names.split("|")]


def lines_of(cell: CellResult, **more: Any) -> list[Line]:
    """A line per way to act, or a single one without a score; ``more`` are fields of `Line`."""
    more = {"published": trained_score(cell.environment, cell.agent)} | more
    scores: list[CellScore | None] = [*cell_scores(cell)]
    return [Line(cell=cell, score=score, **more) for score in scores or [None]]


def number(value: float) -> str:
    """A score with the digits that matter at its size.

    >>> number(3225.31), number(-13.0), number(0.8541)
    ('3,225.3', '-13.00', '0.854')
    """
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:z,.{digits}f}"  # no zero has a sign


def signed(value: float) -> str:
    """A number with its sign.

    >>> signed(12.0), signed(-12.0)
    ('+12.00', '-12.00')
    """
    return f"+{number(value)}" if value > 0 else number(value)


def with_spread(mean: float, spread: float | None) -> str:
    """A mean, and the spread that a single number does not have.

    >>> with_spread(3225.31, 20.0), with_spread(3225.31, None)
    ('3,225.3 ± 20.00', '3,225.3')
    """
    return number(mean) if spread is None else f"{number(mean)} ± {number(spread)}"


def count(steps: float) -> str:
    """A large number in few letters.

    >>> count(4_000_000), count(1_001_472), count(151_552), count(900)
    ('4M', '1M', '152k', '900')
    """
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= unit:
            return f"{steps / unit:.3g}{letter}"
    return str(steps)


def known(value: float | None, form: Callable[[float], str] = number) -> Entry:
    """A number, or a dash."""
    return DASH if value is None else Entry(form(value), value)


def share(part: int, whole: int) -> Entry:
    """Per cent, and of how many."""
    return Entry(f"{100 * part / whole:.1f} % of {whole:,}", part / whole) if whole else DASH


def printed(value: Published | None) -> Entry:
    """What the paper prints."""
    if value is None:
        return DASH
    return Entry(f"{value.score:,.0f} ± {value.spread:,.0f}", value.score)


def difference(verdict: Verdict) -> Entry:
    """The difference and its interval."""
    if verdict.difference is None:
        return DASH
    text = signed(verdict.difference)
    if verdict.interval is not None:
        text = f"{text} ({' to '.join(map(signed, verdict.interval))})"
    return Entry(text, verdict.difference)


def word(verdict: Verdict) -> Entry:
    """The verdict, and why."""
    text = f"{verdict.word}: {verdict.why}" if verdict.why else verdict.word
    return Entry(text, kind="verdict " + verdict.word.replace(" ", "-"))


def mean(score: CellScore | None) -> Entry:
    """The mean, its spread over seeds, and on how many that rests."""
    if score is None:
        return ABSENT
    hint = f"{score.seeds} seeds, {score.steps:,} steps, {score.actions} actions"
    return Entry(with_spread(score.mean, score.std_seeds), score.mean, hint=hint)


def violations(cell: CellResult) -> tuple[int, int]:
    """Updates that spent more than their radius, and all updates, over all seeds."""
    return sum(run.violations for run in cell.runs), sum(run.updates for run in cell.runs)


def seconds_per_step(cell: CellResult) -> float:
    """What a step of training took, the median over runs."""
    return median(max(run.train_seconds, SHORTEST) / run.steps for run in cell.runs)


def _seeds(line: Line) -> Entry:
    seeds = 0 if line.score is None else line.score.seeds
    planned = line.cell.planned
    of = f" of {planned}" if planned and planned != seeds else ""
    return Entry(f"{seeds}{of}", seeds, "missing" if of else "")


def _interval(line: Line) -> str:
    found = line.score and line.score.interval
    return " to ".join(map(number, found)) if found else ""


def _iqm(line: Line) -> Entry:
    if line.score is None:
        return DASH
    told = _interval(line)
    return Entry(number(line.score.iqm) + (f" ({told})" if told else ""), line.score.iqm)


def _acting(line: Line, *, deterministic: bool) -> Entry:
    """The score of one way to act, whichever the line is about."""
    ways = {score.deterministic: mean(score) for score in cell_scores(line.cell)}
    return ways.get(deterministic, DASH)


def _score(of: Callable[[CellScore], float | None], absent: Entry = DASH) -> Column:
    """A number of the score."""
    return lambda line: absent if line.score is None else known(of(line.score))


def _audit(of: Callable[[CellAudit], Entry]) -> Column:
    return lambda line: DASH if line.cell.audit is None else of(line.cell.audit)


_MEAN = _score(lambda score: score.mean, ABSENT)
COLUMNS: dict[str, Column] = {
    "environment": lambda line: Entry(line.cell.environment),
    "agent": lambda line: Entry(line.cell.agent),
    "configuration": lambda line: Entry(
        line.cell.title, hint=f"{line.cell.study}: {line.cell.name}"
    ),
    "settings": lambda line: Entry(f"{line.cell.agent}, {line.cell.title}"),
    "study": lambda line: Entry(line.cell.study),
    "actions": lambda line: (
        Entry(line.score.actions) if line.score else Entry(MISSING, kind="missing")
    ),
    "seeds": _seeds,
    "steps": lambda line: known(line.cell.steps, count),
    "mean": _MEAN,
    "ours": _MEAN,
    "ours, ± seeds": lambda line: mean(line.score),
    "deterministic": lambda line: _acting(line, deterministic=True),
    "sampled": lambda line: _acting(line, deterministic=False),
    "± seeds": _score(lambda score: score.std_seeds),
    "± time": _score(lambda score: score.std_time),
    "IQM": _score(lambda score: score.iqm),
    "95 %": lambda line: Entry(_interval(line) or DASH.text, _iqm(line).sort),
    "IQM (95 %)": _iqm,
    "lowest seed": _score(lambda score: float(score.score_n.min())),
    "paper": lambda line: printed(line.published),
    "difference (95 %)": lambda line: difference(line.verdict),
    "verdict": lambda line: word(line.verdict),
    "runs": lambda line: Entry(str(len(line.cell.runs)), len(line.cell.runs)),
    "seconds, median": lambda line: known(
        median(run.train_seconds for run in line.cell.runs), "{:,.1f}".format
    ),
    "steps per second": lambda line: known(1 / seconds_per_step(line.cell), "{:,.0f}".format),
    "updates": lambda line: known(violations(line.cell)[1] or None, "{:,}".format),
    "over the radius": lambda line: share(*violations(line.cell)) if line.cell.has_region else DASH,
    "audited anew": _audit(lambda audit: share(audit.violations, audit.audited)),
    "by POT": _audit(lambda audit: share(audit.pot_violations, audit.pot_checked)),
    "expected return": _audit(lambda audit: known(audit.exact_return)),
    "lowest expected": _audit(lambda audit: known(audit.lowest_exact_return)),
    "best possible": lambda line: known(catalogue.optimum(line.cell.environment)),
}


def as_data(study: StudyResult, *, sampled: bool = False) -> dict[str, Any]:
    """Environment -> agent -> configuration -> statistics; a cell without runs has none.

    Where a study evaluated both ways to act, the statistics are those of deterministic actions
    unless ``sampled``.
    """
    names = ("mean", "std_seeds", "std_time", "iqm", "ci_low", "ci_high")
    data: dict[str, Any] = {}
    for cell in study.cells:
        scores = cell_scores(cell)
        nothing = {**dict.fromkeys(names), "seeds": 0}
        found = scores[-1 if sampled else 0].statistics() if scores else nothing
        data.setdefault(cell.environment, {}).setdefault(cell.agent, {})[cell.title] = found
    return data


def terminal_table(study: StudyResult, console: "Console") -> Any:
    """All cells of a study, one line each and way to act, as wide as there is room."""
    lines = [line for cell in study.cells for line in lines_of(cell)]
    return for_terminal(table_of(lines, _STUDY), study.name, console, spared=_SPARED)


def for_terminal(table: Table, title: str, console: "Console", spared: Sequence[str] = ()) -> Any:
    """The table for a console.

    Where it would be wider than the console, names are folded, what is the same in every line is
    told once below, and then columns that may be ``spared`` are left out and named. If that
    does not do for a narrow one, each line becomes a few.
    """
    boundless = console.options.update(max_width=10_000)  # else it measures what it would squeeze

    def fits(drawn: Any) -> bool:
        return console.measure(drawn, options=boundless).maximum <= console.width

    same = {
        name: table.rows[0][i].text
        for i, name in enumerate(table.columns)
        if len({row[i].text for row in table.rows}) == 1 < len(table.rows)
    }
    gone = list(dict.fromkeys([*same, *spared]))
    for left_out in range(-1, len(gone) + 1):
        kept = table.without(gone[: max(left_out, 0)])
        drawn = _drawn(kept, title, NARROW if left_out >= 0 else None)
        if fits(drawn):
            break
    else:
        if console.width < FOLDED:
            return _turned(table, title)
    if left_out >= 0 and fits(drawn):  # names have what room is left
        wider = (_drawn(kept, title, width) for width in range(3 * NARROW, NARROW, -2))
        drawn = next(filter(fits, wider), drawn)
    once = [f"{name} {same[name]}" for name in gone[: max(left_out, 0)] if name in same]
    told = [f"in every line: {', '.join(once)}"] if once else []
    if left_out > len(same):
        missed = ", ".join(gone[len(same) : left_out])
        told.append(f"no room for {missed}: widen the terminal, or use --json")
    drawn.caption = "; ".join(told) or None
    return drawn


def _turned(table: Table, title: str) -> Any:
    """A line for each entry, its column's name before it."""
    from rich import box
    from rich import table as rich_table
    from rich.text import Text

    heading = Text(title) if title else None
    drawn = rich_table.Table(title=heading, box=box.SIMPLE, show_header=False)
    for row in table.rows:
        for name, entry in zip(table.columns, row, strict=True):
            if entry.text != DASH.text:
                drawn.add_row(Text(name), Text(entry.text, overflow="fold"))
        drawn.add_section()
    return drawn


def _drawn(table: Table, title: str, width: int | None) -> Any:
    """The table, with names folded to that width, if any."""
    from rich import box
    from rich import table as rich_table
    from rich.text import Text

    drawn = rich_table.Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD)
    drawn.pad_edge, drawn.collapse_padding = False, width is not None
    for name, right in zip(table.columns, table.numeric, strict=True):
        if right or name == "actions":  # broken between words if there is no other way
            drawn.add_column(name, justify="right" if right else "left", overflow="fold")
        else:
            drawn.add_column(name, overflow="fold", min_width=NARROW // 2, max_width=width)
    for row in table.rows:
        drawn.add_row(*(Text(entry.text) for entry in row))  # a name in brackets is no markup
    return drawn
