"""`ottrpo bench device`: how its figures follow from what trainings tell."""

import json

import pytest

from ottrpo.benchmarks.device import against_brax, figures_of
from ottrpo.benchmarks.device_trainings import Moment, brax_settings
from ottrpo.cli import main


def test_compilation_is_told_apart_from_training():
    steps = [0, 1000, 2000, 3000]
    spent, at = [0.0, 7.0, 9.0, 11.0], [5.0, 13.0, 16.0, 19.0]  # the first stretch compiles: 5 s
    returns = [0.0, 1.0, 5.0, 4.0]
    told = zip(at, steps, spent, returns, strict=True)
    row = figures_of([{"at_s": t - 2.0, **vars(Moment(*m))} for t, *m in told])
    assert row["steps_per_s"] == 2000 / 4.0
    assert row["compile_s"] == (5.0 - 2.0) + 5.0
    assert (row["all_s"], row["score"], row["best"], row["steps"]) == (17.0, 4.0, 5.0, 3000)


def _trained(who, speeds, *curves):
    about = {"environment": "brax:ant", "who": who}
    told = [[{"steps": 600 * t, "returned": r} for t, r in enumerate(c)] for c in curves]
    return {
        "training": [about | {"steps_per_s": speed} for speed in speeds],
        "curves": [about | {"curve": curve} for curve in told],
    }


def _together(*parts):
    return {key: [row for part in parts for row in part[key]] for key in parts[0]}


def test_the_time_is_the_median_of_seeds_until_the_score_that_brax_has_at_its_end():
    theirs = _trained("brax-ppo", [100, 300, 200], [0, 1, 5, 5], [0, 2, 8, 6], [0, 1, 3, 7])
    own = _trained("ottrpo", [400, 800], [0, 6, 9], [0, 9, 9])
    (row,) = against_brax(_together(theirs, own))
    assert row["score_of_brax"] == 6  # not its best, and not a mean
    assert row["speed_ratio"] == 600 / 200
    assert row["seconds_to_it"] == (600 / 400 + 600 / 800) / 2
    assert row["seconds_of_brax"] == 1800 / 200  # of 4 s, 9 s and never
    assert row["time_ratio"] == 1.125 / 9.0
    assert (row["seeds"], row["score"]) == ("2 against 3", 9)


def test_a_training_that_was_cut_off_and_one_that_never_gets_there_are_told_as_such():
    theirs = _trained("brax-ppo", [100], [0, 5], [0, 4])  # of the second, half a curve
    own = _trained("ottrpo", [400], [0, 4])
    (row,) = against_brax(_together(theirs, own))
    assert row["score_of_brax"] == 5
    assert row["seconds_to_it"] is None
    assert row["time_ratio"] is None
    assert against_brax(_together(own)) == []


@pytest.mark.parametrize("task", ["ant", "halfcheetah", "hopper", "walker2d", "humanoid", "fast"])
def test_brax_accepts_its_settings(task):
    given = brax_settings(f"brax:{task}", small=False)
    assert given["batch_size"] * given["num_minibatches"] % given["num_envs"] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--envs", "Hopper-v5"], "'Hopper-v5' is not of Brax"),
        (["--who", "sac"], "'sac' is not measured here"),
        (["--evaluations", "1"], "--evaluations must be 2 or more, got 1"),
    ],
)
def test_mistakes_are_one_line(options, told, capsys):
    assert main(["bench", "device", *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_everybody_is_measured_beside_brax(tmp_path, capsys):
    pytest.importorskip("brax.training")
    options = ["--quick", "--envs", "brax:fast", "--evaluations", "2", "--out", str(tmp_path)]
    assert main(["bench", "device", *options, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [row["who"] for row in figures["training"]] == ["ottrpo", "clipped-ppo", "brax-ppo"]
    assert all(row["steps_per_s"] > 0 and row["steps"] >= 4096 for row in figures["training"])
    assert json.loads((tmp_path / "device.json").read_text()) == figures
