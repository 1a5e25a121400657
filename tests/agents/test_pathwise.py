"""WPOGradient and WPPG as agents: what they refuse, and what their settings do."""

import gymnasium as gym
import numpy as np
import pytest

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import WPPG, WPOGradient
from ottrpo.experiments.registry import agent_by_key
from ottrpo.experiments.spec import read_configuration

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 1, "seed": 0, "buffer_size": 256}
both = pytest.mark.parametrize("kind", [WPOGradient, WPPG])


def std_after(kind, steps=192, **settings):
    agent = kind("MlpPolicy", "ottrpo/Reach-v0", **(SMALL | settings)).learn(steps)
    assert agent.last_update["ot/spent"] > 0
    return agent.last_update["train/std"]


@both
def test_what_has_no_slope_is_refused(kind):
    with pytest.raises(ValueError, match="needs actions in a Box"):
        kind("MlpPolicy", "CartPole-v1", **SMALL)
    with pytest.raises(ValueError, match="keeps no images"):
        kind("CnnPolicy", _Seen(), **SMALL)


class _Seen(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,))


@both
def test_a_setting_without_a_use_is_refused(kind):
    with pytest.raises(ValueError, match="has no 'normalize_advantage': it follows critics"):
        kind("MlpPolicy", "Pendulum-v1", **SMALL, normalize_advantage=False)
    assert "normalize_advantage" not in kind.settings_type.names()


def test_heat_widens_the_policy():
    hot, cold = (std_after(WPPG, temperature=t, learning_rate=3e-3) for t in (0.05, 0.0))
    assert hot > 1.1 * cold


def test_a_longer_step_goes_further():
    short, long = (
        WPPG("MlpPolicy", "ottrpo/Reach-v0", **SMALL, step=step, temperature=0.0).learn(192)
        for step in (0.01, 0.2)
    )
    assert long.last_update["train/policy_loss"] > 10 * short.last_update["train/policy_loss"]


def test_the_divergences_hold_the_policy_back():
    free, held = (
        WPOGradient("MlpPolicy", "ottrpo/Reach-v0", **SMALL, kl_mean=mean, kl_std=std).learn(192)
        for mean, std in ((0.0, 0.0), (100.0, 1e4))
    )
    for name in ("kl_mean", "kl_std"):
        assert held.last_update[f"train/{name}"] < 0.5 * free.last_update[f"train/{name}"]


@pytest.mark.parametrize("key", ["wpo-gradient", "wppg"])
def test_published_settings_are_settings(key):
    entry = agent_by_key(key)
    settings = read_configuration(entry.config_folder, "published").settings_for("Pendulum-v1")
    agent = entry.build("Pendulum-v1", settings, 0)
    for name, value in settings.items():
        if name != "policy_kwargs":
            assert getattr(agent, name) == value, name
