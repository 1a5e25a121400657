"""The border between NumPy and JAX: what each of them does in a way of its own.

The engine is written once, with operators and with the namespace of the arrays it is given. Of
NumPy's arrays, in float64, it makes the host's training; of JAX's, in whatever precision JAX has,
one that works under ``jit``, ``vmap`` and ``scan``. Only what stands here asks which it is.

The host's inner loops are compiled. One environment step leaves little in the caches, so what
acting costs is mostly the number of different functions it passes through: a dozen NumPy calls take
three times as long as a loop. Sums run over the inputs in their order, and nothing is reordered or
fused, so that every machine draws the same actions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numba
import numpy as np

Array = Any  # numba reads the types from the arrays it is given
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
        _sums_to_the_end(term_tn, carry_tn, sum_tn)
        return sum_tn

    def step(running: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        running = now[0] + now[1] * running
        return running, running

    return jax.lax.scan(step, jnp.zeros_like(term_tn[0]), (term_tn, carry_tn), reverse=True)[1]


def sums_so_far(term_tn: Array, carry_tn: Array, start_n: Array) -> tuple[Array, Array]:
    """sum_t = carry_{t-1} · sum_{t-1} + term_t, and what is carried out of the last step."""
    if on_host(term_tn):
        sum_tn, carried_n = np.empty_like(term_tn), start_n.copy()
        _sums_so_far(term_tn, carry_tn, carried_n, sum_tn)
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


TANH, RELU, LEAKY_RELU, ELU, SIGMOID, SILU, GELU = range(7)
_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")

# tanh(x) = x P(x²) / Q(x²) for float32, to the last bits; beyond the bound it is 1. These are
# Eigen's coefficients, which XLA uses too, so acting and learning see the same function.
TANH_BOUND = np.float32(7.90531110763549805)
P1, P3, P5, P7, P9, P11, P13 = (
    np.float32(c)
    for c in (
        4.89352455891786e-03,
        6.37261928875436e-04,
        1.48572235717979e-05,
        5.12229709037114e-08,
        -8.60467152213735e-11,
        2.00018790482477e-13,
        -2.76076847742355e-16,
    )
)
Q0, Q2, Q4, Q6 = (
    np.float32(c)
    for c in (
        4.89352518554385e-03,
        2.26843463243900e-03,
        1.18534705686654e-04,
        1.19825839466702e-06,
    )
)
HALF, ONE, LEAK = np.float32(0.5), np.float32(1.0), np.float32(0.01)
GELU_SCALE, GELU_CUBE = np.float32(0.7978845608), np.float32(0.044715)


@_compiled
def _tanh(x: Any) -> Any:
    x = TANH_BOUND if x > TANH_BOUND else x  # a NaN stays one
    x = -TANH_BOUND if x < -TANH_BOUND else x
    y = x * x
    above = ((((((P13 * y + P11) * y + P9) * y + P7) * y + P5) * y + P3) * y + P1) * x
    return above / (((Q6 * y + Q4) * y + Q2) * y + Q0)


@_compiled
def _other(kind: int, x: Any) -> Any:
    if kind == RELU:
        return np.float32(0.0) if x < 0 else x
    if kind == LEAKY_RELU:
        return x * LEAK if x < 0 else x
    if kind == ELU:
        return np.float32(np.expm1(x)) if x < 0 else x
    if kind == SIGMOID:
        return ONE / (ONE + np.float32(np.exp(-x)))
    if kind == SILU:
        return x / (ONE + np.float32(np.exp(-x)))
    return HALF * x * (ONE + _tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)))


@_compiled
def activate(kind: int, x: Array) -> None:
    """Apply the activation with this number to each entry, in place."""
    if kind == TANH:
        for i in range(len(x)):
            x[i] = _tanh(x[i])
    else:
        for i in range(len(x)):
            x[i] = _other(kind, x[i])


@_compiled
def _affine(x: Array, weight: Array, y: Array) -> None:
    """Write x W + b to y; the last row of ``weight`` is b."""
    inputs = len(weight) - 1
    for j in range(len(y)):
        y[j] = weight[inputs, j]
    for i in range(inputs):
        entry = x[i]
        for j in range(len(y)):
            y[j] += entry * weight[i, j]


@_compiled
def forward(
    flat_nf: Array,
    normal_2f: Array,
    clip: float,
    weights: Array,
    sizes: Array,
    kind: int,
    work_lnw: Array,
    out_nd: Array,
) -> None:
    """Normalise the rows and evaluate a perceptron on them.

    Args:
        flat_nf: raw features.
        normal_2f: what is subtracted from each feature, and what it is multiplied by then.
        clip: normalised features are clipped to this.
        weights: of all layers, one after another: W [inputs, outputs], then b.
        sizes: features, the hidden layers, outputs.
        kind: the activation's number.
        work_lnw: takes the normalised features and the hidden layers.
        out_nd: takes the outputs.
    """
    last = len(sizes) - 2
    for n in range(len(flat_nf)):
        for f in range(sizes[0]):
            x = (flat_nf[n, f] - normal_2f[0, f]) * normal_2f[1, f]
            x = clip if x > clip else x
            work_lnw[0, n, f] = -clip if x < -clip else x
        start = 0
        for layer in range(last + 1):
            inputs, outputs = sizes[layer], sizes[layer + 1]
            stop = start + (inputs + 1) * outputs
            weight = weights[start:stop].reshape(inputs + 1, outputs)
            if layer == last:
                _affine(work_lnw[layer, n], weight, out_nd[n])
            else:
                hidden = work_lnw[layer + 1, n, :outputs]
                _affine(work_lnw[layer, n], weight, hidden)
                activate(kind, hidden)
            start = stop


@_compiled
def draw(mean_nd: Array, noise_nd: Array, action_nd: Array, clipped_nd: Array) -> None:
    """Add the noise; keep the sum, and the sum clipped to [-1, 1]."""
    for n in range(len(mean_nd)):
        for d in range(mean_nd.shape[1]):
            x = mean_nd[n, d] + noise_nd[n, d]
            action_nd[n, d] = x
            x = ONE if x > ONE else x
            clipped_nd[n, d] = -ONE if x < -ONE else x


@_compiled
def act(
    t: int,
    flat_nf: Array,
    normal_2f: Array,
    clip: float,
    weights: Array,
    sizes: Array,
    kind: int,
    work_lnw: Array,
    mean_tnd: Array,
    noise_tnd: Array,
    action_tnd: Array,
    clipped_nd: Array,
) -> None:
    """`forward` and `draw` of step t in one call, as most of what is left is the calling."""
    mean_nd = mean_tnd[t]
    forward(flat_nf, normal_2f, clip, weights, sizes, kind, work_lnw, mean_nd)
    draw(mean_nd, noise_tnd[t], action_tnd[t], clipped_nd)


@_compiled
def _sums_to_the_end(term_tn: Array, carry_tn: Array, sum_tn: Array) -> None:
    for n in range(term_tn.shape[1]):
        running = 0.0
        for t in range(len(term_tn) - 1, -1, -1):
            running = term_tn[t, n] + carry_tn[t, n] * running
            sum_tn[t, n] = running


@_compiled
def _sums_so_far(term_tn: Array, carry_tn: Array, start_n: Array, sum_tn: Array) -> None:
    """``start_n`` becomes what is carried out of the last step."""
    for n in range(term_tn.shape[1]):
        for t in range(len(term_tn)):
            sum_tn[t, n] = start_n[n] + term_tn[t, n]
            start_n[n] = sum_tn[t, n] * carry_tn[t, n]


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Rest:
    """What is no array of what a program returns."""

    leaves: tuple[Any, ...]
    structure: Any


def program(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` compiled for the arrays among its arguments; all else must be hashable.

    It ends with whoever made it. Equinox keeps every function that it has compiled, and all that it
    refers to, for as long as the process lives; agents make such functions for themselves.

    ``options`` go to JAX's jit.
    """

    def whole(arrays: Any, rest: _Rest) -> tuple[Any, _Rest]:
        others = jax.tree.unflatten(rest.structure, rest.leaves)
        return _parted(function(*eqx.combine(arrays, others)))

    whole.__name__ = whole.__qualname__ = function.__name__
    compiled = jax.jit(whole, static_argnums=1, **options)

    def call(*arguments: Any) -> Any:
        made, rest = compiled(*_parted(arguments))
        return eqx.combine(made, jax.tree.unflatten(rest.structure, rest.leaves))

    return call


def _parted(tree: Any) -> tuple[Any, _Rest]:
    arrays, others = eqx.partition(tree, eqx.is_array)
    leaves, structure = jax.tree.flatten(others)
    return arrays, _Rest(tuple(leaves), structure)
