"""``ottrpo explore``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ottrpo.terminal import say

from .options import mistakes


@dataclass(frozen=True, kw_only=True)
class Explore:
    """Write a page on which trust regions can be tried: drag a radius and see which mass moves.

    It needs nothing but a browser, and no network.
    """

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("explorer.html")
    """the page"""

    def run(self) -> int:
        """Write it."""
        from ottrpo.reports.explorer import explorer

        with mistakes():
            self.out.write_text(explorer(), encoding="utf-8")
        say(f"written: {self.out}; open it in any browser")
        return 0
