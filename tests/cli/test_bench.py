import json
import re
import sys
import types
from dataclasses import dataclass
from typing import ClassVar

import pytest

import ottrpo.benchmarks
from ottrpo.benchmarks.harness import Benchmark
from ottrpo.cli import main


@dataclass(frozen=True, kw_only=True)
class Stopwatch(Benchmark):
    """Measures nothing, and remembers what it was given."""

    titles: ClassVar = {"laps": "laps of nobody", "never": "never measured"}

    rows: int = 2
    """how many laps"""

    def __post_init__(self):
        if self.rows < 1:
            raise ValueError(f"--rows must be at least 1, got {self.rows}")

    def measure(self):
        laps = [{"lap": f"lap {i}", "lap_seconds": 1234.5, "rest": None} for i in range(self.rows)]
        return {"laps": laps, "quick": self.quick}


@pytest.fixture(autouse=True)
def stopwatch(monkeypatch):
    """One file and one line: that is all there is to a benchmark."""
    module = types.ModuleType("ottrpo.benchmarks.stopwatch")
    module.Stopwatch = Stopwatch
    monkeypatch.setitem(sys.modules, "ottrpo.benchmarks.stopwatch", module)
    monkeypatch.setitem(ottrpo.benchmarks.BENCHMARKS, "stopwatch", ("Stopwatch", "nothing"))


@pytest.mark.parametrize(
    ("arguments", "rows", "quick"),
    [([], 2, False), (["--quick"], 2, True), (["--rows", "3"], 3, False)],
)
def test_a_benchmark_gets_the_options_after_its_name(arguments, rows, quick, capsys):
    assert main(["bench", "stopwatch", "--json", *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (len(figures["laps"]), figures["quick"]) == (rows, quick)


def test_figures_are_shown_as_tables(capsys):
    assert main(["bench", "stopwatch"]) == 0
    told = capsys.readouterr().out
    assert "laps of nobody" in told
    assert "never measured" not in told
    row = next(line for line in told.splitlines() if "lap 1" in line)
    assert re.split(r"\s{2,}", row.strip()) == ["lap 1", "1,234", "-"]


def test_a_benchmark_is_listed(capsys):
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmarks"]["stopwatch"] == "nothing"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "ottrpo: a benchmark is missing; known: dual, "),
        (["hourglass"], "'hourglass' is not a benchmark; known: dual, "),
        (["stopwatch", "--rows", "0"], "--rows must be at least 1, got 0"),
        (["stopwatch", "--nonsense"], "--nonsense"),
        (["train", "--agents", "ppox", "--envs", "Pendulum-v1"], "did you mean 'ppo'?"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments, message, capsys):
    assert main(["bench", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("name", ["dual", "tabular", "train", "checkpoint"])
def test_every_benchmark_is_there(name, capsys):
    assert main(["bench", name, "--help"]) == 0
    assert f"usage: ottrpo bench {name}" in capsys.readouterr().out
