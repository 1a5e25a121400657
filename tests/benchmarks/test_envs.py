import json

from ottrpo.cli import main


def test_environments_are_measured_in_one_run(capsys):
    assert main(["bench", "envs", "--quick", "--envs", "Hopper-v5", "--counts", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    (row,) = figures["stepping"]
    everybody = ("gym.step", "DummyVecEnv", "SubprocVecEnv", "AsyncVectorEnv", "ours")
    assert all(row[name] > 0 for name in everybody)
    assert row["ours_over_loop"] == row["ours"] / row["gym.step"]
    assert figures["memory"][0]["megabytes"] < 1


def test_mistakes_are_one_line(capsys):
    assert main(["bench", "envs", "--counts", "0"]) == 2
    assert "--counts must be positive, got (0,)" in capsys.readouterr().err
