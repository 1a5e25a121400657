"""``ottrpo bench``."""

from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from ottrpo.terminal import json_alone

from .options import Mistake, mistakes, parse


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed as ratios, taken side by side in one run. `ottrpo list` names benchmarks."""

    benchmark: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK")]
    """the benchmark; `ottrpo bench BENCHMARK --help` lists its options, which follow it"""
    options: tyro.conf.Suppress[tuple[str, ...]] = ()

    @classmethod
    def parse(cls, prog: str, arguments: list[str]) -> "Bench | None":
        """The first argument is ours, the rest is handed on."""
        from ottrpo.benchmarks import BENCHMARKS

        if not arguments:
            raise Mistake(f"a benchmark is missing; known: {', '.join(BENCHMARKS)}")
        verb = parse(cls, prog, arguments[:1])
        return verb and replace(verb, options=tuple(arguments[1:]))

    def run(self) -> int:
        """Hand over to the benchmark."""
        from ottrpo.benchmarks import load

        with mistakes():
            kind = load(self.benchmark)
            benchmark = parse(kind, f"ottrpo bench {self.benchmark}", self.options)
        with json_alone(benchmark is not None and benchmark.json):
            return 0 if benchmark is None else benchmark.run()
