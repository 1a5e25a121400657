"""Settings that are written once: their documentation is read off the dataclass that has them."""

import re
from inspect import cleandoc

_ENTRY = re.compile(r"    (\w+): (.+)")
_MORE = " " * 8


def documentation(described: type) -> dict[str, str]:
    """What the docstrings of a class and of those it derives from say of each attribute.

    >>> class Settings:
    ...     '''Something.
    ...
    ...     Attributes:
    ...         radius: how far,
    ...             at most.
    ...     '''
    >>> documentation(Settings)
    {'radius': 'how far, at most.'}
    """
    told: dict[str, str] = {}
    for kind in reversed(described.__mro__):
        name = ""
        for line in cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2].splitlines():
            if entry := _ENTRY.match(line):
                name, told[entry[1]] = entry[1], entry[2]
            elif name and line.startswith(_MORE):
                told[name] += f" {line.strip()}"
    return told
