"""The process of one run of a study: ``python -m ottrpo.experiments.one_run JOB``, JOB in JSON."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ottrpo.threads import default_to_one_thread

CHECKPOINT_EVERY = 50_000


class Nobody:
    """Looks on without a word."""

    def update(self, timestep: int) -> None:
        """Nothing."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Nothing."""


def main(job: Mapping[str, Any]) -> None:
    """Do the run that the job describes, in the directory that it names.

    A directory that holds that run, unfinished, is gone on with from its last checkpoint (from the
    start if it has none); one that holds it finished is left alone.

    Raises:
        ValueError: if the job can't be done, or the directory holds another run or is in use.
    """
    default_to_one_thread()
    from ottrpo.persistence.lock import DirectoryLock

    from .run import Stopped, plan_job

    spec = plan_job(job)
    path = Path(job["out"])
    path.mkdir(parents=True, exist_ok=True)
    try:
        with DirectoryLock(path):
            _begin_or_go_on(spec, path, job.get("checkpoint_every", CHECKPOINT_EVERY))
    except Stopped as stopped:
        sys.stderr.write(f"{stopped}\n")
        stopped.stop.obey()


def _begin_or_go_on(spec: Any, path: Path, checkpoint_every: int) -> None:
    from ottrpo.results.layout import MANIFEST
    from ottrpo.results.run_directory import RunDirectory

    from .run import build_agent, manifest, resume, spec_of, train

    if not (path / MANIFEST).is_file():
        agent = build_agent(spec)
        directory = RunDirectory.create(path, manifest(spec, agent, checkpoint_every))
        train(spec, agent, directory, Nobody())
        return
    directory = RunDirectory.open(path)
    held = spec_of(directory.manifest)
    # through JSON: a manifest knows no tuples
    if json.dumps(asdict(held)) != json.dumps(asdict(spec)):
        raise ValueError(f"{path} holds another run; choose another directory, or remove it")
    if not directory.finished:
        resume(directory, Nobody())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
