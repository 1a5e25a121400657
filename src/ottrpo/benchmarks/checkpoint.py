"""What checkpoints cost: the time of one as a share of the training between two, and its size.

Both times are taken in one run, so a busy machine slows both.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT = "Hopper-v5"
STEPS, EVERY = 20_480, 2_048  # as many checkpoints as updates, to measure many
USUAL = 50_000  # steps between checkpoints by default


@dataclass(frozen=True)
class Cost:
    """Seconds of a checkpoint, those of the steps between two, their ratio, and bytes."""

    environment: str
    checkpoint_seconds: float
    training_seconds: float
    share: float
    size: int


def measure(environment: str = ENVIRONMENT, steps: int = STEPS) -> Cost:
    """Train with a checkpoint after every update, and time them apart."""
    from ottrpo.agents.checkpointing import CheckpointEvery
    from ottrpo.agents.ottrpo import OTTRPO

    spent: list[float] = []

    class Timed(CheckpointEvery):
        def __call__(self, agent: Any) -> None:
            began = time.perf_counter()
            super().__call__(agent)
            spent.append(time.perf_counter() - began)

    agent = OTTRPO("MlpPolicy", environment, seed=0).learn(2 * EVERY)  # compiled from here on
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        agent.learn(steps, callback=Timed(EVERY, folder))
        total = time.perf_counter() - began
        size = max(file.stat().st_size for file in Path(folder).glob("*.zip"))
    checkpoint = sum(spent) / len(spent)
    training = (total - sum(spent)) * USUAL / steps
    return Cost(environment, checkpoint, training, checkpoint / training, size)


def main(arguments: Sequence[str] = ()) -> int:
    """Print the figures; ``--json`` for machines."""
    parser = argparse.ArgumentParser(prog="ottrpo bench checkpoint", description=__doc__)
    parser.add_argument("environment", nargs="?", default=ENVIRONMENT)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(list(arguments))
    cost = measure(options.environment)
    if options.json:
        print(json.dumps(asdict(cost)))
        return 0
    print(
        f"{cost.environment}: a checkpoint takes {1e3 * cost.checkpoint_seconds:.1f} ms, "
        f"{100 * cost.share:.3f} % of the {cost.training_seconds:.1f} s that {USUAL:,} steps take, "
        f"and {cost.size:,} bytes"
    )
    return 0
