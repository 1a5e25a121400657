"""Agents that train in many environments at once."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from ottrpo import BGPG, OTTRPO, WNPG, CheckpointEvery
from ottrpo.envs.batched.sb3 import BatchedVecEnv
from ottrpo.envs.lean import LeanVecEnv

SMALL = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "seed": 3}


def numbers(agent):
    return np.concatenate([np.ravel(array) for array in agent.get_parameters().values()])


@pytest.mark.parametrize("agent_class", [OTTRPO, BGPG, WNPG])
def test_they_learn_what_they_learn_in_gymnasiums_environments(agent_class):
    ours = [
        agent_class("MlpPolicy", "Hopper-v5", n_envs=4, threads=threads, **SMALL).learn(512)
        for threads in (1, 2)
    ]
    assert type(ours[0].get_env()) is BatchedVecEnv
    singles = LeanVecEnv([lambda: Monitor(gym.make("Hopper-v5"))] * 4)
    theirs = agent_class("MlpPolicy", singles, **SMALL).learn(512)
    for agent in ours:
        assert numbers(agent).tobytes() == numbers(theirs).tobytes()
        assert [e["r"] for e in agent.ep_info_buffer] == [e["r"] for e in theirs.ep_info_buffer]


class Listening(BaseCallback):
    """What callbacks are told of each step."""

    def _on_training_start(self):
        self.heard = []

    def _on_step(self):
        infos, done_n = self.locals["infos"], self.locals["dones"]
        assert [("episode" in info) for info in infos] == done_n.tolist()
        self.heard += [info["x_position"] for info in infos]
        return True


def test_a_callback_hears_all_and_changes_nothing():
    quiet, told = (OTTRPO("MlpPolicy", "Hopper-v5", n_envs=4, **SMALL) for _ in range(2))
    listening = Listening()
    quiet.learn(256)
    told.learn(256, callback=listening)
    assert len(listening.heard) == told.num_timesteps == 256
    assert numbers(quiet).tobytes() == numbers(told).tobytes()


def test_what_is_saved_is_made_again_with_as_many_environments(tmp_path):
    whole = OTTRPO("MlpPolicy", "Hopper-v5", n_envs=16, **SMALL)
    whole.learn(2_048)
    part = OTTRPO("MlpPolicy", "Hopper-v5", n_envs=16, **SMALL)
    part.learn(2_048, callback=_Until(1_024, CheckpointEvery(512, tmp_path)))
    assert part.num_timesteps < 2_048
    again = OTTRPO.resume(tmp_path)
    assert again.n_envs == 16
    again.learn(again.remaining_timesteps, reset_num_timesteps=False)
    assert numbers(again).tobytes() == numbers(whole).tobytes()
    again.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent")
    assert loaded.n_envs == 16
    assert type(OTTRPO.load(tmp_path / "agent", env="Hopper-v5").get_env()) is BatchedVecEnv
    np.testing.assert_array_equal(loaded.predict(np.ones(11), deterministic=True)[0].shape, (3,))


class _Until(BaseCallback):
    """Checkpoints until a step, then the end."""

    def __init__(self, last, checkpoints):
        super().__init__()
        self._last, self._checkpoints = last, checkpoints

    def _init_callback(self):
        self._checkpoints.init_callback(self.model)

    def _on_training_start(self):
        self._checkpoints.on_training_start(self.locals, self.globals)

    def _on_step(self):
        return self.num_timesteps <= self._last and self._checkpoints.on_step()

    def _on_rollout_start(self):
        self._checkpoints.on_rollout_start()

    def _on_rollout_end(self):
        self._checkpoints.on_rollout_end()


def test_other_environments_are_stepped_in_turns(capsys):
    agent = OTTRPO("MlpPolicy", "CartPole-v1", n_envs=2, **SMALL).learn(64)
    assert type(agent.get_env()) is LeanVecEnv
    assert "one after the other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "keywords", "told"),
    [
        ("Hopper-v5", {"n_envs": 0}, "n_envs must be an integer of at least 1"),
        ("Hopper-v5", {"n_envs": 2, "threads": 0}, "threads must be an integer of at least 1"),
        ("Hopper-v5", {"threads": 2}, "one environment has one"),
        (
            lambda: DummyVecEnv([lambda: gym.make("Hopper-v5")] * 2),
            {"n_envs": 3},
            "but 2 are given",
        ),
    ],
)
def test_mistakes_are_told(env, keywords, told):
    with pytest.raises(ValueError, match=told):
        OTTRPO("MlpPolicy", env() if callable(env) else env, **keywords)
