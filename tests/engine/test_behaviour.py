"""The smoothed Wasserstein penalty and the ascent on its dual."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo.engine.algorithms.behaviour import (
    Features,
    Potentials,
    Smoothing,
    ascend,
    cosine_of_turns,
    draw_features,
    gram,
    penalty,
    potential,
    smoothed_dual,
    squared_cost,
    zero_potentials,
)

PUBLISHED = Smoothing(strength=1.0, steps=25, learning_rate=0.05)
ROWS, ACTIONS, FEATURES, FILLED = 8, 10, 100, 112


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def sample(size, std=1.0, shift=0.0, seed=0, rows=ROWS, actions=ACTIONS):
    """Features in double precision, means, deviations, actions of the old policy and noise."""
    rng = np.random.default_rng(seed)
    drawn = draw_features(FEATURES, size, 0.1, rng)
    features = Features(*(jnp.asarray(x, jnp.float64) for x in drawn))
    old = std * rng.standard_normal((rows, actions, size))
    noise = rng.standard_normal((rows, actions, size))
    return features, np.full((rows, size), shift), np.full((rows, size), std), old, noise


def climbed(smoothing, size=3, fresh=False, **kind):
    features, mean, std, old, noise = sample(size, **kind)
    table = np.random.default_rng(9).standard_normal((smoothing.steps, *noise.shape))
    draws = jnp.asarray(table if fresh else np.broadcast_to(noise, table.shape))
    reached = ascend(
        features,
        zero_potentials(len(mean), features),
        mean[:, None] + std[:, None] * draws,
        old,
        gram(features, old),
        smoothing,
    )
    return features, reached, mean, std, old, noise


def plain_penalty(features, beta, new, old, strength):
    old_potential = potential(beta.old, features.filled(old))
    return penalty(features, beta.new, old_potential, new, old, strength)


def filled(beta):
    return Potentials(*(np.pad(one, ((0, 0), (0, FILLED - FEATURES))) for one in beta))


def test_the_polynomial_is_the_cosine():
    turns = np.random.default_rng(0).uniform(-40, 40, 10_000)
    np.testing.assert_allclose(cosine_of_turns(turns), np.cos(2 * np.pi * turns), atol=2e-8)


def test_the_polynomials_slope_is_its_own():
    turns = np.random.default_rng(0).uniform(-4, 4, 1000)
    turns = turns[np.abs(np.abs(turns - np.round(turns)) - 0.5) > 1e-3]  # no kink at half turns
    slope = jax.vmap(jax.grad(lambda t: cosine_of_turns(t, 0.3)))(turns)
    step = 1e-6
    sides = [np.asarray(cosine_of_turns(turns + sign * step, 0.3)) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (sides[0] - sides[1]) / (2 * step), atol=1e-8)
    np.testing.assert_allclose(slope, -0.6 * np.pi * np.sin(2 * np.pi * turns), atol=2e-6)


def test_features_are_scaled_cosines_of_random_frequencies():
    drawn = draw_features(2000, 3, 0.1, np.random.default_rng(0))
    frequency, phase = (2 * np.pi * np.asarray(x, np.float64) for x in drawn)
    assert frequency.std() == pytest.approx(10.0, rel=0.03)
    assert phase.min() >= 0
    assert phase.max() <= 2 * np.pi
    assert phase.std() == pytest.approx(2 * np.pi / 12**0.5, rel=0.05)
    action = np.random.default_rng(1).standard_normal((5, 3))
    expected = np.sqrt(2 / 2000) * np.cos(action @ frequency.T + phase)
    np.testing.assert_allclose(drawn(action), expected, atol=1e-6)
    # their inner product is the Gaussian kernel of width σ
    left, right = np.zeros(3), np.array([0.05, 0.0, 0.05])
    kernel = float(drawn(left) @ drawn(right))
    assert kernel == pytest.approx(np.exp(-0.5 * 0.005 / 0.01), abs=0.08)


def test_the_dual_is_what_the_formula_says():
    features, _, _, old, noise = sample(2, actions=3)
    rng = np.random.default_rng(4)
    beta = Potentials(*rng.standard_normal((2, ROWS, FEATURES)))
    phi, phi_old = np.asarray(features(noise)), np.asarray(features(old))
    expected = np.zeros(ROWS)
    for n in range(ROWS):
        for i in range(3):
            u = beta.new[n] @ phi[n, i] + beta.old[n] @ phi_old[n, i]
            c = ((noise[n, i] - old[n, i]) ** 2).sum()
            expected[n] += (u - 0.7 * np.exp((u - c) / 0.7)) / 3
    found = plain_penalty(features, filled(beta), noise, old, 0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("std", [0.3, 1.0])
@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_the_dual_never_falls_on_a_frozen_sample(size, std, rate):
    features, mean, std_nd, old, noise = sample(size, std=std)
    new, inner = mean[:, None] + std_nd[:, None] * noise, gram(features, old)
    one = Smoothing(strength=1.0, steps=1, learning_rate=rate)
    single = jax.jit(lambda beta: ascend(features, beta, new[None], old, inner, one))
    beta, dual = zero_potentials(ROWS, features), []
    for _ in range(25):
        reached = single(beta)
        beta = reached.beta
        dual.append(np.asarray(reached.dual(0, 1.0)))
    assert np.shape(dual) == (25, ROWS)
    assert (np.diff(dual, axis=0) >= 0).all()
    assert (dual[-1] > dual[0]).all()
    # and 25 steps at once are the same
    many = climbed(Smoothing(strength=1.0, steps=25, learning_rate=rate), size=size, std=std)[1]
    for which, value in ((0, dual[0]), (-1, dual[-1])):
        np.testing.assert_allclose(many.dual(which, 1.0), value, rtol=1e-9)
    for at_once, in_turn in zip(many.beta, beta, strict=True):
        np.testing.assert_allclose(at_once, in_turn, rtol=1e-9, atol=1e-12)


def test_an_ascent_step_is_the_gradient_of_the_dual():
    one = Smoothing(strength=0.5, steps=1, learning_rate=0.05)
    features, reached, mean, std, old, noise = climbed(one, size=2)

    def value(beta):
        new = mean[:, None] + std[:, None] * noise
        u = potential(beta.new, features(new)) + potential(beta.old, features(old))
        cost = squared_cost(new, old)
        return smoothed_dual(u, cost, 0.5).sum()

    zero = Potentials(*(jnp.zeros((ROWS, FEATURES)),) * 2)
    slope = jax.grad(value)(zero)
    for moved, gradient in zip(reached.beta, slope, strict=True):
        np.testing.assert_allclose(moved[:, :FEATURES], 0.05 * gradient, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(moved[:, FEATURES:], 0.0, atol=1e-9)


def test_a_decaying_rate_takes_the_same_first_step_and_shorter_ones_after():
    steady = Smoothing(strength=1.0, steps=2, learning_rate=0.05)
    decaying = Smoothing(strength=1.0, steps=2, learning_rate=0.05, decay=True)
    one = climbed(Smoothing(strength=1.0, steps=1, learning_rate=0.05))[1].beta
    for which in ("new", "old"):
        second = [
            getattr(climbed(s)[1].beta, which) - getattr(one, which) for s in (steady, decaying)
        ]
        np.testing.assert_allclose(second[1], second[0] / 2**0.5, rtol=1e-9, atol=1e-16)


def test_old_potentials_are_those_of_the_coefficients():
    features, reached, _, _, old, _ = climbed(PUBLISHED, fresh=True)
    expected = potential(reached.beta.old, features.filled(old))
    np.testing.assert_allclose(reached.old_potential, expected, rtol=1e-9, atol=1e-12)


def test_features_that_are_filled_up_end_in_zeros():
    features, _, _, old, _ = sample(3)
    found = np.asarray(features.filled(old))
    assert found.shape == (ROWS, ACTIONS, FILLED)
    np.testing.assert_array_equal(found[..., :FEATURES], features(old))
    np.testing.assert_allclose(found[..., FEATURES:], 0.0, atol=1e-8)


def test_every_step_sees_fresh_actions():
    frozen, fresh = climbed(PUBLISHED)[1], climbed(PUBLISHED, fresh=True)[1]
    assert not np.allclose(frozen.beta.new, fresh.beta.new)


def test_the_penaltys_slope_is_that_of_finite_differences_with_the_test_functions_held():
    features, reached, mean, std, old, noise = climbed(PUBLISHED, size=2)

    def value(mean, std):
        new = mean[:, None] + std[:, None] * noise
        return plain_penalty(features, reached.beta, new, old, 1.0).mean()

    slopes = jax.grad(value, argnums=(0, 1))(jnp.asarray(mean), jnp.asarray(std))
    step = 1e-6
    for which, slope in enumerate(slopes):
        for n, d in ((0, 0), (3, 1), (ROWS - 1, 0)):
            sides = []
            for sign in (1, -1):
                at = [mean.copy(), std.copy()]
                at[which][n, d] += sign * step
                sides.append(float(value(*at)))
            difference = (sides[0] - sides[1]) / (2 * step)
            assert float(slope[n, d]) == pytest.approx(difference, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("size", "std"), [(1, 1.0), (3, 1.0), (3, 0.3)])
def test_the_penalty_at_the_old_policy_pulls_the_deviation_down(size, std):
    """It is an entropic value without correction: not 0 there, and growing with the deviation."""
    features, reached, mean, std_nd, old, noise = climbed(
        PUBLISHED, size=size, std=std, fresh=True, rows=256
    )

    def value(scale, shift):
        new = shift + mean[:, None] + scale * std_nd[:, None] * noise
        return plain_penalty(features, reached.beta, new, old, 1.0).mean()

    assert float(jax.grad(value, 0)(1.0, 0.0)) > 0.05
    # around the published reckoning: −0.37, 0.01 and −0.61
    expected = {(1, 1.0): -0.37, (3, 1.0): 0.01, (3, 0.3): -0.61}[size, std]
    assert float(value(1.0, 0.0)) == pytest.approx(expected, abs=0.1)


def test_a_policy_that_moved_away_pays_for_it():
    features, reached, _, std, old, noise = climbed(PUBLISHED, shift=0.5, fresh=True, rows=256)

    def value(shift):
        new = shift + std[:, None] * noise
        return plain_penalty(features, reached.beta, new, old, 1.0).mean()

    assert float(jax.grad(value)(0.5)) > 0


def test_large_potentials_do_not_overflow():
    features, _, _, old, noise = sample(2)
    beta = Potentials(*np.full((2, ROWS, FILLED), 1e6))
    assert np.isfinite(np.asarray(plain_penalty(features, beta, noise, old, 1.0))).all()
