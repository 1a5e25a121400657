"""Stable-Baselines3's own PPO can't tell the batch from its `DummyVecEnv`."""

import os

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from ottrpo.envs import make_vec

pytestmark = pytest.mark.filterwarnings("ignore:.*settotalmass:UserWarning")


class Returns(BaseCallback):
    """Every episode's return and length, in the order in which they end."""

    def _on_training_start(self):
        self.seen = []

    def _on_step(self):
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self.seen += [(episode["r"], episode["l"]) for episode in ended]
        return True


def trained(env, steps, n_steps):
    """PPO's episodes, and all its numbers."""
    returns = Returns()
    agent = PPO("MlpPolicy", env, n_steps=n_steps, batch_size=64, n_epochs=2, seed=7, device="cpu")
    agent.learn(steps, callback=returns)
    env.close()
    flat = [value.detach().numpy().ravel() for value in agent.policy.parameters()]
    return returns.seen, np.concatenate(flat)


def require_alike(env_id, count, steps, n_steps, **kwargs):
    one = lambda: Monitor(gym.make(env_id, **kwargs))  # noqa: E731
    theirs = trained(DummyVecEnv([one] * count), steps, n_steps)
    ours = trained(make_vec(env_id, count, threads=2, **kwargs), steps, n_steps)
    assert len(theirs[0]) > 0
    assert ours[0] == theirs[0]
    assert ours[1].tobytes() == theirs[1].tobytes()
    return len(theirs[0])


@pytest.mark.parametrize(
    ("env_id", "kwargs"), [("Hopper-v5", {}), ("HalfCheetah-v5", {"max_episode_steps": 50})]
)
def test_ppo_trains_to_the_same_bits(env_id, kwargs):
    require_alike(env_id, 4, 1_024, 64, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["Hopper-v5", "HalfCheetah-v5"])
def test_ppo_trains_to_the_same_bits_for_long(env_id):
    steps = int(os.environ.get("OTTRPO_TWIN_STEPS", "100000"))
    episodes = require_alike(env_id, 8, steps, 256)
    print(f"{env_id}: {steps} steps, {episodes} returns, all equal, and all parameters")


def test_sb3_evaluates_on_it():
    agent = PPO("MlpPolicy", make_vec("Hopper-v5", 2, seed=0), n_steps=64, seed=0, device="cpu")
    mean, _ = evaluate_policy(agent, make_vec("Hopper-v5", 3, seed=1), n_eval_episodes=4)
    single = DummyVecEnv([lambda: Monitor(gym.make("Hopper-v5"))] * 3)
    single.seed(1)
    assert evaluate_policy(agent, single, n_eval_episodes=4)[0] == mean
