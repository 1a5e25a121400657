"""A window of past rollouts, the returns that are traced through it, and the critic's slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo.engine.algorithms.critics import SLOWEST_SWING, empty_replay, look_ahead, steps_for
from ottrpo.engine.critic import Twins, slopes
from ottrpo.engine.estimate import Rollout
from ottrpo.engine.networks import Architecture, Policy
from ottrpo.engine.update import held_out

WINDOW, ENVS, FEATURES, SIZE = 12, 2, 3, 2


def rollout(steps, seed=0, first=None):
    rng = np.random.default_rng(seed)
    flat = rng.normal(size=(steps + 1, ENVS, FEATURES))
    if first is not None:
        flat[0] = first
    mean = rng.normal(size=(steps, ENVS, SIZE))
    drawn = {"action": mean + 0.5, "mean": mean, "std": np.full_like(mean, 0.7)}
    ends = rng.random((steps, ENVS)) < 0.3
    reward, terminated = rng.normal(size=(steps, ENVS)), ends & (rng.random((steps, ENVS)) < 0.5)
    return Rollout(flat, (), reward, ends, terminated, drawn)


def filled(seed=0):
    window, last = empty_replay(WINDOW, ENVS, FEATURES, SIZE), None
    for i in range(4):
        made = rollout(5, seed + i, last)
        window, last = window.followed_by(made), made.flat[-1]
    return window


def test_the_window_is_the_last_steps_in_their_order():
    parts = [rollout(5, seed) for seed in range(4)]
    for i in range(3):
        parts[i + 1].flat[0] = parts[i].flat[-1]
    window = empty_replay(WINDOW, ENVS, FEATURES, SIZE)
    for i, part in enumerate(parts):
        window = window.followed_by(part)
        assert window.filled == min(5 * (i + 1), WINDOW)
    reward = np.concatenate([part.reward for part in parts])[-WINDOW:]
    np.testing.assert_array_equal(window.reward, reward.astype(np.float32))
    seen = np.concatenate([parts[0].flat[:1], *(part.flat[1:] for part in parts)])
    np.testing.assert_array_equal(window.flat, seen[-WINDOW - 1 :].astype(np.float32))


def test_a_rollout_longer_than_the_window_fills_it():
    made = rollout(20)
    window = empty_replay(WINDOW, ENVS, FEATURES, SIZE).followed_by(made)
    np.testing.assert_array_equal(window.reward, made.reward[-WINDOW:].astype(np.float32))
    np.testing.assert_array_equal(window.flat, made.flat[-WINDOW - 1 :].astype(np.float32))


def test_rows_are_picked_from_what_is_there():
    window = empty_replay(WINDOW, ENVS, FEATURES, SIZE).followed_by(rollout(5))
    steps, envs = window.picked(np.linspace(0, 1, 1000, endpoint=False))
    assert set(zip(steps, envs, strict=True)) == {
        (t, n) for t in range(WINDOW - 5, WINDOW) for n in range(ENVS)
    }


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_returns_ahead_are_the_sums_that_define_them(steps):
    window, discount = filled(), 0.9
    ahead = look_ahead(window, window.reward, discount, steps)
    for n in range(ENVS):
        for t in range(WINDOW):
            total, weight, where = 0.0, 1.0, t
            for k in range(t, min(t + steps, WINDOW)):
                if window.done[k, n] and not window.terminated[k, n]:
                    break  # what followed was not kept
                total, weight, where = (
                    total + weight * window.reward[k, n],
                    weight * discount,
                    k + 1,
                )
                if window.terminated[k, n]:
                    weight = 0.0
                    break
            assert ahead.known[t, n] == (where > t)
            if where > t:
                assert ahead.reward[t, n] == pytest.approx(total)
                assert ahead.discount[t, n] == pytest.approx(weight)
                assert ahead.where[t, n] == where


@pytest.mark.parametrize("xp", [np, jnp])
def test_a_swing_takes_the_geometric_mean_of_the_periods_of_what_moves(xp):
    steps, periods = 4000, (8.0, 50.0, 200.0)
    time = np.arange(steps + 1)[:, None]
    waves = [1e-3 * np.sin(2 * np.pi * time / period) + 5.0 for period in periods]
    still = np.full((steps + 1, ENVS), 0.1)
    flat = np.stack([still, *(np.repeat(wave, ENVS, 1) for wave in waves)], -1)
    done = np.zeros((steps, ENVS), bool)
    window = empty_replay(steps, ENVS, len(periods) + 1, SIZE)
    window = window._replace(flat=xp.asarray(flat), done=xp.asarray(done))
    # a step of a fast wave is shorter than its arc: 2 sin(π/8) for 2π/8
    assert window.swing(steps) == pytest.approx(np.prod(periods) ** (1 / 3), rel=0.02)
    # where a new episode starts is no swing
    jumping = flat + np.cumsum(np.arange(steps + 1) % 400 == 0)[:, None, None] % 2
    ends = np.repeat((np.arange(1, steps + 1) % 400 == 0)[:, None], ENVS, 1)
    jumping = window._replace(flat=xp.asarray(jumping), done=xp.asarray(ends))
    assert jumping.swing(steps) > window.swing(steps)
    assert window._replace(flat=0.0 * window.flat).swing(steps) == SLOWEST_SWING


@pytest.mark.parametrize(
    ("discount", "swing", "steps"),
    [
        *((discount, 1000.0, 1) for discount in (0.9, 0.99, 0.995)),
        *((0.998, 1000.0, 4), (0.999, 1000.0, 9), (1.0, 1000.0, 9)),
        *((0.999, 6.0, 3), (0.999, 1.0, 1), (0.995, 6.0, 1), (0.998, 30.0, 4)),
    ],
)
def test_returns_have_more_steps_the_farther_ahead_and_the_slower_the_body(discount, swing, steps):
    assert steps_for(np.float64(discount), swing) == steps
    assert jax.jit(steps_for)(discount, swing) == steps


def test_the_compiled_window_is_that_of_the_host():
    parts, host = (
        [rollout(5, seed) for seed in range(4)],
        empty_replay(WINDOW, ENVS, FEATURES, SIZE),
    )
    there = jax.tree.map(jnp.asarray, host)
    follow = jax.jit(lambda window, made: window.followed_by(made))
    for part in parts:
        host, there = host.followed_by(part), follow(there, jax.tree.map(jnp.asarray, part))
    for one, other in zip(host, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_rows_that_are_held_out_weigh_nothing():
    index, held = np.array([[0, 1, 2], [3, 3, 3]]), np.array([True, False, False, True])
    weight = held_out(np.full((2, 3), 1 / 3, np.float32), index, held)
    np.testing.assert_allclose(weight, [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]])


def test_slopes_are_those_of_the_expected_value_inside_the_box():
    rng = np.random.default_rng(3)
    architecture = Architecture(inputs=FEATURES, outputs=SIZE, log_std_init=-0.5)
    policy, twins = Policy(architecture, rng), Twins(FEATURES + SIZE, (16, 16), rng)
    flat = rng.normal(size=(7, FEATURES)).astype(np.float32)
    noise = 2.0 * rng.normal(size=(7, SIZE)).astype(np.float32)
    mean, slope = slopes(twins, policy, flat, noise)
    std = policy.gaussian(flat)[1]

    def expected(mean):
        drawn = [jnp.clip(mean + sign * std * noise, -1.0, 1.0) for sign in (1.0, -1.0)]
        return 0.5 * sum(twins(flat, action).mean(0).sum() for action in drawn)

    np.testing.assert_allclose(slope, jax.grad(expected)(mean), atol=1e-5)
    assert (np.abs(mean + std * noise) > 1).any()  # some draws were outside
