"""``ottrpo reproduce``."""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import tyro

from .options import Mistake


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run a study: many runs that answer one question. `ottrpo list` names the studies."""

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """which one"""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """how many seeds; by default what the study says"""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """processes at once; by default one per core"""
    steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """environment steps per run; by default what the configurations say"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """where the results are kept, in a folder named after the study; by default results/, but
    runs/trials/ for a shortened study, which must not replace what is published"""

    def run(self) -> int:
        """Hand over to the study."""
        from ottrpo.experiments.registry import studies

        for name, value in (
            ("seeds", self.seeds),
            ("workers", self.workers),
            ("steps", self.steps),
        ):
            if value is not None and value < 1:
                raise Mistake(f"--{name} must be at least 1, got {value}")
        known = studies()
        if self.study not in known:
            close = get_close_matches(self.study, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise Mistake(
                f"{self.study!r} is not a study; {hint}known: {', '.join(known) or 'none'}"
            )
        workers = self.workers or os.cpu_count() or 1
        shortened = self.seeds is not None or self.steps is not None
        out = self.out or Path("runs/trials" if shortened else "results")
        code = known[self.study].run(seeds=self.seeds, workers=workers, out=out, steps=self.steps)
        _tell(out / self.study)
        return code


def _tell(folder: Path) -> None:
    """Print the scores of a study that keeps its runs' evaluations."""
    if not (folder / "manifest.json").is_file() or not (folder / "runs.csv").is_file():
        return
    from rich.console import Console

    from ottrpo.reports.tables import terminal_table

    console = Console()
    if not console.is_terminal:
        console = Console(width=170)  # a file has no width of its own
    console.print(terminal_table(folder.name, folder))
    if (folder / "audits.csv").is_file():
        from ottrpo.reports.tabular import write_study

        for path in write_study(folder):
            console.print(f"written: {path}", markup=False, highlight=False)
