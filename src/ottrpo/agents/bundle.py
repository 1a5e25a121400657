"""A saved agent: one zip file with the arrays as safetensors and all else as JSON.

Neither can run code, so opening a stranger's agent is safe. The file appears whole or not at all.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load, save

FORMAT = "ottrpo-agent-1"
DATA, ARRAYS = "agent.json", "arrays.safetensors"
Target = str | Path | io.BufferedIOBase


def write(path: Target, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Write the bundle; like SB3, ``.zip`` is added to a path without an ending."""
    tensors = save({name: np.array(array, order="C") for name, array in arrays.items()})
    record = {"format": FORMAT, "sha256": hashlib.sha256(tensors).hexdigest(), **data}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as bundle:
        # a fixed date: the same agent gives the same bytes
        for name, content in ((DATA, json.dumps(record, indent=1).encode()), (ARRAYS, tensors)):
            bundle.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    if isinstance(path, io.BufferedIOBase):
        path.write(buffer.getvalue())
        return
    target = _with_ending(Path(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)


def read(path: Target) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the data of a bundle; a run's directory stands for the agent in it.

    Raises:
        ValueError: if there is no bundle, or it is damaged or of another kind.
    """
    source = path if isinstance(path, io.BufferedIOBase) else _existing(Path(path))
    try:
        with zipfile.ZipFile(source) as bundle:
            content = {name: _member(bundle, name) for name in (DATA, ARRAYS)}
        record = json.loads(content[DATA])
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a saved agent, or it is damaged: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{path} is not a saved agent of this version ({FORMAT})")
    if hashlib.sha256(content[ARRAYS]).hexdigest() != record.get("sha256"):
        raise ValueError(f"{path} is damaged: its arrays don't match their checksum")
    return load(content[ARRAYS]), record


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
        ValueError: if an array is missing (unless ``exact`` is off) or has another shape.
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
        if array.shape != leaf.shape:
            raise ValueError(f"{key!r} has shape {array.shape}, the agent needs {leaf.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{key!r} holds NaN or infinity")
        return jax.numpy.asarray(array, dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(replaced, tree)


def _member(bundle: zipfile.ZipFile, name: str) -> bytes:
    if bundle.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"{name} is compressed, which no saved agent is")
    return bundle.read(name)


def _with_ending(path: Path) -> Path:
    return path if path.suffix else path.with_name(path.name + ".zip")


def _existing(path: Path) -> Path:
    candidates = (path / "agent.zip",) if path.is_dir() else (path, _with_ending(path))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ValueError(f"there is no saved agent at {path}")
