"""Runs in processes of their own: what goes wrong in one stays there, and nothing is done twice.

The agent only counts, and has moods; everything around it is the real thing.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from result_tables import without_times

HERE = Path(__file__).parent
LIMIT = "6"  # a new process is silent while it loads, and others use the machine too
MOODS = """
description = "moods"
agent = "moody"
seeds = 2
[[cells]]
environments = ["Taxi-v4"]
"""
CALM = MOODS.replace('["Taxi-v4"]', '["Taxi-v4", "CliffWalking-v1"]')


class Place:
    """A directory with studies of the moody agent."""

    def __init__(self, folder):
        self.folder = folder
        configs = folder / "configs" / "moody"
        configs.mkdir(parents=True)
        (configs / "default.toml").write_text("steps = 700_000\n")
        self.environment = {
            **os.environ,
            "MOODY_CONFIGS": str(configs.parent),
            "COLUMNS": "200",
            "PYTHONWARNINGS": "default",
        }

    def study(self, text, name="study"):
        (self.folder / f"{name}.toml").write_text(text)
        return f"{name}.toml"

    def start(self, *arguments, **options):
        command = [sys.executable, str(HERE / "moody.py"), "reproduce", *arguments]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=100)
        return process.returncode, out, err

    def results(self, study="study", root="results"):
        return without_times(self.folder / root / study)


def workers_alive(folder):
    """How many processes of runs there are in ``folder``, and the one that forks them."""
    alive = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the dead whom nobody has asked after have no command
            here = os.readlink(entry / "cwd") == str(folder)
            alive += here and b"multiprocessing.forkserver" in (entry / "cmdline").read_bytes()
    return alive


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_study_is_told_run_skipped_and_added_to(place):
    study = place.study(CALM)
    code, out, err = place.run(study, "--workers", "2")
    assert (code, err) == (0, "")
    assert "2 at a time" in out
    assert "4 runs of 2 cells, 0 finished, 4 to do: 2,800,000 steps" in out
    assert re.search(r"\[4/4, .*\] .*seed \d finished: 100 %, [\d,]+ steps/s, return \d+", out)
    # the paper says nothing of this agent
    assert not any("paper" in line for line in out.splitlines() if line.startswith("["))
    first = place.results()
    assert [len(rows) for rows in first.values()] == [200, 200, 4]
    code, out, _ = place.run(study, "--seeds", "3", "--out", "results")
    assert code == 0
    assert "6 runs of 2 cells, 4 finished, 2 to do" in out
    more = place.results()
    assert [row for row in more["Taxi-v4__moody__default.csv"] if row[0] != "2"] == first[
        "Taxi-v4__moody__default.csv"
    ]


def test_moods_are_retried_reported_and_do_not_disturb_the_others(place):
    moods = ""
    for mood in ("crash", "die", "hang"):
        for marks in ("", "."):
            label = f"{mood} once" if marks else mood
            moods += f'[[cells]]\nenvironments = ["Taxi-v4"]\nlabel = "{label}"\n'
            moods += f'settings = {{ mood = "{mood}", marks = "{marks}" }}\n'
    study = place.study(MOODS.replace("seeds = 2", "seeds = 1") + moods)
    code, out, err = place.run(study, "--workers", "4", "--retries", "1", "--time-limit", LIMIT)
    assert code == 1
    reasons = {
        "crash": "RuntimeError: in a bad mood",
        "die": "killed by SIGKILL",
        "hang": "hung: it wrote nothing for longer than the time limit",
    }
    for mood, reason in reasons.items():
        assert f"Taxi-v4__moody__{mood} seed 0 failed: {reason}" in err
        assert out.count(f"Taxi-v4__moody__{mood} seed 0 started") == 2
        once = f"Taxi-v4__moody__{mood}-once seed 0"
        assert f"{once} stopped, will be tried again: {reason}" in out
        assert f"{once} finished" in out
        log = place.folder / f"runs/study/Taxi-v4__moody__{mood}-once/seed0.log"
        assert "going on from step 553,000 of 700,000" in log.read_text()
    assert (
        "in a bad mood" in (place.folder / "runs/study/Taxi-v4__moody__crash/seed0.log").read_text()
    )
    tables = place.results()
    calm = tables["Taxi-v4__moody__default.csv"]
    for mood in reasons:
        assert f"Taxi-v4__moody__{mood}.csv" not in tables
        assert tables[f"Taxi-v4__moody__{mood}-once.csv"] == calm
    code, out, _ = place.run(study, "--collect")  # runs nothing, and says that something is missing
    assert code == 1
    assert "started" not in out


def test_a_run_that_follows_a_dead_one_is_not_taken_for_it(place):
    """The run beside them outlives the dead one."""
    cells = [("dies", "die", 0.0), ("stays", "calm", 0.05), ("follows", "hang", 0.0)]
    study = MOODS[: MOODS.index("[[")].replace("seeds = 2", "seeds = 1") + "".join(
        f'[[cells]]\nenvironments = ["Taxi-v4"]\nlabel = "{label}"\n'
        f'settings = {{ mood = "{mood}", pause = {pause} }}\n'
        for label, mood, pause in cells
    )
    code, out, err = place.run(
        place.study(study), "--workers", "2", "--retries", "0", "--time-limit", LIMIT
    )
    assert code == 1
    assert "Taxi-v4__moody__stays seed 0 finished" in out
    assert "Taxi-v4__moody__dies seed 0 failed: killed by SIGKILL" in err
    assert "Taxi-v4__moody__follows seed 0 failed: hung" in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_parent_ends_its_children(place, how):
    slow = MOODS + "settings = { pause = 0.1 }\n"
    process = place.start(place.study(slow), "--workers", "2")
    deadline = time.monotonic() + 30
    while len(list(place.folder.glob("runs/study/*/seed*/metrics.jsonl"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert workers_alive(place.folder) == 2 + 1
    process.send_signal(how)
    out, err = process.communicate(timeout=30)
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        time.sleep(0.5)
    else:
        assert process.returncode == 1
        assert "stopped; the same command goes on from here" in err
        assert "Traceback" not in out + err
    assert workers_alive(place.folder) == 0


def test_two_processes_cannot_work_on_one_study(place):
    study = place.study(MOODS + "settings = { pause = 0.02 }\n")
    first = place.start(study)
    while "started" not in first.stdout.readline():
        assert first.poll() is None
    code, _, err = place.run(study)
    assert code == 2
    assert f"is in use by process {first.pid}" in err
    first.communicate(timeout=60)
    assert first.returncode == 0


def test_a_run_of_other_settings_is_kept_aside(place):
    place.run(place.study(MOODS))
    code, out, _ = place.run(place.study(MOODS + "settings = { stride = 50_000 }\n"))
    assert code == 0
    assert "holds another run; kept as seed0~1" in out
    runs = place.folder / "runs/study/Taxi-v4__moody__default"
    strides = [
        json.loads((runs / name / "manifest.json").read_text())["settings"].get("stride")
        for name in ("seed0", "seed0~1")
    ]
    assert strides == [50_000, None]
    assert {int(row[2]) % 50_000 for row in place.results()["Taxi-v4__moody__default.csv"]} == {0}


def killed_and_restarted(place, study, kills, rng, longest):
    """Kill the study at random instants until it has been killed often enough, then let it end."""
    for _ in range(kills):
        process = place.start(study, "--workers", "2", "--out", "killed", "--retries", "5")
        try:
            process.communicate(timeout=rng.uniform(0.2, longest))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        else:
            break
    code, out, err = place.run(study, "--workers", "2", "--out", "killed", "--retries", "5")
    assert (code, err) == (0, ""), out


def test_killed_at_random_instants_it_ends_with_the_same_results(place):
    study = place.study(CALM + "settings = { pause = 0.01 }\n")
    killed_and_restarted(place, study, 4, random.Random(0), 2.5)
    os.rename(place.folder / "runs", place.folder / "killed-runs")
    code, *_ = place.run(study, "--workers", "1")
    assert code == 0
    assert place.results(root="killed") == place.results()  # and for any number of workers
