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
    """Print the scores of studies, computed from their results alone.

    Scores are means over the evaluations of the last tenth of training; seeds are the unit.
    """

    study: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")] = None
    """which one; all by default"""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """where the results are"""
    json: bool = False
    """print one object: study, environment, agent, configuration, statistics"""

    def run(self) -> int:
        """Read, count, tell."""
        from ottrpo.reports.scores import study_scores
        from ottrpo.reports.tables import as_data, study_names, terminal_table

        with mistakes():
            known = study_names(self.results)
        if self.study is not None and self.study not in known:
            close = get_close_matches(self.study, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise Mistake(
                f"{self.results} has no results of {self.study!r}; {hint}"
                f"known: {', '.join(known) or 'none'}"
            )
        chosen = known if self.study is None else [self.study]
        if self.json:
            with mistakes():
                print(
                    json.dumps(
                        {name: as_data(study_scores(self.results / name)) for name in chosen}
                    )
                )
            return 0
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console = Console(width=170)  # a file has no width of its own
        for name in chosen:
            with mistakes():
                console.print(terminal_table(name, self.results / name))
        return 0
