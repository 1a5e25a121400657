"""Environments: which ones the paper used, their names today, and many of them at once."""

from typing import Any

from ottrpo.extras import load

# public name -> module that defines it; loaded when first used, since not all need SB3 or MuJoCo
_HOME = {
    "make_vec": "ottrpo.envs.making",
    "make_vector_env": "ottrpo.envs.making",
    "Task": "ottrpo.envs.batched.task",
    "Outcome": "ottrpo.envs.batched.task",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return load(_HOME[name], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
