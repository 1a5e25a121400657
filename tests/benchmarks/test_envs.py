import json
import os
import subprocess
import sys

from ottrpo.cli import main


def test_environments_are_measured_in_one_run():
    # by itself: it forks, which is not done where JAX may have started its threads
    command = [sys.executable, "-m", "ottrpo.cli", "bench", "envs", "--quick", "--json"]
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
