"""What checkpoints cost: the time of one as a share of the training between two, and its size."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from .harness import Benchmark, Figures, Row, timed

STEPS, EVERY = 20_480, 2_048  # as many checkpoints as updates, to measure many
USUAL = 50_000  # steps between checkpoints by default


def measure(environment: str, steps: int = STEPS) -> Row:
    """Train with a checkpoint after every update, and time them apart in the same run."""
    from ottrpo.agents.ottrpo import OTTRPO
    from ottrpo.agents.watching import CheckpointEvery

    spent: list[float] = []

    class Timed(CheckpointEvery):
        def __call__(self, agent: Any) -> None:
            spent.append(timed(lambda: super(Timed, self).__call__(agent))[0])

    agent = OTTRPO("MlpPolicy", environment, seed=0).learn(2 * EVERY)  # compiled from here on
    with tempfile.TemporaryDirectory() as folder:
        total, _ = timed(lambda: agent.learn(steps, callback=Timed(EVERY, folder)))
        size = max(file.stat().st_size for file in Path(folder).glob("*.zip"))
    checkpoint = sum(spent) / len(spent)
    training = (total - sum(spent)) * USUAL / steps
    return {
        "environment": environment,
        "checkpoint_seconds": checkpoint,
        "training_seconds": training,
        "share": checkpoint / training,
        "size": size,
    }


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Benchmark):
    """The time of a checkpoint as a share of the training between two, and its size."""

    titles: ClassVar = {"checkpoint": f"a checkpoint, and {USUAL:,} steps of training"}

    environment: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = "Hopper-v5"
    """where OT-TRPO trains"""

    def measure(self) -> Figures:
        """Train and save."""
        return {"checkpoint": measure(self.environment, STEPS // 4 if self.quick else STEPS)}
