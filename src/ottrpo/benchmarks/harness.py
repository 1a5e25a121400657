"""What benchmarks share: their options, timing in turns, and tables."""

import os
import time
import timeit
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ottrpo.reports.tables import Entry, Table, for_terminal
from ottrpo.terminal import say, say_json, screen

TURN = 5e-3  # seconds
Row = dict[str, Any]
Figures = dict[str, Any]  # name of a table -> rows, or a single one


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """Options, and how to measure; what is measured are tables.

    Attributes:
        titles: of the tables that are shown to people, by the names of their figures.

    Raises:
        ValueError: if the options make no sense.
    """

    titles: ClassVar[Mapping[str, str]]

    json: bool = False
    """print one JSON object"""
    quick: bool = False
    """less of everything, to see that it works"""

    @abstractmethod
    def measure(self) -> Figures:
        """The figures: name of a table -> its rows, or its only one; column -> value."""

    def run(self) -> int:
        """Measure and tell; the exit code."""
        figures = self.measure()
        if self.json:
            say_json(figures, indent=2)
            return 0
        console = screen()
        for key, title in self.titles.items():
            if key in figures:  # quickly, not everything is measured
                found = figures[key]
                table = _table([found] if isinstance(found, dict) else found)
                console.print(for_terminal(table, title, console))
        return 0


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the function returned."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def in_turns(functions: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The best time of each function, in turns for about ``seconds`` in all, three at least.

    So a busy machine slows all alike. A turn repeats a function for a few milliseconds, so that
    each is measured warm.
    """
    repeats = {
        name: max(1, int(TURN / timeit.timeit(f, number=1))) for name, f in functions.items()
    }
    best = dict.fromkeys(functions, np.inf)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for name, function in functions.items():
            taken = timeit.timeit(function, number=repeats[name]) / repeats[name]
            best[name] = min(best[name], taken)
        rounds += 1
    return best


def play(env: Any, actions: Iterable[Any]) -> None:
    """Step an environment that has been reset; episodes that end start again."""
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def resident_megabytes() -> float:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def tell(line: str) -> None:
    """Where a long benchmark is; what it found goes to the standard output."""
    say(line, error=True)


def _table(rows: Sequence[Row]) -> Table:
    heads = [name.replace("_", " ") for name in rows[0]]
    return Table(heads, [[_entry(value) for value in row.values()] for row in rows])


def _entry(value: Any) -> Entry:
    if isinstance(value, float):
        return Entry(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}", value)
    return Entry(f"{value:,}", value) if isinstance(value, int) else Entry(str(value or "-"))
