"""The worked example of CONTRIBUTING.md: a trust-region model in one file and one line."""

import importlib.util
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo import OTTRPO
from ottrpo.cli import main
from ottrpo.engine import models

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
QUICK = {"n_steps": 128, "batch_size": 64, "n_epochs": 2}


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """The model of the page, as a file of its own, with its line in the list."""
    section = PAGE.split("## To add a trust-region model")[1]
    code = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    assert code.count("\n") <= 60
    file = tmp_path / "modest.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("modest", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(models, "MODELS", [*models.MODELS, module.Modest])
    return module


def test_it_is_trained_from_the_command_line_by_its_name(listed, tmp_path, capsys):
    out = tmp_path / "run"
    given = [f"{key}={value}" for key, value in QUICK.items()]
    settings = ["--set", "model=modest", *given, "--steps", "256", "--out", str(out)]
    assert main(["train", "Pendulum-v1", *settings]) == 0
    assert json.loads((out / "manifest.json").read_text())["settings"]["model"] == "modest"
    assert main(["evaluate", str(out), "--episodes", "1", "--json"]) == 0


def test_it_differs_where_one_state_is_wild_and_stays_in_the_region(listed):
    modest, linear = (
        OTTRPO("MlpPolicy", "Pendulum-v1", model=model, seed=0, **QUICK).learn(256)
        for model in ("modest", "linear")
    )
    assert modest.last_update["ot/multiplier"] != linear.last_update["ot/multiplier"]
    assert modest.last_update["ot/violation"] == 0


def test_it_runs_compiled_whole(listed):
    agent = OTTRPO("MlpPolicy", "Pendulum-v1", model="modest", seed=0, **QUICK).learn(128)
    algorithm, now = agent.algorithm, agent.schedules.now(0.5, 100.0)
    rollout, draws = agent.collect_rollout(None), algorithm.draw(128, agent.rng)

    def update(state, rollout, draws, now):
        after, batch = algorithm.estimate(state, rollout, now)
        return algorithm.improve(state, after, batch, draws, now)[1]

    given = agent.train_state, rollout, draws, now
    host, compiled = update(*given), jax.jit(update)(*jax.tree.map(jnp.asarray, given))
    np.testing.assert_allclose(
        float(host["ot/multiplier"]), float(compiled["ot/multiplier"]), rtol=1e-4
    )


def test_without_its_line_it_is_not_known():
    with pytest.raises(ValueError, match="model must be one of linear, sample, antithetic"):
        OTTRPO("MlpPolicy", "Pendulum-v1", model="modest")
