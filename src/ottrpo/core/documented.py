"""Settings that are written once: their documentation is read off the dataclass that has them."""

import re
from inspect import cleandoc

_ENTRY = re.compile(r"    (\w+): (.+)")
_FIELD = re.compile(r":param (\w+): (.+)")  # how Stable-Baselines3 writes it
_ELSEWHERE = re.compile(r"\s*See :ref:`[^`]*`")  # a link into another library's pages
_SECTIONS = ("Attributes:", "Args:")


def documentation(described: type) -> dict[str, str]:
    """What the docstrings of a class and of those it derives from say of attributes and arguments.

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
        section, name, deeper = False, "", ""
        for line in cleandoc(kind.__doc__ or "").splitlines():
            if line and not line.startswith(" "):
                section, name = line in _SECTIONS, ""
            entry = (section and _ENTRY.match(line)) or _FIELD.match(line)
            if entry:
                name, told[entry[1]] = entry[1], entry[2]
                deeper = " " * (8 if section else 4)
            elif name and line.startswith(deeper):
                told[name] += f" {line.strip()}"
    return {name: _ELSEWHERE.sub("", text) for name, text in told.items()}
