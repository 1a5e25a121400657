"""Mixtures and flows in training: every update certified, from files and the command line."""

import json

import gymnasium as gym
import jax
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO, ClippedPPO
from ottrpo.cli import main
from ottrpo.core import Mahalanobis, Nearby, PNorm, SquaredEuclidean
from ottrpo.device import make_train
from ottrpo.engine.models.transported import N_SOURCES, Transported
from tests.device.pendulum import Pendulum
from tests.engine import certified

REACH = "ottrpo/Reach-v0"
KINDS = ({"mixture": 3}, {"flow": 2})
FAST = {"learning_rate": 3e-3, "n_steps": 256, "batch_size": 64, "seed": 0}
every_kind = pytest.mark.parametrize("kwargs", KINDS, ids=["mixture", "flow"])


def rich(kwargs, env=REACH, **settings):
    return OTTRPO("MlpPolicy", env, policy_kwargs=kwargs, **(FAST | settings))


@every_kind
def test_no_update_leaves_the_region(kwargs):
    agent = rich(kwargs, learning_rate=1e-2, radius="1%")
    assert isinstance(agent.algorithm.model, Transported)
    reports = certified.learn(agent, 6)
    assert min(report["ot/step_kept"] for report in reports) < 1  # some had left it


@every_kind
def test_the_certificate_of_an_update_is_no_less_than_the_discrepancy(kwargs):
    """On a line the discrepancy is that of sorted samples."""
    agent = rich(kwargs, "Pendulum-v1", learning_rate=1e-2).learn(512)
    before, rollout = agent.train_state, agent.collect_rollout(None)
    report = agent.train(rollout)
    density, normaliser = agent.actions.density, agent.algorithm.estimate.normaliser
    seen, rng = rollout.flat[:-1, 0], np.random.default_rng(0)
    noise = density.noise(rng.standard_normal((4000, len(seen), 1)), rng)
    old, new = (
        np.sort(density.push(np.asarray(head), noise), axis=0)
        for head in (
            state.networks.policy.raw(normaliser(state.observations, seen), ())
            for state in (before, agent.train_state)
        )
    )
    exact = ((old - new) ** 2).mean()
    assert 0.02 * report["ot/spent"] < exact < 1.01 * report["ot/spent"]


@every_kind
def test_sources_go_where_the_advantage_is_larger_and_stay_in_the_budget(kwargs):
    agent = rich(kwargs).learn(512)
    model = agent.algorithm.model
    rollout = agent.collect_rollout(None)
    now = agent._now()
    state, batch = agent.algorithm.estimate(agent.train_state, rollout, now)
    draws = agent.algorithm.draw(256, agent.rng)
    assert draws.plan.source.shape == (256, N_SOURCES, agent.actions.density.noises)
    plan = agent.algorithm.plan(state, batch, batch.advantage, draws, now)
    rows = plan.rows
    source, cost = rows["candidate"][:, :, :1], model.options.cost
    spent = (rows["share"] * cost(source, rows["target"])).sum(-1).mean()
    assert spent == pytest.approx(plan.radius, rel=1e-6)
    inside = np.abs(rows["target"]) <= 1.0
    stays = (rows["target"] == source).all(-1, keepdims=True)
    assert (inside | stays).all()
    # of the two maps the farthest gains more, and both no less than to stay
    gain = rows["gain"] - plan.solution.multiplier * cost(source, rows["candidate"])
    near = gain.reshape(-1, gain.shape[-1])[np.arange(gain[..., 0].size), plan.solution.nearest_r]
    assert (near >= gain[..., 0].reshape(-1) - 1e-9).all()
    assert (near > gain[..., 0].reshape(-1) + 1e-9).any()


@every_kind
def test_a_training_compiled_whole_stays_in_its_regions(kwargs):
    settings = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 2}
    nets = {"net_arch": [8]} | kwargs
    train = make_train(Pendulum(), total_timesteps=4 * 32 * 3, policy_kwargs=nets, **settings)
    _, metrics = jax.jit(train)(jax.random.key(0))
    assert (np.asarray(metrics["ot/spent"]) > 0).all()
    assert (np.asarray(metrics["ot/spent"]) <= np.asarray(metrics["ot/radius"])).all()


