"""The one gate to the terminal: text from files and names can't command it.

Names of agents, environments and studies, and what error messages quote, may come from a stranger's
file. Characters that a terminal obeys or that turn text round are shown as escapes instead.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

LONGEST = 2000  # characters of an error's line: its beginning and its end
BOUNDLESS = 400  # a plain file has no width of its own
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_machine: list[TextIO] = []  # where JSON goes while everything else is kept from there


def shown(text: str) -> str:
    r"""``text`` as a terminal may have it; tabs and line breaks stay.

    >>> shown("Hopper\x1b[2J")
    'Hopper\\x1b[2J'
    """
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str, *, error: bool = False) -> None:
    """Print a line, or several; what an error quotes of a file floods nobody."""
    if error:
        text = "\n".join(_in_brief(line) for line in text.split("\n"))
    print(shown(text), file=sys.stderr if error else sys.stdout)


def _in_brief(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def spell_for_terminal() -> None:
    """What a terminal's alphabet lacks, λ in ASCII say, is shown as ``?`` and stops nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextmanager
def json_alone(wanted: bool) -> Iterator[None]:
    """If ``wanted``, send whatever libraries print to the standard error.

    What `say_json` prints is then all that the standard output gets.
    """
    if not wanted or _machine:
        yield
        return
    with _kept_from_machine(sys.stderr):
        yield


@contextmanager
def hushed(wanted: bool) -> Iterator[None]:
    """If ``wanted``, print nothing but errors, and what `say_json` prints."""
    if not wanted:
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, _kept_from_machine(nowhere):
        yield


@contextmanager
def _kept_from_machine(elsewhere: TextIO) -> Iterator[None]:
    _machine.append(_machine[-1] if _machine else sys.stdout)
    try:
        with redirect_stdout(elsewhere):
            yield
    finally:
        _machine.pop()


def say_json(data: Any, indent: int | None = None) -> None:
    """Print one JSON value.

    Raises:
        ValueError: if it has a number that JSON does not know.
    """
    import json  # here, as rich below: `ottrpo --help` needs neither

    text = json.dumps(data, allow_nan=False, default=str, indent=indent)
    print(text, file=_machine[-1] if _machine else sys.stdout)


def screen(**options: Any) -> "Console":
    """Rich's console behind the gate, as wide as the terminal, also when a pager reads it.

    Args:
        options: of the console.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment  # rich's own commands are no text
                yield segment if control else Segment(shown(text), style)

    width = None if _has_terminal() else BOUNDLESS
    return Screen(**{"highlight": False, "markup": False, "width": width, **options})


@contextmanager
def bar(what: str, total: int | None, *, stays: bool = False) -> Iterator[Callable[..., None]]:
    """A bar with the time that is left; on terminals alone, unless it ``stays`` when all is done.

    Gives what to call after each of them, or with how many are done and what is to be told.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = screen()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    told = TextColumn("{task.fields[told]}")
    hidden = not (stays or console.is_terminal)
    with Progress(*columns, told, console=console, transient=not stays, disable=hidden) as progress:
        task = progress.add_task(what, total=total, told="")

        def move(done: int | None = None, told: str = "") -> None:
            progress.update(task, advance=1 if done is None else None, completed=done, told=told)

        yield move


def _has_terminal() -> bool:
    """Whether there is a width to follow."""
    if "COLUMNS" in os.environ:
        return True
    return any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
