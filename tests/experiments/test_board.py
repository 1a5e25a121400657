"""The live table and the plain lines, and the estimate that comes before them."""

import io

import pytest
from rich.console import Console

from ottrpo.experiments import estimate as estimates
from ottrpo.experiments.board import StudyBoard
from ottrpo.experiments.estimate import estimate
from ottrpo.experiments.grid import Cell, Study
from ottrpo.experiments.jobs import jobs_of, last_records
from ottrpo.experiments.run import build_agent, manifest, train
from ottrpo.results.layout import AGENT
from ottrpo.results.run_directory import RunDirectory


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
    train(job.spec, agent, RunDirectory.create(job.path, manifest(job.spec)), Nobody())


class Nobody:
    def update(self, timestep):
        pass

    def evaluation(self, record):
        pass


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
        board.began(jobs[1])
        board.began(jobs[2])
        board.stumbled(jobs[2], "it [fell] over", again=False)
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
    board.began(many[1])
    text = shown(board)
    assert "and 7 more" in text
    assert text.index("CliffWalking-v1") < text.index("Taxi-v4")


def test_progress_is_read_from_the_ends_of_the_files(jobs, tmp_path):
    assert jobs[0].progress().speed is None
    finish(jobs[0])
    progress = jobs[0].progress()
    assert (progress.timestep, progress.returned) == (600, 600.0)
    assert progress.speed > 0
    log = tmp_path / "torn.jsonl"
    log.write_text('{"a": 1}\n' * 5000 + '{"a": 2}\n{"a"')
    assert last_records(log)[-1] == {"a": 2}
    assert len(last_records(log)) < 5000
    assert last_records(tmp_path / "nothing") == []


def test_the_estimate_says_where_its_speeds_come_from(jobs, tmp_path, monkeypatch):
    nothing = estimate(jobs, jobs, results=[tmp_path], workers=2, say=print)
    assert str(nothing) == (
        "no estimate: nothing is known of these agents; a trial would not be worth it"
    )
    folder = tmp_path / "results" / "other"
    folder.mkdir(parents=True)
    (folder / "runs.csv").write_text(
        "cell,seed,steps,train_seconds,wall_seconds\n"
        "Taxi-v4__counting__default,0,600,30,60\n"
        "CliffWalking-v1__counting__wide,0,1000,50,\n"
    )
    monkeypatch.setattr(estimates, "may_fork", lambda: True)
    forked = estimate(jobs, jobs, results=[folder.parent], workers=2, say=print)
    assert forked.seconds == pytest.approx(60 + 50 + 60)
    monkeypatch.setattr(estimates, "may_fork", lambda: False)
    kept = estimate(jobs, jobs, results=[folder.parent], workers=2, say=print)
    assert kept.sources == {estimates.KEPT: 1, estimates.LIKE: 1}
    # three runs of 65 s and three of 55 s, in turn, each on the first free process
    assert kept.seconds == pytest.approx(65 + 55 + 65)
    assert str(kept) == (
        "about 3 min (speed of 1 from kept results, 1 from kept results of other settings)"
    )
    finish(jobs[0])
    here = estimate(jobs, jobs[1:], results=[folder.parent], workers=2, say=print)
    assert here.sources == {estimates.HERE: 1, estimates.LIKE: 1}


def test_what_a_trial_does_once_is_not_counted_for_every_step(jobs, tmp_path, monkeypatch):
    updates = [(4_000, 10.0), (10_000, 10.6)]  # 0.1 ms a step, after 9.6 s of compiling
    evaluations = [2.0, 2.1, 2.2]  # two episodes each: 0.05 s an episode, after 1.9 s of compiling

    def run_jobs(trials, **_):
        for trial in trials:
            directory = RunDirectory.create(trial.path, manifest(trial.spec))
            for timestep, seconds in updates:
                directory.log_metrics({"timestep": timestep, "train_seconds": seconds})
            for seconds in evaluations:
                directory.log_evaluation({"train_seconds": 10.6, "wall_seconds": 10.6 + seconds})
            (trial.path / f"{AGENT}.zip").touch()

    monkeypatch.setattr(estimates, "WORTH_A_TRIAL", 0)
    monkeypatch.setattr(estimates, "may_fork", lambda: True)
    monkeypatch.setattr(estimates, "run_jobs", run_jobs)
    told = estimate(jobs, jobs, results=[tmp_path], workers=len(jobs), say=print)
    assert told.sources == {estimates.TRIED: 2}
    longest, episodes = max(job.spec.steps for job in jobs), 10 * 100
    assert told.seconds == pytest.approx(9.6 + 1.9 + longest * 1e-4 + episodes * 0.05)
    del updates[1:]  # which part of ten seconds would every update take?
    told = estimate(jobs, jobs, results=[tmp_path], workers=len(jobs), say=print)
    assert (told.seconds, told.unknown) == (None, 2)
