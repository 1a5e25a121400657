"""BGPG and WNPG as agents: what their settings do, and that nothing is lost between updates."""

import warnings
from functools import cache

import gymnasium as gym
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, WNPG
from ottrpo.core.checks import NonFiniteError

REACH = "ottrpo/Reach-v0"
SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "dual_steps": 3, "n_features": 20}
both = pytest.mark.parametrize("agent_class", [BGPG, WNPG])


def made(agent_class, env=REACH, **settings):
    return agent_class("MlpPolicy", env, **(SMALL | {"seed": 0} | settings))


def same(left, right):
    return all(np.array_equal(left[key], right[key]) for key in left)


@both
def test_finite_actions_are_refused_by_name(agent_class):
    with pytest.raises(ValueError, match=r"needs actions in a Box, got Discrete\(2\).*OTTRPO"):
        made(agent_class, "CartPole-v1")


SHARED = [
    {"clip_range": 0.001},
    {"clip_range_vf": 0.001},
    {"normalize_advantage": False},
    {"ent_coef": 0.1},
    {"vf_coef": 0.5},
    {"max_grad_norm": 1e30},
    {"wasserstein_coef": 1.0},
    {"n_actions": 4},
    {"n_features": 10},
    {"feature_bandwidth": 1.0},
    {"smoothing": 0.5},
    {"dual_steps": 6},
    {"dual_learning_rate": 0.5},
    {"dual_decay": True},
    {"test_functions": "sample"},
    {"time_limits": "bootstrap"},
    {"noise_color": 1.0},
]
NATURAL = [
    {"n_basis": 2},
    {"kernel_bandwidth": "root"},
    {"damping": 1.0},
    {"damping_rule": "fixed"},
    {"norm_rule": "clip"},
    {"singular_tolerance": 0.5},
    {"optimizer": "momentum"},
    {"optimizer": "sgd"},
]


@cache
def unchanged(agent_class):
    return made(agent_class, learning_rate=1e-3).learn(256).get_parameters()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent_class", "change"),
    [(BGPG, change) for change in SHARED] + [(WNPG, change) for change in SHARED + NATURAL],
    ids=str,
)
def test_every_setting_changes_what_is_learnt(agent_class, change):
    # long enough that the damping is looked at, at a step that shows in the parameters
    changed = made(agent_class, **({"learning_rate": 1e-3} | change)).learn(256)
    assert not same(unchanged(agent_class), changed.get_parameters())


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_range": 0.0}, "clip_range must be a positive number, got 0.0"),
        ({"clip_range": lambda left: 0.2}, "clip_range must be a number"),
        ({"feature_bandwidth": 0}, "feature_bandwidth must be a positive number, got 0"),
        ({"n_actions": 0}, "n_actions must be an integer of at least 1"),
        ({"test_functions": "state"}, "test_functions must be one of slot, sample"),
        ({"time_limits": "ignore"}, "time_limits must be one of terminal, bootstrap"),
    ],
)
def test_settings_out_of_range_are_refused(agent_class, change, message):
    with pytest.raises(ValueError, match=message):
        made(agent_class, **change)


@both
def test_nothing_is_lost_between_saving_and_going_on(agent_class, tmp_path):
    """Random features, moments and damping come back, also where no seed could draw them again."""
    agent = made(agent_class, seed=None).learn(128)
    agent.save(tmp_path / "agent")
    loaded = agent_class.load(tmp_path / "agent", env=REACH)
    kept, back = (x.train_state.learners["agent"].moments for x in (agent, loaded))
    np.testing.assert_array_equal(kept.features.frequency, back.features.frequency)
    np.testing.assert_array_equal(kept.features.phase, back.features.phase)
    if agent_class is WNPG:
        for left, right in zip(kept.damping, back.damping, strict=True):
            np.testing.assert_array_equal(left, right)
    rollout = agent.collect_rollout(None)
    assert rollout is not None
    loaded.rng.bit_generator.state = agent.rng.bit_generator.state
    told = [one.train(rollout) for one in (agent, loaded)]
    assert told[0] == told[1]
    assert same(agent.get_parameters(), loaded.get_parameters())


def test_damping_goes_on_over_rollouts_and_only_shrinks_as_published():
    agent = made(WNPG, learning_rate=1e-3)
    agent.learn(64)
    first = agent.last_update["train/damping"]
    agent.learn(64 * 6, reset_num_timesteps=False)
    assert int(agent.train_state.learners["agent"].moments.damping.steps) == 7 * 4
    assert agent.last_update["train/damping"] < first <= 1e-5


def test_two_sided_damping_judges_what_the_published_rule_does_not_know():
    """Losses below -1; elsewhere the best of five steps is nearly always good, and both shrink."""
    low = {"learning_rate": 1e-3, "ent_coef": 5.0, "policy_kwargs": {"log_std_init": 1.0}}
    damping = {}
    for rule in ("shrink", "two-sided"):
        agent = made(WNPG, **low, damping_rule=rule).learn(256)
        damping[rule] = float(agent.train_state.learners["agent"].moments.damping.value)
    assert damping["shrink"] == pytest.approx(1e-5)
    assert damping["two-sided"] < 0.9e-5


@both
def test_a_time_limit_counts_as_the_agent_is_told(agent_class):
    """With rewards of 1 and V = 0, what follows the last step of an episode is its value, or 0."""

    class Steady(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (1,))
        action_space = gym.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = 4
            return np.ones(1, np.float32), {}

        def step(self, action):
            self.left -= 1
            return np.ones(1, np.float32), 1.0, False, self.left == 0, {}

    targets = {}
    for kind in ("terminal", "bootstrap"):
        agent = made(agent_class, Steady(), time_limits=kind, normalize_reward=False, gae_lambda=1)
        agent._setup_learn(8, None)
        rollout, now = agent.collect_rollout(None), agent.schedules.now(1.0, 4.0)
        _, batch = agent.algorithm.estimate(agent.train_state, rollout, now)
        targets[kind] = batch.target[3]
        follows = agent.gamma * batch.value[0]  # every state is the same
    assert targets["terminal"] == pytest.approx(1.0)
    assert targets["bootstrap"] == pytest.approx(1.0 + follows, rel=1e-5)


@both
def test_state_dependent_noise_and_several_environments_work(agent_class):
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([lambda: gym.make(REACH) for _ in range(3)])
    with pytest.warns(UserWarning, match="does not divide the 192 steps"):
        agent = made(agent_class, envs, use_sde=True, sde_sample_freq=4, batch_size=50)
    agent.learn(400)
    assert agent.num_timesteps == 576
    assert all(np.isfinite(value) for value in agent.last_update.values())


@both
def test_a_broken_update_leaves_the_agent_as_it_was(agent_class):
    agent = made(agent_class).learn(64)
    before = agent.get_parameters()
    agent.learning_rate = 1e38
    agent._setup_lr_schedule()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(NonFiniteError, match="as it was before"):
            agent.learn(128, reset_num_timesteps=False)
    assert same(before, agent.get_parameters())


@pytest.mark.slow
@both
def test_images_work(agent_class):
    class Picture(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
        action_space = gym.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), float(action[0]), False, False, {}

    small = SMALL | {"n_steps": 8, "batch_size": 4, "n_epochs": 1}
    agent = agent_class("CnnPolicy", Picture(), seed=0, **small).learn(16)
    assert all(np.isfinite(value) for value in agent.last_update.values())
    if agent_class is WNPG:
        assert int(agent.train_state.learners["agent"].moments.damping.steps) == 4
