import json

import pytest

from ottrpo.cli import main
from ottrpo.experiments import registry


class Remembering:
    """A study that writes what it was asked for, and one cell of results."""

    description = "remembers"

    def __init__(self, code=0):
        self.code, self.asked = code, None

    def run(self, *, seeds, workers, out, steps):
        self.asked = {"seeds": seeds, "workers": workers, "out": str(out), "steps": steps}
        folder = out / "memory"
        folder.mkdir(parents=True)
        cell = {"environment": "Taxi-v4", "agent": "ottrpo", "config": "default", "label": ""}
        cells = {"cell": cell | {"trained_steps": 100}}
        (folder / "manifest.json").write_text(json.dumps({"cells": cells}))
        (folder / "cell.csv").write_text("seed,mark,deterministic,returns\n0,100,0,7 9\n")
        (folder / "runs.csv").write_text("cell,seed,updates,violations\ncell,0,5,0\n")
        return self.code


@pytest.fixture
def memory(monkeypatch):
    study = Remembering()
    monkeypatch.setattr(registry, "studies", lambda: {"memory": study})
    return study


def test_a_study_gets_what_was_asked_for_and_its_scores_are_printed(memory, tmp_path, capsys):
    out = str(tmp_path)
    arguments = ["--seeds", "3", "--workers", "2", "--steps", "50", "--out", out]
    assert main(["reproduce", "memory", *arguments]) == 0
    assert memory.asked == {"seeds": 3, "workers": 2, "out": out, "steps": 50}
    row = next(line for line in capsys.readouterr().out.splitlines() if "Taxi-v4" in line)
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells[:5] == ["Taxi-v4", "ottrpo", "default", "sampled", "8.00"]
    assert cells[-3:] == ["1", "0.0 %", "3"]  # seeds, updates over the radius, the paper's score


def test_a_shortened_study_leaves_published_results_alone(memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "memory", "--seeds", "1"]) == 0
    assert memory.asked["out"] == "runs/trials"
    assert main(["reproduce", "memory"]) == 0
    assert memory.asked["out"] == "results"


def test_a_study_that_is_not_complete_says_so_by_its_exit_code(memory, tmp_path):
    memory.code = 1
    assert main(["reproduce", "memory", "--out", str(tmp_path)]) == 1
    assert memory.asked["workers"] >= 1


def test_an_unknown_study_is_told_with_a_suggestion(memory, capsys):
    assert main(["reproduce", "memmory"]) == 2
    assert "did you mean 'memory'?" in capsys.readouterr().err
