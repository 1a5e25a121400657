"""Scores of a study from its folder under ``results/`` alone.

The paper's score is the mean return over the evaluations of the last tenth of training. Seeds are
the unit: the score of a cell is the mean over seeds of each seed's score. Two spreads are given,
over seeds and over time, because the paper does not say which one it prints.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev, stdev

import numpy as np

from ottrpo.experiments.protocol import LAST_TENTH
from ottrpo.experiments.published import trained_score

from .statistics import REPORT_SEED, bootstrap_interval, interquartile_mean


@dataclass(frozen=True, kw_only=True)
class CellScore:
    """The score of one cell of a study, acting in one way.

    Attributes:
        cell: its name in the study.
        environment: its id.
        agent: its name.
        label: of the cell.
        deterministic: whether the policy's mode was taken; else actions were sampled.
        mean: over seeds.
        std_seeds: standard deviation of the seeds' scores.
        std_time: standard deviation over time of the mean curve, within the last tenth.
        iqm: interquartile mean over seeds.
        interval: 95 % bootstrap interval of the interquartile mean.
        lowest: score of the worst seed.
        highest: score of the best seed.
        seeds: how many.
        steps: of training.
        paper: what the paper prints for this agent and environment, if anything.
    """

    cell: str
    environment: str
    agent: str
    label: str
    deterministic: bool
    mean: float
    std_seeds: float
    std_time: float
    iqm: float
    interval: tuple[float, float]
    lowest: float
    highest: float
    seeds: int
    steps: int
    paper: float | None


def study_scores(folder: Path) -> list[CellScore]:
    """The scores of every cell that has finished runs, in the order of the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    scores = []
    for name, cell in manifest["cells"].items():
        path = folder / f"{name}.csv"
        if not path.exists():
            continue
        rows = _read(path)
        for deterministic in (True, False):
            returns = _last_tenth(rows, cell["trained_steps"], deterministic=deterministic)
            if returns:
                paper = trained_score(cell["environment"], cell["agent"])
                scores.append(
                    _score(
                        returns,
                        name,
                        environment=cell["environment"],
                        agent=cell["agent"],
                        label=cell["label"] or cell["config"],
                        deterministic=deterministic,
                        steps=cell["trained_steps"],
                        paper=None if paper is None else paper.score,
                    )
                )
    return scores


def missing_cells(folder: Path) -> list[str]:
    """The cells of a study that have no finished run."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return [name for name in manifest["cells"] if not (folder / f"{name}.csv").exists()]


def violations(folder: Path) -> dict[str, tuple[int, int]]:
    """For each cell: updates that spent more than their radius, and all updates."""
    counted: dict[str, tuple[int, int]] = {}
    with open(folder / "runs.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            over, updates = counted.get(row["cell"], (0, 0))
            counted[row["cell"]] = over + int(row["violations"]), updates + int(row["updates"])
    return counted


def _read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _last_tenth(
    rows: Sequence[dict[str, str]], steps: int, *, deterministic: bool
) -> dict[int, dict[int, float]]:
    """Seed -> mark -> mean return of the evaluation."""
    returns: dict[int, dict[int, float]] = {}
    for row in rows:
        wanted = bool(int(row["deterministic"])) == deterministic
        if wanted and int(row["mark"]) > LAST_TENTH * steps:
            mean = fmean(map(float, row["returns"].split()))
            returns.setdefault(int(row["seed"]), {})[int(row["mark"])] = mean
    return returns


def _score(
    returns: dict[int, dict[int, float]],
    cell: str,
    *,
    environment: str,
    agent: str,
    label: str,
    deterministic: bool,
    steps: int,
    paper: float | None,
) -> CellScore:
    by_seed = [fmean(marks.values()) for marks in returns.values()]
    common = set.intersection(*(set(marks) for marks in returns.values()))
    curve = [fmean(marks[mark] for marks in returns.values()) for mark in sorted(common)]
    return CellScore(
        cell=cell,
        environment=environment,
        agent=agent,
        label=label,
        deterministic=deterministic,
        mean=fmean(by_seed),
        std_seeds=stdev(by_seed) if len(by_seed) > 1 else 0.0,
        std_time=pstdev(curve) if curve else 0.0,
        iqm=interquartile_mean(by_seed),
        interval=bootstrap_interval(by_seed, rng=np.random.default_rng(REPORT_SEED)),
        lowest=min(by_seed),
        highest=max(by_seed),
        seeds=len(by_seed),
        steps=steps,
        paper=paper,
    )
