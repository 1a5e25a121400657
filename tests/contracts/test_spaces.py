"""Every deep agent runs on every kind of space, predicts what fits, and is the same from a file."""

import io

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

import ottrpo.envs.toys  # noqa: F401  # registers the toys

from .deep import ACTIONS, BOXES_ONLY, DEEP, IMPORTED, made, pairs, several

MATRIX = [(name, *pair) for name in DEEP for pair in pairs(name)]
ROWS = 3


def batched(space, count):
    rows = [space.sample() for _ in range(count)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([row[key] for row in rows]) for key in space}
    return np.stack(rows)


def row(batch, i):
    return {k: v[i] for k, v in batch.items()} if isinstance(batch, dict) else batch[i]


@pytest.mark.parametrize(("name", "observed", "actions"), MATRIX)
def test_it_runs_predicts_and_is_read_again(name, observed, actions):
    agent = made(name, several(2, observed, actions), observed=observed)
    assert agent.learn(32).num_timesteps == 32
    space = agent.action_space
    seen = batched(several(1, observed, actions).observation_space, ROWS)
    for deterministic in (True, False):
        action, state = agent.predict(seen, deterministic=deterministic)
        assert state is None
        assert action.shape == (ROWS, *space.shape)
        single, _ = agent.predict(row(seen, 0), deterministic=deterministic)
        assert isinstance(single, np.ndarray)
        assert single.shape == space.shape
        kept = single.item() if isinstance(space, spaces.Discrete) else single
        assert space.contains(kept)
    mode, _ = agent.predict(seen, deterministic=True)
    file = io.BytesIO()
    agent.save(file)
    np.testing.assert_array_equal(type(agent).load(file).predict(seen, deterministic=True)[0], mode)


@pytest.mark.parametrize("name", BOXES_ONLY)
def test_who_needs_a_box_says_so(name):
    with pytest.raises(ValueError, match="Box"):
        made(name, several(1, actions="label"))


@pytest.mark.parametrize("name", IMPORTED)
def test_who_counts_from_0_says_so(name):
    with pytest.raises(ValueError, match="from 0"):
        made(name, several(1, "label"))


@pytest.mark.parametrize("name", ["ottrpo", "ottrpo-network", "clipped-ppo"])
def test_forbidden_actions_are_never_taken(name):
    """The environment raises at the first."""
    env = DummyVecEnv([lambda: gym.make("ottrpo/Match-v0", masked=True)] * 2)
    agent = made(name, env)
    assert agent.learn(64).num_timesteps == 64
    assert agent.evaluate(3, deterministic=False).shape == (3,)
    for label in range(3):
        only = np.arange(3) == label
        drawn = {agent.predict(1, action_masks=only)[0].item() for _ in range(5)}
        assert drawn == {label}
    with pytest.raises(ValueError, match="mask"):
        agent.predict(1, action_masks=[True, False])


@pytest.mark.parametrize("name", [name for name in DEEP if not name.startswith("ottrpo-")])
def test_state_dependent_exploration(name):
    agent = made(name, use_sde=True, sde_sample_freq=4)
    assert agent.learn(16).num_timesteps == 16
    assert agent.action_space.contains(agent.predict(np.zeros(2, np.float32))[0])
    if name not in BOXES_ONLY:
        with pytest.raises(ValueError, match=r"sde|SDE|Box"):
            made(name, several(1, actions="label"), use_sde=True)


def test_every_space_is_tried():
    assert {actions for _, _, actions in MATRIX} == set(ACTIONS)
