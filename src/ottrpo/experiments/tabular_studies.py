"""Studies of the tabular agents: grids of short runs, audited update by update.

A run takes about a second, less than it takes to start a process, so a few processes do many runs
each. While a run trains, every update is checked from outside: by the core's audit, which computes
the discrepancy between the old and the new policy anew, and, now and then, by POT's network
simplex. What is finished is skipped, so a study can be stopped and started again.
"""

import json
import math
import multiprocessing
import shutil
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np

from ottrpo.core import audit
from ottrpo.core.checks import require
from ottrpo.core.problems import cost_table
from ottrpo.tabular.planning import capped_return
from ottrpo.threads import default_to_one_thread

from .grid import Cell, GridStudy, collect, read_study, write_csv
from .run import build_agent, manifest, plan_run, train
from .spec import RunSpec
from .store import RunDirectory

FOLDER = Path(__file__).parent / "studies" / "tabular"
AUDIT = "audit.json"
# POT is asked about every tenth of the first updates of a run, and then about one in 250.
POT_OFTEN, POT_OFTEN_UNTIL, POT_SELDOM = 10, 200, 250
# POT's answers carry the rounding of its own pivots.
POT_RTOL = 1e-7


@dataclass
class Audits:
    """What the checks of a run found.

    Attributes:
        updates: all of them.
        audited: those whose discrepancy was recomputed by the core.
        violations: those of them that exceeded the radius.
        worst_excess: the largest excess, as a share of the radius.
        worst_gap: the largest duality gap, relative to the dual value.
        pot_checked: updates that POT looked at.
        pot_violations: those of them that exceeded the radius.
        pot_worst_difference: between POT's discrepancy and the one the agent reported, relative.
        exact_return: expected return of an episode of the trained policy, computed, not sampled.
    """

    updates: int = 0
    audited: int = 0
    violations: int = 0
    worst_excess: float = 0.0
    worst_gap: float = 0.0
    pot_checked: int = 0
    pot_violations: int = 0
    pot_worst_difference: float = 0.0
    exact_return: float = math.nan


@final
@dataclass
class Auditor:
    """Looks over the agent's shoulder; the runner calls it after every update."""

    agent: Any
    found: Audits = field(default_factory=Audits)
    uniform: bool = field(init=False)

    def __post_init__(self) -> None:
        problem = self.agent.problem
        self.uniform = _is_uniform(
            cost_table(self.agent.settings.cost, problem.n_states, problem.n_actions)
        )

    def update(self, timestep: int) -> None:
        """Check the update that was just made."""
        improvement = self.agent.last_improvement
        radius = improvement.problem.dual.radius
        found = self.found
        if self.uniform:  # else every state is a linear program
            checked = audit(improvement.problem, improvement.policy_sa, improvement.multiplier)
            found.audited += 1
            found.violations += checked.violation > 0
            found.worst_excess = max(found.worst_excess, checked.violation / radius)
            gap = abs(checked.gap) / max(abs(checked.dual), 1e-300)
            found.worst_gap = max(found.worst_gap, gap)
        every = POT_OFTEN if found.updates < POT_OFTEN_UNTIL else POT_SELDOM
        if found.updates % every == 0:
            spent = pot_discrepancy(improvement)
            found.pot_checked += 1
            found.pot_violations += spent > radius * (1 + POT_RTOL)
            difference = abs(spent - improvement.spent) / radius
            found.pot_worst_difference = max(found.pot_worst_difference, difference)
        found.updates += 1

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Nothing to check."""


def pot_discrepancy(improvement: Any) -> float:
    """Σ_s ρ_s C(π(·|s), π̃(·|s)) by POT's network simplex."""
    import ot

    problem = improvement.problem
    total = 0.0
    changed_s = (problem.policy_sa != improvement.policy_sa).any(axis=1)
    for s in np.flatnonzero(changed_s & (problem.occupancy_s > 0)):
        cost_ab = problem.cost_sab[s if len(problem.cost_sab) > 1 else 0]
        old_a, new_a = problem.policy_sa[s], improvement.policy_sa[s]
        moved = ot.emd2(old_a / old_a.sum(), new_a / new_a.sum(), cost_ab)
        total += float(problem.occupancy_s[s] * moved)
    return total


