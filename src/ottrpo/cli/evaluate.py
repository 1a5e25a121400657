"""``ottrpo evaluate``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.terminal import say, say_json

from .options import Trust, mistakes, require_at_least


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate a trained agent on fresh episodes."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """the directory of a run, or the file of a saved agent"""
    episodes: int = 10
    """number of episodes"""
    deterministic: bool = False
    """play the policy's mode instead of sampled actions"""
    seed: int = 0
    """seed of the evaluation"""
    trust: Trust = False
    json: bool = False
    """print one JSON object: mean, std, episodes, returns"""

    def run(self) -> None:
        """Load, play, tell."""
        require_at_least(1, episodes=self.episodes)
        require_at_least(0, seed=self.seed)
        from ottrpo.experiments.trained import load_trained

        with mistakes():
            trained = load_trained(self.path, trust=self.trust)
        returns = trained.evaluate(self.episodes, deterministic=self.deterministic, seed=self.seed)
        mean, std = float(returns.mean()), float(returns.std())
        if self.json:
            played = {"episodes": len(returns), "returns": [float(value) for value in returns]}
            say_json({"mean": mean, "std": std, **played})
            return
        kind = "deterministic" if self.deterministic else "sampled"
        say(
            f"{trained.name} on {trained.environment}: {mean:,.2f} ± {std:,.2f} over "
            f"{self.episodes} episodes\n{kind} actions, seed {self.seed}, lowest "
            f"{min(returns):,.2f}, highest {max(returns):,.2f}"
        )
