"""``ottrpo bench``."""

from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from .options import mistakes, parse


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed, as ratios taken side by side in one run. `ottrpo list` names what there is."""

    benchmark: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK")]
    """dual, tabular, train or checkpoint; what follows it are the benchmark's own options"""
    options: tyro.conf.Suppress[tuple[str, ...]] = ()

    @classmethod
    def parse(cls, prog: str, arguments: list[str]) -> "Bench | None":
        """The first argument is ours, the rest is handed on."""
        verb = parse(cls, prog, arguments[:1])
        return verb and replace(verb, options=tuple(arguments[1:]))

    def run(self) -> int:
        """Hand over to the benchmark."""
        from ottrpo.experiments.registry import benchmark

        with mistakes():
            main = benchmark(self.benchmark)
        try:
            return main(list(self.options))
        except SystemExit as exit_:  # the benchmark's own parser has told what was wrong
            return exit_.code if isinstance(exit_.code, int) else 0
