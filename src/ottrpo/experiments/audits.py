"""Runs of the tabular agents, checked from outside update by update.

The core's audit computes the discrepancy between the old and the new policy anew after every
update and, now and then, so does POT's network simplex.
"""

import json
import math
import shutil
import warnings
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np

from ottrpo.core import audit
from ottrpo.core.checks import require
from ottrpo.core.discrepancy import uniform_step
from ottrpo.core.problems import cost_table
from ottrpo.persistence.bundle import write_atomically
from ottrpo.persistence.lock import DirectoryLock
from ottrpo.results.layout import AUDIT
from ottrpo.results.run_directory import RunDirectory
from ottrpo.tabular import RegionSettings
from ottrpo.tabular.planning import capped_return

from .recorder import Onlooker
from .run import build_agent, manifest, train
from .spec import RunSpec

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
class Auditor(Onlooker):
    """Looks over the agent's shoulder; the runner calls it after every update."""

    agent: Any
    found: Audits = field(default_factory=Audits)
    uniform: bool = field(init=False)

    def __post_init__(self) -> None:
        problem = self.agent.problem
        cost_sab = cost_table(self.agent.settings.cost, problem.n_states, problem.n_actions)
        self.uniform = uniform_step(cost_sab) is not None

    def update(self, timestep: int) -> None:
        """Check the update that was just made."""
        improvement = self.agent.last_improvement
        radius = improvement.radius
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


def run_audited(spec: RunSpec, path: Path) -> None:
    """Train and audit into the directory ``path``.

    Such a run takes a second or so: one that was interrupted starts from the beginning.
    """
    require(
        find_spec("ot") is not None,
        "this run checks its updates with POT, which is not installed: pip install POT",
    )
    path.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(path) as lock:
        for entry in path.iterdir():  # what an earlier, unfinished try left
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry != lock.path:
                entry.unlink()
        agent = build_agent(spec)
        settings = agent.settings
        if isinstance(settings, RegionSettings):
            paper = settings.region == "transport" and settings.multiplier_at(1.0) is None
            require(paper, "audits are of runs with a radius in region 'transport'")
        auditor = Auditor(agent)
        with warnings.catch_warnings():
            # some readings never reach the goal; their scores say so
            warnings.filterwarnings("ignore", message="all .* stopped at the cap")
            train(spec, agent, RunDirectory.create(path, manifest(spec)), auditor)
        auditor.found.exact_return = capped_return(agent.problem, agent.policy_sa)
        # written last: the run is not finished without it
        write_atomically(path / AUDIT, f"{json.dumps(asdict(auditor.found))}\n".encode())
