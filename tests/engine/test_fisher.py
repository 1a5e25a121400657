"""TRPO's step on this engine: Fisher's metric in closed form, and a region that is never left."""

import gymnasium as gym
import jax
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.cli import main
from ottrpo.engine.algorithms import fisher
from tests.engine import certified

SMALL = {"n_steps": 128, "batch_size": 64, "n_epochs": 2, "seed": 0}
NATURAL = {"region": "kl", "update": "natural"}
ROWS, RADIUS = 200, 1e-3  # the latter of σ


def linear_policy(rng, **settings):
    """A Gaussian whose mean is linear in two numbers: its Fisher information is known."""
    kwargs = {"net_arch": []}
    agent = OTTRPO(
        "MlpPolicy", "MountainCarContinuous-v0", policy_kwargs=kwargs, **NATURAL, **settings
    )
    policy = agent.train_state.networks.policy
    return agent, policy, drawn_rows(rng, policy)


def drawn_rows(rng, policy):
    flat = rng.normal(size=(ROWS, 2)).astype(np.float32)
    mean, std = map(np.asarray, policy.gaussian(flat))
    action = (mean + std * rng.normal(size=mean.shape)).astype(np.float32)
    gain = (rng.normal(size=ROWS) / ROWS).astype(np.float32)
    return {"flat": flat, "images": (), "action": action, "gain": gain}


@pytest.mark.parametrize("seed", range(20))
def test_the_step_is_that_of_the_dense_metric(seed):
    rng = np.random.default_rng(seed)
    agent, policy, _ = linear_policy(rng, seed=seed)
    for _ in range(50):  # a thousand together
        rows, radius = drawn_rows(rng, policy), np.float32(10 ** rng.uniform(-5, -2))
        new, gain = agent.algorithm.step(policy, rows, radius)
        mean, std = map(np.asarray, policy.gaussian(rows["flat"]))
        seen = np.hstack([np.ones((ROWS, 1)), rows["flat"]])
        slope = ((rows["action"] - mean) / std**2 * rows["gain"][:, None] * seen).sum(0)
        metric = seen.T @ seen / ROWS / std[0] ** 2 + fisher.DAMPING * np.eye(3)
        along = np.linalg.solve(metric, slope)
        step = np.sqrt(2 * radius / (along @ metric @ along)) * along
        moved = [new.head.bias - policy.head.bias, (new.head.weight - policy.head.weight)[:, 0]]
        size = np.abs(step).max()
        np.testing.assert_allclose(np.concatenate(moved), step, rtol=2e-3, atol=2e-3 * size)
        assert float(gain) == pytest.approx(slope @ step, rel=1e-3)
        assert (new.log_std == policy.log_std).all()  # it is not learnt


def test_sigma_is_a_coordinate_like_any_other_where_it_is_learnt():
    """E[∂² KL / ∂(log σ)²] = 2: of one coordinate, beside a mean that is not to move."""
    agent, policy, rows = linear_policy(np.random.default_rng(0), seed=0, learn_std=True)
    mean, std = map(np.asarray, policy.gaussian(rows["flat"]))
    z = (rows["action"] - mean) / std
    seen = np.hstack([np.ones((ROWS, 1)), rows["flat"]])
    score = np.hstack([z / std * seen, z**2 - 1])
    slope = (rows["gain"][:, None] * score).sum(0)
    metric = np.zeros((4, 4))
    metric[:3, :3], metric[3, 3] = seen.T @ seen / ROWS / std[0] ** 2, 2.0
    along = np.linalg.solve(metric + fisher.DAMPING * np.eye(4), slope)
    step = np.sqrt(2 * RADIUS / (along @ slope)) * along
    new, _ = agent.algorithm.step(policy, rows, np.float32(RADIUS))
    assert float(new.log_std[0] - policy.log_std[0]) == pytest.approx(step[3], rel=2e-3)


CASES = {
    "box": ("Pendulum-v1", {}),
    "learnt sigma": ("Pendulum-v1", {"learn_std": True}),
    "gSDE": ("ottrpo/Reach-v0", {"use_sde": True, "learn_std": True}),
    "bins": ("Pendulum-v1", {"policy_kwargs": {"bins": 7}}),
    "labels": ("CartPole-v1", {}),
    "masks": (lambda: gym.make("ottrpo/Match-v0", masked=True), {}),
    "held out": ("Pendulum-v1", {"hold_out": 0.2}),
}


@pytest.mark.parametrize("name", CASES)
def test_no_update_leaves_the_region_and_the_step_is_as_long_as_it_may_be(name):
    env, settings = CASES[name]
    env = env if isinstance(env, str) else env()
    agent = OTTRPO("MlpPolicy", env, radius=5e-3, **SMALL, **NATURAL, **settings)
    reports = certified.learn(agent, 6)
    # of 128 rows Fisher's metric is a rough guess, but a guess of what is spent
    assert np.median([r["ot/spent"] / r["ot/radius"] for r in reports]) > 0.3
    assert all(r["train/policy_loss"] < 0 for r in reports)  # uphill, to first order


def test_labels_are_learnt():
    agent = OTTRPO("MlpPolicy", "ottrpo/Match-v0", **SMALL, **NATURAL)
    before = agent.evaluate(20, seed=1).mean()
    assert agent.learn(6_000).evaluate(20, seed=1).mean() > before + 0.5 * (1.0 - before)


def test_what_it_can_t_do_is_refused():
    for wrong in ({"region": "transport"}, {"advantage": "network"}, {"adapt_pace": True}):
        with pytest.raises(
            ValueError, match="needs region 'kl', advantage 'gae' and no adapt_pace"
        ):
            OTTRPO("MlpPolicy", "Pendulum-v1", **(NATURAL | wrong))


def test_it_is_trained_by_name_and_goes_on(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["--config", "natural", "--steps", "512", "--set", "n_steps=128", "--out", str(out)]
    assert main(["train", "Pendulum-v1", "--quiet", *words]) == 0, capsys.readouterr().err
    agent = OTTRPO.load(out, env=gym.make("Pendulum-v1"))
    assert agent.told.update == "natural"
    assert agent.learn(128, reset_num_timesteps=False).num_timesteps == 640
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(agent.get_parameters()))
