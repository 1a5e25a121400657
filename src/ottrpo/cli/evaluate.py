"""``ottrpo evaluate``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .options import Mistake, mistakes


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate a trained agent on fresh episodes."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """what `ottrpo train` wrote, or a file that an agent was saved to"""
    episodes: int = 10
    """how many"""
    deterministic: bool = False
    """take the policy's mode instead of sampling"""
    seed: int = 0
    """of the evaluation; training is not touched"""
    trust: bool = False
    """let the run import the module of its environment (`module:Name-v0`), if it names one"""
    json: bool = False
    """print one object: mean, std, episodes, returns"""

    def run(self) -> int:
        """Load, play, tell."""
        if self.episodes < 1:
            raise Mistake(f"--episodes must be at least 1, got {self.episodes}")
        if self.seed < 0:
            raise Mistake(f"--seed must not be negative, got {self.seed}")
        from ottrpo.experiments.trained import load_trained

        with mistakes():
            trained = load_trained(self.path, trust=self.trust)
        returns = trained.agent.evaluate(
            self.episodes, deterministic=self.deterministic, seed=self.seed
        )
        report = {
            "mean": float(returns.mean()),
            "std": float(returns.std()),
            "episodes": len(returns),
            "returns": [float(value) for value in returns],
        }
        if self.json:
            print(json.dumps(report))
            return 0
        kind = "deterministic" if self.deterministic else "sampled"
        name = f"{trained.name} on {trained.environment}"
        print(f"{name}: {report['mean']:,.2f} ± {report['std']:,.2f} over {self.episodes} episodes")
        print(
            f"{kind} actions, seed {self.seed}, lowest {min(returns):,.2f}, highest "
            f"{max(returns):,.2f}"
        )
        return 0
