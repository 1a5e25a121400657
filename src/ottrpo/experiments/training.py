"""Runs are begun, and gone on with: one by itself, or several seeds as one program.

The command line and the processes of a study do it in the same four steps: make a `Training`, hold
its directories, be where its last checkpoint was, go on.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from ottrpo.core.checks import require
from ottrpo.persistence.lock import DirectoryLock
from ottrpo.results.layout import MANIFEST
from ottrpo.results.run_directory import RunDirectory
from ottrpo.terminal import say

from . import provenance
from .recorder import Onlooker
from .run import Run, Stopped, Tell, build_agent, describes, is_functional, manifest, spec_of
from .spec import RunSpec

CHECKPOINT_EVERY = 50_000


class Training(Protocol):
    """Runs in progress, which end together."""

    directories: Sequence[RunDirectory]

    def agent(self, row: int) -> Any:
        """Who learns in one of the runs."""

    def restore(self, tell: Tell) -> bool:
        """Be where the last checkpoint was, or else at the start; whether there was one."""

    def go_on(self) -> None:
        """Train until the end, save the agents, and let the checkpoints go.

        What comes out is bit for bit what the runs would have become without an interruption,
        wall-clock times excepted. Whoever calls this holds the locks of the directories.

        Raises:
            Stopped: by SIGTERM or Ctrl-C, when all is saved.
            NonFiniteError: something became NaN or infinite; the last checkpoint is good.
        """


def begin(
    specs: Sequence[RunSpec], paths: Sequence[Path], every: int | None, watch: Onlooker, tell: Tell
) -> Training:
    """New runs, which differ in their seeds alone; several of them in environments of JAX only.

    A checkpoint is written at ``every`` so many steps; 0 for none, ``None`` for what is usual.

    Raises:
        ValueError: if a setting is refused, there is no room, or a path holds a run.
    """
    if is_functional(specs[0].environment):
        from . import together

        runs = together.Together(specs, watch)
        runs.compile(tell, checkpoints=every != 0)
        runs.directories = together.begun(specs, paths, every)
        return runs
    (spec,), (path,) = specs, paths
    agent = build_agent(spec)
    record = manifest(spec, agent, CHECKPOINT_EVERY if every is None else every)
    return Run(spec, agent, RunDirectory.create(path, record), watch)


def reopen(directory: RunDirectory, watch: Onlooker, tell: Tell) -> Training:
    """The unfinished run in a directory, with all that were trained together with it.

    Raises:
        ValueError: if it does not describe a run, or the others are not there.
    """
    asked = directory.manifest.get("checkpoints")
    every = asked.get("every") if isinstance(asked, dict) else 1
    require(type(every) is int and every >= 1, f"the manifest asks for checkpoints every {every!r}")
    spec = spec_of(directory.manifest)
    if is_functional(spec.environment):
        from . import together

        directories = together.found(directory)
        runs = together.Together([spec_of(each.manifest) for each in directories], watch)
        runs.compile(tell, checkpoints=bool(asked))
        runs.directories = directories
        return runs
    return Run(spec, build_agent(spec), directory, watch)


def restore(training: Training, tell: Tell, *, resumed: bool) -> None:
    """Be where the last checkpoint was; of ``resumed`` runs say what was lost, and may differ.

    Raises:
        ValueError: if the files don't fit together.
    """
    if resumed:
        _tell_changes(training.directories[0], tell)
        for directory in training.directories:
            for line in directory.torn_lines():
                tell(line)
    if not training.restore(tell) and resumed:
        tell("it has no checkpoint: it starts again from the beginning")


def begin_or_go_on(
    specs: Sequence[RunSpec], paths: Sequence[Path], every: int | None = None
) -> None:
    """Do runs in the directories ``paths``, as `begin` says.

    Unfinished ones are gone on with, and with them all that began together with them; finished
    ones are left alone.

    Raises:
        ValueError: if they can't be done, or the directories hold others or are in use.
    """
    try:
        with ExitStack() as held:
            for path in paths:
                path.mkdir(parents=True, exist_ok=True)
                held.enter_context(DirectoryLock(path))
            if not (paths[0] / MANIFEST).is_file():
                training = begin(specs, paths, every, Onlooker(), say)
                training.restore(say)
            else:
                directory = RunDirectory.open(paths[0])
                same = describes(directory.manifest, specs[0])
                told = f"{paths[0]} holds another run; choose another directory, or remove it"
                require(same, told)
                if directory.finished:
                    return
                training = reopen(directory, Onlooker(), say)
                others = {each.path for each in training.directories} - set(paths)
                require(
                    len(others) + len(paths) == len(training.directories),
                    f"{paths[0]} was begun together with other runs; remove them, or choose "
                    "another place",
                )
                for path in sorted(others):
                    held.enter_context(DirectoryLock(path))
                restore(training, say, resumed=True)
            training.go_on()
    except Stopped as stopped:
        say(str(stopped))
        stopped.stop.obey()


def _tell_changes(directory: RunDirectory, tell: Tell) -> None:
    """Say what is other than when the run began, and may change numbers."""
    begun_as = directory.manifest
    for key, what, now in (
        ("versions", "other versions", provenance.versions()),
        ("arithmetic", "other arithmetic", provenance.arithmetic()),
    ):
        before = begun_as.get(key, {})  # manifests did not always say it, or not all of it
        names = [name for name in before if before[name] != now.get(name)]
        changed = [f"{name} {before[name]} -> {now.get(name)}" for name in names]
        if changed:
            tell(f"{what} than when it began, so numbers may differ: {', '.join(changed)}")
    if "devices" in begun_as and begun_as["devices"] != (devices := provenance.devices()):
        tell(f"other devices than when it began, so numbers may differ: {', '.join(devices)}")
