"""``ottrpo bench``."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from .options import mistakes


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed, as ratios taken side by side in one run. `ottrpo list` names what there is."""

    benchmark: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK")]
    """which one: dual, tabular, train"""
    options: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="OPTIONS")] = ()
    """options of the benchmark itself, after a --"""

    def run(self) -> int:
        """Hand over to the benchmark."""
        from ottrpo.experiments.registry import benchmark

        with mistakes():
            main = benchmark(self.benchmark)
        return main(list(self.options))
