import errno
import json
from dataclasses import fields

import pytest
from tests.reports.synthetic import seal

from ottrpo.cli import main
from ottrpo.experiments import registry, reproduce
from ottrpo.experiments.reproduce import StudyOptions


class Remembering:
    """A study that writes what it was asked for, and one cell of results."""

    name, description, paper, cells = "memory", "remembers", ("fig:memory",), ()

    def __init__(self, code=0, error=None):
        self.code, self.error, self.asked = code, error, None

    def run(self, options):
        if self.error is not None:
            raise self.error
        self.asked = {field.name: getattr(options, field.name) for field in fields(StudyOptions)}
        self.asked["out"] = str(options.root)
        folder = options.root / "memory"
        folder.mkdir(parents=True)
        cell = {"environment": "Taxi-v4", "agent": "ottrpo", "config": "default", "label": ""}
        cells = {"cell": cell | {"trained_steps": 100}}
        (folder / "manifest.json").write_text(json.dumps({"cells": cells}))
        (folder / "cell.csv").write_text("seed,mark,deterministic,returns\n0,100,0,7 9\n")
        (folder / "runs.csv").write_text(
            "cell,seed,steps,updates,violations,train_seconds\ncell,0,100,5,0,1.5\n"
        )
        seal(folder)
        return self.code


@pytest.fixture
def memory(monkeypatch):
    study = Remembering()
    study.cells = (type("Cell", (), {"audit": False}),)
    monkeypatch.setattr(registry, "studies", lambda: {"memory": study})
    monkeypatch.setattr(reproduce, "reproduce", lambda study, options: study.run(options))
    return study


def test_a_study_gets_what_was_asked_for_and_its_scores_are_printed(
    memory, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    out = str(tmp_path)
    arguments = ["--seeds", "3", "--workers", "2", "--steps", "50", "--out", out]
    arguments += ["--retries", "4", "--time-limit", "7"]
    assert main(["reproduce", "memory", *arguments]) == 0
    assert memory.asked == {
        "seeds": 3,
        "workers": 2,
        "out": out,
        "steps": 50,
        "ray": None,
        "retries": 4,
        "time_limit": 7.0,
        "max_runs": 10_000,
    }
    row = next(line for line in capsys.readouterr().out.splitlines() if "Taxi-v4" in line)
    assert row.split()[:6] == ["Taxi-v4", "ottrpo", "default", "sampled", "100", "8.00"]


def test_a_shortened_study_leaves_published_results_alone(memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "memory", "--seeds", "1"]) == 0
    assert memory.asked["out"] == "runs/trials"
    assert main(["reproduce", "memory", "--steps", "10"]) == 0
    assert memory.asked["out"] == "runs/trials/10-steps"
    assert main(["reproduce", "memory"]) == 0
    assert memory.asked["out"] == "results"


def test_a_study_that_is_not_complete_says_so_by_its_exit_code(memory, tmp_path):
    memory.code = 1
    assert main(["reproduce", "memory", "--out", str(tmp_path)]) == 1
    assert memory.asked["workers"] is None  # as many as there are cores


def test_a_label_of_the_paper_names_its_studies(memory, tmp_path):
    assert main(["reproduce", "fig:memory", "--out", str(tmp_path)]) == 0
    assert memory.asked is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["memmory"], "did you mean 'memory'?"),
        (["fig:memori"], "did you mean 'fig:memory'?"),
        ([], "a study is missing; known: memory"),
        (["--collect"], "there are no runs of a study under runs"),
        (["memory", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["memory", "--retries", "-1"], "--retries must not be negative"),
        (["memory", "--time-limit", "0"], "--time-limit must be positive"),
        (["memory", "--ray", "auto", "--workers", "2"], "give one of them"),
        (["memory", "--ray", "auto", "--collect"], "give one of them"),
        (["nothing.toml"], "can't read the study nothing.toml"),
    ],
)
def test_mistakes_are_told_in_one_line(memory, capsys, arguments, message):
    assert main(["reproduce", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_full_disk_is_told_in_one_line(memory, tmp_path, capsys):
    memory.error = OSError(errno.ENOSPC, "No space left on device", "results/x")
    assert main(["reproduce", "memory", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told == (
        "ottrpo: memory: results/x: No space left on device; what was there is unchanged\n"
    )


def test_results_that_cannot_be_added_to_are_a_mistake(memory, tmp_path, capsys):
    memory.error = ValueError("x.csv has been changed")
    assert main(["reproduce", "memory", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "ottrpo: x.csv has been changed\n"
