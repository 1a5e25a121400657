"""The engine as a compiled program: it learns what the host learns, and seeds side by side."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, OTTRPO, WNPG, WPPG, ClippedPPO, WPOGradient
from ottrpo.collect.device import DeviceTraining
from ottrpo.core import PNorm, SquaredEuclidean, TableCost
from ottrpo.engine.algorithms.ottrpo import TrustRegion
from ottrpo.engine.estimate import Estimator
from ottrpo.engine.models import Options, model_for
from ottrpo.engine.networks import Architecture
from ottrpo.engine.schedules import Schedules, Straight
from ottrpo.engine.spaces import BoxActions
from ottrpo.engine.state import Normaliser
from tests.device.pendulum import Pendulum

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}}
GUIDED = {"n_actions": 2, "n_features": 8, "dual_steps": 2}
PENDULUM, REACH = lambda: gym.make("Pendulum-v1", max_episode_steps=30), "ottrpo/Reach-v0"
MATCH = "ottrpo/Match-v0"
TABLE = TableCost([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
CASES = {
    "linear": (OTTRPO, PENDULUM, {"advantage": "gae"}),
    "too far": (OTTRPO, PENDULUM, {"advantage": "gae", "learning_rate": 3e-2, "radius": 1e-3}),
    "learnt sigma": (OTTRPO, lambda: REACH, {"learn_std": True, "use_sde": True}),
    "annealed sigma": (OTTRPO, lambda: REACH, {"log_std_final": -2.0, "radius": "600%"}),
    "paced": (OTTRPO, PENDULUM, {"adapt_pace": True, "std_step": 0.02, "hold_out": 0.2}),
    "mixed": (OTTRPO, PENDULUM, {"advantage": "mixed", "buffer_size": 200}),
    "sample": (OTTRPO, lambda: REACH, {"model": "sample", "cost": PNorm(1), "update": "ascent"}),
    "antithetic": (OTTRPO, lambda: REACH, {"model": "antithetic"}),
    "candidates": (OTTRPO, PENDULUM, {"advantage": "network", "n_sources": 2}),
    "mixture": (OTTRPO, lambda: REACH, {"policy_kwargs": {"net_arch": [8], "mixture": 3}}),
    "flow": (OTTRPO, PENDULUM, {"policy_kwargs": {"net_arch": [8], "flow": 2}, "hold_out": 0.2}),
    "slope": (OTTRPO, lambda: REACH, {"advantage": "network", "model": "linear"}),
    "labels": (OTTRPO, lambda: MATCH, {}),
    "kl": (OTTRPO, PENDULUM, {"region": "kl"}),
    "kl, learnt sigma": (OTTRPO, PENDULUM, {"region": "kl", "learn_std": True}),
    "natural": (OTTRPO, PENDULUM, {"region": "kl", "update": "natural", "learn_std": True}),
    "natural, labels": (
        OTTRPO,
        lambda: gym.make(MATCH, masked=True),
        {"region": "kl", "update": "natural"},
    ),
    "kl labels": (OTTRPO, lambda: gym.make(MATCH, masked=True), {"region": "kl"}),
    "priced": (OTTRPO, PENDULUM, {"multiplier": {"start": 20.0, "end": 10.0}}),
    "priced labels": (OTTRPO, lambda: gym.make(MATCH, masked=True), {"multiplier": 4.0}),
    "priced kl labels": (OTTRPO, lambda: MATCH, {"region": "kl", "step": 0.1}),
    "sinkhorn": (OTTRPO, lambda: gym.make(MATCH, masked=True), {"region": "sinkhorn"}),
    "sinkhorn points": (
        OTTRPO,
        PENDULUM,
        {"region": "sinkhorn", "advantage": "network", "n_sources": 2},
    ),
    "masks": (OTTRPO, lambda: gym.make(MATCH, masked=True), {"cost": TABLE, "radius": "20%"}),
    "loose": (OTTRPO, lambda: MATCH, {"advantage": "network", "radius": 50.0}),
    "bgpg": (BGPG, PENDULUM, GUIDED),
    "wnpg": (WNPG, PENDULUM, GUIDED | {"time_limits": "bootstrap"}),
    "wpo gradient": (WPOGradient, PENDULUM, {"buffer_size": 200}),
    "wppg": (WPPG, PENDULUM, {"buffer_size": 200, "prox_steps": 2}),
    "clipped": (ClippedPPO, PENDULUM, {"ent_coef": 0.01}),
    "clipped labels": (ClippedPPO, lambda: gym.make(MATCH, masked=True), {"ent_coef": 0.01}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_update_on_the_host_is_that_of_the_compiled_program(name):
    """One rollout, the same draws: NumPy in float64 here, JAX in float32 there."""
    kind, env, settings = CASES[name]
    agent = kind("MlpPolicy", env(), seed=0, **(SMALL | settings)).learn(64)
    rollout, algorithm = agent.collect_rollout(None), agent.algorithm
    now = agent.schedules.now(0.5, 100.0)
    draws = algorithm.draw(64, agent.rng)

    def update(state, rollout, draws, now):
        after, batch = algorithm.estimate(state, rollout, now)
        return algorithm.improve(state, after, batch, draws, now)

    given = agent.train_state, rollout, draws, now
    state, report = update(*given)
    compiled, compiled_report = jax.jit(update)(*jax.tree.map(jnp.asarray, given))
    assert jax.tree.structure(compiled) == jax.tree.structure(state)
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    for key, value in report.items():
        assert float(value) == pytest.approx(float(compiled_report[key]), rel=1e-3, abs=1e-5), key


@pytest.fixture(scope="module")
def training():
    box = BoxActions(np.float32([-2.0]), np.float32([2.0]), (1,))
    options = Options(cost=SquaredEuclidean(), actions=box)
    algorithm = TrustRegion(
        architecture=Architecture(
            inputs=3, outputs=1, log_std_init=-0.7, policy_layers=(16,), value_layers=(16,)
        ),
        actions=box,
        estimate=Estimator(normaliser=Normaliser(measured=np.ones(3, bool))),
        model=model_for("linear", "gae", box)(options),
        batch_size=32,
        n_epochs=4,
        vf_coef=0.5,
        max_grad_norm=0.5,
    )
    return DeviceTraining(
        algorithm=algorithm,
        environment=Pendulum(),
        schedules=Schedules(
            learning_rate=Straight(1e-3, 1e-4),
            gamma="auto",
            gae_lambda=0.95,
            noise_color=Straight(1.0, 0.0, 0.2),
            radius=0.3,
        ),
        total_timesteps=6 * 128,
        n_envs=2,
        n_steps=64,
    )


def test_seeds_side_by_side_are_the_seeds_one_by_one(training):
    """Eight trainings as one compiled vmap(scan(update)), against eight of their own."""

    def train(key):
        return jax.lax.scan(lambda loop, _: training.update(loop), training.init(key), length=6)

    keys = jax.random.split(jax.random.key(0), 8)
    loops, reports = jax.jit(jax.vmap(train))(keys)
    alone = jax.jit(train)
    for seed, key in enumerate(keys):
        loop, report = alone(key)
        state = loop.train._replace(key=jax.random.key_data(loop.train.key))
        stacked = loops.train._replace(key=jax.random.key_data(loops.train.key))
        # products of matrices side by side add up in another order: the same but for rounding
        for one, many in zip(jax.tree.leaves(state), jax.tree.leaves(stacked), strict=True):
            np.testing.assert_allclose(one, many[seed], rtol=1e-5, atol=1e-5)
        for key, values in report.items():
            np.testing.assert_allclose(values, reports[key][seed], rtol=1e-3, atol=1e-4)
    assert int(loops.train.progress.steps[0]) == 6 * 128
    assert (reports["ot/violation"] == 0).all()
    assert (loops.train.progress.episodes >= 12).all()
    policies = loops.train.networks.policy.head.weight
    assert len(np.unique(np.asarray(policies)[:, 0, 0])) == 8


def test_it_learns(training):
    """A pendulum that is pushed by chance loses more than one that has been taught."""

    def train(key):
        return jax.lax.scan(lambda loop, _: training.update(loop), training.init(key), length=40)

    _, reports = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(1), 4))
    returns = np.nanmean(np.asarray(reports["rollout/ep_rew_mean"]), axis=0)
    assert returns[-10:].mean() > returns[:5].mean()
