"""Copies, other environments, and files of agents whose settings were changed on the fly."""

import copy
import pickle
from collections import deque

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from .deep import DEEP, IMPORTED, Drawn, every_agent, made, same, several

OURS = [name for name in DEEP if name not in IMPORTED]
every_one_of_ours = pytest.mark.parametrize("name", OURS)
SEEN = np.zeros((4, 2), np.float32)
WAYS = {
    "pickle": lambda agent: pickle.loads(pickle.dumps(agent)),
    "cloudpickle": lambda agent: pickle.loads(cloudpickle.dumps(agent)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@every_agent
def test_a_copy_goes_on_as_the_agent_would(name, way):
    agent = made(name).learn(16)
    again = WAYS[way](agent)
    assert same(again.get_parameters(), agent.get_parameters())
    for one in (agent, again):
        one.set_env(several(1))
        one.env.seed(0)
        one.learn(16, reset_num_timesteps=False)
        assert one.num_timesteps == 32
    assert same(again.get_parameters(), agent.get_parameters())


@pytest.mark.parametrize("name", IMPORTED)
def test_a_copy_of_an_imported_agent_keeps_its_statistics_and_environments(name):
    agent = made(name, use_sde=True, normalize_obs=True).learn(32)
    again = copy.deepcopy(agent)
    np.testing.assert_array_equal(again._normalised(SEEN), agent._normalised(SEEN))
    before = agent._normalised(SEEN)
    assert again.learn(32, reset_num_timesteps=False).num_timesteps == 64
    np.testing.assert_array_equal(agent._normalised(SEEN), before)
    assert not np.array_equal(again._normalised(SEEN), before)


@every_one_of_ours
def test_a_copy_of_one_in_vec_normalize_asks_for_environments(name):
    """What `VecNormalize` is around is in no copy of it."""
    agent = made(name, VecNormalize(several(2))).learn(32)
    again = copy.deepcopy(agent)
    with pytest.raises(ValueError, match="set_env"):
        again.learn(32)
    again.set_env(VecNormalize(several(2)))
    assert again.learn(32).num_timesteps == 32


@every_agent
def test_an_agent_takes_environments_of_any_number(name, tmp_path):
    agent = made(name, several(2)).learn(32)
    agent.set_env(several(3))
    agent.learn(48, reset_num_timesteps=False, callback=lambda *_: True)
    assert agent.num_timesteps == 80
    assert agent.rollout_buffer.rewards.shape[1] == 3
    agent.save(tmp_path / "a")
    for count in (1, 2):
        loaded = type(agent).load(tmp_path / "a")
        loaded.set_env(several(count))
        assert loaded.learn(16 * count).n_envs == count
        assert type(agent).load(tmp_path / "a", env=several(count)).n_envs == count


@every_agent
def test_environments_that_do_not_fit_change_nothing(name):
    agent = made(name)
    with pytest.raises(ValueError, match="spaces do not match"):
        agent.set_env(several(2, "matrix" if name not in IMPORTED else "label from 0"))
    assert agent.n_envs == agent.settings()["n_envs"] == 1
    agent.learn(16)


class Paying(gym.Wrapper):
    def __init__(self, env, reward):
        super().__init__(env)
        self._worth = reward

    def step(self, action):
        seen, _, *rest = self.env.step(action)
        return seen, self._worth, *rest


@pytest.mark.parametrize("name", IMPORTED)
def test_evaluation_follows_to_other_environments(name):
    gym.register("ottrpo/Paying-v0", lambda reward=1.0: Paying(Drawn(), reward))
    try:
        returns = []
        agent = made(name, gym.make("ottrpo/Paying-v0"))
        for reward in (1.0, 3.0):
            agent.set_env(gym.make("ottrpo/Paying-v0", reward=reward))
            returns.append(agent.evaluate(1).item())
        assert returns == [5.0, 15.0]
    finally:
        del gym.registry["ottrpo/Paying-v0"]


@every_agent
def test_a_setting_that_was_changed_is_saved(name, tmp_path):
    agent = made(name)
    agent.gamma, agent.gae_lambda = 0.5, 0.25
    agent.save(tmp_path / "a")
    loaded = type(agent).load(tmp_path / "a")
    assert (loaded.gamma, loaded.gae_lambda) == (0.5, 0.25)


@every_agent
def test_what_sb3_loads_and_saves_with_is_understood(name, tmp_path):
    agent = made(name)
    agent.save(tmp_path / "a", exclude=["rollout_buffer", "env"])
    instead = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0}
    loaded = type(agent).load(tmp_path / "a", custom_objects=instead, force_reset=True)
    assert loaded.learning_rate == loaded.lr_schedule(1.0) == 0.0


@every_one_of_ours
def test_what_an_agent_is_built_with_is_not_assigned(name):
    agent = made(name)
    values = {"n_envs": 2, "seed": 5, "device": "cuda", "stats_window_size": 7}
    for setting, value in values.items():
        with pytest.raises(ValueError, match=f"{setting} can't change once"):
            setattr(agent, setting, value)
    agent.learn(16)
    assert agent.ep_info_buffer.maxlen == 100


@every_one_of_ours
def test_all_that_ppo_says_may_be_said_as_it_is_for_ppo(name):
    """A program that gives PPO every keyword at its default, or RL-Zoo's file that does."""
    said = {"rollout_buffer_class": None, "rollout_buffer_kwargs": None, "target_kl": None}
    agent = made(name, **said, ent_coef=0.0, clip_range_vf=None)
    assert agent.num_timesteps == 0
    kind = type(agent)
    for setting in ("target_kl", "clip_range"):
        if setting in kind.settings_type.names():
            continue
        with pytest.raises(ValueError, match=f"{kind.__name__} has no '{setting}': .*see "):
            made(name, **{setting: 0.2})


class Listing(Drawn):
    """Shows lists of Python's numbers."""

    def reset(self, **keywords):
        seen, info = super().reset(**keywords)
        return seen.tolist(), info

    def step(self, action):
        seen, *rest = super().step(action)
        return seen.tolist(), *rest


@every_agent
def test_observations_may_be_lists(name):
    agent = made(name, DummyVecEnv([Listing])).learn(16)
    assert np.isfinite(agent.evaluate(2, env=Listing())).all()
    theirs = PPO("MlpPolicy", Listing())
    for one in (agent, theirs):
        assert one.predict([0.0, 0.0])[0].shape == (2,)


def test_the_window_of_statistics_is_what_was_asked_for():
    agent = made("ottrpo", stats_window_size=3).learn(32)
    assert agent.stats_window_size == 3
    assert isinstance(agent.ep_info_buffer, deque)
    assert len(agent.ep_info_buffer) == 3
