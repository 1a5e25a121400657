"""Sums of products without rounding: what a budget that must never be exceeded is counted with.

Every float64 is a whole number of 2⁻¹⁰⁷⁴, and a product of two one of 1/`UNITS`: amounts are
Python's integers in that unit. Many products are first reduced to a few numbers: a product of two
float64 is the sum of two (Dekker), and a sum of many that of a few once their leading bits lie on a
common grid (Rump's extraction), at the cost of some passes over the rows.
"""

from fractions import Fraction
from math import frexp, inf, ldexp, nextafter

import numpy as np
from numpy.typing import NDArray

from .checks import Floats

BITS = 1074
UNITS = 1 << 2 * BITS
HALF_BITS = float(2**27 + 1)  # splits 53 bits into two halves (Veltkamp)
# A pairwise sum of n < 2^50 numbers is wrong by less than this share of the sum of their sizes.
SUM_ERROR = 2.0**-46
# Below this the second half of a product is not exact.
TINY = 2.0**-960
# Up to this many products integers are quicker.
FEW = 8


def amount(x: float, y: float = 1.0) -> int:
    """The product of two floats, in units."""
    return _whole(x) * _whole(y)


def exact_dot(x_r: Floats, y_r: Floats) -> int:
    """Σ x y, in units."""
    return sum(map(amount, x_r.tolist(), y_r.tolist()))


def upper_dot(x_r: Floats, y_r: Floats) -> int:
    """Σ x y of non-negative numbers or barely more, in units: exact where few bits are needed.

    Where float64 overflows on the way it is wrong, and NumPy told so.
    """
    if x_r.size <= FEW:
        return exact_dot(x_r, y_r)
    high_r, low_r = _product(x_r, y_r)
    if high_r.min() < TINY:
        return exact_dot(x_r, y_r)
    # all of these are multiples of one power of two, and their sum is exact
    grid = ldexp(1.0, frexp(high_r.sum())[1] + 1)
    lead_r = (high_r + grid) - grid
    low_r += high_r - lead_r
    error = SUM_ERROR * float(abs(low_r).sum())
    return sum(map(amount, (float(lead_r.sum()), float(low_r.sum()), error)))


def ratio_down(part: int, whole: int) -> float:
    """The largest float that is not above ``part / whole``."""
    ratio = part / whole  # of integers: correctly rounded
    numerator, denominator = ratio.as_integer_ratio()
    return ratio if numerator * whole <= part * denominator else nextafter(ratio, -inf)


def fractions(array: Floats) -> NDArray[np.object_]:
    """The same numbers as exact fractions."""
    exact = np.empty(array.size, object)
    exact[:] = [Fraction(x) for x in array.ravel().tolist()]
    return exact.reshape(array.shape)


def _whole(x: float) -> int:
    numerator, denominator = x.as_integer_ratio()
    return numerator << (BITS + 1 - denominator.bit_length())


def _product(x_r: Floats, y_r: Floats) -> tuple[Floats, Floats]:
    """The product as a number, and what that lacks."""
    x_high = HALF_BITS * x_r
    x_high -= x_high - x_r
    y_high = HALF_BITS * y_r
    y_high -= y_high - y_r
    x_low, y_low = x_r - x_high, y_r - y_high
    high_r = x_r * y_r
    low_r = x_high * y_high
    low_r -= high_r
    low_r += x_high * y_low
    low_r += x_low * y_high
    low_r += x_low * y_low
    return high_r, low_r
