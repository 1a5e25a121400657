"""``ottrpo reproduce``."""

import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from .options import Mistake, mistakes, one_line

if TYPE_CHECKING:
    from ottrpo.experiments.study import Study


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run a study: many runs that answer one question. `ottrpo list` names the studies.

    What is finished is skipped; stopped at any instant, the same command goes on. The exit code
    is 0 if all runs are complete.
    """

    study: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")] = None
    """which one: a name, a label of the paper such as tab:trained:scores, or a TOML file of your
    own; with --collect all by default"""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """how many seeds; by default what the study says"""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """processes at once; by default one per core"""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """run on a Ray cluster instead: auto, or the address of its head"""
    steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """environment steps per run; by default what the configurations say"""
    retries: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """how often a run that crashes, hangs or is killed is tried again"""
    time_limit: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 900.0
    """a run that writes nothing for so long hangs"""
    max_runs: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
    """a study of more runs is taken for a mistake"""
    trust: bool = False
    """let a study's file import the modules of its environments (`module:Name-v0`)"""
    collect: bool = False
    """run nothing; fold the runs that are finished into the results"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """where the results are kept, in a folder named after the study; by default results/, but
    runs/trials/ for a shortened study, which must not replace what is published"""

    def run(self) -> int:
        """Hand over to the studies, one after the other."""
        from ottrpo.results.layout import default_out

        self._check()
        code = 0
        for study in self._chosen():
            out = self.out or default_out(seeds=self.seeds, steps=self.steps)
            try:
                with mistakes():
                    code |= self._run_one(study, out)
            except KeyboardInterrupt:
                print("ottrpo: stopped; the same command goes on from here", file=sys.stderr)
                return 1
            with mistakes():
                _tell(study, out / study.name)
        return code

    def _run_one(self, study: "Study", out: Path) -> int:
        try:
            if self.collect:
                from ottrpo.experiments.reproduce import collect

                return collect(
                    study, seeds=self.seeds, steps=self.steps, out=out, max_runs=self.max_runs
                )
            return study.run(
                seeds=self.seeds,
                workers=self.workers or os.cpu_count() or 1,
                out=out,
                steps=self.steps,
                ray=self.ray,
                retries=self.retries,
                time_limit=self.time_limit,
                max_runs=self.max_runs,
            )
        except OSError as error:  # a full disk, say: not all is complete, and nothing is lost
            where = error.filename or out
            reason = one_line(f"{where}: {error.strerror or error}")
            print(f"ottrpo: {study.name}: {reason}; what was there is unchanged", file=sys.stderr)
            return 1

    def _check(self) -> None:
        for name, value in (
            ("seeds", self.seeds),
            ("workers", self.workers),
            ("steps", self.steps),
        ):
            if value is not None and value < 1:
                raise Mistake(f"--{name} must be at least 1, got {value}")
        if self.retries < 0:
            raise Mistake(f"--retries must not be negative, got {self.retries}")
        if not self.time_limit > 0:
            raise Mistake(f"--time-limit must be positive, got {self.time_limit:g}")
        if self.ray is not None and self.workers is not None:
            raise Mistake("--workers is for this machine, --ray for a cluster; give one of them")
        if self.collect and self.ray is not None:
            raise Mistake("--collect runs nothing, --ray says where to run; give one of them")

    def _chosen(self) -> "list[Study]":
        """The study of that name, all of that label, or the one in that file."""
        from ottrpo.experiments.registry import studies
        from ottrpo.results.layout import RUNS_ROOT

        known = studies()
        if self.study is None:
            if not self.collect:
                raise Mistake(f"a study is missing; known: {', '.join(known)}")
            begun = [study for study in known.values() if (RUNS_ROOT / study.name).is_dir()]
            if not begun:
                raise Mistake(f"there are no runs of a study under {RUNS_ROOT}")
            return begun
        if self.study in known:
            return [known[self.study]]
        if self.study.endswith(".toml"):
            from ottrpo.experiments.study import read_study

            with mistakes():
                return [read_study(Path(self.study), trust=self.trust, max_runs=self.max_runs)]
        labelled = [study for study in known.values() if self.study in study.paper]
        if not labelled:
            labels = sorted({label for study in known.values() for label in study.paper})
            close = get_close_matches(self.study, [*known, *labels], n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise Mistake(
                f"{self.study!r} is not a study; {hint}known: {', '.join([*known, *labels])}"
            )
        return labelled


def _tell(study: "Study", folder: Path) -> None:
    """Print the scores of a study that keeps its runs' evaluations."""
    from ottrpo.results.layout import MANIFEST, RUNS

    if not (folder / MANIFEST).is_file() or not (folder / RUNS).is_file():
        return
    from rich.console import Console

    from ottrpo.reports.tables import terminal_table

    console = Console()
    if not console.is_terminal:
        console = Console(width=400)  # a file has no width of its own
    console.print(terminal_table(folder.name, folder, console))
    if all(cell.audit for cell in study.cells):
        from ottrpo.reports.tabular import write_study

        for path in write_study(folder):
            console.print(f"written: {path}", markup=False, highlight=False)
