"""Speed, measured side by side: every figure is a ratio of times taken in turns in one run.

A benchmark is one file here, with a class of options that says how to measure and what to show
(`harness.Benchmark`), and one line below.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .harness import Benchmark

# name -> (class in the module of that name, what it measures)
BENCHMARKS = {
    "dual": ("Dual", "the exact dual against scipy's scalar minimiser"),
    "tabular": ("Tabular", "finite problems against a loop over Gymnasium"),
    "train": ("Train", "time per million steps of any agents beside OT-TRPO"),
    "envs": ("Envs", "many environments at once: ours beside the other libraries'"),
    "device": ("Device", "training on an accelerator, beside Brax's own PPO"),
    "signal": ("Signal", "what an update gains on rows that it has not seen"),
    "checkpoint": ("Checkpoint", "a checkpoint against the training between two"),
}


def load(name: str) -> "type[Benchmark]":
    """The benchmark of that name.

    Raises:
        ValueError: if there is none.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"{name!r} is not a benchmark; known: {', '.join(BENCHMARKS)}")
    found: type[Benchmark] = getattr(import_module(f"{__name__}.{name}"), BENCHMARKS[name][0])
    return found
