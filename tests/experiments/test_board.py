"""The live table and the plain lines."""

import io
import os
import time

import pytest
from rich.console import Console

from ottrpo.experiments.board import RunBoard, StudyBoard
from ottrpo.experiments.jobs import jobs_of
from ottrpo.experiments.pool import News
from ottrpo.experiments.recorder import Onlooker
from ottrpo.experiments.run import build_agent, manifest, train
from ottrpo.experiments.study import Cell, Study
from ottrpo.results.run_directory import RunDirectory, last_records


@pytest.fixture
def jobs(tmp_path, counting, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = tuple(
        Cell(environment=e, agent="counting", seeds=3) for e in ("Taxi-v4", "CliffWalking-v1")
    )
    study = Study(name="s", description="d", cells=cells)
    return jobs_of(study, tmp_path / "runs", seeds=None, steps=None)


def finish(job):
    agent = build_agent(job.spec)
    train(job.spec, agent, RunDirectory.create(job.path, manifest(job.spec)), Onlooker())


def shown(board, *, colours=False):
    console = Console(file=io.StringIO(), width=120, force_terminal=colours)
    console.print(board.table())
    return console.file.getvalue()


def test_the_table_has_a_line_per_cell_with_its_seeds(jobs, monkeypatch):
    monkeypatch.setattr(
        "ottrpo.experiments.board.trained_score", lambda *_: type("P", (), {"score": 3})
    )
    finish(jobs[0])
    console = Console(file=io.StringIO(), width=120, height=40, force_terminal=True)
    assert jobs[0].state() == "finished"
    with StudyBoard(jobs, {jobs[0].name}, console) as board:
        for job in jobs[1:3]:
            board.tell(News(job, "began"), again=False)
        board.tell(News(jobs[2], "failed", "it [fell] over"), again=False)
        board.tick()
        text = shown(board)
        coloured = shown(board, colours=True)
    lines = {line.split()[1]: line for line in text.splitlines() if "-v" in line}
    assert lines["Taxi-v4"].split("│")[4].split() == ["✓✗·"]
    assert lines["CliffWalking-v1"].split("│")[4].split() == ["▶0", "··"]
    assert lines["Taxi-v4"].split("│")[5].strip() == "33 %"
    assert [part.strip() for part in lines["Taxi-v4"].split("│")[7:9]] == ["600.0", "3"]
    assert "1 of 6 runs finished, 1 running, 3 waiting, 1 failed" in text
    assert "\x1b[1;31m✗" in coloured  # failures are red
    assert "it [fell] over" in console.file.getvalue()


def test_cells_that_do_not_fit_are_counted_and_what_happens_comes_first(jobs):
    console = Console(file=io.StringIO(), width=120, height=11, force_terminal=True)
    many = [job for job in jobs if job.spec.seed == 0]
    board = StudyBoard(many, (), console)
    board._cells = {str(i): [many[0]] for i in range(9)} | {"busy": [many[1]]}
    board.tell(News(many[1], "began"), again=False)
    text = shown(board)
    assert "and 7 more" in text
    assert text.index("CliffWalking-v1") < text.index("Taxi-v4")


def test_how_far_a_run_is_is_read_from_the_ends_of_the_files(jobs, tmp_path):
    assert jobs[0].standing().speed is None
    finish(jobs[0])
    standing = jobs[0].standing()
    assert (standing.timestep, standing.returned) == (600, 600.0)
    assert standing.speed > 0
    log = tmp_path / "torn.jsonl"
    log.write_text('{"a": 1}\n' * 5000 + '{"a": 2}\n{"a"')
    assert last_records(log)[-1] == {"a": 2}
    assert len(last_records(log)) < 5000
    assert last_records(tmp_path / "nothing") == []
    os.mkfifo(tmp_path / "pipe")
    assert last_records(tmp_path / "pipe") == []
    log.write_text("3\n" + "[" * 10_000 + '\n{"a": 3}\n')
    assert last_records(log) == [{"a": 3}]


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"timestep": "x", "returns": 3, "deterministic": false}',
        '{"timestep": 1e999}',
        '{"returns": ["a"], "deterministic": false}',
    ],
)
def test_a_damaged_log_does_not_end_the_study(jobs, line):
    """Who is to go on from it tells of it; the board is only to show it."""
    finish(jobs[0])
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        (jobs[0].path / name).write_text(line + "\n")
    assert jobs[0].standing().returned is None


def test_the_bar_says_how_far_all_is_and_how_long_the_rest_will_take(jobs, monkeypatch):
    console = Console(file=io.StringIO(), width=120, height=40, force_terminal=True)
    finish(jobs[0])
    with StudyBoard(jobs, {jobs[0].name}, console) as board:
        # Taxi has 600 steps, CliffWalking 1000, three seeds each
        assert "12 % of all steps" in shown_bar(board)
        now = time.monotonic()
        for job in jobs[1:3]:  # 1000 and 600 steps more, in ten seconds each
            now += 10
            monkeypatch.setattr(board._bar, "get_time", lambda now=now: now)
            finish(job)
            board.tell(News(job, "finished"), again=False)
            board.tick()
        # 1600 steps in 20 seconds, and 2600 are left
        assert board._bar.tasks[0].time_remaining == pytest.approx(2600 / 80, abs=1.1)
        assert "46 % of all steps" in shown_bar(board)


def shown_bar(board):
    console = Console(file=io.StringIO(), width=120)
    console.print(board.picture())
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_bar_of_a_run_tells_less_where_there_is_less_room(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    with RunBoard(1_000_000, console) as board:
        board.evaluation({"deterministic": True, "returns": [-1234.5], "mark": 1, "timestep": 1})
        board.figures({"ot/spent": 0.01234, "ot/radius": 0.01234})
        board.update(400_000)
    told = console.file.getvalue()
    assert "…" not in told  # nothing is cut
    assert "40 %" in told
    assert "return -1,234.5" in told
    assert "-:--:--" in told  # how long the rest will take
    assert ("400,000 steps" in told) == (width >= 60)
    assert ("spent 0.0123 of 0.0123" in told) == (width >= 120)
