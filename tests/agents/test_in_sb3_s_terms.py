"""What programs written for SB3's agents look at: what was seen last, and values of rewards."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from ottrpo import BGPG, OTTRPO, WNPG

SMALL = {"n_steps": 32, "batch_size": 16, "n_epochs": 1, "seed": 0}
OURS = [OTTRPO, BGPG, WNPG]


class Counting(gym.Env):
    """Observations count the steps; each is worth ``reward``, and the eighth is the last."""

    action_space = spaces.Box(-1.0, 1.0, (1,))
    observation_space = spaces.Box(0.0, 100.0, (2,))

    def __init__(self, reward=100.0, length=8, cut_off=False):
        self.worth, self.length, self.cut_off = reward, length, cut_off

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.taken += 1
        ended = self.taken == self.length
        observation = np.full(2, self.taken, np.float32)
        return observation, self.worth, ended and not self.cut_off, ended and self.cut_off, {}


def small(kind=OTTRPO, env=None, **settings):
    return kind("MlpPolicy", env or Counting(), **SMALL | settings)


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("count", [1, 2])
def test_advantages_follow_from_the_rewards_and_the_values_beside_them(kind, count):
    env = DummyVecEnv([lambda: Counting()] * count)
    agent = small(kind, env, gamma=0.9, gae_lambda=0.8).learn(128)
    view = agent.rollout_buffer
    assert (view.rewards == 100.0).all()
    expected, following, value = np.zeros((33, count)), 0.0, view.values
    for t in reversed(range(32)):  # the rollout ends with an episode
        goes_on = (t + 1) % 8 != 0
        delta = view.rewards[t] + 0.9 * goes_on * following - value[t]
        expected[t] = delta + 0.9 * 0.8 * goes_on * expected[t + 1]
        following = value[t]
    np.testing.assert_allclose(view.advantages, expected[:-1], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(view.returns, expected[:-1] + value, rtol=1e-4, atol=1e-3)


class Paying(BaseCallback):
    """Another reward than the environment's, as callbacks that reward curiosity do."""

    def _on_step(self):
        self.locals["rewards"][:] = 7.0
        return True


@pytest.mark.parametrize("count", [1, 2])
def test_rewards_that_a_callback_writes_are_learnt_from(count):
    told = {"gamma": 0.0, "gae_lambda": 0.0, "normalize_reward": False}
    env = DummyVecEnv([Counting] * count)
    view = small(env=env, **told).learn(32 * count, callback=Paying()).rollout_buffer
    np.testing.assert_allclose(view.returns, 7.0, rtol=1e-6)
    assert (view.rewards == 7.0).all()


