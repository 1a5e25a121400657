"""What an update really gains: estimators and fits, ranked on rows that they did not see.

At several stages of one training, rollouts of the policy of that moment are collected, and every
variant makes its update from the same state on each of them. What it gains on the rows that its fit
saw is no measure; what it gains on those held out is one, and takes minutes instead of days. Gains
are told in each variant's own estimate of the advantage: a short trace has less noise to show and a
bias that does not show, so choose with it and confirm with returns.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import tyro

from .harness import Benchmark, Figures, Row, tell

if TYPE_CHECKING:
    from ottrpo.agents.ottrpo import OTTRPO

HELD_OUT = 0.2
# variant -> (what is estimated in another way, what is fitted in another way)
VARIANTS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "as it is": ({}, {}),
    "trace 0.8": ({"trace_decay": 0.8}, {}),
    "trace 0.95": ({"trace_decay": 0.95}, {}),
    "trace 0.99": ({"trace_decay": 0.99}, {}),
    "3 epochs": ({}, {"n_epochs": 3}),
    "30 epochs": ({}, {"n_epochs": 30}),
    "batches of 256": ({}, {"batch_size": 256}),
    "paced to 1 %": ({"radius": 0.01}, {"adapt_pace": True}),
}


def gains(agent: "OTTRPO", rollouts: int) -> list[Row]:
    """What each variant gains from where the agent is, the best on held-out rows first."""
    collected = [agent.collect_rollout(None) for _ in range(rollouts)]
    now = agent._now()
    rows = []
    for name, (estimated, fitted) in VARIANTS.items():
        algorithm = replace(agent.algorithm, hold_out=HELD_OUT, **fitted)
        then, reports = now._replace(**estimated), []
        for i, rollout in enumerate(collected):
            if rollout is None:
                raise RuntimeError("a rollout was cut short")
            state, batch = algorithm.estimate(agent.train_state, rollout, then)
            draws = algorithm.draw(len(batch.flat), np.random.default_rng(i))
            _, report = algorithm.improve(agent.train_state, state, batch, draws, then)
            reports.append({key: float(value) for key, value in report.items()})
        rows.append({"variant": name} | _summary(reports))
    return sorted(rows, key=lambda row: -row["held_out"])


def _summary(reports: list[dict[str, float]]) -> Row:
    fitted, out, spent, radius = (
        np.array([report[f"ot/{key}"] for report in reports])
        for key in ("gain_fitted", "gain_held_out", "spent", "radius")
    )
    return {
        "fitted": float(fitted.mean()),
        "held_out": float(out.mean()),
        "standard_error": float(out.std(ddof=1) / len(out) ** 0.5),
        "share": float(out.mean() / fitted.mean()),
        "held_out_per_cost": float(out.mean() / spent.mean()),
        "spent_of_radius": float((spent / radius).mean()),
    }


@dataclass(frozen=True, kw_only=True)
class Signal(Benchmark):
    """What an update gains on rows that its fit did not see, by estimator and fit."""

    titles: ClassVar = {"gains": "first-order gain of an update, in deviations of the advantage"}

    environment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = "Hopper-v5"
    """where OT-TRPO trains; actions in a box"""
    stages: tuple[int, ...] = (10, 50, 150)
    """updates of training after which to look"""
    rollouts: int = 16
    """how many rollouts to average over, two at least"""
    seed: int = 0
    """of the training"""

    def __post_init__(self) -> None:
        if self.rollouts < 2 or not self.stages or min(self.stages) < 1:
            raise ValueError("rollouts must be at least 2, and stages at least 1 each")

    def measure(self) -> Figures:
        """Train to every stage, and look."""
        from ottrpo.agents.ottrpo import OTTRPO

        stages, rollouts = ((1, 2), 2) if self.quick else (sorted(self.stages), self.rollouts)
        agent = OTTRPO("MlpPolicy", self.environment, advantage="gae", seed=self.seed)
        steps, rows = agent.told.n_steps * agent.n_envs, []
        for before, stage in zip((0, *stages[:-1]), stages, strict=True):
            agent.learn((stage - before) * steps, reset_num_timesteps=before == 0)
            tell(f"after {stage} updates")
            rows += [{"updates": stage} | row for row in gains(agent, rollouts)]
        return {"gains": rows}
