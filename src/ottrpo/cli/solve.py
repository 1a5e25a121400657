"""``ottrpo solve``: the dual on its own, from a JSON file."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ottrpo.terminal import say, say_json

from .options import mistakes

MAX_BYTES = 2**30
MAX_DIGITS = 300  # more are no float64


@dataclass(frozen=True, kw_only=True)
class Solve:
    """Solve a trust-region problem given as JSON; `-` reads standard input.

    Prints the multiplier, the split, the transport spent, the optimal value, and the gap between
    the dual and the primal value, which is 0 up to rounding.

    A file holds one JSON object in one of three forms:

    rows: weight_r [R], gain_rk [R][K], cost_rk [R][K], radius; optional allowed_rk [R][K] and
    stay_r [R]. Every row needs a candidate of cost 0.

    finite: policy [S][A], occupancy [S], one of gain, q, advantage [S][A], cost, radius; optional
    allowed [S][A]. The cost is a matrix [A][A] or [S][A][A], a name ("binary",
    "squared-euclidean"), or an object such as {"kind": "p-norm", "p": 1}.

    linear: gradient_rd [R][d], radius; optional weight_r [R] (1/R each) and metric [d] or [d][d].
    """

    problem: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM")]
    """the JSON file, or - for standard input"""
    json: bool = False
    """print one JSON object, with the transport maps and the new policy"""

    def run(self) -> None:
        """Read, solve, print."""
        where = "standard input" if self.problem == "-" else self.problem
        with mistakes(where):
            data = _loads(self._text())
        from ottrpo.cli.problem_files import read_problem, solve_report

        with mistakes(where):  # the solver too: it refuses numbers that float64 can't carry
            report = solve_report(read_problem(data))
        if self.json:
            say_json(report)
        else:
            say(_as_text(report))

    def _text(self) -> str:
        if self.problem == "-":
            text = sys.stdin.read(MAX_BYTES + 1)
            if len(text) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES:,} characters")
            return text
        from ottrpo.persistence.bundle import read_plain

        return read_plain(Path(self.problem), MAX_BYTES).decode("utf-8")


def _loads(text: str) -> Any:
    from ottrpo.persistence.strict_json import once_each

    hooks: Any = {"parse_constant": _refuse_constant, "parse_int": _integer}
    try:
        return json.loads(text, object_pairs_hook=once_each, **hooks)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise ValueError("not a problem: the JSON is nested too deeply") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"all numbers must be finite, got {name}")


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"all numbers must be finite, got one of {len(text):,} digits")
    return int(text)


def _as_text(report: dict[str, Any]) -> str:
    notes = {
        "multiplier": "λ*" if report["binding"] else "λ*: the radius does not limit the gain",
        "split": "t*, the share of mass that follows the nearest map",
        "spent": f"of the radius {report['radius']:.12g}",
        "value": "the optimal gain",
        "gap": "dual value minus primal value",
    }
    return "\n".join(f"{name:<10} {report[name]:<22.15g} {note}" for name, note in notes.items())
