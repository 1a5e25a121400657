"""``ottrpo report``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.names import known
from ottrpo.terminal import say, say_json, screen

from .options import Mistake, Results, mistakes, results_root


@dataclass(frozen=True, kw_only=True)
class Report:
    """Show the scores of studies, computed from their stored results.

    Scores are means over the evaluations of the last tenth of training; seeds are the unit. Three
    sentences that sum up all studies come last, where the terminal stops scrolling.
    """

    study: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")] = None
    """name of the study; all by default"""
    results: Results = None
    json: bool = False
    """print one JSON object: study, environment, agent, configuration, statistics"""
    html: Path | None = None
    """write one page, the paper's tables and figures with ours beside them; with STUDY only the
    parts where it stands"""
    sampled: bool = False
    """with --json: scores of sampled instead of deterministic actions, where there are both"""

    def run(self) -> None:
        """Read, count, tell."""
        if self.sampled and not self.json:
            raise Mistake("--sampled goes with --json; the other reports show both ways to act")
        if self.html is not None and self.html.is_dir():
            raise Mistake(f"--html takes a file, got the directory {self.html}")
        results = results_root(self.results)
        with mistakes():
            names = self._names(results)
        if self.html is not None:
            self._write_page(self.html, results)
        if self.html is None or self.json:
            with mistakes():
                self._tell(names, results)

    def _names(self, results: Path) -> list[str]:
        """The studies to tell of."""
        from ottrpo.results.layout import elsewhere
        from ottrpo.results.reading import study_names

        there = study_names(results)
        if not there:
            raise Mistake(
                f"{results} holds no results; `--results published` reads those of ottrpo"
            )
        if self.study is None:
            return there
        if self.study not in there:
            hint = known(self.study, there)
            raise Mistake(f"{results} has no results of {self.study!r}; {hint}{elsewhere(results)}")
        return [self.study]

    def _tell(self, names: Sequence[str], results: Path) -> None:
        from ottrpo.reports.answers import answers
        from ottrpo.reports.exhibits import read_exhibition
        from ottrpo.reports.tables import as_data, terminal_table
        from ottrpo.results.reading import read_studies

        studies = read_studies(results, names)
        if self.json:
            data = (as_data(study, sampled=self.sampled) for study in studies)
            say_json(dict(zip(names, data, strict=True)))
            return
        console = screen()
        for study in studies:
            console.print(terminal_table(study, console))
        if self.study is None:
            cells = [cell for study in studies for cell in study.cells]
            for sentence in answers(cells, read_exhibition()).sentences:
                console.print(sentence)

    def _write_page(self, path: Path, results: Path) -> None:
        from ottrpo.reports.page import write_page

        with mistakes():
            try:
                write_page(results, path, self.study)
            except OSError as error:
                error.filename = error.filename or str(path)  # a full disk names no file
                raise
        say(f"written: {path}", error=self.json)
