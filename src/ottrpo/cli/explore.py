"""``ottrpo explore``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.terminal import say

from .options import mistakes


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Write an interactive page about trust regions: drag the radius and see which mass moves.

    It needs a browser and no network.
    """

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("explorer.html")
    """the HTML file to write"""

    def run(self) -> None:
        """Write it."""
        from ottrpo.persistence.bundle import write_atomically
        from ottrpo.reports.explorer import explorer

        with mistakes():
            write_atomically(self.out, explorer().encode())
        say(f"written: {self.out}; open it in any browser")
