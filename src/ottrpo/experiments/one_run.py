"""The process of one run of a study: ``python -m ottrpo.experiments.one_run JOB``, JOB in JSON."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottrpo.threads import default_to_one_thread


class Nobody:
    """Looks on without a word."""

    def update(self, timestep: int) -> None:
        """Nothing."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Nothing."""


def main(job: Mapping[str, Any]) -> None:
    """Train what the job says, into the directory it names."""
    default_to_one_thread()
    from .run import build_agent, manifest, plan_run, train
    from .store import RunDirectory

    spec = plan_run(
        job["environment"],
        agent=job["agent"],
        config=job["config"],
        seed=job["seed"],
        steps=job["steps"],
        overrides=job["overrides"],
        protocol=job["protocol"],
    )
    agent = build_agent(spec)
    train(spec, agent, RunDirectory.create(Path(job["out"]), manifest(spec)), Nobody())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
