"""Stable-Baselines3's own tools, used on our agent as its documentation says."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import ottrpo.envs.toys  # noqa: F401
from ottrpo import OTTRPO

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "seed": 0}
REACH = "ottrpo/Reach-v0"


def make_envs(count, **kwargs):
    return DummyVecEnv([lambda: Monitor(gym.make(REACH, **kwargs)) for _ in range(count)])


def test_eval_and_checkpoint_callbacks(tmp_path):
    evaluate = EvalCallback(
        make_envs(1),
        best_model_save_path=str(tmp_path),
        log_path=str(tmp_path),
        eval_freq=64,
        n_eval_episodes=2,
        verbose=0,
    )
    checkpoint = CheckpointCallback(64, str(tmp_path), name_prefix="at")
    agent = OTTRPO("MlpPolicy", REACH, **SMALL)
    agent.learn(192, callback=[evaluate, checkpoint])
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [64, 128, 192]
    assert OTTRPO.load(tmp_path / "best_model.zip").num_timesteps > 0
    assert OTTRPO.load(tmp_path / "at_128_steps.zip").num_timesteps == 128


def test_training_stops_when_a_callback_says_so():
    agent = OTTRPO("MlpPolicy", REACH, **SMALL)
    agent.learn(10_000, callback=StopTrainingOnMaxEpisodes(max_episodes=5))
    assert agent.num_timesteps == 5 * 16
    stop = StopTrainingOnRewardThreshold(reward_threshold=-1e9, verbose=0)
    callback = EvalCallback(make_envs(1), callback_on_new_best=stop, eval_freq=96, verbose=0)
    agent = OTTRPO("MlpPolicy", REACH, **SMALL).learn(10_000, callback=callback)
    assert agent.num_timesteps == 96


@pytest.mark.parametrize("environments", [1, 3])
def test_callbacks_see_every_step(environments):
    class Listening(BaseCallback):
        def __init__(self):
            super().__init__()
            self.steps, self.endings, self.events = 0, 0, []

        def _on_training_start(self):
            self.events.append("start")

        def _on_rollout_start(self):
            self.events.append("rollout")

        def _on_rollout_end(self):
            self.events.append("end")

        def _on_step(self):
            self.steps += 1
            self.endings += self.locals["dones"].sum()
            assert self.locals["rewards"].shape == (environments,)
            assert len(self.locals["infos"]) == environments
            assert self.num_timesteps == self.steps * environments
            return True

    listening = Listening()
    agent = OTTRPO("MlpPolicy", make_envs(environments), **SMALL)
    agent.learn(2 * 64 * environments, callback=CallbackList([listening]))
    assert listening.steps == 128
    assert listening.endings == environments * 128 // 16
    assert listening.events == ["start", "rollout", "end", "rollout", "end"]
    assert len(agent.ep_info_buffer) == listening.endings


def test_a_callback_changes_nothing():
    plain = OTTRPO("MlpPolicy", REACH, **SMALL).learn(128)
    watched = OTTRPO("MlpPolicy", REACH, **SMALL).learn(128, callback=lambda seen, _: True)
    for name, array in plain.get_parameters().items():
        np.testing.assert_array_equal(array, watched.get_parameters()[name])


@pytest.mark.filterwarnings("ignore")  # the bar's own library calls itself experimental
def test_progress_bar(capsys):
    pytest.importorskip("tqdm")
    agent = OTTRPO("MlpPolicy", REACH, **SMALL).learn(128, progress_bar=True)
    assert agent.num_timesteps == 128


def test_logger_and_tensorboard(tmp_path):
    agent = OTTRPO("MlpPolicy", REACH, **SMALL)
    agent.set_logger(configure(str(tmp_path), ["csv", "json"]))
    agent.learn(128)
    agent.logger.close()
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    for key in (
        "ot/multiplier",
        "ot/radius",
        "ot/spent",
        "ot/split_mass",
        "ot/active_fraction",
        "ot/violation",
        "ot/dual_gap",
        "rollout/ep_rew_mean",
        "time/fps",
        "train/value_loss",
    ):
        assert key in header.split(",")
    pytest.importorskip("tensorboard")
    OTTRPO("MlpPolicy", REACH, **SMALL, tensorboard_log=str(tmp_path)).learn(64, tb_log_name="x")
    assert list(tmp_path.glob("x_1/events*"))


def test_verbose_prints_sb3s_table(capsys):
    OTTRPO("MlpPolicy", REACH, **SMALL, verbose=1).learn(64)
    assert "ot/" in capsys.readouterr().out


def test_vec_normalize_takes_over(tmp_path):
    env = VecNormalize(make_envs(2))
    agent = OTTRPO("MlpPolicy", env, **SMALL).learn(256)
    assert agent.get_vec_normalize_env() is env
    assert not agent.algorithm.estimate.normaliser.observations
    assert not agent.algorithm.estimate.normaliser.rewards
    env.training, env.norm_reward = False, False
    mean, _ = evaluate_policy(agent, env, n_eval_episodes=3)
    assert np.isfinite(mean)
    assert agent.evaluate(2).shape == (2,)


def test_evaluate_policy_agrees_with_evaluate():
    agent = OTTRPO("MlpPolicy", REACH, **SMALL).learn(256)
    env = make_envs(1)
    env.seed(7)
    returns, lengths = evaluate_policy(agent, env, 4, return_episode_rewards=True)
    assert lengths == [16] * 4
    ours = agent.evaluate(4, deterministic=True, seed=7)
    np.testing.assert_allclose(ours, returns, atol=1e-5)


def test_set_env_and_learning_on():
    agent = OTTRPO("MlpPolicy", REACH, **SMALL).learn(64)
    agent.set_env(gym.make(REACH))
    agent.learn(64, reset_num_timesteps=False)
    assert agent.num_timesteps == 128
    with pytest.raises(ValueError, match="spaces do not match"):
        agent.set_env(gym.make("Pendulum-v1"))


def test_predict_takes_one_observation_or_many():
    agent = OTTRPO("MlpPolicy", REACH, **SMALL)
    one, state = agent.predict(np.zeros(2))
    assert one.shape == (2,)
    assert state is None
    assert agent.predict(np.zeros((5, 2)))[0].shape == (5, 2)
    assert not np.array_equal(agent.predict(np.zeros(2))[0], agent.predict(np.zeros(2))[0])
    certain = [agent.predict(np.zeros(2), deterministic=True)[0] for _ in range(2)]
    np.testing.assert_array_equal(*certain)
    for wrong in (np.zeros(3), np.zeros(1), np.zeros((4, 1)), 0.0):
        with pytest.raises(ValueError, match=r"observations of shape \(2,\)"):
            agent.predict(wrong)
    label = OTTRPO("MlpPolicy", "ottrpo/Match-v0", **SMALL).predict(1)[0]
    assert np.asarray(label).shape == ()


def test_predicting_and_evaluating_leave_training_alone():
    steady = SMALL | {"radius": "3%"}  # by default it falls as the end comes nearer
    plain = OTTRPO("MlpPolicy", REACH, **steady).learn(128)
    other = OTTRPO("MlpPolicy", REACH, **steady).learn(64)
    other.predict(np.zeros(2))
    other.evaluate(2, deterministic=False, seed=1)
    np.random.seed(5)  # noqa: NPY002
    other.learn(64, reset_num_timesteps=False)
    for name, array in plain.get_parameters().items():
        np.testing.assert_array_equal(array, other.get_parameters()[name])


def test_images_by_way_of_sb3s_transpose():
    env = gym.make("ottrpo/Match-v0", observations="image")
    agent = OTTRPO("CnnPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0).learn(32)
    assert agent.layout.images == ((1, 36, 36),)
    image, _ = env.reset(seed=0)
    action = agent.predict(image, deterministic=True)[0]
    first = agent.predict(np.moveaxis(image, -1, 0), deterministic=True)[0]
    assert action == first
    assert agent.evaluate(1).shape == (1,)


def test_an_agent_outlives_the_processes_it_learnt_in(tmp_path):
    envs = make_vec_env("Pendulum-v1", n_envs=2, vec_env_cls=SubprocVecEnv)
    agent = OTTRPO("MlpPolicy", envs, **SMALL).learn(128)
    envs.close()  # RL-Zoo closes first and saves then
    agent.save(tmp_path / "agent")
    assert OTTRPO.load(tmp_path / "agent").num_timesteps == 128


def test_make_vec_env():
    envs = make_vec_env("Pendulum-v1", n_envs=2, seed=1)
    agent = OTTRPO("MlpPolicy", envs, **SMALL).learn(128)
    assert agent.num_timesteps == 128
    assert agent.n_envs == 2
