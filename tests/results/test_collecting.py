"""Results: folded whole or not at all, merged with what is there, and guarded against edits."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottrpo.experiments.study import Cell, Study
from ottrpo.results import collecting, study_folder
from ottrpo.results.run_directory import RunDirectory
from ottrpo.results.study_folder import StudyFolder, _csv_bytes, checksum, heal
from tests.reports.synthetic import seal

CELL = Cell(environment="Hopper-v5", seeds=3)
STUDY = Study(name="s", description="d", cells=(CELL,), paper=("tab:trained:scores",))


def finished_run(root, seed, *, returns=(1.0, 2.5), cell=CELL, **manifest):
    path = root / cell.name / f"seed{seed}"
    directory = RunDirectory.create(
        path,
        {
            "seed": seed,
            "resolved": {"radius": 1},
            "steps": 10,
            "protocol": {"name": "paper", "episodes": 2},
            "versions": {"numpy": "2"},
            "hardware": {"cores": 2},
            "commit": "abc",
            **manifest,
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
            "returns": list(returns),
            "train_seconds": 0.5,
            "wall_seconds": 0.75,
        }
    )
    (path / "agent.zip").write_bytes(b"")
    return path


def collect(study, paths, folder):
    return collecting.collect(study.data(), paths, folder)


def rows(folder, name=f"{CELL.name}.csv"):
    return (folder / name).read_text().splitlines()[1:]


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text())


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_finished_runs_are_folded_and_unfinished_ones_left_out(tmp_path):
    first, second = finished_run(tmp_path, 0), finished_run(tmp_path, 1)
    (second / "agent.zip").unlink()
    folder = tmp_path / "results" / "s"
    assert collect(STUDY, [first, second], folder) == []
    assert rows(folder) == ["0,10,10,1,0.5,1 2.5"]
    assert rows(folder, "runs.csv") == [f"{CELL.name},0,10,3,1,0.5,0.8"]
    manifest = manifest_of(folder)
    cell = manifest["cells"][CELL.name]
    assert (cell["seeds"], cell["planned_seeds"], cell["trained_steps"]) == ([0], 3, 10)
    assert (manifest["commit"], manifest["versions"]) == ("abc", {"numpy": "2"})
    assert manifest["paper"] == ["tab:trained:scores"]
    assert set(manifest["sha256"]) == {f"{CELL.name}.csv", "runs.csv"}
    StudyFolder.read(folder)


def test_what_another_machine_made_stays_and_is_told(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path / "a", 1)], folder)
    (folder / "notes.md").write_text("kept")
    collect(STUDY, [finished_run(tmp_path / "b", 0, commit="def", returns=[7, 8])], folder)
    assert rows(folder) == ["0,10,10,1,0.5,7 8", "1,10,10,1,0.5,1 2.5"]
    assert manifest_of(folder)["commit"] == ["abc", "def"]
    assert manifest_of(folder)["cells"][CELL.name]["seeds"] == [0, 1]
    assert (folder / "notes.md").read_text() == "kept"
    other = Cell(environment="Swimmer-v5")
    part = Study(name="s", description="d", cells=(other,))
    collect(part, [finished_run(tmp_path / "c", 0, cell=other)], folder)
    assert list(manifest_of(folder)["cells"]) == [CELL.name, other.name]
    assert len(rows(folder)) == 2
    StudyFolder.read(folder)


def test_collecting_again_changes_nothing(tmp_path):
    folder, run = tmp_path / "results" / "s", finished_run(tmp_path, 0)
    collect(STUDY, [run], folder)
    before = bytes_of(folder)
    collect(STUDY, [run], folder)
    assert bytes_of(folder) == before


def test_older_results_without_some_columns_are_added_to(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    text = (folder / "runs.csv").read_text().replace(",wall_seconds", "").replace(",0.8", "")
    (folder / "runs.csv").write_text(text)
    seal(folder)
    collect(STUDY, [finished_run(tmp_path, 1)], folder)
    assert rows(folder, "runs.csv") == [
        f"{CELL.name},0,10,3,1,0.5,",
        f"{CELL.name},1,10,3,1,0.5,0.8",
    ]
    StudyFolder.read(folder)


def test_a_file_edited_by_hand_is_named_and_nothing_is_written(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    edited = folder / f"{CELL.name}.csv"
    edited.write_text(edited.read_text().replace("2.5", "9.5"))
    before = bytes_of(folder)
    with pytest.raises(ValueError, match=f"^{edited} has been changed since it was collected;"):
        StudyFolder.read(folder)
    with pytest.raises(ValueError, match=r"Hopper.*has been changed since.*move .* away"):
        collect(STUDY, [finished_run(tmp_path, 1)], folder)
    assert bytes_of(folder) == before
    edited.unlink()
    with pytest.raises(ValueError, match=r"Hopper.* is missing;"):
        StudyFolder.read(folder)


def test_a_table_that_was_not_collected_is_named_and_nothing_is_written(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    (folder / "strange.csv").write_text("seed\n1\n")
    before = bytes_of(folder)
    with pytest.raises(ValueError, match=r"strange.csv was not collected;"):
        collect(STUDY, [finished_run(tmp_path, 1)], folder)
    assert bytes_of(folder) == before


def test_results_whose_checksums_were_taken_away_are_not_added_to(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    manifest = manifest_of(folder)
    del manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    before = bytes_of(folder)
    with pytest.raises(ValueError, match="must hold an object sha256"):
        collect(STUDY, [finished_run(tmp_path, 1)], folder)
    assert bytes_of(folder) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must hold one JSON object"),
        ("{}", "an object cells"),
        (b"\xff", "is not valid JSON"),
    ],
)
def test_unreadable_results_are_told_and_left_alone(tmp_path, text, message):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "manifest.json").write_bytes(content)
    before = bytes_of(folder)
    with pytest.raises(ValueError, match=message):
        collect(STUDY, [finished_run(tmp_path, 1)], folder)
    assert bytes_of(folder) == before


def test_an_unreadable_run_is_named_and_the_others_are_folded(tmp_path):
    folder = tmp_path / "results" / "s"
    good, torn = finished_run(tmp_path, 0), finished_run(tmp_path, 1)
    broken, empty = finished_run(tmp_path, 2), finished_run(tmp_path, 3)
    (torn / "evaluations.jsonl").write_text("{\n")
    (broken / "manifest.json").write_text("no")
    (empty / "metrics.jsonl").write_text("")
    complaints = collect(STUDY, [good, torn, broken, empty], folder)
    assert [str(path) in line for path, line in zip((torn, broken, empty), complaints, strict=True)]
    assert all("can't be read" in line for line in complaints)
    assert rows(folder) == ["0,10,10,1,0.5,1 2.5"]


def test_a_full_disk_leaves_the_results_as_they_were(tmp_path, monkeypatch):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    before = bytes_of(folder)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        collect(STUDY, [finished_run(tmp_path, 1)], folder)
    assert bytes_of(folder) == before
    assert os.listdir(folder.parent) == ["s"]


def test_a_process_killed_between_the_two_renames_loses_nothing(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    finished_run(tmp_path, 1)
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from ottrpo.results.collecting import collect;"
        "from ottrpo.experiments.study import Cell, Study;"
        "whole = Path.rename;"
        "\ndef rename(self, target):\n"
        "    whole(self, target); os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.rename = rename\n"
        f"cell = Cell(environment='Hopper-v5'); root = Path({str(tmp_path)!r})\n"
        "study = Study(name='s', description='d', cells=(cell,))\n"
        "collect(study.data(), [root / cell.name / 'seed1'], root / 'results' / 's')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not folder.exists()
    heal(folder)
    assert rows(folder) == ["0,10,10,1,0.5,1 2.5"]
    StudyFolder.read(folder)


def test_runs_of_different_settings_are_never_mixed(tmp_path):
    folder = tmp_path / "results" / "s"
    old = [finished_run(tmp_path / "old", seed) for seed in (0, 1)]
    wide = {"resolved": {"radius": 2}}
    new = [finished_run(tmp_path / "new", seed, **wide) for seed in (0, 1)]
    with pytest.raises(ValueError, match="different settings or lengths"):
        collect(STUDY, [old[0], new[1]], folder)
    collect(STUDY, old, folder)
    before = bytes_of(folder)
    with pytest.raises(ValueError, match=r"holds Hopper.* with other settings.*seeds \[1\]"):
        collect(STUDY, new[:1], folder)
    assert bytes_of(folder) == before
    collect(STUDY, new, folder)  # all that was there is made anew
    assert manifest_of(folder)["cells"][CELL.name]["resolved"] == {"radius": 2}
    longer = finished_run(tmp_path / "long", 0, steps=20, **wide)
    with pytest.raises(ValueError, match="other settings or steps"):
        collect(STUDY, [longer], folder)


def test_a_setting_that_came_into_being_since_does_not_count(tmp_path):
    folder = tmp_path / "results" / "s"
    collect(STUDY, [finished_run(tmp_path, 0)], folder)
    collect(STUDY, [finished_run(tmp_path, 1, resolved={"radius": 1, "new": 3})], folder)
    assert len(rows(folder)) == 2


def test_kept_results_are_what_was_collected_and_would_be_written_again():
    kept = Path(__file__).parents[2] / "results"
    folders = sorted(path.parent for path in kept.glob("*/manifest.json"))
    assert folders
    for folder in folders:
        held = StudyFolder.read(folder)
        held.require_no_others()
        tables = {name: table.records() for name, table in held.tables.items()}
        assert {n: checksum(_csv_bytes(rows)) for n, rows in tables.items()} == held.manifest[
            "sha256"
        ]


def test_the_copy_is_removed_when_anything_fails(tmp_path, monkeypatch):
    folder = tmp_path / "results" / "s"
    monkeypatch.setattr(shutil, "copytree", None)  # not there yet: nothing to copy
    monkeypatch.setattr(study_folder, "write_atomically", lambda path, content: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        collect(STUDY, [finished_run(tmp_path, 0)], folder)
    assert os.listdir(folder.parent) == []


@pytest.mark.parametrize("returns", [(1.0,), (1.0, 2.5, 3.0), (1.0, float("inf")), (1.0, "2")])
def test_a_run_that_says_what_no_evaluation_says_replaces_nothing(tmp_path, returns):
    folder = tmp_path / "results" / "s"
    path = finished_run(tmp_path / "runs", 0)
    assert collect(STUDY, [path], folder) == []
    before = rows(folder)
    log = path / "evaluations.jsonl"
    record = json.loads(log.read_text()) | {"returns": returns}
    log.write_text(json.dumps(record) + "\n")
    (complaint,) = collect(STUDY, [path], folder)
    assert complaint.startswith(
        f"{path} can't be read: the evaluation at 10 must have 2 finite returns, got ["
    )
    assert rows(folder) == before
