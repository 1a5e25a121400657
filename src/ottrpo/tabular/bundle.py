"""A saved agent: tables in a safetensors file, everything else in a JSON file beside it.

Neither format can run code, so opening a stranger's agent is safe.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from safetensors.numpy import load, save

from ottrpo.core.checks import require
from ottrpo.envs import catalogue

FORMAT = "ottrpo-tabular-1"
SUFFIXES = (".safetensors", ".json")


def write(path: Path, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Write both files; each appears whole or not at all."""
    stem = _stem(path)
    stem.parent.mkdir(parents=True, exist_ok=True)
    tables = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    record = {"format": FORMAT, "sha256": hashlib.sha256(tables).hexdigest(), **data}
    _replace(_file(stem, ".safetensors"), tables)
    _replace(_file(stem, ".json"), (json.dumps(record, indent=1) + "\n").encode())


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables and the data of a saved agent."""
    stem = _stem(path)
    try:
        record = json.loads(_file(stem, ".json").read_text())
        tables = _file(stem, ".safetensors").read_bytes()
    except FileNotFoundError as error:
        raise ValueError(
            f"there is no saved agent at {path}: {Path(error.filename).name} is missing"
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{_file(stem, '.json')} is not a JSON file: {error}") from error
    require(
        isinstance(record, dict) and record.get("format") == FORMAT,
        f"{_file(stem, '.json')} does not describe a tabular agent ({FORMAT})",
    )
    require(
        hashlib.sha256(tables).hexdigest() == record["sha256"],
        f"{_file(stem, '.safetensors')} and {_file(stem, '.json')} do not belong together",
    )
    return load(tables), record


def environment(data: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """The registered environment that a saved agent was trained on."""
    spec = data["environment"]
    require(
        spec is not None,
        f"the agent was trained on {data['problem']!r}, which is not a registered environment; "
        "give it: load(path, env=...)",
    )
    return catalogue.make(spec["id"], **spec["kwargs"])


def _stem(path: Path) -> Path:
    if path.is_dir():
        return path / "agent"
    return path.with_suffix("") if path.suffix in SUFFIXES else path


def _file(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)
