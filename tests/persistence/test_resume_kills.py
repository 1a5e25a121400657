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

HERE = Path(__file__).parent
KILLS = int(os.environ.get("OTTRPO_KILLS", "50"))
SMALL = ["n_steps=256", "batch_size=64", "n_epochs=4"]
PATHS = [path for path in (os.environ.get("PYTHONPATH"),) if path]
MAIN = [sys.executable, "-m", "ottrpo.cli"]


def command(environment, steps, every, *settings):
    return {
        "begin": [
            *(*MAIN, "train", environment, "--seed", "3", "--steps", str(steps)),
            *("--checkpoint-every", str(every), *(("--set", *settings) if settings else ())),
        ],
        "go on": [*MAIN, "resume", "--trust"],
    }


def script(kind):
    own = [sys.executable, str(HERE / "killed_script.py"), kind]
    return {"begin": own, "go on": own}


CASES = {
    "tabular": command("Taxi-v4", 1_500_000, 20_000),
    "hopper": command("Hopper-v5", 6_000, 500, *SMALL),
    "pendulum": command("Pendulum-v1", 8_000, 300, *SMALL),
    "mountain car": command("MountainCarContinuous-v0", 8_000, 700, *SMALL),
    "dictionary": command(
        "killed_environments:Dictionary-v0", 8_000, 500, "policy=MultiInputPolicy", *SMALL
    ),
    "segments": command("killed_environments:Drifting-v0", 8_000, 900, *SMALL),
    "several": script("several"),
    "subprocess": script("subprocess"),
}


def begun(case, folder):
    """The process of a run that begins, or goes on if it has begun."""
    words = CASES[case]
    goes_on = (folder / "manifest.json").exists()
    by_script = "killed_script" in words["begin"][1]
    if by_script:
        folder.mkdir(exist_ok=True)
    out = ["--out"] if not goes_on and not by_script else []
    return subprocess.Popen(
        [*words["go on" if goes_on else "begin"], *out, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *PATHS])},
        start_new_session=True,  # workers of its own die with it
    )


def finished(case, folder):
    process = begun(case, folder)
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0, output
    return output


def results(folder):
    """Agent, metrics and evaluations, without what a clock says."""
    logs = []
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        records = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        logs.append([{k: v for k, v in r.items() if not k.endswith("_seconds")} for r in records])
    return (folder / "agent.zip").read_bytes(), *logs


def killed(case, folder, longest, rng):
    """Let the run work for a random time, then kill it and its workers; False if it was faster."""
    process = begun(case, folder)
    try:
        process.wait(rng.uniform(0.3, 1.0) * longest)
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
    finished(case, tmp_path / "warm")  # compiled programs and caches: not part of the time
    started = time.monotonic()
    finished(case, tmp_path / "whole")
    longest = time.monotonic() - started
    whole, kills, runs, seen = results(tmp_path / "whole"), 0, 0, []
    while kills < share:
        folder = tmp_path / f"killed{runs}"
        if killed(case, folder, longest, rng):
            kills += 1
            seen.append(max((p.name for p in (folder / "checkpoints").glob("step*")), default="-"))
        else:  # it was faster, though it had been killed before
            assert results(folder) == whole
            runs += 1
            assert runs < share
    finished(case, folder)
    assert results(folder) == whole
    print(f"{case}: {kills} kills in {runs + 1} runs; the last checkpoints then: {seen}")
