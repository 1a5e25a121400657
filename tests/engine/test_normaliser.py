import numpy as np
import pytest

from ottrpo.engine.state import Normaliser, no_moments


def made(measured=(True,), **settings):
    normaliser = Normaliser(measured=np.array(measured), **settings)
    return normaliser, *normaliser.start(1)


def test_moments_of_batches_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(3.0, 5.0, size=(500, 2))
    moments = no_moments(2)
    for batch in np.split(rows, [10, 200, 201]):
        moments = moments.fold(batch)
    assert moments.count == 500
    np.testing.assert_allclose(moments.mean, rows.mean(0))
    np.testing.assert_allclose(moments.variance, rows.var(0))


def test_observations_are_standardised_clipped_and_codes_left_alone():
    rng = np.random.default_rng(1)
    flat = rng.normal([100.0, 0.0], [10.0, 1.0], size=(1000, 2))
    normaliser, seen, _ = made((True, False), clip_obs=1.5)
    np.testing.assert_allclose(normaliser(seen, flat), np.clip(flat, -1.5, 1.5), rtol=1e-6)
    scaled = normaliser(normaliser.fold_observations(seen, flat), flat)
    assert scaled.dtype == np.float32
    assert abs(scaled[:, 0].mean()) < 0.05
    assert scaled[:, 0].max() == pytest.approx(1.5)
    np.testing.assert_allclose(scaled[:, 1], np.clip(flat[:, 1], -1.5, 1.5), rtol=1e-5)


@pytest.mark.parametrize("environments", [1, 2])
def test_rewards_are_divided_by_the_deviation_of_discounted_returns(environments):
    rng = np.random.default_rng(2)
    reward = rng.normal(1.0, 1.0, size=(60, environments))
    done = rng.random((60, environments)) < 0.1
    normaliser = Normaliser(measured=np.array([True]), discount=0.9)
    rewards, halves = normaliser.start(environments)[1], []
    for half in (slice(30), slice(30, 60)):
        rewards, scaled = normaliser.fold_rewards(rewards, reward[half], done[half])
        halves.append(scaled)
    running, returns = np.zeros(environments), []
    for t in range(60):
        running = running * 0.9 + reward[t]
        returns.append(running)
        running = np.where(done[t], 0.0, running)
    deviation = np.sqrt(np.concatenate(returns).var() + 1e-8)
    np.testing.assert_allclose(halves[1], reward[30:] / deviation, rtol=1e-9)
    first = np.sqrt(np.concatenate(returns[:30]).var() + 1e-8)
    np.testing.assert_allclose(halves[0], np.clip(reward[:30] / first, -10, 10), rtol=1e-9)


def test_switched_off_they_change_nothing():
    normaliser, seen, rewards = made(clip_obs=1.0, observations=False, rewards=False)
    reward = np.array([[5.0], [7.0]])
    assert normaliser.fold_rewards(rewards, reward, np.zeros((2, 1), bool))[1] is reward
    seen = normaliser.fold_observations(seen, np.array([[50.0]]))
    assert normaliser(seen, np.array([[50.0]])).tolist() == [[50.0]]
