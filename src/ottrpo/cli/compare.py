"""``ottrpo compare``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from .options import Mistake, mistakes

if TYPE_CHECKING:
    from rich.console import Console

    from ottrpo.reports.comparison import Comparison
    from ottrpo.reports.sides import Side


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare two runs, directories of runs, cells of studies, or agents.

    Each side is a run's directory, a directory of runs (one per seed), STUDY:CELL of the results
    or the cell's CSV file, AGENT or AGENT/CONFIGURATION over all results, or a file that an agent
    was saved to. Scores are means over the evaluations of the last tenth of training, or over
    fresh episodes of a saved agent; seeds are the unit.
    """

    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """the first side"""
    b: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")]
    """the second side"""
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """where the results are"""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """that a saved agent plays"""
    json: bool = False
    """print one object"""

    def run(self) -> int:
        """Find, compare, tell."""
        from ottrpo.reports.comparison import as_data, compare, plot

        if self.episodes < 1:
            raise Mistake(f"--episodes must be at least 1, got {self.episodes}")
        with mistakes():
            a, b = (self._side(text) for text in (self.a, self.b))
            comparison = compare(a, b)
            plots = {
                duel.environment: plot(
                    a.measured[duel.environment],
                    b.measured[duel.environment],
                    deterministic=comparison.deterministic,
                )
                for duel in comparison.duels
            }
        if self.json:
            print(json.dumps(as_data(comparison), allow_nan=False, default=str))
            return 0
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(width=130, highlight=False)  # a file has no width of its own
        _tell(comparison, plots, console)
        return 0

    def _side(self, text: str) -> "Side":
        from ottrpo.reports.sides import find_side, side_of_returns

        path = Path(text)
        if not path.is_file() or path.suffix == ".csv":
            return find_side(text, self.results)
        from ottrpo.experiments.trained import load_trained

        trained = load_trained(path)
        returns = {
            way: trained.agent.evaluate(self.episodes, deterministic=way, seed=0)
            for way in (True, False)
        }
        return side_of_returns(text, trained.name, trained.environment, returns)


def _tell(comparison: "Comparison", plots: dict[str, list[str]], console: "Console") -> None:
    from rich.text import Text

    a, b = comparison.names
    actions = "deterministic" if comparison.deterministic else "sampled"
    console.print(Text(f"a  {a}\nb  {b}\n{actions} actions"))
    console.print(_scores(comparison))
    if len(comparison.duels) > 1:
        told = f"over all environments, P(a > b) = {comparison.probability:.2f}"
        console.print(told + _interval(comparison.probability_interval, ".2f"))
    if any(duel.interval is None for duel in comparison.duels):
        console.print("a side with one run has no interval: seeds are the unit")
    if comparison.only:
        console.print(Text(f"on one side only: {', '.join(comparison.only)}"))
    for duel in comparison.duels:
        console.print(Text(f"\n{duel.environment}"))
        if plots[duel.environment]:
            console.print(Text("\n".join(plots[duel.environment])))
        for key, values in comparison.settings[duel.environment].items():
            left, right = ("-" if value is None else value for value in values)
            console.print(Text(f"  {key}: {left} | {right}"))
        if not comparison.settings[duel.environment]:
            console.print("  the same settings")


def _scores(comparison: "Comparison") -> Any:
    from rich.table import Table
    from rich.text import Text

    from ottrpo.reports.tables import number

    table = Table()
    for name in ("environment", "a, ± seeds", "b, ± seeds", "seeds", "a - b", "95 %", "P(a > b)"):
        table.add_column(name, justify="left" if name == "environment" else "right")
    for duel in comparison.duels:
        means = [
            number(float(side.mean()))
            + (f" ± {number(float(side.std(ddof=1)))}" if side.size > 1 else "")
            for side in (duel.a, duel.b)
        ]
        low_high = "-" if duel.interval is None else " to ".join(map(number, duel.interval))
        table.add_row(
            Text(duel.environment),
            *means,
            f"{duel.a.size}, {duel.b.size}",
            number(duel.difference),
            low_high,
            f"{duel.probability:.2f}" + _interval(duel.probability_interval, ".2f"),
        )
    return table


def _interval(interval: tuple[float, float] | None, form: str) -> str:
    return "" if interval is None else f" ({interval[0]:{form}} to {interval[1]:{form}})"
