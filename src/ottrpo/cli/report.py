"""``ottrpo report``."""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import tyro

from .options import Mistake, mistakes


@dataclass(frozen=True, kw_only=True)
class Report:
    """Tell the scores of studies, computed from their results alone.

    Scores are means over the evaluations of the last tenth of training; seeds are the unit.
    """

    study: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")] = None
    """which one; all by default"""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """where the results are"""
    json: bool = False
    """print one object: study, environment, agent, configuration, statistics"""
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """write one page, the paper's tables and figures with ours beside them; with STUDY only the
    parts where it stands"""
    sampled: bool = False
    """with --json: of sampled actions where both ways to act were evaluated"""

    def run(self) -> int:
        """Read, count, tell."""
        chosen = self._chosen()
        if self.sampled and not self.json:
            raise Mistake("--sampled goes with --json; the other reports show both ways to act")
        if self.html is not None and self.html.is_dir():
            raise Mistake(f"--html takes a file, got the directory {self.html}")
        if self.html is not None:
            self._write_page(self.html)
        if self.json:
            self._print_json(chosen)
        elif self.html is None:
            self._print_tables(chosen)
        return 0

    def _chosen(self) -> list[str]:
        from ottrpo.results.reading import study_names

        with mistakes():
            known = study_names(self.results)
        if self.study is None:
            return known
        if self.study not in known:
            close = get_close_matches(self.study, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise Mistake(
                f"{self.results} has no results of {self.study!r}; {hint}"
                f"known: {', '.join(known) or 'none'}"
            )
        return [self.study]

    def _print_json(self, chosen: list[str]) -> None:
        from ottrpo.reports.tables import as_data
        from ottrpo.results.reading import read_study

        with mistakes():
            data = {
                name: as_data(read_study(self.results / name), sampled=self.sampled)
                for name in chosen
            }
        print(json.dumps(data, allow_nan=False))

    def _write_page(self, path: Path) -> None:
        from ottrpo.reports.page import write_page

        with mistakes():
            try:
                write_page(self.results, path, self.study)
            except OSError as error:
                error.filename = error.filename or str(path)  # a full disk names no file
                raise
        if not self.json:
            print(f"written: {path}")

    def _print_tables(self, chosen: list[str]) -> None:
        from rich.console import Console

        from ottrpo.reports.tables import terminal_table

        console = Console()
        if not console.is_terminal:
            console = Console(width=400)  # a file has no width of its own
        for name in chosen:
            with mistakes():
                console.print(terminal_table(name, self.results / name, console))
