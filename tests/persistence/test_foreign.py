"""What SB3 saved is opened only by who says that it is trusted."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from ottrpo import OTTRPO
from ottrpo.persistence.foreign import load_sb3, load_vec_normalize

from .hostile import Payload


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sb3")
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, seed=0, device="cpu")
    model.learn(64)
    model.save(folder / "ppo.zip")
    env.save(folder / "normaliser.pkl")
    return folder, model, env


def test_models_and_statistics_of_sb3_load_with_trust(trained):
    folder, model, env = trained
    raw = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    loaded = load_sb3(folder / "ppo.zip", "ppo", trust=True)
    statistics = load_vec_normalize(folder / "normaliser.pkl", trust=True)
    np.testing.assert_array_equal(statistics.obs_rms.mean, env.obs_rms.mean)
    assert not statistics.training
    expected, _ = model.predict(env.normalize_obs(raw), deterministic=True)
    found, _ = loaded.predict(statistics.normalize_obs(raw), deterministic=True)
    np.testing.assert_array_equal(found, expected)


def test_trpo_too(tmp_path):
    contrib = pytest.importorskip("sb3_contrib")
    contrib.TRPO("MlpPolicy", "Pendulum-v1", device="cpu").save(tmp_path / "m.zip")
    assert isinstance(load_sb3(tmp_path / "m.zip", "trpo", trust=True), contrib.TRPO)


@pytest.mark.parametrize("trust", [False, None, 1, "yes"])
def test_without_trust_nothing_runs(tmp_path, trust):
    payload = Payload(tmp_path / "ran")
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps(payload))
    with pytest.raises(ValueError, match=r"opening a pickle runs any code.*trust=True"):
        load_vec_normalize(path, trust=trust)
    with pytest.raises(ValueError, match="opening a pickle runs any code"):
        load_sb3(path, "ppo", trust=trust)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ValueError, match="not a VecNormalize"):
        load_vec_normalize(path, trust=True)
    assert (tmp_path / "ran").exists(), "the payload is harmless, and the test shows nothing"


def test_other_contents_are_refused_in_one_line(trained, tmp_path):
    folder, _, _ = trained
    (tmp_path / "nonsense").write_bytes(b"nonsense")
    A2C("MlpPolicy", "Pendulum-v1", device="cpu").save(tmp_path / "a2c.zip")
    cases = [
        lambda: load_sb3(tmp_path / "nothing", "ppo", trust=True),
        lambda: load_sb3(tmp_path / "nonsense", "ppo", trust=True),
        lambda: load_sb3(folder / "ppo.zip", "dqn", trust=True),
        lambda: load_vec_normalize(tmp_path / "nonsense", trust=True),
        lambda: load_vec_normalize(folder / "nothing", trust=True),
        lambda: OTTRPO.load(folder / "ppo.zip"),
    ]
    for case in cases:
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            case()


def test_who_opens_it_as_one_of_ours_is_told_what_it_is(trained):
    folder, *_ = trained
    with pytest.raises(ValueError, match=r"Stable-Baselines3 saved.*load_sb3") as refusal:
        OTTRPO.load(folder / "ppo.zip")
    assert "\n" not in str(refusal.value)
