"""JSON without its traps: what a stranger wrote is plain, small, unambiguous data, or refused.

Infinity and NaN have no JSON; they are written as ``{"__float__": "inf"}``, so that they are read
only where somebody meant them.

JSON also forgets the difference between a tuple and a list, or a NumPy number and a plain one;
arithmetic does not. `encode` takes Python values apart into arrays and JSON, and `decode` makes
exactly what they were of them; what JSON can't say is written as ``{"@": kind, ...}``. Random
generators that belong to nobody, from which environments may draw, are such values too.
"""

import json
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ottrpo.names import in_short

JSON = None | bool | int | float | str | list[Any] | dict[str, Any]
MAX_BYTES = 8 * 2**20  # some ten times this in memory, at worst
MAX_DEPTH = 64  # a checkpoint has some ten levels
MAX_DIGITS = 100  # the state of a random generator has 39; a million digits take minutes
NON_FINITE = "__float__"
_NON_FINITE_VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Arrays = dict[str, np.ndarray[Any, Any]]
TAG = "@"
LONG = 8  # lists of numbers longer than this go into an array
GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
MERSENNE_WORDS, PHILOX_WORDS = 624, 4
_NUMBERS: dict[type, Any] = {float: np.float64, int: np.int64}


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
                raise ValueError(f"{where} can't be saved: it has the key {in_short(key)}")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise ValueError(f"{where} can't be saved: it is a {type(value).__name__}, not plain data")


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys; of a doubled one nobody knows which was meant."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"its JSON has the key {in_short(key)} twice")
        made[key] = value
    return made


def _object(pairs: list[tuple[str, Any]]) -> Any:
    made = once_each(pairs)
    if NON_FINITE not in made:
        return made
    name = made[NON_FINITE]
    if len(made) > 1 or not isinstance(name, str) or name not in _NON_FINITE_VALUES:
        raise ValueError(f"its JSON has {in_short(made)}, which is no number")
    return _NON_FINITE_VALUES[name]


def _integer(text: str) -> int:
    _require_short(text)
    return int(text)


def _number(text: str) -> float:
    _require_short(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"its JSON has the number {in_short(text)}, which is too large")
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


class NotPlain(ValueError):
    """A value that is neither a number, a text, an array, a random generator, nor made of those."""


def encode(value: Any, arrays: Arrays, name: str) -> Any:
    """``value`` as JSON; its arrays are added to ``arrays`` under names that start with ``name``.

    Raises:
        NotPlain: if it holds something else than data.
    """
    if value is None or type(value) in _PLAIN:  # NumPy's numbers derive from these
        return value
    for types, encoder in _ENCODERS:
        if isinstance(value, types):
            return encoder(value, arrays, name)
    raise NotPlain(f"{name} is a {type(value).__name__}")


def decode(value: Any, arrays: Mapping[str, Any]) -> Any:
    """What `encode` was given.

    Raises:
        ValueError: if ``value`` is nothing that `encode` makes.
    """
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TAG)
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise ValueError(f"there is no value of the kind {kind!r}")
    return _DECODERS[kind](value, arrays)


def encode_generator(generator: np.random.Generator, arrays: Arrays, name: str) -> Any:
    """The state of a random generator."""
    state = generator.bit_generator.state
    if state["bit_generator"] not in GENERATORS:
        raise NotPlain(f"{name} draws from a {state['bit_generator']}")
    return {TAG: "generator", "state": encode(state, arrays, name)}


def _encode_array(array: Any, arrays: Arrays, name: str) -> Any:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise NotPlain(f"{name} is an array of {array.dtype}")
    return {TAG: "array", **_stored(np.array(array, order="C"), arrays, name)}


