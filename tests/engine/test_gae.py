import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer

from ottrpo.engine.estimate import generalised_advantage


def column(*values):
    return np.array(values)[:, None]


def test_an_ending_is_worth_nothing_after_it_and_a_time_limit_is():
    """Three steps, gamma 0.5, lambda 1: the arithmetic by hand."""
    reward, value = column(1.0, 2.0, 4.0), column(10.0, 20.0, 30.0)
    next_value = column(20.0, 30.0, 8.0)  # 8 is the value of the final observation
    done = column(False, False, True)

    ended = generalised_advantage(reward, value, next_value, done, done, 0.5, 1.0)
    # returns: 4; 2 + 0.5*4 = 4; 1 + 0.5*4 = 3
    assert ended[:, 0].tolist() == [3.0 - 10.0, 4.0 - 20.0, 4.0 - 30.0]

    cut_off = generalised_advantage(reward, value, next_value, np.zeros_like(done), done, 0.5, 1.0)
    # returns: 4 + 0.5*8 = 8; 2 + 0.5*8 = 6; 1 + 0.5*6 = 4
    assert cut_off[:, 0].tolist() == [4.0 - 10.0, 6.0 - 20.0, 8.0 - 30.0]


def test_nothing_leaks_from_the_next_episode():
    reward, zero = column(0.0, 0.0, 100.0), np.zeros((3, 1))
    done = column(True, False, False)
    advantage = generalised_advantage(reward, zero, zero, done, done, 0.9, 0.9)
    assert advantage[0, 0] == 0.0
    assert advantage[1, 0] == pytest.approx(81.0)


@pytest.mark.parametrize("environments", [1, 3])
def test_agrees_with_sb3(environments):
    rng = np.random.default_rng(0)
    steps = 40
    reward, value = rng.normal(size=(2, steps, environments))
    done = rng.random((steps, environments)) < 0.2
    last_value = rng.normal(size=environments)
    buffer = RolloutBuffer(
        steps,
        spaces.Box(-1, 1, (1,)),
        spaces.Box(-1, 1, (1,)),
        gamma=0.97,
        gae_lambda=0.9,
        n_envs=environments,
    )
    starts = np.vstack([np.ones((1, environments), bool), done[:-1]])
    for t in range(steps):
        zero = np.zeros((environments, 1))
        buffer.add(
            zero, zero, reward[t], starts[t], torch.tensor(value[t]), torch.zeros(environments)
        )
    buffer.compute_returns_and_advantage(torch.tensor(last_value), done[-1])
    next_value = np.vstack([value[1:], last_value[None]])
    ours = generalised_advantage(reward, value, next_value, done, done, 0.97, 0.9)
    np.testing.assert_allclose(ours, buffer.advantages, atol=1e-5)
