"""``ottrpo compare``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ottrpo.terminal import say, say_json, screen

from .options import Results, mistakes, require_at_least, results_root

if TYPE_CHECKING:
    from ottrpo.reports.comparison import Comparison
    from ottrpo.reports.sides import Side

MOST_NAMED = 8  # environments in one line


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare two runs, directories of runs, cells of studies, or agents.

    Each side is a run's directory, a directory of runs (one per seed), STUDY:CELL of the results
    or the cell's CSV file, AGENT or AGENT/CONFIGURATION over all results (of several studies the
    newest of full length), or a file that an agent was saved to. Scores are means over the
    evaluations of the last tenth of training, or over fresh episodes of a saved agent; seeds are
    the unit.
    """

    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """the first side"""
    b: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")]
    """the second side"""
    results: Results = None
    episodes: int = 20
    """number of episodes that a saved agent plays"""
    json: bool = False
    """print one JSON object"""

    def run(self) -> None:
        """Find, compare, tell."""
        from ottrpo.reports.comparison import as_data, compare, plot

        require_at_least(1, episodes=self.episodes)
        with mistakes():
            sides = self._side(self.a), self._side(self.b)
            comparison = compare(*sides)
            plots = [plot(duel.a, duel.b) for duel in comparison.duels]
        if self.json:
            say_json(as_data(comparison))
        else:
            _tell(sides, comparison, plots)

    def _side(self, text: str) -> "Side":
        from ottrpo.reports.sides import find_side, side_of_returns

        path = Path(text)
        if not path.is_file() or path.suffix == ".csv":
            return find_side(text, results_root(self.results))
        from ottrpo.experiments.trained import load_trained

        trained = load_trained(path)
        returns = {
            way: trained.evaluate(self.episodes, deterministic=way, seed=0) for way in (True, False)
        }
        return side_of_returns(text, trained.name, trained.environment, returns)


def _tell(sides: tuple["Side", "Side"], comparison: "Comparison", plots: list[list[str]]) -> None:
    from ottrpo.reports.comparison import duel_table
    from ottrpo.reports.tables import for_terminal

    a, b = sides
    say(f"a  {a}\nb  {b}\n{comparison.actions} actions")
    console = screen()
    console.print(
        for_terminal(duel_table(comparison), "", console, spared=("how", "P(a > b)", "seeds"))
    )
    if len(comparison.duels) > 1:
        say(f"over all environments, P(a > b) = {comparison.chance}")
    if any(duel.difference.interval is None for duel in comparison.duels):
        say("a side with one run has no interval: seeds are the unit")
    if comparison.only:
        rest = len(comparison.only) - MOST_NAMED
        more = f" and {rest} more" if rest > 0 else ""
        say(f"on one side only: {', '.join(comparison.only[:MOST_NAMED])}{more}")
    for duel, lines in zip(comparison.duels, plots, strict=True):
        say("\n".join(["", duel.environment, *lines]))
        for key, values in duel.settings.items():
            left, right = ("-" if value is None else value for value in values)
            say(f"  {key}: {left} | {right}")
        if not duel.settings:
            say("  the same settings")
