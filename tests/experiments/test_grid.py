"""Grids of runs: files are closed, runs resume, results are folded, failures are told."""

import json

import pytest

from ottrpo.experiments import grid
from ottrpo.experiments.grid import Cell, GridStudy, collect, read_study
from ottrpo.experiments.store import RunDirectory

STUDY = """
description = "for tests"
seeds = 2
[[cells]]
environments = ["Hopper-v5", "Swimmer-v5"]
config = "tuned"
steps = 10
[[cells]]
environments = ["Hopper-v5"]
label = "wide region"
settings = { radius = "50%", policy_kwargs = { log_std_init = -1.0 } }
"""


def finished_run(path, seed):
    directory = RunDirectory.create(
        path,
        {
            "seed": seed,
            "resolved": {"radius": 1},
            "steps": 10,
            "protocol": {"name": "paper"},
            "versions": {"numpy": "2"},
            "hardware": {"cores": 2},
            "commit": "abc",
        },
    )
    directory.log_metrics(
        {"timestep": 10, "update": 3, "violations": 1, "train_seconds": 0.5, "ot/spent": 0.1}
    )
    directory.log_evaluation(
        {
            "timestep": 10,
            "mark": 10,
            "deterministic": True,
            "returns": [1.0, 2.5],
            "train_seconds": 0.5,
        }
    )
    (path / "agent.zip").write_bytes(b"")
    return directory


def test_a_file_becomes_cells(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(STUDY)
    study = read_study(path)
    assert (study.name, study.seeds, study.first_seed) == ("mine", 2, 0)
    names = [
        "Hopper-v5__ottrpo__tuned",
        "Swimmer-v5__ottrpo__tuned",
        "Hopper-v5__ottrpo__wide-region",
    ]
    assert [cell.name for cell in study.cells] == names
    assert study.cells[2].overrides() == [
        'radius="50%"',
        'policy_kwargs={"log_std_init": -1.0}',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY.replace("seeds", "sedes"), r"unknown keys \['sedes'\]"),
        (STUDY.replace("label", "labels"), r"unknown keys \['labels'\]"),
        (STUDY.replace('label = "wide region"', 'config = "tuned"'), "two cells have one name"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_study(path)


def test_shipped_studies_can_be_planned():
    from ottrpo.experiments.run import plan_run

    assert grid.STUDIES
    for study in grid.STUDIES.values():
        for cell in study.cells:
            spec = plan_run(
                cell.environment,
                agent=cell.agent,
                config=cell.config,
                overrides=cell.overrides(),
                steps=cell.steps,
            )
            assert spec.steps > 0


def test_finished_runs_are_folded_and_unfinished_ones_left_out(tmp_path):
    study = GridStudy(name="s", description="d", cells=(Cell(environment="Hopper-v5"),), seeds=2)
    runs = tmp_path / "Hopper-v5__ottrpo__default"
    finished_run(runs / "seed0", 0)
    unfinished = finished_run(runs / "seed1", 1)
    (unfinished.path / "agent.zip").unlink()
    collect(study, [runs / "seed0", runs / "seed1"], tmp_path / "out")
    rows = (tmp_path / "out" / "Hopper-v5__ottrpo__default.csv").read_text().splitlines()
    assert rows[1:] == ["0,10,10,1,0.5,1 2.5"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    cell = manifest["cells"]["Hopper-v5__ottrpo__default"]
    assert (cell["seeds"], cell["trained_steps"], manifest["commit"]) == ([0], 10, "abc")
    runs_csv = (tmp_path / "out" / "runs.csv").read_text().splitlines()
    assert runs_csv[1] == "Hopper-v5__ottrpo__default,0,10,3,1,0.5"


def test_failures_are_told_and_finished_runs_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = (Cell(environment="Hopper-v5"), Cell(environment="Swimmer-v5", config="broken"))
    monkeypatch.setattr(Cell, "steps_of_a_run", lambda self, asked: asked)
    study = GridStudy(name="s", description="d", cells=cells, seeds=1)
    finished_run(tmp_path / "runs" / "s" / "Hopper-v5__ottrpo__default" / "seed0", 0)
    code = study.run(seeds=None, workers=1, out=tmp_path / "results", steps=10)
    told = capsys.readouterr()
    assert code == 1
    assert "2 runs, 1 finished" in told.out
    assert "Swimmer-v5__ottrpo__broken seed 0 failed" in told.err
    log = tmp_path / "runs" / "s" / "Swimmer-v5__ottrpo__broken" / "seed0" / "log.txt"
    assert "'broken' is not a configuration" in log.read_text()
    assert (tmp_path / "results" / "s" / "Hopper-v5__ottrpo__default.csv").exists()


def test_a_run_of_another_length_does_not_count(tmp_path):
    path = tmp_path / "seed0"
    finished_run(path, 0)  # of 10 steps
    assert grid._finished(path)
    assert grid._finished(path, 10)
    assert not grid._finished(path, 1000)
    assert Cell(environment="MountainCarContinuous-v0").steps_of_a_run(None) == 150_000
    assert Cell(environment="MountainCarContinuous-v0", steps=7).steps_of_a_run(None) == 7
    assert Cell(environment="MountainCarContinuous-v0", steps=7).steps_of_a_run(9) == 9


@pytest.mark.slow
def test_a_real_grid_repeats_itself_for_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = Cell(environment="MountainCarContinuous-v0", config="tuned", steps=4096)
    study = GridStudy(name="s", description="d", cells=(cell,), seeds=2)
    returns = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        monkeypatch.chdir(out.mkdir() or out)
        assert study.run(seeds=None, workers=workers, out=out / "results", steps=None) == 0
        rows = (out / "results" / "s" / f"{cell.name}.csv").read_text().splitlines()[1:]
        returns.append([row.split(",")[5] for row in rows])
    assert returns[0] == returns[1]
