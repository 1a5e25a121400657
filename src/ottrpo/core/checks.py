"""Checks of what a user hands in: one clear sentence, or nothing."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ottrpo.names import in_short, known

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.intp]


LONGEST_WORDS = 2000  # characters of a name or a description


class Refused(ValueError, AssertionError, NotImplementedError):
    """A setting or a space that can't be had.

    Everywhere else that is a ``ValueError``; Stable-Baselines3 asserts, or says that it is not
    implemented. A program that expects either finds what it expects.
    """


class NonFiniteError(ValueError):
    """A number became NaN or infinite; whoever learns is as it was before."""


def require(condition: bool | np.bool_, message: str) -> None:
    """Raise a ``ValueError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(message)


def require_one_of(name: Any, names: Iterable[str], what: str) -> None:
    """Refuse a name that is not known, with the nearest one that is.

    >>> require_one_of("binari", ["binary", "table"], "a cost")
    Traceback (most recent call last):
        ...
    ValueError: 'binari' is not a cost; did you mean 'binary'? known: binary, table
    """
    names = list(names)
    require(name in names, f"{name!r} is not {what}; {known(str(name), names)}")


def require_whole(name: str, value: Any, low: int) -> None:
    """Refuse what is no whole number from ``low`` on."""
    right = type(value) is int and value >= low
    require(right, f"{name} must be a whole number from {low} on, got {in_short(value)}")


def require_words(name: str, value: Any) -> None:
    """Refuse what is no text, holds something that a terminal would obey, or would flood it."""
    right = isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_WORDS
    require(right, f"{name} must be words, got {in_short(value)}")


def floats(name: str, value: ArrayLike, *, ndim: int | None = None) -> Floats:
    """``value`` as a finite float64 array of the given number of axes."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {in_short(value)}") from error
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}")
    _refuse_non_finite(name, array)
    return array


def non_negative(name: str, value: ArrayLike, *, ndim: int | None = None) -> Floats:
    """``value`` as a finite, non-negative float64 array."""
    array = floats(name, value, ndim=ndim)
    if array.size and array.min() < 0:
        where = np.unravel_index(int(array.argmin()), array.shape)
        raise ValueError(f"{name} must not be negative, got {array.min()} at {_index(where)}")
    return array


def positive_number(name: str, value: Any) -> float:
    """``value`` as a finite float above zero."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a positive number, got {in_short(value)}") from error
    require(np.isfinite(number) and number > 0, f"{name} must be positive and finite, got {number}")
    return number


def same_shape(name: str, array: NDArray[Any], shape: tuple[int, ...], like: str) -> None:
    """Require ``array.shape == shape``, the shape of ``like``."""
    require(
        array.shape == shape,
        f"{name} must have shape {shape} to match {like}, got {array.shape}",
    )


def mask(name: str, value: ArrayLike | None, shape: tuple[int, ...], like: str) -> Bools | None:
    """``value`` as a boolean array of the given shape; ``None`` stays ``None``."""
    if value is None:
        return None
    array = np.asarray(value)
    require(
        array.dtype == np.bool_ or bool(np.isin(array, (0, 1)).all()),
        f"{name} must hold True and False (or 1 and 0) only, got dtype {array.dtype}",
    )
    array = array.astype(np.bool_, copy=False)
    same_shape(name, array, shape, like)
    return array


def distributions(name: str, value: ArrayLike, *, ndim: int) -> Floats:
    """``value`` as an array whose last axis holds probability distributions."""
    array = non_negative(name, value, ndim=ndim)
    require(array.size > 0, f"{name} is empty: it has shape {array.shape}")
    total = array.sum(axis=-1)
    error = np.abs(total - 1.0)
    if error.max() > DISTRIBUTION_ATOL:
        where = np.unravel_index(int(error.argmax()), error.shape)
        at = f" (row {_index(where)})" if where else ""
        raise ValueError(f"{name} must sum to 1, got a sum of {float(total[where])}{at}")
    return array


# Policies come from sums and products of many float64 numbers, or from float32 networks that
# were normalised in float64: anything further from one than this is a mistake, not rounding.
DISTRIBUTION_ATOL = 1e-6


def _refuse_non_finite(name: str, array: Floats) -> None:
    # a sum is finite if every entry is, and costs one pass without a temporary array; it may
    # also overflow, so only then look entry by entry
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    if np.isfinite(total):
        return
    finite = np.isfinite(array)
    if not finite.all():
        where = np.unravel_index(int(np.argmin(finite)), array.shape)
        raise ValueError(f"{name} must be finite, got {array[where]} at {_index(where)}")


def _index(where: tuple[Any, ...]) -> str:
    return "[" + ", ".join(str(int(i)) for i in where) + "]"
