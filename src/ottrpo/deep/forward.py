"""Networks evaluated outside JAX: the weights are copied once per rollout, and compiled loops act.

One JAX call per environment step costs twenty times the arithmetic of a small network. Networks
with image encoders are the exception: there the convolutions dominate, and JAX evaluates them.
"""

from typing import Any

import equinox as eqx
import numpy as np

from . import kernels
from .activations import ACTIVATIONS
from .networks import Body, Linear
from .normaliser import ObservationNormaliser

Array = Any
IMAGE_CHUNK = 256  # rows per call when a whole rollout of images is evaluated


class CompiledForward:
    """A perceptron on raw features, for a fixed number of rows, without allocation.

    The latent features handed out are overwritten by the next call. ``arguments`` are those that
    `kernels.forward` takes between the raw features and the outputs.
    """

    def __init__(
        self, body: Body, head: Linear, normaliser: ObservationNormaliser, rows: int
    ) -> None:
        layers = (*body.layers, head)
        sizes = np.array([layers[0].weight.shape[0], *(len(layer.bias) for layer in layers)])
        weights = [
            _copy(part).reshape(-1) for layer in layers for part in (layer.weight, layer.bias)
        ]
        work = np.zeros((len(layers), rows, sizes[:-1].max()), np.float32)
        mean, scale, clip = normaliser.mean, normaliser.scale, normaliser.clip
        if not normaliser.enabled:
            mean, scale, clip = np.zeros(sizes[0]), np.ones(sizes[0]), np.inf
        self.arguments = (
            np.stack([mean, scale]).astype(np.float64),
            float(clip),
            np.concatenate(weights),
            sizes,
            ACTIVATIONS[body.activation][1],
            work,
        )
        self._latent = work[-1, :, : sizes[-2]]

    def __call__(self, flat: Array, images: tuple[Array, ...], out: Array) -> Array:
        """Write the head's outputs to ``out`` and return the last hidden layer."""
        # other types would work too, but each would be compiled anew
        flat = np.ascontiguousarray(flat, np.float64)
        kernels.forward(flat, *self.arguments, out)
        return self._latent


class JaxForward:
    """The same interface for networks with image encoders."""

    def __init__(self, body: Body, head: Linear, normaliser: ObservationNormaliser) -> None:
        self._body, self._normaliser = body, normaliser
        self._head = (_copy(head.weight), _copy(head.bias))

    def __call__(self, flat: Array, images: tuple[Array, ...], out: Array) -> Array:
        """Write the head's outputs to ``out`` and return the last hidden layer."""
        latent = np.asarray(_latent(self._body, self._normaliser(flat), images))
        np.dot(latent, self._head[0], out=out)
        out += self._head[1]
        return latent


def forward_for(
    body: Body, head: Linear, normaliser: ObservationNormaliser, rows: int
) -> CompiledForward | JaxForward:
    """The fast evaluator for this network."""
    if body.encoders:
        return JaxForward(body, head, normaliser)
    return CompiledForward(body, head, normaliser, rows)


def evaluate_rows(body: Body, head: Linear, flat: Array, images: tuple[Array, ...]) -> Array:
    """Outputs for any number of normalised rows: the values of a whole rollout in one batch."""
    if not body.encoders:
        x = flat
        for layer in body.layers:
            x = x @ _copy(layer.weight)
            x += _copy(layer.bias)
            kernels.activate(ACTIVATIONS[body.activation][1], x.reshape(-1))
        return x @ _copy(head.weight) + _copy(head.bias)
    out = np.empty((len(flat), head.bias.shape[0]), np.float32)
    for start in range(0, len(flat), IMAGE_CHUNK):  # equal chunks, so that one program serves all
        stop = min(start + IMAGE_CHUNK, len(flat))
        chunk = [_padded(array[start:stop], IMAGE_CHUNK) for array in (flat, *images)]
        latent = np.asarray(_latent(body, chunk[0], tuple(chunk[1:])))[: stop - start]
        out[start:stop] = latent @ _copy(head.weight) + _copy(head.bias)
    return out


def _padded(array: Array, rows: int) -> Array:
    missing = rows - len(array)
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)]) if missing else array


def _copy(array: Array) -> Array:
    return np.ascontiguousarray(np.asarray(array), dtype=np.float32)


@eqx.filter_jit
def _latent(body: Body, flat: Array, images: tuple[Array, ...]) -> Array:
    return body(flat, images)