@every_kind
def test_it_acts_in_the_box_saves_and_tells_its_density(kwargs, tmp_path):
    agent = rich(kwargs, "Pendulum-v1").learn(256)
    env = gym.make("Pendulum-v1")
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        action, _ = agent.predict(observation, deterministic=deterministic)
        assert env.action_space.contains(action)
    agent.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent")
    assert loaded.actions == agent.actions
    told = [
        each.policy.get_distribution(np.repeat(observation[None], 4001, axis=0))
        for each in (agent, loaded)
    ]
    grid = np.linspace(-40, 40, 4001)[:, None]  # torques reach from -2 to 2
    density = [np.exp(each.log_prob(grid)) for each in told]
    np.testing.assert_array_equal(*density)
    assert density[0].sum() * 0.02 == pytest.approx(1.0, abs=1e-3)
    mean = (told[0].sample()).mean()
    assert mean == pytest.approx((density[0] * grid[:, 0]).sum() * 0.02, abs=0.1)
    assert told[0].entropy() is None


@pytest.mark.parametrize(("kwargs", "env"), [({"mixture": 3}, "Pendulum-v1"), ({"flow": 2}, REACH)])
def test_it_is_trained_from_the_command_line(kwargs, env, tmp_path):
    out = tmp_path / "run"
    given = ["n_steps=128", f"policy_kwargs={json.dumps(kwargs)}"]
    command = ["train", env, "--set", *given, "--steps", "256", "--out", str(out)]
    assert main(command) == 0
    settings = json.loads((out / "manifest.json").read_text())["settings"]
    assert settings["policy_kwargs"] == kwargs
    assert main(["evaluate", str(out), "--episodes", "1", "--json"]) == 0


def test_a_cost_has_a_say():
    """A coordinate that is dear to move moves less."""
    moved = []
    for dear in (1.0, 100.0):
        agent = rich({"flow": 2}, cost=Mahalanobis(np.diag([dear, 1.0])), gamma=0.0).learn(256)
        head = np.asarray(agent.train_state.networks.policy.head.bias)
        moved.append(np.abs(head - np.array(agent.actions.density.first))[:2])
    assert moved[1][0] / moved[1][1] < moved[0][0] / moved[0][1]


NEAR = Nearby(SquaredEuclidean(), feature=1, place=0.5, width=0.3, factor=5.0)


def test_a_flow_takes_any_cost_and_a_mixture_says_what_it_takes():
    for cost in (PNorm(1), NEAR):
        report = rich({"flow": 2}, cost=cost).learn(256).last_update
        assert 0 < report["ot/spent"] <= report["ot/radius"]
        with pytest.raises(ValueError, match="a mixture needs a quadratic cost"):
            rich({"mixture": 2}, cost=cost)


@pytest.mark.parametrize(
    ("agent", "env", "settings", "told"),
    [
        (OTTRPO, "CartPole-v1", {"policy_kwargs": {"flow": 2}}, "flow needs actions in a Box"),
        (OTTRPO, REACH, {"policy_kwargs": {"mixture": 0}}, "mixture must be"),
        (OTTRPO, REACH, {"policy_kwargs": {"mixture": 10**9}}, "too large"),
        (OTTRPO, REACH, {"policy_kwargs": {"mixture": 2, "flow": 2}}, "mixture and flow"),
        (OTTRPO, REACH, {"policy_kwargs": {"bins": 5, "flow": 2}}, "bins and flow"),
        (OTTRPO, REACH, {"policy_kwargs": {"flow": 2}, "advantage": "gae"}, "'candidates' with"),
        (OTTRPO, REACH, {"policy_kwargs": {"flow": 2}, "model": "linear"}, "'candidates' with"),
        (OTTRPO, REACH, {"policy_kwargs": {"flow": 2}, "use_sde": True}, "widths of a mixture"),
        (OTTRPO, REACH, {"policy_kwargs": {"flow": 2}, "log_std_final": -2.0}, "widths of a"),
        (OTTRPO, REACH, {"policy_kwargs": {"flow": 2}, "region": "kl"}, "region 'kl' is none"),
        (OTTRPO, REACH, {"policy_kwargs": {"flow": 2}, "update": "ascent"}, "is a fit"),
        (ClippedPPO, REACH, {"policy_kwargs": {"flow": 2}}, "policies of OTTRPO"),
    ],
)
def test_what_they_cannot_do_is_refused(agent, env, settings, told):
    with pytest.raises(ValueError, match=told):
        agent("MlpPolicy", env, **settings)
