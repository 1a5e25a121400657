"""The learning curve of one run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw_learning_curve(
    evaluations: Iterable[Mapping[str, Any]], path: Path, *, paper: float | None = None
) -> None:
    """Draw mean return against steps, with the range over episodes, into a picture file.

    Args:
        evaluations: the records of a run's ``evaluations.jsonl``.
        path: of the picture; its suffix says the format.
        paper: a published score, drawn as a dashed line.
    """
    records = list(evaluations)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    axes = figure.add_subplot()
    for deterministic, name in ((True, "deterministic"), (False, "sampled")):
        curve = [r for r in records if r["deterministic"] == deterministic]
        if curve:
            timestep_t = [r["timestep"] for r in curve]
            return_te = np.array([r["returns"] for r in curve])
            axes.plot(timestep_t, return_te.mean(axis=1), label=f"{name} actions")
            low_t, high_t = return_te.min(axis=1), return_te.max(axis=1)
            axes.fill_between(timestep_t, low_t, high_t, alpha=0.2, linewidth=0)
    if paper is not None:
        axes.axhline(paper, linestyle="--", color="0.4", linewidth=1, label="paper")
    _use_symmetric_log_if_wide(axes, records)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return of an episode")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def _use_symmetric_log_if_wide(axes: Any, records: list[Mapping[str, Any]]) -> None:
    """Finite problems start at returns of minus hundreds and end near zero: show both."""
    mean_t = np.array([np.mean(r["returns"]) for r in records])
    if mean_t.size and mean_t.max() <= 100 and mean_t.min() < -300:
        axes.set_yscale("symlog", linthresh=10)
