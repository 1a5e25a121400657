"""Boxes in bins: the exact finite dual in two columns, and a certificate for every update."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from gymnasium import spaces

from ottrpo import OTTRPO
from ottrpo.cli import main
from ottrpo.core import Ordinal, Scaled, StateCost, TableCost, finite_problem
from ottrpo.device import make_train
from ottrpo.engine.models import Options, model_for
from ottrpo.engine.models.base import Given
from ottrpo.engine.models.binned import BinnedLinear
from ottrpo.engine.models.finite import FiniteLinear, FiniteSample
from ottrpo.engine.models.labels import ordered_cost
from ottrpo.engine.spaces import BinnedActions, actions_of
from tests.core.references import primal_by_linear_program
from tests.device.pendulum import Pendulum
from tests.engine import certified

REACH = "ottrpo.envs.toys:ottrpo/Reach-v0"
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
CHANGING = StateCost(lambda a, b, s: (a != b) * (1.0 + s[..., 0] ** 2), takes_labels=True)


class Tried:
    """What a model asks of a rollout."""

    state = None

    def __init__(self, rows, bins, seed):
        rng = np.random.default_rng(seed)
        logits = (2 * rng.standard_normal((rows, 2, bins))).astype(np.float32)
        self.drawn = {"logits": logits, "label": rng.integers(bins, size=(rows, 2))}
        self.advantage_r = rng.standard_normal(rows)


@pytest.mark.parametrize("name", ["linear", "sample"])
@pytest.mark.parametrize("cost", [Ordinal(), Ordinal(1.0), Scaled(Ordinal(3.0), 0.5)])
def test_two_columns_solve_the_problem_of_all_bins(name, cost):
    bins = 9
    actions = actions_of(BOX, bins)
    model = model_for(name, "gae", actions)
    whole = FiniteLinear if name == "linear" else FiniteSample
    for seed in range(170):
        batch = Tried(12, bins, seed)
        options = Options(cost=cost, actions=actions)
        given = Given(batch, batch.advantage_r, [0.02, 0.3, 2.0][seed % 3])
        found, expected = model(options).plan(given), whole(options).plan(given)
        assert found.solution.multiplier == pytest.approx(expected.solution.multiplier, rel=1e-12)
        assert found.solution.spent == pytest.approx(expected.solution.spent, rel=1e-12)
        np.testing.assert_allclose(found.rows["worth"], expected.rows["worth"], atol=1e-10)
        assert found.dual_gap < 1e-10
        # of equally near bins one map takes the first and the other all: what is gained is the same
        gain = whole(options).gain(given, model(options).probabilities(batch)[0])
        gained = [(plan.rows["target"] * gain).sum() for plan in (found, expected)]
        assert gained[0] == pytest.approx(gained[1], rel=1e-10)
        np.testing.assert_allclose(found.rows["target"].sum(-1), 1.0, rtol=1e-12)
        assert found.rows["target"].min() >= -1e-15


def test_two_columns_are_worth_what_highs_finds_for_all_bins():
    """A thousand linear programs over all moves of all bins, which know of no two columns."""
    bins, rng = 5, np.random.default_rng(3)
    actions = actions_of(BOX, bins)
    for seed in range(1_000):
        batch, cost = Tried(2, bins, seed), Ordinal(rng.uniform(1.0, 3.0))
        model = BinnedLinear(Options(cost=cost, actions=actions))
        radius = 10.0 ** rng.uniform(-2, 0.5)
        solution = model.plan(Given(batch, batch.advantage_r, radius)).solution
        if not solution.binding:
            continue
        policy_rfk, _ = model.probabilities(batch)
        gain_sa = model.gain(Given(batch, batch.advantage_r, radius), policy_rfk).reshape(-1, bins)
        policy_sa, occupancy_s = policy_rfk.reshape(-1, bins), np.full(4, 0.5)
        arguments = policy_sa, occupancy_s, gain_sa, cost, float(solution.spent)
        worth = primal_by_linear_program(finite_problem(*arguments).dual)
        stays = occupancy_s @ (policy_sa * gain_sa).sum(1)
        assert stays + solution.value == pytest.approx(worth, rel=1e-7)


def test_the_plan_is_the_same_inside_a_compiled_program():
    actions = actions_of(BOX, 7)
    batch = Tried(10, 7, 0)
    model = BinnedLinear(Options(cost=Ordinal(), actions=actions))
    expected = model.plan(Given(batch, batch.advantage_r, 0.3))

    def planned(drawn, advantage):
        inside = Tried(10, 7, 0)
        inside.drawn = drawn
        return model.plan(Given(inside, advantage, 0.3)).rows

    with jax.enable_x64(True):
        drawn = {name: jnp.asarray(array) for name, array in batch.drawn.items()}
        found = jax.jit(planned)(drawn, jnp.asarray(batch.advantage_r))
    for name in ("target", "worth"):
        np.testing.assert_allclose(found[name], expected.rows[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_what_is_spent_between_bins_is_what_pot_says(p):
    rng = np.random.default_rng(0)
    for bins in (2, 11, 41):
        old, new = rng.dirichlet(np.full(bins, 0.3), (2, 120)).astype(np.float32)
        cost = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins))) ** p
        old64, new64 = (each.astype(float) for each in (old, new))
        expected = [
            ot.emd2(mu / mu.sum(), nu / nu.sum(), cost) for mu, nu in zip(old64, new64, strict=True)
        ]
        tolerance = 1e-6 * bins**p
        np.testing.assert_allclose(ordered_cost(old, new, p), expected, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("update", [None, "ascent", "regression"])
def test_every_update_raises_what_it_should(update):
    """The gradient at the acting policy points where the gains are, one factor at a time."""
    actions = actions_of(BOX, 5)
    model = BinnedLinear(Options(cost=Ordinal(), actions=actions, update=update))
    batch = Tried(1, 5, 0)
    batch.drawn = {"logits": np.zeros((1, 2, 5), np.float32), "label": np.array([[0, 4]])}
    plan = model.plan(Given(batch, np.array([1.0]), 0.05))

    class Logits:
        def __init__(self, table):
            self.table = table

        def logits(self, flat, images, choices):
            return self.table

    rows = {name: jnp.asarray(array) for name, array in plan.rows.items()}
    rows |= {"flat": jnp.zeros((1, 1)), "images": ()}
    constants = {"multiplier": plan.solution.multiplier}
    slope = jax.grad(lambda table: model.loss()(Logits(table), rows, jnp.ones(1), constants))
    up = -np.asarray(slope(jnp.zeros((1, 2, 5))))[0]
    assert up[0].argmax() == 0
    assert up[1].argmax() == 4
    np.testing.assert_allclose(up.sum(-1), 0.0, atol=1e-5)


def test_labels_are_points_from_bound_to_bound():
    actions = actions_of(BOX, 5)
    assert isinstance(actions, BinnedActions)
    label = np.array([[0, 4], [2, 1]])
    world = actions.to_world(label)
    np.testing.assert_array_equal(world, np.array([[-2.0, 1.0], [0.0, 0.25]], np.float32))
    assert world.dtype == np.float32
    np.testing.assert_array_equal(actions.labels_of(world), label)
    np.testing.assert_array_equal(actions.to_world(jnp.asarray(label)), world)
    image = spaces.Box(-1.0, 1.0, (2, 3), np.float64)
    shaped = actions_of(image, 3).to_world(np.zeros((4, 6), int))
    assert shaped.shape == (4, 2, 3)
    assert shaped.dtype == np.float64


def binned(env=REACH, **settings):
    fast = {"learning_rate": 3e-3, "n_steps": 256, "batch_size": 64}
    return OTTRPO("MlpPolicy", env, policy_kwargs={"bins": 11}, seed=0, **(fast | settings))


@pytest.mark.parametrize("cost", [Ordinal(), Scaled(Ordinal(1.0), 0.1)])
def test_the_certificate_of_an_update_is_the_discrepancy_that_pot_finds(cost):
    agent = binned(cost=cost)
    policy, model = agent.train_state.networks.policy, agent.algorithm.model
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((40, agent.layout.features)).astype(np.float32)
    probability = rng.dirichlet(np.ones(11), (40, 2)).astype(np.float32)
    rows = {"flat": flat, "images": (), "probability": probability}
    rows["allowed"] = np.ones((40, 2, 11), np.bool_)
    logits = np.asarray(policy.logits(flat, (), 11), float)
    new = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    old = probability / probability.astype(float).sum(-1, keepdims=True)
    pairs = zip(old.reshape(-1, 11), new.reshape(-1, 11), strict=True)
    expected = sum(ot.emd2(mu, nu, cost.matrix(11)) for mu, nu in pairs) / 40
    assert float(model.spent()(policy, rows)) == pytest.approx(expected, rel=1e-5)


def test_no_update_leaves_the_region():
    certified.learn(binned(), 5)


def test_a_training_compiled_whole_stays_in_its_regions():
    settings = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 2}
    kwargs = {"net_arch": [8], "bins": 9}
    train = make_train(Pendulum(), total_timesteps=4 * 32 * 3, policy_kwargs=kwargs, **settings)
    _, metrics = jax.jit(train)(jax.random.key(0))
    assert (np.asarray(metrics["ot/spent"]) > 0).all()
    assert (np.asarray(metrics["ot/spent"]) <= np.asarray(metrics["ot/radius"])).all()


def action_of(agent, observation):
    return agent.predict(observation, deterministic=True)[0]


def test_it_acts_in_the_box_saves_and_loads(tmp_path):
    agent = binned().learn(512)
    env = gym.make(REACH)
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        action, _ = agent.predict(observation, deterministic=deterministic)
        assert env.action_space.contains(action)
    agent.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent", env=REACH)
    assert loaded.actions.choices == 11
    assert (action_of(loaded, observation) == action_of(agent, observation)).all()
    distribution = agent.policy.get_distribution(observation[None])
    assert distribution.log_prob(distribution.mode()).shape == (1,)


def test_it_is_named_on_the_command_line(tmp_path, capsys):
    out = str(tmp_path / "run")
    command = ["train", "MountainCarContinuous-v0", "--config", "binned", "--steps", "2048"]
    assert main([*command, "--out", out, "--set", "n_steps=1024"]) == 0
    assert "score" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "settings", "told"),
    [
        ("CartPole-v1", {"policy_kwargs": {"bins": 5}}, "bins need actions in a Box"),
        (REACH, {"policy_kwargs": {"bins": 1}}, "bins must be"),
        (REACH, {"policy_kwargs": {"bins": 5, "log_std_init": 0.0}}, "log_std_init is a Gaussian"),
        (REACH, {"policy_kwargs": {"bins": 5}, "learn_std": True}, "learn_std"),
        (REACH, {"policy_kwargs": {"bins": 5}, "cost": "squared-euclidean"}, "is for points"),
        (REACH, {"policy_kwargs": {"bins": 5}, "cost": CHANGING}, "the same in all states"),
        (REACH, {"policy_kwargs": {"bins": 5}, "cost": TableCost(1 - np.eye(4))}, "for 4 actions"),
    ],
)
def test_what_bins_cannot_do_is_refused(env, settings, told):
    with pytest.raises(ValueError, match=told):
        OTTRPO("MlpPolicy", env, n_steps=64, batch_size=32, **settings).learn(64)
