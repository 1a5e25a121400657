"""What a reader of the report wants first: who wins, by how much, and whether the paper holds."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ottrpo.results.reading import CellResult

from .comparison import Comparison, Duel, compare, duel_table
from .drawing import forest_svg
from .exhibits import Exhibition, of_the_paper, select
from .figures import Chances
from .sides import Side, side_of_agent
from .tables import Line, Table, lines_of
from .verdicts import BELOW, BETTER, REPRODUCED

OURS = ("ottrpo", "default")
RIVALS = (("ppo", "tuned"), ("trpo", "tuned"), ("a2c", "tuned"))
NAMES = {"ottrpo": "OT-TRPO", "ppo": "PPO", "trpo": "TRPO", "a2c": "A2C"}
PAPER = "paper"  # the configuration with the paper's own settings


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Sentences, a forest plot, and the tables that it is drawn from, by their captions."""

    sentences: Sequence[str]
    forest: str | None
    tables: Sequence[Table]


def answers(cells: Sequence[CellResult], plan: Exhibition) -> Answers:
    """The first answers that these cells give."""
    fought = [found for rival in RIVALS if (found := _against(cells, rival)) is not None]
    sentences = [_told(found) for found in fought[:2]]
    lines = [
        lines_of(cell, full_steps=plan.full_steps.get(cell.environment))[0]
        for cell in of_the_paper(select(cells, plan.headline))
    ]
    held = _paper_sentence(lines)
    rivals = [
        Chances(
            label=f"against {NAMES[found.duels[0].b.cell.agent]}, tuned",
            agent=found.duels[0].b.cell.agent,
            by_environment={
                duel.environment: (duel.chance.value, *duel.chance.interval)
                for duel in found.duels
                if duel.chance.interval is not None
            },
        )
        for found in fought
    ]
    xlabel = "probability that a run of OT-TRPO, default, beats one of the other (95 %)"
    title = "OT-TRPO with its defaults against tuned baselines, task by task"
    return Answers(
        sentences=[*sentences, *([held] if held else [])],
        forest=forest_svg(rivals, xlabel, title) if rivals else None,
        tables=[_table(found) for found in fought],
    )


def _against(cells: Sequence[CellResult], rival: tuple[str, str]) -> Comparison | None:
    """OT-TRPO's defaults against a rival wherever both have runs; None if that is nowhere."""
    try:
        a, b = side_of_agent(cells, *OURS), side_of_agent(cells, *rival)
    except ValueError:
        return None
    duels: list[Duel] = []
    for name in (name for name in a.cells if name in b.cells):
        # task by task: where both were evaluated without noise, that is what counts
        alone = [Side(side.name, {name: side.cells[name]}) for side in (a, b)]
        with suppress(ValueError):  # one without noise and the other with it only
            duels += compare(*alone).duels
    if not duels:
        return None
    # seeds are the unit: a task with one run decides nothing, and would take the others' interval
    decided = [duel for duel in duels if duel.difference.interval is not None]
    return Comparison(names=(a.name, b.name), duels=tuple(decided or duels))


def _told(found: Comparison) -> str:
    rival = NAMES[found.duels[0].b.cell.agent]
    sides: dict[str, list[str]] = {"higher": [], "lower": []}
    for duel in found.duels:
        interval = duel.difference.interval
        if interval is not None and not interval.low <= 0 <= interval.high:
            sides["higher" if interval.low > 0 else "lower"].append(duel.environment)
    open_ = len(found.duels) - sum(map(len, sides.values()))
    parts = [
        f"{side} on {len(names)} ({', '.join(names)})" if names else f"{side} on none"
        for side, names in sides.items()
    ]
    chance = found.chance
    verdict = ""
    if chance.interval is not None:
        low, high = chance.interval
        verdict = ", more often than not" if low > 0.5 else ", less often than not"
        verdict = ", which decides nothing" if low <= 0.5 <= high else verdict
    return (
        f"Against tuned {rival}, on the {len(found.duels)} tasks where both have several seeds, "
        f"the mean return of OT-TRPO with its defaults is {', '.join(parts)}, and undecided on "
        f"{open_}; a run of OT-TRPO beats one of {rival} with probability {chance}{verdict}."
    )


def _paper_sentence(lines: Iterable[Line]) -> str:
    held = list(lines)
    default = [line for line in held if line.cell.title == OURS[1] and line.published]
    literal = [line for line in held if line.cell.title == PAPER and line.published]
    if not default:
        return ""
    words = [line.verdict.word for line in default]
    same, above, below = (words.count(word) for word in (REPRODUCED, BETTER, BELOW))
    rest = len(words) - same - above - below
    told = (
        f"Of the {len(default)} scores that the paper prints for OT-TRPO, the defaults reproduce "
        f"{same}, exceed {above} and stay below {below}"
        f"{f', and {rest} cannot be compared yet' if rest else ''}"
    )
    failed = [line.cell.environment for line in literal if line.verdict.word == BELOW]
    if literal:
        where = f" ({', '.join(failed)})" if failed else ""
        told += (
            f"; the paper's own settings stay below the printed score on {len(failed)} of "
            f"{len(literal)} control tasks{where}"
        )
    return f"{told}."


def _table(found: Comparison) -> Table:
    return replace(duel_table(found), caption=f"a: {found.names[0]}, b: {found.names[1]}")
