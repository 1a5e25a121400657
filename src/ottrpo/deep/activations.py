"""The activation functions by name, for JAX (updates) and for the compiled loops (acting)."""

from collections.abc import Callable
from typing import Any

import jax

from . import kernels

Array = Any


# name -> (for JAX, the number of the compiled one)
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "tanh": (jax.numpy.tanh, kernels.TANH),
    "relu": (jax.nn.relu, kernels.RELU),
    "leakyrelu": (jax.nn.leaky_relu, kernels.LEAKY_RELU),
    "elu": (jax.nn.elu, kernels.ELU),
    "sigmoid": (jax.nn.sigmoid, kernels.SIGMOID),
    "silu": (jax.nn.silu, kernels.SILU),
    "gelu": (jax.nn.gelu, kernels.GELU),
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
