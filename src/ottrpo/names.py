"""Names that users write, and those that there are."""

from collections.abc import Iterable
from difflib import get_close_matches


def known(name: str, names: Iterable[str]) -> str:
    """What to say of a name that is none: the nearest, and all there are.

    >>> known("hoper", ["hopper", "swimmer"])
    "did you mean 'hopper'? known: hopper, swimmer"
    """
    there = list(names)
    close = get_close_matches(name, there, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(there) or 'none'}"