def _stored(array: Any, arrays: Arrays, name: str) -> dict[str, str]:
    """Add an array; NaN and infinity, which no bundle holds, as the bits that they are."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        arrays[name] = array.view(f"u{array.dtype.itemsize}")
        return {"name": name, "bits": array.dtype.name}
    arrays[name] = array
    return {"name": name}


def _found(value: Any, arrays: Mapping[str, Any]) -> Any:
    array = arrays[value["name"]]
    if "bits" not in value:
        return np.array(array)
    if value["bits"] not in ("float16", "float32", "float64"):
        raise ValueError(f"there are no numbers of the kind {value['bits']!r}")
    return np.array(array).view(value["bits"])


def _encode_scalar(scalar: Any, arrays: Arrays, name: str) -> Any:
    return _encode_array(np.asarray(scalar), arrays, name) | {TAG: "scalar"}


def _encode_list(items: Any, arrays: Arrays, name: str) -> Any:
    kinds = {type(item) for item in items}
    if len(items) > LONG and len(kinds) == 1 and kinds <= set(_NUMBERS):
        (kind,) = kinds
        if kind is float or all(abs(item) < 2**63 for item in items):
            return {TAG: "numbers", **_stored(np.array(items, _NUMBERS[kind]), arrays, name)}
    return [encode(item, arrays, f"{name}.{i}") for i, item in enumerate(items)]


def _encode_tuple(items: Any, arrays: Arrays, name: str) -> Any:
    if type(items) is not tuple:
        raise NotPlain(f"{name} is a {type(items).__name__}")
    return {TAG: "tuple", "items": _encode_list(list(items), arrays, name)}


def _encode_deque(items: Any, arrays: Arrays, name: str) -> Any:
    encoded = _encode_list(list(items), arrays, name)
    return {TAG: "deque", "items": encoded, "maxlen": items.maxlen}


def _encode_dict(items: Any, arrays: Arrays, name: str) -> Any:
    pairs = [
        [encode(key, arrays, f"{name}.key{i}"), encode(item, arrays, f"{name}.{i}")]
        for i, (key, item) in enumerate(items.items())
    ]
    return {TAG: "dict", "items": pairs}


def _generator(value: Any, arrays: Mapping[str, Any]) -> np.random.Generator:
    state = decode(value["state"], arrays)
    if state["bit_generator"] not in GENERATORS:
        raise ValueError(f"there is no random generator {state['bit_generator']!r}")
    require_sound(state)
    generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
    generator.bit_generator.state = state
    return generator


_PLAIN = (bool, int, float, str)
_ENCODERS: tuple[tuple[Any, Callable[[Any, Arrays, str], Any]], ...] = (
    (np.ndarray, _encode_array),
    (np.generic, _encode_scalar),
    (np.random.Generator, encode_generator),
    (list, _encode_list),
    (tuple, _encode_tuple),
    (deque, _encode_deque),
    (dict, _encode_dict),
)
_DECODERS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "array": _found,
    "scalar": lambda value, arrays: _found(value, arrays)[()],
    "numbers": lambda value, arrays: _found(value, arrays).tolist(),
    "generator": _generator,
    "tuple": lambda value, arrays: tuple(decode(value["items"], arrays)),
    "deque": lambda value, arrays: deque(decode(value["items"], arrays), value["maxlen"]),
    "dict": lambda value, arrays: {
        decode(key, arrays): decode(item, arrays) for key, item in value["items"]
    },
}


def global_randomness() -> dict[str, Any]:
    """The states of Python's generator and of NumPy's old one, as `encode` takes them."""
    return {"python": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002


def set_global_randomness(states: Mapping[str, Any]) -> None:
    """Draw on from `global_randomness`."""
    kind, keys, position, *rest = states["numpy"]
    require_position("the position in NumPy's old generator", position, MERSENNE_WORDS)
    random.setstate(states["python"])
    np.random.set_state((kind, keys, position, *rest))  # noqa: NPY002


def require_sound(state: Mapping[str, Any]) -> None:
    """Refuse the state of a bit generator that NumPy would read beyond its buffers for.

    Raises:
        ValueError: if a position in it lies outside of what it points into.
    """
    inner = state["state"]
    if "pos" in inner:
        require_position("the position in a random generator", inner["pos"], MERSENNE_WORDS)
    if "buffer_pos" in state:
        require_position("the position in a random generator", state["buffer_pos"], PHILOX_WORDS)


def require_position(name: str, position: Any, most: int) -> None:
    """Refuse a position outside of 0..``most``; NumPy believes any, and crashes."""
    if not isinstance(position, int | np.integer) or not 0 <= position <= most:
        raise ValueError(f"{name} must lie in 0..{most}, got {position!r}")
