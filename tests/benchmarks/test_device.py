"""`ottrpo bench device`: how its figures follow from what trainings tell."""

import json

import pytest

from ottrpo.benchmarks.device import Moment, figures_of
from ottrpo.cli import main


def test_compilation_is_told_apart_from_training():
    steps = [0, 1000, 2000, 3000]
    spent, at = [0.0, 7.0, 9.0, 11.0], [5.0, 13.0, 16.0, 19.0]  # the first stretch compiles: 5 s
    returns = [0.0, 1.0, 5.0, 4.0]
    moments = [(t, Moment(*m)) for t, *m in zip(at, steps, spent, returns, strict=True)]
    row = figures_of(moments, began=2.0)
    assert row["steps_per_s"] == 2000 / 4.0
    assert row["compile_s"] == (5.0 - 2.0) + 5.0
    assert (row["all_s"], row["score"], row["best"], row["steps"]) == (17.0, 4.0, 5.0, 3000)


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