@final
@dataclass(frozen=True, kw_only=True)
class TabularStudy:
    """A grid of tabular runs with audits."""

    grid: GridStudy

    @property
    def description(self) -> str:
        """What it shows, in one line."""
        return self.grid.description

    def run(self, *, seeds: int | None, workers: int, out: Path, steps: int | None) -> int:
        """Do what is missing, fold what is finished into ``out``; 0 if all is there."""
        require(
            find_spec("ot") is not None,
            "this study checks updates with POT, which is not installed: pip install POT",
        )
        grid = self.grid
        count = grid.seeds if seeds is None else seeds
        root = Path("runs") / grid.name
        jobs = [
            (cell, seed, root / cell.name / f"seed{seed}", steps)
            for cell in grid.cells
            for seed in range(grid.first_seed, grid.first_seed + count)
        ]
        missing = [job for job in jobs if not _is_done(job)]
        _say(f"{grid.name}: {len(jobs)} runs, {len(jobs) - len(missing)} finished")
        failed = _run_all(missing, workers)
        paths = [path for _, _, path, _ in jobs]
        collect(grid, paths, out / grid.name)
        write_csv(out / grid.name / "audits.csv", _audit_rows(paths))
        for line in failed:
            sys.stderr.write(f"{line}\n")
        return 1 if failed else 0


Job = tuple[Cell, int, Path, int | None]


def _plan(job: Job) -> RunSpec:
    cell, seed, _, steps = job
    return plan_run(
        cell.environment,
        agent=cell.agent,
        config=cell.config,
        seed=seed,
        steps=cell.steps if steps is None else steps,
        overrides=cell.overrides(),
    )


def _is_done(job: Job) -> bool:
    """Whether this very run, with these settings and steps, has finished."""
    path = job[2]
    if not (path / AUDIT).is_file():  # written last
        return False
    spec, held = _plan(job), RunDirectory.open(path).manifest
    return bool(
        held["steps"] == spec.steps and held["settings"] == json.loads(json.dumps(spec.settings))
    )


def _train_one(job: Job) -> str | None:
    """Train and audit one run; what went wrong, in words."""
    cell, seed, path, _ = job
    shutil.rmtree(path, ignore_errors=True)  # what an earlier, unfinished try left
    try:
        spec = _plan(job)
        agent = build_agent(spec)
        auditor = Auditor(agent)
        with warnings.catch_warnings():
            # some readings never reach the goal; their scores say so
            warnings.filterwarnings("ignore", message="all .* stopped at the cap")
            train(spec, agent, RunDirectory.create(path, manifest(spec)), auditor)
        auditor.found.exact_return = capped_return(agent.problem, agent.policy_sa)
        (path / AUDIT).write_text(json.dumps(asdict(auditor.found)) + "\n", encoding="utf-8")
    except Exception as error:
        return f"{cell.name} seed {seed} failed: {type(error).__name__}: {error}"
    return None


def _run_all(jobs: Sequence[Job], workers: int) -> list[str]:
    """All jobs on a few processes; what failed, in words."""
    if not jobs:
        return []
    default_to_one_thread()  # the processes inherit it
    failed, began = [], time.monotonic()
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
        for done, error in enumerate(pool.imap_unordered(_train_one, jobs), start=1):
            if error is not None:
                failed.append(error)
            if done % max(1, len(jobs) // 100) == 0 or done == len(jobs):
                _say(f"[{done}/{len(jobs)}, {(time.monotonic() - began) / 60:.1f} min]")
    return failed


def _audit_rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    rows = []
    for path in paths:
        if (path / AUDIT).is_file():
            found = json.loads((path / AUDIT).read_text(encoding="utf-8"))
            seed = RunDirectory.open(path).manifest["seed"]
            rows.append({"cell": path.parent.name, "seed": seed, **found})
    return rows


def _is_uniform(cost_sab: Any) -> bool:
    """Whether the discrepancy is a multiple of the total variation, which needs no solver."""
    off_diagonal = cost_sab[:, ~np.eye(cost_sab.shape[1], dtype=np.bool_)]
    return bool(np.ptp(off_diagonal) == 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


STUDIES = {path.stem: TabularStudy(grid=read_study(path)) for path in sorted(FOLDER.glob("*.toml"))}
