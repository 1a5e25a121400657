"""The border between NumPy and JAX: what each of them does in a way of its own.

The engine is written once, with operators and with the namespace of the arrays it is given. Of
NumPy's arrays, in float64, it makes the host's training; of JAX's, in whatever precision JAX has,
one that works under ``jit``, ``vmap`` and ``scan``. Only what stands here asks which it is.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import kernels

Array = Any
Generator = Any  # NumPy's random generator, or `Randomness`


def on_host(array: Array) -> bool:
    """Whether it is NumPy's, or a plain number."""
    return not isinstance(array, jax.Array)


def namespace(array: Array) -> Any:
    """The library that the array belongs to."""
    return np if on_host(array) else jnp


def traced(array: Array) -> bool:
    """Whether a program is being compiled of which the array is part."""
    return isinstance(array, jax.core.Tracer)


def wide(array: Array) -> Array:
    """In float64 on the host; as it is elsewhere."""
    return array.astype(np.float64) if on_host(array) else array


def single(array: Array) -> Array:
    """In float32 if it is float64 of the host; as it is elsewhere."""
    wider = on_host(array) and np.asarray(array).dtype == np.float64
    return np.asarray(array, np.float32) if wider else array


def like(pattern: Array, array: Array) -> Array:
    """What a compiled program returned: in float64 where the pattern is the host's."""
    return np.asarray(array, np.float64) if on_host(pattern) else array


def put(array: Array, where: tuple[Array, ...], values: Array) -> Array:
    """The array with ``values`` at ``where``."""
    if not on_host(array):
        return array.at[where].set(values)
    array = array.copy()
    array[where] = values
    return array


def sum_of(values: Array, chosen: Array) -> Array:
    """Sum of the chosen entries."""
    return values[chosen].sum() if on_host(values) else jnp.where(chosen, values, 0.0).sum()


def sums_to_the_end(term_tn: Array, carry_tn: Array) -> Array:
    """sum_t = term_t + carry_t · sum_{t+1}, from the last step to the first."""
    if on_host(term_tn):
        sum_tn = np.empty_like(term_tn)
        kernels.sums_to_the_end(term_tn, carry_tn, sum_tn)
        return sum_tn

    def step(running: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        running = now[0] + now[1] * running
        return running, running

    return jax.lax.scan(step, jnp.zeros_like(term_tn[0]), (term_tn, carry_tn), reverse=True)[1]


def sums_so_far(term_tn: Array, carry_tn: Array, start_n: Array) -> tuple[Array, Array]:
    """sum_t = carry_{t-1} · sum_{t-1} + term_t, and what is carried out of the last step."""
    if on_host(term_tn):
        sum_tn, carried_n = np.empty_like(term_tn), start_n.copy()
        kernels.sums_so_far(term_tn, carry_tn, carried_n, sum_tn)
        return sum_tn, carried_n

    def step(carried: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        running = carried + now[0]
        return running * now[1], running

    carried_n, sum_tn = jax.lax.scan(step, start_n, (term_tn, carry_tn))
    return sum_tn, carried_n


def repeat_while(unfinished: Callable[[Any], Array], step: Callable[[Any], Any], start: Any) -> Any:
    """Take steps from ``start`` as long as it is unfinished."""
    if not on_host(jax.tree.leaves(start)[0]):
        return jax.lax.while_loop(unfinished, step, start)
    while unfinished(start):
        start = step(start)
    return start


class Randomness:
    """A key of JAX with the methods of NumPy's generator, as far as the engine draws from it.

    ``key`` is what is left to draw from; it goes where the next one begins.
    """

    def __init__(self, key: Array) -> None:
        self.key = key

    def standard_normal(self, size: Any, dtype: Any = float) -> Array:
        """Standard normal numbers."""
        return jax.random.normal(self._next(), size, dtype)

    def uniform(self, low: float, high: float, size: Any) -> Array:
        """Numbers from an interval."""
        return jax.random.uniform(self._next(), jnp.broadcast_shapes(size), float, low, high)

    def random(self, size: Any) -> Array:
        """Numbers from 0 to 1."""
        return jax.random.uniform(self._next(), size)

    def gumbel(self, *, size: Any) -> Array:
        """Gumbel's distribution."""
        return jax.random.gumbel(self._next(), size)

    def permutation(self, count: int) -> Array:
        """The numbers below ``count`` in any order."""
        return jax.random.permutation(self._next(), count)

    def integers(self, low: int, high: int, size: Any, dtype: Any = int) -> Array:
        """Integers from ``low`` to below ``high``."""
        return jax.random.randint(self._next(), jnp.broadcast_shapes(size), low, high, dtype)

    def _next(self) -> Array:
        self.key, key = jax.random.split(self.key)
        return key
