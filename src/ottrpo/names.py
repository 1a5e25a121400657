"""What messages say: names that there are, values and errors in short."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def known(name: str, names: Iterable[str]) -> str:
    """What to say of a name that is none: the nearest, and all there are.

    >>> known("hoper", ["hopper", "swimmer"])
    "did you mean 'hopper'? known: hopper, swimmer"
    """
    there = list(names)
    close = get_close_matches(name, there, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(there) or 'none'}"


def in_short(value: Any) -> str:
    """A value for a message: one short line that no terminal obeys."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def plainly(value: Any) -> str:
    """What a value prints, in one line: NumPy breaks its arrays into several."""
    return " ".join(str(value).split())


def one_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
