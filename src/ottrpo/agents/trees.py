"""Trees of JAX modules as named arrays, and back: what a bundle can hold."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def flatten(name: str, tree: Any) -> dict[str, Any]:
    """The arrays of a tree of modules, by their path in it."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        name + jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    }


def unflatten(name: str, tree: Any, arrays: Mapping[str, Any], *, exact: bool = True) -> Any:
    """``tree`` with its arrays replaced by those saved under ``name``.

    Raises:
        ValueError: if an array is missing (unless ``exact`` is off), of another shape or kind of
            numbers, or not finite.
    """

    def replaced(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        key = name + jax.tree_util.keystr(path)
        if key not in arrays:
            if exact:
                raise ValueError(f"the saved agent has no array {key!r}")
            return leaf
        array = np.asarray(arrays[key])
        if array.dtype.kind != leaf.dtype.kind:
            raise ValueError(f"{key!r} holds {array.dtype}, the agent needs {leaf.dtype}")
        if array.shape != leaf.shape:
            raise ValueError(f"{key!r} has shape {array.shape}, the agent needs {leaf.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{key!r} holds NaN or infinity")
        return jax.numpy.asarray(array, dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(replaced, tree)
