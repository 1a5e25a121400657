"""``ottrpo report``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.names import known
from ottrpo.terminal import say, say_json, screen

from .options import Mistake, Results, mistakes, results_root


@dataclass(frozen=True, kw_only=True)
class Report:
    """Tell the scores of studies, computed from their results alone.

    Scores are means over the evaluations of the last tenth of training; seeds are the unit.
    """

    study: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")] = None
    """which one; all by default"""
    results: Results = None
    json: bool = False
    """print one object: study, environment, agent, configuration, statistics"""
    html: Path | None = None
    """write one page, the paper's tables and figures with ours beside them; with STUDY only the
    parts where it stands"""
    sampled: bool = False
    """with --json: of sampled actions where both ways to act were evaluated"""

    def run(self) -> None:
        """Read, count, tell."""
        from ottrpo.reports.tables import as_data, terminal_table
        from ottrpo.results.reading import read_studies, study_names

        if self.sampled and not self.json:
            raise Mistake("--sampled goes with --json; the other reports show both ways to act")
        if self.html is not None and self.html.is_dir():
            raise Mistake(f"--html takes a file, got the directory {self.html}")
        results = results_root(self.results)
        with mistakes():
            there = study_names(results)
        if self.study is not None and self.study not in there:
            hint = known(self.study, there)
            raise Mistake(f"{results} has no results of {self.study!r}; {hint}")
        if self.html is not None:
            self._write_page(self.html, results)
        if self.html is not None and not self.json:
            return
        with mistakes():
            names = there if self.study is None else [self.study]
            studies = read_studies(results, names)
            if self.json:
                say_json(
                    {
                        name: as_data(study, sampled=self.sampled)
                        for name, study in zip(names, studies, strict=True)
                    }
                )
                return
            console = screen()
            for study in studies:
                console.print(terminal_table(study, console))

    def _write_page(self, path: Path, results: Path) -> None:
        from ottrpo.reports.page import write_page

        with mistakes():
            try:
                write_page(results, path, self.study)
            except OSError as error:
                error.filename = error.filename or str(path)  # a full disk names no file
                raise
        say(f"written: {path}", error=self.json)