def test_advantages_can_t_be_written():
    """PPO would learn from what a callback writes there; ours would not notice."""
    view = small().learn(32).rollout_buffer
    for name in ("advantages", "returns"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(view, name)[:] = 0.0
        with pytest.raises(AttributeError):
            setattr(view, name, np.zeros((32, 1)))


def test_a_value_is_what_rewards_come_to():
    env = gym.wrappers.TimeLimit(Counting(length=10**6), 8)
    agent = small(OTTRPO, env, gamma=0.8, advantage="gae", n_epochs=10, learning_rate=1e-2)
    agent.learn(64 * 32)
    endless = 100.0 / (1 - 0.8)  # a time limit is no end
    value = agent.policy.predict_values(np.zeros((1, 2), np.float32))
    assert value.item() == pytest.approx(endless, rel=0.1)


def test_values_of_normalised_rewards_stay_so():
    """Who normalises has values of that, as with PPO."""
    env = VecNormalize(DummyVecEnv([Counting]), gamma=0.9)
    view = small(env=env, gamma=0.9).learn(64).rollout_buffer
    assert view.rewards.max() < 20.0
    assert np.abs(view.values).max() < 20.0


class Looking(BaseCallback):
    """Keeps what was seen last, and where episodes began, at every step."""

    def __init__(self):
        super().__init__()
        self.seen, self.starts = [], []

    def _on_step(self):
        self.seen.append(np.array(self.model._last_obs))
        self.starts.append(np.array(self.model._last_episode_starts))
        return True


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("count", [1, 2])
def test_what_was_seen_last_is_what_ppo_s_callbacks_find(kind, count):
    looks = []
    for each in (PPO, kind):
        look = Looking()
        agent = small(each, DummyVecEnv([Counting] * count)).learn(64 * count, callback=look)
        looks.append((look.seen, look.starts, [agent._last_obs], [agent._last_episode_starts]))
    for theirs, ours in zip(*looks, strict=True):
        np.testing.assert_array_equal(np.stack(ours), np.stack(theirs))
        assert ours[0].dtype == theirs[0].dtype


def test_who_sets_what_was_seen_last_goes_on_from_there():
    agent = small().learn(32)
    agent._last_obs = agent.env.reset() + 5
    agent.learn(32, reset_num_timesteps=False)
    assert agent.rollout_buffer.observations[:2, 0, 0].tolist() == [5.0, 1.0]


class Breaking(Counting):
    """Breaks off whatever it is in, once."""

    how = KeyboardInterrupt

    def step(self, action):
        if self.taken == 5 and self.how is not None:
            how, self.how = self.how, None
            raise how
        return super().step(action)


def _broken_by_environment():
    return Breaking(), None


def _broken_by_callback():
    calls = []

    def callback(told, _):
        calls.append(told)
        if len(calls) == 5:
            raise RuntimeError
        return True

    return Counting(), callback


@pytest.mark.parametrize("broken", [_broken_by_environment, _broken_by_callback])
def test_a_rollout_that_was_broken_off_is_followed_by_new_episodes(broken):
    """The environment went on without the agent: what it saw before is not where it is."""
    env, callback = broken()
    agent = small(env=env)
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        agent.learn(64, callback=callback)
    agent.learn(32, reset_num_timesteps=False)
    observed = agent.rollout_buffer.observations[:, 0, 0]
    np.testing.assert_array_equal(observed, np.tile(np.arange(8.0), 4))


def test_errors_are_those_that_sb3_s_programs_expect(tmp_path):
    """As well as the ``ValueError`` that they are everywhere else."""
    unbounded = Counting()
    unbounded.action_space = spaces.Box(-np.inf, np.inf, (1,))
    agent = small()
    agent.env = None
    for error in (AssertionError, ValueError):
        with pytest.raises(error, match="must be bounded"):
            small(env=unbounded)
        with pytest.raises(error, match="has no environment"):
            agent.learn(32)


class Labelled(Counting):
    """Keeps the kinds of the actions it is given."""

    action_space = spaces.Discrete(2)

    def __init__(self):
        super().__init__()
        self.given = set()

    def step(self, action):
        self.given.add(type(action))
        return super().step(action)


@pytest.mark.parametrize("kind", [PPO, OTTRPO])
@pytest.mark.parametrize("count", [1, 2])
def test_a_label_comes_as_numpy_s_number_however_many_environments_there_are(kind, count):
    envs = [Labelled() for _ in range(count)]
    left = iter(envs)
    small(kind, DummyVecEnv([lambda: next(left)] * count)).learn(32)
    assert all(env.given == {np.int64} for env in envs)


class InPlace(Counting):
    """Writes every observation into the same array, as environments do that save memory."""

    def __init__(self):
        super().__init__(cut_off=True)
        self.state = np.zeros(2)

    observation_space = spaces.Box(0.0, 100.0, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset()
        self.state[:] = 0
        return self.state, {}

    def step(self, action):
        _, *rest = super().step(action)
        self.state += 1
        return self.state, *rest


def test_an_episode_is_cut_off_where_it_was_and_not_where_the_next_one_begins():
    seen = []

    def callback(told, _):
        seen.extend(
            info["terminal_observation"].tolist() for info in told["infos"] if told["dones"]
        )
        return True

    agent = small(env=InPlace()).learn(32, callback=callback)
    assert seen == [[8.0, 8.0]] * 4
    rollout = agent.collect_rollout(None)
    np.testing.assert_array_equal(rollout.cut_off.flat, np.full((4, 2), 8.0))


def test_a_state_that_no_policy_has_use_for_is_returned_as_it_came():
    state = (np.ones(3),)
    assert small().predict(np.zeros(2), state, np.ones(1, bool))[1] is state


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nobody_acts_on_an_observation_that_is_no_number(bad, deterministic):
    agent = small(env=Labelled())
    with pytest.raises(ValueError, match="observation of NaN or infinity"):
        agent.predict(np.array([0.0, bad]), deterministic=deterministic)


class Counted(gym.Env):
    """Shows what it is told to."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, shown):
        self.observation_space, self.shown = space, shown

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.shown, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(4), -1),
        (spaces.Discrete(4), 4),
        (spaces.Discrete(4), 1.5),
        (spaces.Discrete(4, start=2), 1),
        (spaces.MultiDiscrete([3, 2]), [1, 2]),
        (spaces.MultiDiscrete([3, 2]), [-1, 1]),
    ],
)
def test_a_label_that_is_none_is_refused(space, wrong):
    """One below the first was taken for the last."""
    agent = small(env=Counted(space, np.array(wrong)))
    with pytest.raises(ValueError, match="observations must be in"):
        agent.predict(np.array(wrong))
    with pytest.raises(ValueError, match="observations must be in"):
        agent.learn(32)


@pytest.mark.parametrize("wrong", [-1, 2])
@pytest.mark.parametrize("made", [np.array, torch.tensor])
def test_an_action_that_is_none_has_no_probability(made, wrong):
    policy = small(env=Counted(spaces.Discrete(4), 0)).policy
    with pytest.raises(ValueError, match="actions must be among the labels"):
        policy.evaluate_actions(made([1, 1]), made([0, wrong]))


def test_a_label_may_be_a_whole_float():
    agent = small(env=Counted(spaces.Discrete(4, start=2), 2))
    for label in (2, 5):
        value, whole = (agent.policy.predict_values(np.array([x])) for x in (label, float(label)))
        np.testing.assert_array_equal(value, whole)


def test_callbacks_know_how_long_a_rollout_is():
    lengths = []
    small().learn(32, callback=lambda told, _: lengths.append(told["n_rollout_steps"]) or True)
    assert set(lengths) == {32}


def test_the_size_of_the_last_batch_is_told_as_ppo_tells_it():
    """Programs that silence it, or look for it, know it by these words."""
    with pytest.warns(UserWarning, match="there will be a truncated mini-batch of size 2"):
        small(batch_size=15)


@pytest.mark.parametrize("env", [Counting, Labelled])
@pytest.mark.parametrize("made", [np.asarray, torch.as_tensor])
def test_a_policy_may_be_called_and_its_distribution_asked_for_actions(env, made):
    agent = small(env=env())
    seen = made(np.zeros((3, 2), np.float32))
    actions, values, log_probs = agent.policy(seen, deterministic=True)
    assert (len(actions), values.shape, log_probs.shape) == (3, (3, 1), (3,))
    distribution = agent.policy.get_distribution(seen)
    assert (distribution.get_actions(deterministic=True) == actions).all()
    assert distribution.get_actions().shape == actions.shape
    assert type(distribution.get_actions()) is type(seen)


@pytest.mark.parametrize("seed", [None, 3])
def test_without_an_environment_there_are_no_spaces_and_this_is_said(seed):
    with pytest.raises(ValueError, match="needs an environment to learn its spaces from"):
        OTTRPO("MlpPolicy", None, seed=seed)


def test_a_seed_may_be_numpy_s_and_must_be_a_seed():
    """Python's generators refuse numpy's numbers, with a list of types that is no help."""
    assert small(seed=np.int64(3)).seed == 3
    for bad in (-1, 2.5, "3", True):
        with pytest.raises(ValueError, match="seed must be"):
            small(seed=bad)


def test_gymnasium_s_own_vector_is_refused_with_what_to_pass():
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(ValueError, match=r"must be a VecEnv .* n_envs, or .*make_vec_env"):
        small(env=env)
    with pytest.raises(ValueError, match="must be a VecEnv"):
        small(env="CartPole-v1").set_env(env)


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([[2, 3], [2, 2]]),
        spaces.Box(np.full(40, -np.inf, np.float32), np.linspace(0, 9, 40, dtype=np.float32)),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_space_that_prints_in_several_lines_is_refused_in_one(space):
    assert "\n" in str(space)
    env = Counting()
    env.action_space = space
    with pytest.raises(ValueError, match=r"box must be bounded|is not supported") as refused:
        small(env=env)
    assert "\n" not in str(refused.value)
