"""Mixtures and flows against SciPy, POT and autodiff: densities, inverses, and plans as bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from ottrpo.core import Mahalanobis, PNorm, SquaredEuclidean, gaussian_w2_squared
from ottrpo.engine.acting import Eyes, act, actor_for, draw_noise
from ottrpo.engine.densities import Flow, Mixture, RichActions
from ottrpo.engine.models.base import STANDARD_ERRORS
from ottrpo.engine.models.transported import (
    by_components,
    by_noise,
    component_costs,
    coupled_cost,
    points,
)
from ottrpo.engine.networks import Architecture, Policy
from ottrpo.engine.state import Normaliser

CASES = 1_000
SQUARED = SquaredEuclidean()


def heads(density, rows, seed, spread=0.7):
    """Numbers around the first ones."""
    rng = np.random.default_rng(seed)
    return np.array(density.first) + spread * rng.standard_normal((rows, len(density.first)))


def shifted(density, head, by):
    """The head whose actions are all moved by a vector."""
    head = head.copy()
    if isinstance(density, Flow):
        head[:, : density.size] += by
    else:
        means = slice(density.count, density.count * (1 + density.size))
        head[:, means] += np.tile(by, density.count)
    return head


@pytest.mark.parametrize(("size", "count"), [(1, 1), (1, 4), (2, 3), (5, 2)])
def test_the_density_of_a_mixture_is_scipys(size, count):
    density = Mixture(size, count, 0.5)
    head, action = heads(density, CASES, 0), np.random.default_rng(1).normal(size=(CASES, size))
    log_weight, mean, std = density.parts(head)
    np.testing.assert_allclose(logsumexp(log_weight, axis=-1), 0.0, atol=1e-12)
    each = norm.logpdf(action[:, None], mean, std).sum(-1)
    expected = logsumexp(each + log_weight, axis=-1)
    np.testing.assert_allclose(density.log_density(head, action), expected, rtol=1e-11)


def test_components_are_drawn_with_their_weights():
    density, rng = Mixture(1, 3, 0.5), np.random.default_rng(0)
    head = np.array([1.0, 0.0, -1.0, -9.0, 0.0, 9.0, -3.0, -3.0, -3.0])
    drawn = density.push(head, density.noise(rng.standard_normal((20_000, 1)), rng))[:, 0]
    share = [(drawn < -5).mean(), (abs(drawn) < 5).mean(), (drawn > 5).mean()]
    np.testing.assert_allclose(share, np.exp(density.parts(head)[0]), atol=0.015)
    for at, expected in ((drawn[drawn > 5], 9.0), (drawn[drawn < -5], -9.0)):
        assert at.mean() == pytest.approx(expected, abs=0.01)
        assert at.std() == pytest.approx(0.02 + np.exp(-3.0), rel=0.05)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (1, 4), (2, 2), (4, 3)])
def test_inverse_and_determinant_of_a_flow_are_those_of_autodiff(size, count):
    density, rng = Flow(size, count, 0.5), np.random.default_rng(2)
    head, noise = heads(density, CASES, 3), rng.standard_normal((CASES, size))
    action = density.push(head, noise)
    found, stretch = density.inverse(head, action)
    np.testing.assert_allclose(found, noise, atol=1e-7)
    with jax.enable_x64(True):
        jacobian = jax.vmap(jax.jacfwd(density.push, argnums=1))(*map(jnp.asarray, (head, noise)))
        sign, expected = np.linalg.slogdet(jacobian)
    assert (sign == 1).all()
    np.testing.assert_allclose(stretch, expected, atol=1e-6)
    log_density = norm.logpdf(noise).sum(-1) - expected
    np.testing.assert_allclose(density.log_density(head, action), log_density, atol=1e-5)


@pytest.mark.parametrize("density", [Flow(3, 2, 0.5), Mixture(3, 2, 0.5)])
def test_likelihoods_change_with_the_head_as_differences_say(density):
    action = np.random.default_rng(5).normal(size=(CASES, 3))
    head = heads(density, CASES, 4)
    with jax.enable_x64(True):
        slope = jax.vmap(jax.grad(density.log_density))(*map(jnp.asarray, (head, action)))
    step = 1e-5 * np.eye(head.shape[1])
    up, down = (
        density.log_density(head[:, None] + sign * step, action[:, None]) for sign in (1, -1)
    )
    np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("density", [Flow(1, 3, 0.5), Mixture(1, 3, 0.5)])
def test_densities_integrate_to_one(density):
    head = heads(density, 8, 6, 0.4)[:, None]
    grid = np.linspace(-12, 12, 12_001)[None, :, None]
    mass = np.exp(density.log_density(head, grid)).sum(-1) * (grid[0, 1, 0] - grid[0, 0, 0])
    np.testing.assert_allclose(mass, 1.0, atol=2e-3)


def quantiles_of_mixture(density, head, levels):
    """By halving the distribution function that SciPy says."""
    log_weight, mean, std = (
        part[..., 0] if part.ndim == 3 else part for part in density.parts(head)
    )
    low, high = np.full((2, len(head), len(levels)), 30.0) * np.array([-1, 1])[:, None, None]
    for _ in range(36):
        middle = 0.5 * (low + high)
        below = sum(
            np.exp(log_weight[:, [k]]) * norm.cdf(middle, mean[:, [k]], std[:, [k]])
            for k in range(density.count)
        )
        low, high = np.where(below < levels, middle, low), np.where(below < levels, high, middle)
    return 0.5 * (low + high)


def test_the_plan_of_mixtures_costs_no_less_than_the_quantiles_say():
    density, levels = Mixture(1, 3, 0.5), (np.arange(200) + 0.5) / 200
    old, new = heads(density, CASES, 7), heads(density, CASES, 8)
    new[::2] = old[::2] + 0.1 * (new[::2] - old[::2])  # as an update would move it
    of_old, of_new = (quantiles_of_mixture(density, head, levels) for head in (old, new))
    exact = ((of_old - of_new) ** 2).mean(-1)
    bound = np.asarray(by_components(density, old, new, SQUARED))
    assert (bound >= 0.995 * exact - 1e-5).all()
    # components overlap, and mass could go through neighbours instead: it is no closer than this
    assert np.median(bound[::2] / exact[::2]) < 5.0


def test_the_plan_of_mixtures_costs_no_less_than_pots():
    """Points with mean 0 and covariance 1 in each component: its plan is one of theirs."""
    density, rng = Mixture(2, 3, 0.5), np.random.default_rng(9)
    old, new = heads(density, CASES, 10), heads(density, CASES, 11)
    metric = np.array([[2.0, 0.5], [0.5, 1.0]])
    for cost, matrix in ((SQUARED, np.eye(2)), (Mahalanobis(metric), metric)):
        bound = np.asarray(by_components(density, old, new, cost), float)
        for row in range(CASES // 2):
            z = rng.standard_normal((8, 2))
            z = (z - z.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T, ddof=0))).T
            both = [density.parts(head[row]) for head in (old, new)]
            at = [(mean[:, None] + std[:, None] * z).reshape(-1, 2) for _, mean, std in both]
            mass = [np.repeat(np.exp(log_weight) / 8, 8) for log_weight, *_ in both]
            gap = at[0][:, None] - at[1][None]
            exact = ot.emd2(*mass, np.einsum("abi,ij,abj->ab", gap, matrix, gap))
            assert bound[row] >= exact * (1 - 1e-4) - 1e-6


def test_the_plan_of_one_component_is_the_wasserstein_distance():
    density = Mixture(3, 1, 0.5)
    old, new = heads(density, CASES, 12), heads(density, CASES, 13)
    both = [[part[:, 0] for part in density.parts(head)[1:]] for head in (old, new)]
    exact = [
        gaussian_w2_squared(m, np.diag(s**2), n, np.diag(t**2))
        for m, s, n, t in zip(*both[0], *both[1], strict=True)
    ]
    np.testing.assert_allclose(by_components(density, old, new, SQUARED), exact, rtol=1e-4)


def test_between_two_places_the_plan_is_pots_of_the_weights():
    density = Mixture(2, 2, 0.5)
    old = heads(density, CASES, 14)
    new = old.copy()
    new[:, :2] = heads(density, CASES, 15)[:, :2]
    bound = by_components(density, old, new, SQUARED)
    cost = np.asarray(component_costs(density, old, new, SQUARED), float)
    weights = [np.exp(density.parts(head)[0]) for head in (old, new)]
    exact = [ot.emd2(*each) for each in zip(*weights, cost, strict=True)]
    np.testing.assert_allclose(bound, exact, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("density", [Mixture(2, 3, 0.5), Flow(2, 3, 0.5)])
def test_a_shift_costs_what_it_is(density):
    """No plan is cheaper than moving the mean; so it is the discrepancy."""
    head = heads(density, CASES, 16).astype(np.float32)
    by = np.array([0.3, -0.4], np.float32)
    spent = coupled_cost(density, head, shifted(density, head, by), SQUARED)
    assert float(spent) == pytest.approx(0.25, rel=1e-4)


def test_the_plan_of_flows_costs_no_less_than_pot_finds_on_the_line():
    """Sixteen states at a time, as the certificate is of their mean."""
    density, rows = Flow(1, 3, 0.5), 16
    fine = norm.ppf((np.arange(300) + 0.5) / 300)[:, None]
    bound = jax.jit(lambda old, new: by_noise(density, old, new, SQUARED, None))
    below, ratio = 0, []
    for case in range(CASES):
        old, new = (heads(density, rows, 2 * case + i, 0.5).astype(np.float32) for i in (0, 1))
        new = old + (0.1 if case % 2 else 1.0) * (new - old)
        pairs = ([density.push(head[:, None], fine)[..., 0] for head in (old, new)],)
        exact = np.mean([ot.emd2_1d(x, y) for x, y in zip(*pairs[0], strict=True)])
        ratio.append(float(bound(old, new)) / exact)
        below += ratio[-1] < 0.999
    assert below == 0
    assert np.median(ratio) < 1.0 + 3 * STANDARD_ERRORS / np.sqrt(rows)


@pytest.mark.parametrize("cost", [SQUARED, PNorm(1)])
def test_the_plan_of_flows_is_one_of_those_that_pot_chooses_from(cost):
    density, count = Flow(2, 2, 0.5), CASES
    old, new = heads(density, count, 17), heads(density, count, 18)
    noise = np.asarray(points(density, (12, count)))
    at = [density.push(head, noise) for head in (old, new)]
    same = cost(*at).mean(0)
    for row in range(count):
        every = cost(at[0][:, row, None], at[1][None, :, row])
        assert ot.emd2(np.full(12, 1 / 12), np.full(12, 1 / 12), every) <= same[row] * (1 + 1e-9)


@pytest.mark.parametrize("density", [Mixture(2, 3, 0.5), Flow(2, 3, 0.5)])
@pytest.mark.parametrize("low", [-1.0, -4.0])
def test_the_host_acts_as_the_pure_function_says(density, low):
    bounds = np.full(2, low, np.float32), np.ones(2, np.float32)
    actions = RichActions(*bounds, (2,), density=density)
    architecture = Architecture(inputs=3, outputs=len(density.first), first=density.first)
    policy = Policy(architecture, np.random.default_rng(1))
    made = Normaliser(measured=np.ones(3, bool))
    eyes = Eyes(
        made, made.fold_observations(made.start(1)[0], np.random.default_rng(2).random((9, 3)))
    )
    noise = draw_noise(policy, actions, np.random.default_rng(0), steps=6, rows=4, noise_color=1.0)
    actor, mode = (actor_for(policy, eyes, actions, 4, given) for given in (noise, None))
    seen = np.random.default_rng(1).normal(size=(6, 4, 3))
    for t in range(6):
        fast = actor.act(t, seen[t])
        world, record = act(policy, actions, eyes(seen[t]), (), noise.at(t))
        np.testing.assert_allclose(fast, world, atol=1e-5)
        for key, array in actor.record().items():
            np.testing.assert_allclose(array[t], record[key], atol=1e-5)
        world, _ = act(policy, actions, eyes(seen[t]), (), 0.0 * noise.at(t))
        np.testing.assert_allclose(mode.act(0, seen[t]), world, atol=1e-5)


def test_without_noise_the_likeliest_component_or_the_middle_is_played():
    mixture, flow = Mixture(1, 2, 0.5), Flow(1, 2, 0.5)
    head = np.array([0.0, 0.1, -0.7, 0.6, -3.0, -3.0])
    assert mixture.push(head, np.zeros(3)) == pytest.approx(0.6)
    head = heads(flow, 30, 19)[:, None]
    drawn = flow.push(head, norm.ppf((np.arange(999) + 0.5) / 999)[:, None])
    np.testing.assert_allclose(flow.push(head, np.zeros(1))[:, 0], np.median(drawn, axis=1))
