import errno
import json
import math
import os

import numpy as np
import pytest

from ottrpo.results.reading import curves_of
from ottrpo.results.run_directory import RunDirectory, returns_of


def test_what_is_written_is_read_back(tmp_path):
    run = RunDirectory.create(tmp_path / "a" / "run", {"seed": 3, "settings": {"x": (1, 2)}})
    run.log_metrics({"loss": 0.5, "array": np.arange(2)})
    run.log_evaluation({"returns": [np.float64(1.0), 2.0]})
    run.log_evaluation({"returns": [math.nan, math.inf]})
    again = RunDirectory.open(tmp_path / "a" / "run")
    assert again.manifest == {"seed": 3, "settings": {"x": [1, 2]}}
    assert again.metrics() == [{"loss": 0.5, "array": [0, 1]}]
    assert again.evaluations() == [{"returns": [1.0, 2.0]}, {"returns": [None, None]}]
    assert sorted(path.name for path in run.path.iterdir()) == [
        "evaluations.jsonl",
        "manifest.json",
        "metrics.jsonl",
    ]


def test_a_second_run_in_the_same_directory_is_refused_and_the_first_stays(tmp_path):
    RunDirectory.create(tmp_path, {"seed": 1})
    with pytest.raises(ValueError, match="already holds a run"):
        RunDirectory.create(tmp_path, {"seed": 2})
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_torn_last_line_is_dropped_and_an_edited_line_is_named(tmp_path):
    run = RunDirectory.create(tmp_path, {})
    run.log_evaluation({"a": 1})
    with open(tmp_path / "evaluations.jsonl", "a") as file:
        file.write('{"a": 2')
    assert run.evaluations() == [{"a": 1}]
    (tmp_path / "evaluations.jsonl").write_text('{"a": 1}\nhello\n{"a": 3}\n')
    with pytest.raises(ValueError, match="line 2"):
        run.evaluations()


@pytest.mark.parametrize("line", ["7", "[]", "null", '"text"'])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    run = RunDirectory.create(tmp_path, {})
    (tmp_path / "metrics.jsonl").write_text(f'{{"a": 1}}\n{line}\n')
    with pytest.raises(ValueError, match="line 2 is no JSON object"):
        run.metrics()


def test_a_line_that_the_disk_takes_in_pieces_is_written_whole(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, {})
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, bytes(content)[:3]))
    run.log_metrics({"loss": 0.25})
    assert run.metrics() == [{"loss": 0.25}]


def test_a_line_that_the_disk_has_no_room_for_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, {})
    run.log_metrics({"loss": 1})
    write, room = os.write, [5]

    def little(handle, content):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        took = write(handle, bytes(content)[: room[0]])
        room[0] -= took
        return took

    monkeypatch.setattr(os, "write", little)
    with pytest.raises(OSError, match="No space left"):
        run.log_metrics({"loss": 2})
    monkeypatch.undo()
    run.log_metrics({"loss": 3})
    assert run.metrics() == [{"loss": 1}, {"loss": 3}]


def test_whether_a_log_is_torn_is_seen_at_its_end_however_long_it_is(tmp_path):
    run = RunDirectory.create(tmp_path, {})
    assert run.torn_lines() == []
    run.log_metrics({"loss": 1})
    assert run.torn_lines() == []
    os.truncate(tmp_path / "metrics.jsonl", 2**40)  # sparse: a terabyte of nothing
    (line,) = run.torn_lines()
    assert line.startswith("metrics.jsonl ends in the middle")


def test_a_manifest_is_as_private_as_its_owner_wants(tmp_path):
    before = os.umask(0o077)
    try:
        RunDirectory.create(tmp_path / "run", {})
    finally:
        os.umask(before)
    assert (tmp_path / "run" / "manifest.json").stat().st_mode & 0o777 == 0o600


def test_a_run_is_finished_when_its_agent_is_there(tmp_path):
    run = RunDirectory.create(tmp_path, {})
    assert not run.finished
    run.agent_path.with_suffix(".zip").write_bytes(b"")
    assert run.finished


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "is not a run"), ("{", "not valid JSON"), ("[]", "one JSON")]
)
def test_what_is_no_run_is_refused(tmp_path, text, complaint):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        RunDirectory.open(tmp_path)
    with pytest.raises(ValueError, match="no directory"):
        RunDirectory.open(tmp_path / "missing")


@pytest.mark.parametrize("mark", [10**30, -1])
def test_a_mark_that_no_array_holds_is_refused(mark):
    """Found by edits of a table whose checksum was made anew: it ended in an OverflowError."""
    with pytest.raises(ValueError, match="no mark"):
        curves_of([(True, 0, mark, [1.0], "no mark")])
    with pytest.raises(ValueError, match="an evaluation can't be"):
        returns_of({"deterministic": True, "mark": mark, "returns": [1.0]})
