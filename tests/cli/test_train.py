import json
import warnings

import pytest

from ottrpo.agents.sb3 import PPO
from ottrpo.cli import _warnings_in_one_line, main


def train(*arguments):
    return main(["train", "CliffWalking-v0", "--agent", "counting", *arguments])


def test_training_writes_a_run_and_prints_the_score(counting, tmp_path, capsys):
    out = tmp_path / "run"
    assert train("--out", str(out), "--set", "stride=5", "cost=binary", "--steps", "500") == 0
    told = capsys.readouterr().out
    assert "CliffWalking-v0 is retired; using CliffWalking-v1" in told
    # the counting agent returns its step: marks 455..500 in steps of 5
    assert "score 477.50 ± 14.36 over time (sampled actions, 10 evaluations" in told
    assert "→ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ G" in told  # the lowest row: start, cliff, goal
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["settings"] == {"stride": 5, "cost": "binary"}
    assert {path.name for path in out.iterdir()} == {
        "manifest.json",
        "metrics.jsonl",
        "evaluations.jsonl",
        "learning_curve.svg",
        "agent.json",
    }


def test_the_score_stands_beside_the_paper_s(counting, monkeypatch, tmp_path, capsys):
    from ottrpo.experiments import published

    monkeypatch.setattr(
        published, "trained_score", lambda environment, agent: published.Published(-14.0, 2.0)
    )
    assert train("--out", str(tmp_path / "run"), "--steps", "100") == 0
    assert "paper -14 ± 2" in capsys.readouterr().out


def test_a_run_can_be_evaluated(counting, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert train("--out", out, "--steps", "100") == 0
    capsys.readouterr()
    assert main(["evaluate", out, "--episodes", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {"mean": 105.0, "std": 0.0, "episodes": 3, "returns": [105.0] * 3}
    assert main(["evaluate", out]) == 0
    assert "counting on CliffWalking-v1: 105.00 ± 0.00 over 10" in capsys.readouterr().out


def test_json_is_all_that_evaluate_prints_of_a_talkative_agent(tmp_path, capfd):
    agent = PPO("MlpPolicy", "Pendulum-v1", n_steps=64, verbose=1, seed=0)
    agent.save(tmp_path / "agent")
    capfd.readouterr()
    (path,) = tmp_path.glob("agent*")
    assert main(["evaluate", str(path), "--episodes", "2", "--json"]) == 0
    told = capfd.readouterr()
    assert set(json.loads(told.out)) == {"mean", "std", "episodes", "returns"}
    assert "Using cpu device" in told.err


@pytest.mark.parametrize("steps", ["1e2", "100", "1_00", "100.0"])
def test_numbers_are_taken_as_people_write_them(counting, tmp_path, capsys, steps):
    assert train("--out", str(tmp_path / "run"), "--steps", steps) == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["steps"] == 100


def test_two_runs_never_share_a_directory(counting, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert train("--out", out, "--steps", "100") == 0
    assert train("--out", out, "--steps", "100") == 2
    assert "already holds a run" in capsys.readouterr().err


def test_without_out_a_run_goes_under_runs(counting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train("--steps", "100", "--seed", "4") == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("CliffWalking-v1__counting__default__seed4__")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "strid=1"], "did you mean 'stride'?"),
        (["--set", "stride"], "key=value"),
        (["--set", "stride=0"], "stride must be at least 1, got 0"),
        (["--set", "cost=bin"], "'bin' is not a cost"),
        (["--config", "fast"], "'fast' is not a configuration"),
        (["--steps", "-3"], "steps must be a whole number from 1 on, got -3"),
        (["--steps", "1e30"], "steps must be at most 1,000,000,000,000,000, got"),
    ],
)
def test_a_mistake_leaves_nothing_behind(counting, arguments, told, tmp_path, capsys):
    out = tmp_path / "run"
    assert train("--out", str(out), *arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert not out.exists()


def test_a_file_in_the_place_of_the_run_is_named_and_not_the_draft(counting, tmp_path, capsys):
    out = tmp_path / "run"
    out.touch()
    assert train("--out", str(out)) == 2
    assert capsys.readouterr().err == f"ottrpo: {out}: Not a directory\n"


def test_a_goal_that_was_never_reached_is_told_in_one_line(tmp_path):
    told = (
        r"all 2 episodes of Taxi-v4 stopped at the cap of 200 steps, none ended by itself: [^\n]*$"
    )
    with pytest.warns(UserWarning, match=told) as caught:
        assert main(["train", "Taxi-v4", "--steps", "300", "--out", str(tmp_path / "run")]) == 0
    assert len(caught) == 1
    with _warnings_in_one_line():
        assert warnings.formatwarning("so it is", UserWarning, "a.py", 3) == "ottrpo: so it is\n"
    assert "a.py" in warnings.formatwarning("so it is", UserWarning, "a.py", 3)


def test_many_environments(tmp_path, capsys):
    out = tmp_path / "run"
    asked = ["train", "Hopper-v5", "--n-envs", "2", "--threads", "2", "--steps", "128"]
    small = ["--set", "n_steps=64", "n_epochs=1", "--out", str(out)]
    assert main([*asked, *small]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["resolved"]["n_envs"], manifest["resolved"]["threads"]) == (2, 2)
    assert main(["train", "Taxi-v4", "--n-envs", "2", "--steps", "100"]) == 2
    assert "'n_envs' is not a setting of ottrpo" in capsys.readouterr().err
