"""``ottrpo plot``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.terminal import say

from .options import Mistake, Results, mistakes, results_root


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw learning curves side by side: mean over seeds, ± one standard deviation.

    Each is what `ottrpo compare` takes: a run's directory, a directory of runs (one per seed),
    STUDY:CELL of the results, AGENT or AGENT/CONFIGURATION over all results (of several studies
    the newest of full length). There is a panel for each environment that all of them have.
    """

    what: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="A B ...", name="")
    ]
    """what to draw: runs, results or agents, written as for `ottrpo compare`"""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """the figure to write: a .pdf, .svg or .png file"""
    labels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT ...")] = ()
    """names for the legend, one for each curve"""
    env: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ENV ...")] = ()
    """draw only these environments"""
    width: float | None = None
    """width in inches; by default a paper's column, or its text for several panels"""
    results: Results = None

    def run(self) -> None:
        """Find, draw, tell."""
        from ottrpo.reports import printed
        from ottrpo.reports.sides import find_side

        labels = self.labels or self.what
        if not self.what:
            raise Mistake("nothing to draw: ottrpo plot A B -o figure.pdf")
        if len(labels) != len(self.what):
            raise Mistake(f"--labels needs {len(self.what)} names, got {len(labels)}")
        if self.out.suffix.lower() not in printed.FORMATS:
            raise Mistake(f"{self.out} must end in {', '.join(printed.FORMATS)}")
        if self.width is not None and not 1 <= self.width <= 40:
            raise Mistake(f"--width must be between 1 and 40 inches, got {self.width:g}")
        with mistakes():
            sides = [find_side(text, results_root(self.results)) for text in self.what]
            panels = printed.panels_of(sides, self.env)
            width = printed.COLUMN_INCHES if len(panels) == 1 else printed.TEXT_INCHES
            printed.save_figure(panels, labels, self.out, self.width or width)
        for side in sides:
            if side.others:
                say(str(side))
        named = ", ".join(panel.title for panel in panels)
        say(f"written: {self.out} ({named}; mean over seeds ± one standard deviation)")
