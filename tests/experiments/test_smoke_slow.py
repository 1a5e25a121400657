"""The real thing for minutes: `ottrpo reproduce` killed again and again, and what it costs."""

import contextlib
import ctypes
import json
import os
import pty
import random
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from result_tables import without_times

from ottrpo.experiments import registry
from ottrpo.experiments.study import STUDIES

KILLS = 20
ONE_RUN = Path(__file__).parent / "one_run.py"


def start(folder, *arguments, **options):
    command = [sys.executable, "-m", "ottrpo", "reproduce", *arguments]
    return subprocess.Popen(command, cwd=folder, **options)


def test_smoke_touches_every_agent_on_finite_and_other_problems():
    smoke = STUDIES["smoke"]
    keys = {cell.spec().agent_key for cell in smoke.cells}
    assert keys == {entry.key for entry in registry.agents()}
    assert any(cell.audit for cell in smoke.cells)
    assert sum(cell.steps * cell.seeds for cell in smoke.cells) < 100_000


@pytest.mark.slow
def test_smoke_killed_at_twenty_random_instants_ends_with_the_same_results(tmp_path):
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    rng, kills = random.Random(7), 0
    for folder in (killed, calm):
        folder.mkdir()
    while kills < KILLS:
        process = start(killed, "smoke", "--workers", "2", stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=rng.uniform(1, 25))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        else:  # it was faster than we: once more from nothing, so that the kills hit something
            assert process.returncode == 0
            shutil.rmtree(killed / "runs")
    for folder in (killed, calm):
        assert start(folder, "smoke", "--workers", "2").wait() == 0
    assert without_times(killed / "results/smoke") == without_times(calm / "results/smoke")


SEEDS, STEPS, ROUNDS = 3, 100_000, 3
COSTLY = f"""
description = "for tests"
protocol = "quick"
[[cells]]
environments = ["Pendulum-v1"]
steps = {STEPS}
seeds = {SEEDS}
"""


@pytest.mark.slow
def test_reproduce_costs_at_most_five_percent_more_than_its_runs_alone(tmp_path):
    """With the live table on a terminal, which is the dearer way to look on.

    CPU seconds, not time: others may use the machine. They disturb these too, through caches and
    clocks, so that the two ways take turns and the middle one of several ratios counts.
    """
    (tmp_path / "costly.toml").write_text(COSTLY)
    adopt_orphans()  # the runs' processes are children of one that the command leaves behind
    ratios = []
    for i in range(ROUNDS):
        folder = tmp_path / str(i)
        folder.mkdir()
        before = children_seconds()
        for seed in range(SEEDS):
            run_alone(folder, seed)
        between = children_seconds()
        assert on_a_terminal(folder, "../costly.toml", "--workers", "1") == 0
        alone, together = between - before, children_seconds() - between
        ratios.append(together / alone)
        print(f"alone {alone:.1f} s of CPU, by reproduce {together:.1f} s: {ratios[-1]:.3f}")
        for seed in range(SEEDS):  # and it is the same that was done
            theirs = folder / f"runs/costly/Pendulum-v1__ottrpo__default/seed{seed}"
            assert returns(theirs) == returns(folder / f"seed{seed}")
    assert statistics.median(ratios) <= 1.05, ratios


def run_alone(folder, seed):
    job = {
        "environment": "Pendulum-v1",
        "agent": "ottrpo",
        "config": "default",
        "seed": seed,
        "steps": STEPS,
        "overrides": [],
        "protocol": "quick",
    }
    command = [sys.executable, str(ONE_RUN), json.dumps(job), str(folder / f"seed{seed}"), "50000"]
    subprocess.run(command, check=True, cwd=folder)


def returns(run):
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    return [json.loads(line)["returns"] for line in lines]


def on_a_terminal(folder, *arguments):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    process = start(folder, *arguments, stdout=theirs, env=environment)
    os.close(theirs)
    reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
    reader.start()
    code = process.wait()
    reader.join(5)
    return code


def _drain(terminal):
    try:
        while os.read(terminal, 65536):
            time.sleep(0.05)
    except OSError:  # the other end was closed
        pass
    os.close(terminal)


def adopt_orphans():
    PR_SET_CHILD_SUBREAPER = 36
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def children_seconds():
    """Of CPU, of all descendants that have ended; waits for those that have not."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
