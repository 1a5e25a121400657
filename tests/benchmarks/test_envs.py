import json
import os
import subprocess
import sys

from ottrpo.benchmarks import train
from ottrpo.cli import main


def test_environments_are_measured_in_one_run():
    # by itself: it forks, which is not done where JAX may have started its threads
    command = [sys.executable, "-m", "ottrpo", "bench", "envs", "--quick", "--json"]
    command += ["--envs", "Hopper-v5", "--counts", "2"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    (row,) = figures["stepping"]
    everybody = ("gym.step", "DummyVecEnv", "SubprocVecEnv", "AsyncVectorEnv", "ours")
    assert all(row[name] > 0 for name in everybody)
    assert row["ours_over_loop"] == row["ours"] / row["gym.step"]
    assert figures["memory"][0]["megabytes"] < 1


def test_mistakes_are_one_line(capsys):
    assert main(["bench", "envs", "--counts", "0"]) == 2
    assert "--counts must be positive, got (0,)" in capsys.readouterr().err


def test_training_takes_part_in_many_environments_too():
    found = train.contenders(["ppo", "a2c"], "Hopper-v5", n_envs=16)
    many = {c.agent: c.settings for c in found if " in 16" in c.agent}
    ours, theirs = ("ottrpo", "ottrpo samples"), ("ppo", "ppo normalised")
    expected = {f"{who} in 16" for who in ours + theirs} | {"ppo in 16 processes"}
    assert set(many) == expected  # A2C keeps its library's own
    assert all((s["n_envs"], s["n_steps"]) == (16, 128) for s in many.values())
    assert main(["bench", "train", "--n-envs", "0"]) == 2
