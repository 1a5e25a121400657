"""JSON without its traps: what a stranger wrote is plain, small, unambiguous data, or refused.

Infinity and NaN have no JSON; they are written as ``{"__float__": "inf"}``, so that they are read
only where somebody meant them.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

JSON = None | bool | int | float | str | list[Any] | dict[str, Any]
MAX_BYTES = 8 * 2**20  # some ten times this in memory, at worst
MAX_DEPTH = 64  # a checkpoint has some ten levels
MAX_DIGITS = 100  # the state of a random generator has 39; a million digits take minutes
NON_FINITE = "__float__"
_NON_FINITE_VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def dumps(value: Any) -> bytes:
    """``value`` as JSON; tuples become lists and NumPy's numbers plain ones.

    Raises:
        ValueError: if something in it is no data (a function, an array, a key that is no text), or
            `loads` would refuse it.
    """
    content = json.dumps(_plain(value, "data"), indent=1, allow_nan=False).encode()
    try:
        loads(content)  # what could not be read must not be written
    except ValueError as error:
        raise ValueError(f"the data can't be saved: {error}") from error
    return content


def loads(content: bytes) -> JSON:
    """The data in ``content``.

    Raises:
        ValueError: if it is no JSON, or JSON that no honest writer makes.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"its JSON has {len(content):,} bytes, more than {MAX_BYTES:,}")
    try:
        value: JSON = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise ValueError("its JSON is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"its JSON can't be read: {error}") from error
    except RecursionError as error:
        raise ValueError(f"its JSON is nested deeper than {MAX_DEPTH} levels") from error
    _require_shallow(value)
    return value


def shown(value: Any) -> str:
    """A value from a file for a message: one short line that no terminal obeys."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {NON_FINITE: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == NON_FINITE:
                raise ValueError(f"{where} can't be saved: it has the key {shown(key)}")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise ValueError(f"{where} can't be saved: it is a {type(value).__name__}, not plain data")


def _object(pairs: list[tuple[str, Any]]) -> Any:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"its JSON has the key {shown(key)} twice")
        made[key] = value
    if NON_FINITE not in made:
        return made
    name = made[NON_FINITE]
    if len(made) > 1 or not isinstance(name, str) or name not in _NON_FINITE_VALUES:
        raise ValueError(f"its JSON has {shown(made)}, which is no number")
    return _NON_FINITE_VALUES[name]


def _integer(text: str) -> int:
    _require_short(text)
    return int(text)


def _number(text: str) -> float:
    _require_short(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"its JSON has the number {shown(text)}, which is too large")
    return number


def _constant(text: str) -> float:
    raise ValueError(f"its JSON has {text}, which is no JSON")


def _require_short(text: str) -> None:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"its JSON has a number of {len(text):,} digits, more than {MAX_DIGITS}")


def _require_shallow(value: JSON) -> None:
    # level by level, not by recursion, which is what deep nesting breaks
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for node in level
            if isinstance(node, list | dict)
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise ValueError(f"its JSON is nested deeper than {MAX_DEPTH} levels")
