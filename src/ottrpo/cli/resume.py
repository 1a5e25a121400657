"""``ottrpo resume``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.terminal import screen

from .options import Trust, mistakes
from .train import go_on


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Continue an interrupted run from its last checkpoint.

    The run ends as it would have ended without the interruption: parameters, metrics and
    evaluations are the same bit for bit, wall-clock times excepted.
    """

    run_directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """the directory of the run"""
    trust: Trust = False

    def run(self) -> int:
        """Look, restore, train on, tell."""
        from ottrpo.envs import catalogue
        from ottrpo.experiments.board import RunBoard
        from ottrpo.experiments.run import spec_of
        from ottrpo.experiments.training import reopen
        from ottrpo.persistence import bundle
        from ottrpo.results.run_directory import RunDirectory

        console = screen(soft_wrap=True)
        with mistakes(), bundle.interpreting(self.run_directory):
            directory = RunDirectory.open(self.run_directory)
            directory.require_own_files()
            spec = spec_of(directory.manifest)
            catalogue.require_no_import(spec.environment, trust=self.trust)
        name = f"{spec.agent} ({spec.config}) on {spec.environment}, seed {spec.seed}"
        if directory.finished:
            told = f"{name}: finished, {spec.steps:,} steps; nothing to do in {directory.path}"
            console.print(told)
            return 0
        console.print(f"{name}, {spec.steps:,} steps -> {directory.path}")
        watch = RunBoard(spec.steps, console)
        with mistakes(), bundle.interpreting(directory.path):
            training = reopen(directory, watch, console.print)
            for each in training.directories:
                each.require_own_files()
        return go_on(training, watch, console, resumed=True)
