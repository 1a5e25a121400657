"""Kill -9 at random instants: what is left goes on to exactly what would have come out.

pytest -m slow tests/persistence/test_resume_kills.py
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottrpo.experiments.spec import parse_overrides

from . import ends

HERE = Path(__file__).parent
ONE_RUN = HERE.parent / "experiments" / "one_run.py"
KILLS = int(os.environ.get("OTTRPO_KILLS", "50"))
PATHS = [path for path in (os.environ.get("PYTHONPATH"),) if path]
SMALL = ["n_steps=256", "batch_size=64", "n_epochs=4"]


def command(environment, steps, every):
    """`ottrpo train`, then `ottrpo resume`."""
    main = [sys.executable, "-m", "ottrpo"]
    asked = ["--seed", "3", "--steps", str(steps), "--checkpoint-every", str(every)]

    def words(folder):
        if (folder / "manifest.json").exists():
            return [*main, "resume", str(folder)]
        return [*main, "train", environment, *asked, "--out", str(folder)]

    return words


def job(environment, every, *settings):
    """The process of one run of a study, which begins or goes on by itself."""

    def words(folder):
        asked = {
            **{"environment": environment, "agent": "ottrpo", "config": "default", "seed": 3},
            **{"steps": 5_000, "settings": parse_overrides([*SMALL, *settings])},
            "protocol": "quick",
        }
        return [sys.executable, str(ONE_RUN), json.dumps(asked), str(folder), str(every)]

    return words


def script(kind):
    """Somebody's own program."""

    def words(folder):
        folder.mkdir(exist_ok=True)
        return [sys.executable, str(HERE / "killed_script.py"), kind, str(folder)]

    return words


CASES = {
    "tabular": command("Taxi-v4", 6_000_000, 50_000),
    "hopper": job("Hopper-v5", 500),
    "pendulum": job("Pendulum-v1", 300),
    "mountain car": job("MountainCarContinuous-v0", 700),
    "dictionary": job("killed_environments:Dictionary-v0", 500, "policy=MultiInputPolicy"),
    "segments": job("killed_environments:Drifting-v0", 900),
    "several": script("several"),
    "batched": script("batched"),
    "subprocess": script("subprocess"),
}


def begun(case, folder):
    """The process of a run that begins, or goes on if it has begun."""
    return subprocess.Popen(
        CASES[case](folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *PATHS])},
        start_new_session=True,  # its workers are killed with it
    )


def finished(process):
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0, output


def results(folder):
    """Agent, metrics and evaluations, without what a clock says."""
    logs = []
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        records = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        logs.append([{k: v for k, v in r.items() if not k.endswith("_seconds")} for r in records])
    return (folder / "agent.zip").read_bytes(), *logs


def life(folder):
    """Changes when training begins, or goes on: logs are cut then, and folders locked."""
    files = [folder / "metrics.jsonl", folder / "checkpoints" / ".lock"]
    return [file.stat().st_mtime_ns if file.exists() else 0 for file in files]


def until_life(process, folder, before):
    """Wait until the process trains, or has ended."""
    while life(folder) == before and process.poll() is None:
        time.sleep(0.02)


def killed(case, folder, trains, rng):
    """Kill the run and its workers at a random instant; False if it was faster.

    One time in five that is somewhere in the start, else while it trains.
    """
    before, process = life(folder), begun(case, folder)
    try:
        if rng.random() < 0.2:
            process.wait(rng.uniform(0.0, 4.0))
        else:
            until_life(process, folder, before)
            process.wait(rng.uniform(0.0, 0.8) * trains)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    output = process.communicate()[0].decode()
    assert process.returncode == 0, output
    return False


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_a_run_survives_being_killed_again_and_again(number, tmp_path):
    case, rng = list(CASES)[number], random.Random(number)
    share = KILLS // len(CASES) + (number < KILLS % len(CASES))
    process = begun(case, tmp_path / "whole")
    until_life(process, tmp_path / "whole", life(tmp_path / "whole"))
    started = time.monotonic()
    finished(process)
    trains = time.monotonic() - started
    whole, kills, runs, seen = results(tmp_path / "whole"), 0, 0, []
    while kills < share:
        folder = tmp_path / f"killed{runs}"
        if killed(case, folder, trains, rng):
            kills += 1
            steps = [int(p.stem[5:]) for p in (folder / "checkpoints").glob("step*.zip")]
            seen.append(max(steps, default=0))
        else:  # it was faster, though it had been killed before
            assert results(folder) == whole
            runs += 1
            assert runs < 10 * share
    finished(begun(case, folder))
    assert results(folder) == whole
    print(f"{case}: {kills} kills in {runs + 1} runs; checkpoints when killed: {seen}")


@pytest.mark.slow
def test_every_agent_ends_alike_in_every_kind_of_environment():
    wanted = int(os.environ.get("OTTRPO_ENDS", "200"))
    told, agents, kinds = ends.run(wanted)
    assert told["identical"] >= wanted
    assert not told["DIFFERENT"]
    assert len(kinds) >= min(20, wanted // 4)
    assert len(agents) >= min(11, wanted // 4)


@pytest.mark.parametrize(
    ("agent", "kind", "anew"),
    [("wpo", "CliffWalking-v1", 0), ("a2c", "a generator function", 1)],
)
def test_one_that_is_killed_ends_alike(agent, kind, anew):
    """One of each of what `python -m tests.persistence.ends` does two hundred times."""
    told, *_ = ends.run(1, seed=1, only=[(agent, kind)], at_a_time=1)
    assert told["identical"] == 1
    assert told["kills"] >= 1
    assert told["announced as seeded anew"] == anew
