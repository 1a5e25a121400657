"""``ottrpo reproduce``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ottrpo.experiments.reproduce import StudyOptions
from ottrpo.names import known
from ottrpo.terminal import say, screen

from .options import Mistake, mistakes, refused, require_at_least

if TYPE_CHECKING:
    from ottrpo.experiments.study import Study


@dataclass(frozen=True, kw_only=True)
class Reproduce(StudyOptions):
    """Run a study: many runs that answer one question. `ottrpo list` names the studies.

    Finished runs are skipped. The study can be stopped at any time, and the same command continues
    it. The exit code is 0 if all runs are complete.
    """

    study: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")] = None
    """a study by its name, by a label of the paper such as tab:trained:scores, or as a TOML file;
    with --collect all by default"""
    trust: bool = False
    """allow the study to import the modules of its environments (`module:Name-v0`)"""
    collect: bool = False
    """train nothing; only add finished runs to the results"""

    def run(self) -> int:
        """Hand over to the studies, one after the other."""
        self._check()
        code = 0
        for study in self._chosen():
            try:
                with mistakes():
                    code |= self._run_one(study)
            except KeyboardInterrupt:
                say("ottrpo: stopped; the same command goes on from here", error=True)
                return 1
            with mistakes():
                _tell(study, self.root / study.name)
        return code

    def _run_one(self, study: "Study") -> int:
        from ottrpo.experiments.reproduce import collect, reproduce

        try:
            return collect(study, self) if self.collect else reproduce(study, self)
        except OSError as error:  # a full disk, say: not all is complete, and nothing is lost
            reason = refused(error, self.root)
            say(f"ottrpo: {study.name}: {reason}; what was there is unchanged", error=True)
            return 1

    def _check(self) -> None:
        require_at_least(1, seeds=self.seeds, workers=self.workers, steps=self.steps)
        require_at_least(0, retries=self.retries)
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

        there = studies()
        if self.study is None:
            if not self.collect:
                raise Mistake(f"a study is missing; known: {', '.join(there)}")
            begun = [study for study in there.values() if (RUNS_ROOT / study.name).is_dir()]
            if not begun:
                raise Mistake(f"there are no runs of a study under {RUNS_ROOT}")
            return begun
        if self.study in there:
            return [there[self.study]]
        if self.study.endswith(".toml"):
            from ottrpo.experiments.study import load_study

            with mistakes():
                return [load_study(Path(self.study), trust=self.trust, max_runs=self.max_runs)]
        labelled = [study for study in there.values() if self.study in study.paper]
        if not labelled:
            labels = sorted({label for study in there.values() for label in study.paper})
            raise Mistake(f"{self.study!r} is not a study; {known(self.study, [*there, *labels])}")
        return labelled


def _tell(study: "Study", folder: Path) -> None:
    """Print the scores of a study that keeps its runs' evaluations."""
    from ottrpo.results.layout import MANIFEST, RUNS

    if not (folder / MANIFEST).is_file() or not (folder / RUNS).is_file():
        return
    from ottrpo.reports.tables import terminal_table
    from ottrpo.results.reading import read_study

    console = screen()
    console.print(terminal_table(read_study(folder), console))
    if all(cell.audit for cell in study.cells):
        from ottrpo.reports.readme import write_study

        for path in write_study(folder):
            say(f"written: {path}")
