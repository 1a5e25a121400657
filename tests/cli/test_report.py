"""`ottrpo report` reads results and nothing else."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from tests.reports.synthetic import seal

from ottrpo.cli import main
from ottrpo.reports import page

ROOT = Path(__file__).parents[2]
STATISTICS = {"mean", "std_seeds", "std_time", "iqm", "ci_low", "ci_high", "seeds"}
CELL = {"environment": "Hopper-v5", "agent": "ottrpo", "config": "default", "label": ""}


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results" / "control"
    folder.mkdir(parents=True)
    cells = {
        "here": CELL | {"trained_steps": 100, "resolved": {"radius": 0.1}},
        "Swimmer-v5__ottrpo__default": CELL | {"environment": "Swimmer-v5", "trained_steps": None},
    }
    (folder / "manifest.json").write_text(json.dumps({"cells": cells}))
    lines = ["seed,mark,timestep,deterministic,train_seconds,returns"]
    lines += [
        f"{seed},100,100,{d},1,{10 * seed + d} {10 * seed + d}" for seed in range(4) for d in (1, 0)
    ]
    (folder / "here.csv").write_text("\n".join(lines) + "\n")
    (folder / "runs.csv").write_text(
        "cell,seed,steps,updates,violations,train_seconds\n"
        + "".join(f"here,{seed},100,10,{seed},1\n" for seed in range(4))
    )
    return seal(folder).parent


def test_numbers_for_machines(results, capsys):
    assert main(["report", "--results", str(results), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["control"]["Hopper-v5"]["ottrpo"]["default"]
    assert set(found) == STATISTICS
    assert (found["mean"], found["seeds"], found["iqm"]) == (16.0, 4, 16.0)
    assert found["ci_low"] <= found["iqm"] <= found["ci_high"]
    assert main(["report", "--results", str(results), "--json", "--sampled"]) == 0
    found = json.loads(capsys.readouterr().out)["control"]["Hopper-v5"]["ottrpo"]["default"]
    assert found["mean"] == 15.0


def test_a_cell_without_runs_has_no_numbers(results, capsys):
    assert main(["report", "control", "--results", str(results), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["control"]["Swimmer-v5"]["ottrpo"]["default"]
    assert found == {**dict.fromkeys(STATISTICS), "seeds": 0}


def test_every_kept_study_has_the_same_shape(capsys):
    assert main(["report", "--results", str(ROOT / "results"), "--json"]) == 0
    studies = json.loads(capsys.readouterr().out)
    assert {"control", "tabular-default", "taxi-costs"} <= set(studies)
    for environments in studies.values():
        for agents in environments.values():
            for configs in agents.values():
                assert all(set(statistics) == STATISTICS for statistics in configs.values())


def test_a_table_for_people(results, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["report", "control", "--results", str(results)]) == 0
    told = capsys.readouterr().out
    assert "Hopper-v5" in told
    assert "2,939" in told  # the paper's
    assert "15.0 %" in told  # 6 of 40 updates exceeded the radius
    assert "no finished run" in told


def test_on_a_narrow_terminal_no_number_is_broken(results, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["report", "control", "--results", str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert any(line.split() == ["paper", "2,939", "±", "162"] for line in lines)


def test_what_follows_from_all_studies_is_told_last(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it to 80: lines are broken
    assert main(["report", "--results", "published"]) == 0
    *_, first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("Against tuned PPO, on the ")
    assert second.startswith("Against tuned TRPO, on the ")
    assert "the paper's own settings stay below the printed score" in third


def test_results_of_one_s_own_do_not_hide_the_published_ones(results, monkeypatch, capsys):
    monkeypatch.chdir(results.parent)
    assert results.name == "results"
    for verb in (
        ["report", "suite"],
        ["compare", "ottrpo", "trpo"],
        ["plot", "trpo", "-o", "a.pdf"],
    ):
        assert main(verb) == 2
        assert "(what came with ottrpo: --results published)" in capsys.readouterr().err
    assert main(["report", "suite", "--results", "published", "--json"]) == 0
    assert "Hopper-v5" in json.loads(capsys.readouterr().out)["suite"]
    (results.parent / "published").mkdir()  # whoever has one means it
    assert main(["report", "suite", "--results", "published"]) == 2


@pytest.mark.parametrize("breakage", ["study", "folder", "empty", "manifest", "page", "sampled"])
def test_mistakes_get_one_line(results, capsys, breakage):
    arguments = ["report", "--results", str(results)]
    if breakage == "study":
        arguments.insert(1, "contrl")
    if breakage == "page":
        arguments += ["--html", str(results)]
    if breakage == "sampled":
        arguments += ["--sampled"]
    if breakage in ("folder", "empty"):
        shutil.rmtree(results)
    if breakage == "empty":
        results.mkdir()
    if breakage == "manifest":
        (results / "control" / "manifest.json").write_text("{")
    assert main(arguments) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert told[0].startswith("ottrpo: ")


def test_a_page_that_does_not_fit_on_the_disk_is_named(results, monkeypatch, capsys):
    def write_page(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(page, "write_page", write_page)
    target = results / "page.html"
    assert main(["report", "--results", str(results), "--html", str(target)]) == 2
    assert capsys.readouterr().err == f"ottrpo: {target}: No space left on device\n"
