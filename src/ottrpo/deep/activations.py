"""The activation functions, once for JAX (updates) and once for NumPy (acting)."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

Array = Any


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0, out=x)


def _leaky_relu(x: Array) -> Array:
    return np.maximum(x, 0.01 * x, out=x)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def _sigmoid(x: Array) -> Array:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(np.float32(0.7978845608) * (x + 0.044715 * x**3)))


# name -> (JAX, NumPy); the NumPy one may overwrite its argument
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "tanh": (jax.numpy.tanh, lambda x: np.tanh(x, out=x)),
    "relu": (jax.nn.relu, _relu),
    "leakyrelu": (jax.nn.leaky_relu, _leaky_relu),
    "elu": (jax.nn.elu, _elu),
    "sigmoid": (jax.nn.sigmoid, _sigmoid),
    "silu": (jax.nn.silu, _silu),
    "gelu": (jax.nn.gelu, _gelu),
}


def activation_name(activation: Any) -> str:
    """The name of an activation given by name or by its torch class (as for SB3).

    >>> activation_name("LeakyReLU")
    'leakyrelu'
    """
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", "")
    key = name.lower().replace("_", "").replace("swish", "silu")
    if key not in ACTIVATIONS:
        raise ValueError(
            f"activation_fn {activation!r} is unknown; allowed: {', '.join(ACTIVATIONS)}, "
            "or the torch.nn class of that name"
        )
    return key
