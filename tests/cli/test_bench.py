import sys
import types

import pytest

from ottrpo.cli import main
from ottrpo.experiments import registry


@pytest.fixture
def stopwatch(monkeypatch):
    """A benchmark that only remembers what it was given."""
    module = types.ModuleType("stopwatch")
    module.given = []
    module.main = lambda options: module.given.append(options) or 0
    monkeypatch.setitem(sys.modules, "stopwatch", module)
    monkeypatch.setattr(registry, "BENCHMARKS", {"stopwatch": "nothing"})
    monkeypatch.setattr(registry, "_benchmark_module", lambda name: name)
    monkeypatch.setattr(registry, "_exists", lambda name: name == "stopwatch")
    return module


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], []),
        (["--quick"], ["--quick"]),
        (["--rows", "3", "x"], ["--rows", "3", "x"]),
    ],
)
def test_a_benchmark_gets_the_options_after_its_name(stopwatch, arguments, given):
    assert main(["bench", "stopwatch", *arguments]) == 0
    assert stopwatch.given == [given]


def test_an_unknown_benchmark_is_told_in_one_line(stopwatch, capsys):
    assert main(["bench", "hourglass"]) == 2
    told = capsys.readouterr().err
    assert told == "ottrpo: 'hourglass' is not a benchmark; known: stopwatch\n"


def test_the_exit_code_of_a_benchmark_is_ours(stopwatch):
    stopwatch.main = lambda options: 1
    assert main(["bench", "stopwatch"]) == 1
    stopwatch.main = lambda options: sys.exit(2)
    assert main(["bench", "stopwatch", "--nonsense"]) == 2


def test_the_dual_benchmark_is_there(capsys):
    assert main(["bench", "dual", "--help"]) == 0
    assert "usage: ottrpo bench dual" in capsys.readouterr().out
