"""``ottrpo resume``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ottrpo.terminal import screen

from .options import mistakes
from .train import go_on_together, tell_scores, with_care

if TYPE_CHECKING:
    from ottrpo.results.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run that was interrupted, from its last checkpoint.

    Whatever interrupted it, the run ends bit for bit as it would have without: parameters, metrics
    and evaluations, wall-clock times excepted.
    """

    run_directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """what `ottrpo train` wrote"""
    trust: bool = False
    """let the run import the module of its environment (`module:Name-v0`), if it names one"""

    def run(self) -> int:
        """Look, restore, train on, tell."""
        from ottrpo.envs import catalogue
        from ottrpo.experiments import run as runner
        from ottrpo.experiments.board import RunBoard
        from ottrpo.persistence import bundle
        from ottrpo.results.run_directory import RunDirectory

        console = screen(soft_wrap=True)
        tell = console.print
        with mistakes(), bundle.interpreting(self.run_directory):
            directory = RunDirectory.open(self.run_directory)
            directory.require_own_files()
            spec = runner.spec_of(directory.manifest)
            catalogue.require_no_import(spec.environment, trust=self.trust)
        name = f"{spec.agent} ({spec.config}) on {spec.environment}, seed {spec.seed}"
        if directory.finished:
            tell(f"{name}: finished, {spec.steps:,} steps; nothing to do in {directory.path}")
            return 0
        tell(f"{name}, {spec.steps:,} steps -> {directory.path}")
        if runner.is_functional(spec.environment):
            return self._resume_together(directory)

        def work() -> None:
            with RunBoard(spec.steps, console) as watch:
                with mistakes(), bundle.interpreting(directory.path):
                    run = runner.restored(directory, watch, tell)
                run.go_on()
            tell_scores(spec, directory, run.agent, console)

        return with_care([directory], console, work)

    def _resume_together(self, directory: "RunDirectory") -> int:
        """Go on with all runs that were trained in one program."""
        from ottrpo.experiments import together
        from ottrpo.experiments.board import RunBoard
        from ottrpo.experiments.run import spec_of

        console = screen(soft_wrap=True)
        with mistakes():
            directories = together.found(directory)
            for each in directories:
                each.require_own_files()
            specs = [spec_of(each.manifest) for each in directories]
            watch = RunBoard(specs[0].steps, console)
            runs = together.Together(specs, watch)
            runs.compile(console.print, checkpoints=bool(directory.manifest.get("checkpoints")))
        return go_on_together(runs, directories, watch, console)
