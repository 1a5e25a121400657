"""Networks evaluated outside JAX: the weights are copied once per rollout, NumPy does the rest.

One JAX call per environment step costs twenty times the arithmetic of a small network. Networks
with image encoders are the exception: there the convolutions dominate, and JAX evaluates them.
"""

from typing import Any

import equinox as eqx
import numpy as np

from .activations import ACTIVATIONS
from .networks import Body, Linear

Array = Any
IMAGE_CHUNK = 256  # rows per call when a whole rollout of images is evaluated


class NumpyForward:
    """Latent features and outputs of a perceptron for a fixed number of rows, without allocation.

    The arrays handed out are overwritten by the next call.
    """

    def __init__(self, body: Body, head: Linear, rows: int) -> None:
        self._layers = [
            (_copy(layer.weight), _rows_of(layer.bias, rows), _rows_of(layer.bias, rows))
            for layer in body.layers
        ]
        self._head = (_copy(head.weight), _rows_of(head.bias, rows))
        self._activation = ACTIVATIONS[body.activation][1]

    def latent(self, flat: Array, images: tuple[Array, ...] = ()) -> Array:
        """The last hidden layer."""
        x = flat
        activation = self._activation
        for weight, bias, buffer in self._layers:
            np.dot(x, weight, out=buffer)
            np.add(buffer, bias, out=buffer)
            x = activation(buffer)
        return x

    def output(self, latent: Array, out: Array) -> Array:
        """The head's outputs, written to ``out``."""
        np.dot(latent, self._head[0], out=out)
        return np.add(out, self._head[1], out=out)


class JaxForward:
    """The same interface for networks with image encoders."""

    def __init__(self, body: Body, head: Linear, rows: int) -> None:
        self._body = body
        self._head = (_copy(head.weight), _copy(head.bias))
        self._rows = rows

    def latent(self, flat: Array, images: tuple[Array, ...] = ()) -> Array:
        """The last hidden layer."""
        return np.asarray(_latent(self._body, flat, images))

    def output(self, latent: Array, out: Array) -> Array:
        """The head's outputs, written to ``out``."""
        np.dot(latent, self._head[0], out=out)
        out += self._head[1]
        return out


def forward_for(body: Body, head: Linear, rows: int) -> "NumpyForward | JaxForward":
    """The fast evaluator for this network."""
    return JaxForward(body, head, rows) if body.encoders else NumpyForward(body, head, rows)


def evaluate_rows(body: Body, head: Linear, flat: Array, images: tuple[Array, ...]) -> Array:
    """Outputs for any number of rows: the values of a whole rollout in one batch."""
    out = np.empty((len(flat), head.bias.shape[0]), np.float32)
    if not body.encoders:
        forward = NumpyForward(body, head, len(flat))
        return forward.output(forward.latent(flat), out)
    for start in range(0, len(flat), IMAGE_CHUNK):  # equal chunks, so that one program serves all
        stop = min(start + IMAGE_CHUNK, len(flat))
        chunk = [_padded(array[start:stop], IMAGE_CHUNK) for array in (flat, *images)]
        latent = np.asarray(_latent(body, chunk[0], tuple(chunk[1:])))[: stop - start]
        out[start:stop] = latent @ _copy(head.weight) + _copy(head.bias)
    return out


def _padded(array: Array, rows: int) -> Array:
    missing = rows - len(array)
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)]) if missing else array


def _rows_of(bias: Array, rows: int) -> Array:
    """The bias once per row: adding arrays of one shape is twice as fast as broadcasting."""
    return np.repeat(_copy(bias)[None], rows, axis=0)


def _copy(array: Array) -> Array:
    return np.ascontiguousarray(np.asarray(array), dtype=np.float32)


@eqx.filter_jit
def _latent(body: Body, flat: Array, images: tuple[Array, ...]) -> Array:
    return body(flat, images)
