"""What all verbs share: how they are parsed, and how a mistake of the user is told."""

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class Mistake(Exception):
    """Something the user can put right: told in one line, exit code 2."""


class Verb(Protocol):
    """One subcommand, already parsed."""

    def run(self) -> int:
        """Do it and return the exit code."""


AnyVerb = TypeVar("AnyVerb", bound=Verb)


@contextlib.contextmanager
def mistakes(context: str = "") -> Iterator[None]:
    """Tell what the library refuses inside this block as a mistake of the user.

    Wrap what reads the user's input, never what works on it: there a ``ValueError`` is a bug.
    """
    try:
        yield
    except OSError as error:
        reason = f"{error.filename or context}: {error.strerror or error}"
        raise Mistake(one_line(reason)) from error
    except RecursionError as error:
        raise Mistake(f"{context or 'what was given'}: nested too deeply") from error
    except (ValueError, ImportError) as error:
        raise Mistake(one_line(f"{context}: {error}" if context else str(error))) from error


def parse(verb_type: type[AnyVerb], prog: str, arguments: Sequence[str]) -> AnyVerb | None:
    """The verb with its options; None if help was asked for and has been printed."""
    import tyro  # here: `ottrpo --help` needs no parser

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                verb_type,
                prog=prog,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as exit_:
        if exit_.code in (0, None):
            return None
        raise Mistake(_unboxed(complaint.getvalue())) from None


def one_line(text: str) -> str:
    """``text`` without line breaks."""
    return " ".join(text.split())


def _unboxed(text: str) -> str:
    """Tyro's framed message as one line: the frame and its title go, rules become semicolons."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [row.strip("│ ") for row in plain.splitlines() if not row.startswith(("╭", "╰"))]
    parts = re.split(r"─{4,}", " ".join(rows))
    return "; ".join(one_line(part) for part in parts if part.strip())
