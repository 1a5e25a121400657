"""The real thing for minutes: `ottrpo reproduce` killed again and again, and what it costs."""

import os
import pty
import random
import resource
import subprocess
import sys
import threading
import time

import pytest
from result_tables import without_times

from ottrpo.experiments import registry
from ottrpo.experiments.grid import STUDIES

KILLS = 20


def start(folder, *arguments, **options):
    command = [sys.executable, "-m", "ottrpo.cli", "reproduce", *arguments]
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
            (killed / "runs").rename(killed / f"runs-{kills}")
    for folder in (killed, calm):
        assert start(folder, "smoke", "--workers", "2").wait() == 0
    assert without_times(killed / "results/smoke") == without_times(calm / "results/smoke")


COSTLY = """
description = "for tests"
protocol = "quick"
[[cells]]
environments = ["Pendulum-v1"]
steps = 300_000
seeds = 3
"""


@pytest.mark.slow
def test_reproduce_costs_at_most_five_percent_more_than_its_runs_alone(tmp_path):
    """With the live table on a terminal, which is the dearer way to look on."""
    import json

    (tmp_path / "costly.toml").write_text(COSTLY)
    ratios = []
    for attempt in ("first", "second"):
        folder = tmp_path / attempt
        folder.mkdir()
        before = children_seconds()
        for seed in range(3):
            job = {
                "environment": "Pendulum-v1",
                "agent": "ottrpo",
                "config": "default",
                "seed": seed,
                "steps": 300_000,
                "overrides": [],
                "protocol": "quick",
                "out": str(folder / f"seed{seed}"),
            }
            command = [sys.executable, "-m", "ottrpo.experiments.one_run", json.dumps(job)]
            subprocess.run(command, check=True, cwd=folder)
        alone = children_seconds() - before
        assert on_a_terminal(folder, "../costly.toml", "--workers", "1") == 0
        together = children_seconds() - before - alone
        ratios.append(together / alone)
        print(f"alone {alone:.1f} s of CPU, by reproduce {together:.1f} s: {ratios[-1]:.3f}")
        if ratios[-1] <= 1.05:
            break
    assert min(ratios) <= 1.05, ratios


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


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
