"""What is around training: callbacks, loggers, normalisation, files, SB3's helpers."""

import csv
import io
import json

import numpy as np
import pytest
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from .deep import IMPORTED, Drawn, every_agent, made, same, several


class Diary(BaseCallback):
    """What happened, in order."""

    def __init__(self):
        super().__init__()
        self.told, self.rewards = [], []

    def _on_training_start(self):
        self.told.append("training")

    def _on_rollout_start(self):
        self.told.append("rollout")

    def _on_step(self):
        self.told.append("step")
        self.rewards.append(self.locals["rewards"].copy())
        assert self.locals["new_obs"].shape == (2, 2)
        assert self.training_env is self.model.get_env() or self.training_env is self.model.env
        return self.num_timesteps < 54

    def _on_rollout_end(self):
        self.told.append("end of rollout")

    def _on_training_end(self):
        self.told.append("end")


@every_agent
def test_callbacks_are_told_in_order_and_may_stop(name):
    diary = Diary()
    agent = made(name, several(2)).learn(320, callback=diary)
    whole = ["rollout", *["step"] * 16, "end of rollout"]
    assert diary.told == ["training", *whole, "rollout", *["step"] * 11, "end"]
    assert agent.num_timesteps == 54
    assert np.isfinite(diary.rewards).all()


@every_agent
def test_sb3_s_own_callbacks(name, tmp_path):
    found = StopTrainingOnRewardThreshold(-1e9)
    judge = EvalCallback(
        several(1),
        eval_freq=16,
        n_eval_episodes=2,
        callback_on_new_best=found,
        best_model_save_path=str(tmp_path),
        verbose=0,
    )
    saver = EveryNTimesteps(8, CheckpointCallback(1, str(tmp_path / "kept")))
    agent = made(name).learn(64, callback=CallbackList([saver, judge]))
    assert agent.num_timesteps == 16, "the threshold is passed at once"
    assert type(agent).load(tmp_path / "best_model").num_timesteps == 16
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == ["rl_model_16_steps.zip", "rl_model_8_steps.zip"]


@every_agent
def test_what_is_logged_reaches_files_and_tensorboard(name, tmp_path):
    agent = made(name, tensorboard_log=str(tmp_path / "board")).learn(32, log_interval=1)
    (folder,) = (tmp_path / "board").iterdir()
    assert folder.name == f"{type(agent).__name__}_1"
    scalars = EventAccumulator(str(folder)).Reload()
    steps = [event.step for event in scalars.Scalars("rollout/ep_rew_mean")]
    assert steps[-1] == 32
    agent.logger.close()
    agent.set_logger(configure(str(tmp_path), ["csv", "json"]))
    agent.learn(32, log_interval=1)
    agent.logger.close()
    with open(tmp_path / "progress.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["time/total_timesteps"] for row in rows] == ["16", "32"]
    lines = (tmp_path / "progress.json").read_text().splitlines()
    last = json.loads(lines[-1])
    assert {"rollout/ep_len_mean", "time/fps", "train/n_updates", "train/value_loss"} <= set(last)


@every_agent
def test_vec_normalize_is_used_or_refused(name):
    envs = VecNormalize(several(2))
    if name in IMPORTED:
        with pytest.raises(ValueError, match="normalize_obs=True"):
            made(name, envs)
        agent = made(name, several(2), normalize_obs=True, normalize_reward=True).learn(32)
        assert agent.predict(np.zeros(2, np.float32))[0].shape == (2,)
        return
    agent = made(name, envs).learn(32)
    assert envs.obs_rms.count > 32
    assert agent.get_vec_normalize_env() is envs
    before = envs.obs_rms.mean.copy()
    assert np.isfinite(agent.evaluate(2, env=Drawn())).all()
    np.testing.assert_array_equal(envs.obs_rms.mean, before)


@every_agent
def test_settings_may_be_left_out_of_a_file(name, tmp_path):
    agent = made(name, gamma=0.5)
    agent.save(tmp_path / "a", exclude=["gamma", "seed"], include=["seed"])
    loaded = type(agent).load(tmp_path / "a")
    default = type(agent)("MlpPolicy", several(1)).gamma
    assert loaded.gamma == default != 0.5
    assert loaded.seed == 0
    for refused in ({"exclude": ["num_timesteps"]}, {"include": ["env"]}):
        with pytest.raises(ValueError, match="a setting"):
            agent.save(tmp_path / "a", **refused)


@every_agent
def test_a_file_is_read_without_rewinding_and_training_goes_on(name):
    file, agent = io.BytesIO(), made(name).learn(16)
    agent.save(file)
    loaded = type(agent).load(file)
    assert same(loaded.get_parameters(), agent.get_parameters())
    loaded.set_env(several(1))
    loaded.learn(16, reset_num_timesteps=False)
    assert loaded.num_timesteps == 32
    assert not same(loaded.get_parameters(), agent.get_parameters())
    loaded.set_parameters(agent.get_parameters())
    assert same(loaded.get_parameters(), agent.get_parameters())


@every_agent
def test_sb3_s_evaluation_agrees_with_ours(name):
    agent, envs = made(name).learn(16), several(1)
    envs.seed(5)
    theirs, _ = evaluate_policy(agent, envs, 1, return_episode_rewards=True)
    ours = agent.evaluate(1, seed=5, env=Drawn())
    if name in IMPORTED:  # their episodes have seeds of their own
        assert np.isfinite([theirs, ours]).all()
    else:
        np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    mean, spread = evaluate_policy(agent, several(2), 4, deterministic=False)
    assert np.isfinite([mean, spread]).all()


@every_agent
def test_a_seed_repeats_what_is_learnt_and_drawn(name):
    agents = [made(name, several(1), seed=seed).learn(16) for seed in (1, 1, 2)]
    first, again, other = (agent.get_parameters() for agent in agents)
    assert same(first, again)
    assert not same(first, other)
    seen, drawn = np.zeros((4, 2), np.float32), []
    for agent in agents[:2]:
        agent.set_random_seed(7)
        drawn.append(agent.predict(seen)[0])
    np.testing.assert_array_equal(*drawn)
