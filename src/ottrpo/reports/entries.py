"""The tables of the report page as plain data, which the page's template puts into HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from ottrpo.experiments.published import Published

from .tables import MISSING, number
from .verdicts import Verdict


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


DASH = Entry("–", kind="faint")
ABSENT = Entry("missing", kind="missing", hint=MISSING)


def columns(names: str) -> list[str]:
    """Column names, written with bars between them."""
    return [name.strip() for name in names.split("|")]


def printed(value: Published | None) -> Entry:
    """What the paper prints."""
    if value is None:
        return DASH
    return Entry(f"{value.score:,.0f} ± {value.spread:,.0f}", value.score)


def optional(value: float | None, form: str) -> Entry:
    """A number in ``form``, or a dash."""
    return DASH if value is None else Entry(form.format(value), value)


def share(part: int, whole: int) -> Entry:
    """Per cent, and of how many."""
    return Entry(f"{100 * part / whole:.1f} % of {whole:,}", part / whole) if whole else DASH


def difference(verdict: Verdict) -> Entry:
    """The difference and its interval."""
    if verdict.difference is None:
        return DASH
    text = signed(verdict.difference)
    if verdict.interval is not None:
        low, high = map(signed, verdict.interval)
        text = f"{text} ({low} to {high})"
    return Entry(text, verdict.difference)


def word(verdict: Verdict) -> Entry:
    """The verdict, and why."""
    text = f"{verdict.word}: {verdict.why}" if verdict.why else verdict.word
    return Entry(text, kind="verdict " + verdict.word.replace(" ", "-"))


def signed(value: float) -> str:
    """A number with its sign.

    >>> signed(12.0), signed(-12.0)
    ('+12.00', '-12.00')
    """
    return f"+{number(value)}" if value > 0 else number(value)
