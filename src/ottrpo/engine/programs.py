"""Compiled functions that end with whoever made them.

Equinox keeps every function that it has compiled, and all that it refers to, for as long as the
process lives. Agents make such functions for themselves, so they would never be gone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Rest:
    """What is no array of what a program returns."""

    leaves: tuple[Any, ...]
    structure: Any


def program(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` compiled for the arrays among its arguments; all else must be hashable.

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
