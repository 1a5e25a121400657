"""Critics of labels: when an agent has them, what they learn, and where they lead."""

import gymnasium as gym
import jax
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.core import Binary, update_policy
from ottrpo.engine.algorithms.mixed import Part
from ottrpo.engine.critic import OfLabels

MATCH = "ottrpo/Match-v0"
SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "seed": 3}


def match(**keywords):
    return gym.make(MATCH, observations="box", **keywords)


@pytest.fixture(scope="module")
def agent():
    return OTTRPO("MlpPolicy", match(), **SMALL).learn(256)


@pytest.mark.parametrize(
    ("env", "settings", "expected"),
    [
        ({}, {}, "mixed"),
        ({}, {"radius": 0.05}, "mixed"),
        ({}, {"update": "ascent"}, "gae"),
        ({}, {"region": "kl"}, "gae"),
        ({"masked": True}, {}, "gae"),
        ({"actions": "multi-discrete"}, {}, "gae"),
    ],
)
def test_who_has_critics(env, settings, expected):
    agent = OTTRPO("MlpPolicy", match(**env), **SMALL, **settings)
    assert agent.estimator == expected
    assert ("critic" in agent.train_state.learners) is (expected == "mixed")


@pytest.mark.parametrize("env", [{"masked": True}, {"actions": "multi-discrete"}])
def test_where_critics_know_nothing_they_are_refused(env):
    with pytest.raises(ValueError, match="use 'gae' or 'network'"):
        OTTRPO("MlpPolicy", match(**env), advantage="mixed", **SMALL)


def test_what_is_worth_next_is_an_expectation_over_the_policy(agent):
    twins, policy = agent.train_state.learners["critic"].networks, agent.train_state.networks.policy
    flat = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    label = np.array([[0.0], [1.0], [2.0], [2.0], [0.0]], np.float32)
    read, rows = OfLabels(3), {"flat": flat, "next": flat, "action": label}
    table = np.stack([critic.table(flat) for critic in twins.critics])
    logits = np.asarray(policy.logits(flat, (), 3))[:, 0]
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(
        read.ahead(twins, policy, rows), (probability * table).sum(-1), rtol=1e-5
    )
    tried = table[:, np.arange(5), label[:, 0].astype(int)]
    np.testing.assert_allclose(read.value(twins, rows), tried, rtol=1e-6)


def test_critics_learn_what_labels_are_worth():
    """One reward of 1 for the label that is shown, and nothing follows from it."""
    agent = OTTRPO("MlpPolicy", match(), **SMALL, gamma=0.0, critic_ratio=4.0).learn(1024)
    replay = agent.train_state.replay
    recent = replay.flat[-513:-1, 0]
    flat = agent.algorithm.estimate.normaliser(agent.train_state.observations, recent)
    table = np.asarray(agent.train_state.learners["critic"].networks.table(flat)).mean(0)
    assert (table.argmax(1) == recent.argmax(1)).mean() > 0.99


def test_the_plan_is_the_core_s_update(agent):
    state, algorithm = agent.train_state, agent.algorithm
    flat = np.eye(3, dtype=np.float32)
    radius = np.float64(0.02)
    plan, rows = algorithm.along_critics(state, flat, None, Part(radius, np.bool_(True)))
    logits = np.asarray(state.networks.policy.logits(flat, (), 3), np.float64)[:, 0]
    policy = np.asarray(jax.nn.softmax(logits), np.float64)
    worth = np.asarray(state.learners["critic"].networks.table(flat), np.float64).mean(0)
    gain = worth - (policy * worth).sum(1, keepdims=True)
    policy /= policy.sum(1, keepdims=True)
    exact = update_policy(policy, np.full(3, 1 / 3), gain, Binary(), radius=float(plan.radius))
    np.testing.assert_allclose(rows["target"][:, 0], exact.policy_sa, atol=1e-5)
    assert plan.solution.spent <= radius


def test_no_update_leaves_the_region():
    agent, told = OTTRPO("MlpPolicy", match(), **SMALL), []
    train = agent.train

    def watched(rollout):
        report = train(rollout)
        told.append(report)
        return report

    agent.train = watched
    agent.learn(1280)
    assert len(told) == 20
    assert all(0 < one["ot/spent"] <= one["ot/radius"] for one in told)
    assert all(one["ot/violation"] == 0 for one in told)


def test_masks_that_come_later_are_refused_in_one_line():
    agent = OTTRPO("MlpPolicy", match(), **SMALL)
    with pytest.raises(ValueError, match="without masks"):
        agent.set_env(DummyVecEnv([lambda: match(masked=True)]))


def test_who_was_saved_without_critics_has_none(tmp_path):
    """Files from before labels had critics say nothing of the advantage."""
    before = OTTRPO("MlpPolicy", match(), advantage="gae", **SMALL).learn(128)
    before.told = before.told.changed(advantage=None)
    before.save(tmp_path / "old")
    after = OTTRPO.load(tmp_path / "old", env=match())
    assert after.estimator == "gae"
    shown = np.eye(3, dtype=np.float32)
    same = (
        before.predict(shown, deterministic=True)[0] == after.predict(shown, deterministic=True)[0]
    )
    assert same.all()
    after.learn(128)


def test_saved_with_critics_it_goes_on_as_if_it_had_not_been(tmp_path):
    agent = OTTRPO("MlpPolicy", match(), **SMALL).learn(256)
    agent.save(tmp_path / "agent")
    again = OTTRPO.load(tmp_path / "agent")
    assert again.estimator == "mixed"
    for name, array in agent.get_parameters().items():
        np.testing.assert_array_equal(array, again.get_parameters()[name], err_msg=name)
