"""The rivals that follow critics, against linear-quadratic problems whose answers are known."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov
from torch.distributions import Normal, kl_divergence

from ottrpo.core import LinearProblem, solve_at
from ottrpo.engine.algorithms.pathwise import action_slopes, normals
from ottrpo.engine.algorithms.wpo_gradient import decoupled_kl, flow
from ottrpo.engine.algorithms.wppg import gaussian_targets, proximal_step

EACH = 350  # problems of every size: more than a thousand together
SIZES = (1, 2, 3)
every_size = pytest.mark.parametrize("size", SIZES)
NOWHERE = jnp.zeros((3, 1))  # the critics here do not look at the state


class Quadratic(NamedTuple):
    """Two critics whose mean is Q = −½ (a − a*)ᵀH(a − a*): they differ by a plane."""

    H: Any
    best: Any
    plane: Any

    def __call__(self, flat, action):
        gap = action - self.best
        value = -0.5 * ((gap @ self.H) * gap).sum(-1)
        return jnp.stack([value + action @ self.plane, value - action @ self.plane])


def problems(size):
    """Critics, and three Gaussians for each."""
    rng = np.random.default_rng(24 + size)
    root = rng.normal(size=(EACH, size, size))
    curvature = root @ root.swapaxes(1, 2) + 0.1 * np.eye(size)
    curvature /= np.linalg.eigvalsh(curvature).max(-1)[:, None, None]
    best, plane = rng.normal(size=(2, EACH, size))
    gaussians = rng.normal(size=(EACH, 3, size)), np.exp(rng.normal(-1, 0.5, (EACH, 3, size)))
    single = (jnp.asarray(x, "float32") for x in (curvature, best, plane, *gaussians))
    *critics, mean, std = single
    return Quadratic(*critics), mean, std


def sphere(size):
    """Points of mean 0 and covariance 1: averages of quadratics over them are expectations."""
    return np.float32(np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)]))


def displaced(critics, mean, std):
    """Samples whose averages are exact, and the slopes there."""
    size = mean.shape[1]
    z = jnp.broadcast_to(sphere(size), (len(mean), 2 * size, size))
    action = mean[:, None] + std[:, None] * z
    return z, action, action_slopes(critics, NOWHERE, action)


@every_size
def test_the_flow_is_the_wasserstein_gradient_of_a_quadratic(size):
    """Diagonal Gaussians move like the points (m, σ), so it is the slope of E Q in these.

    E Q = −½ (m − a*)ᵀH(m − a*) − ½ Σ H_jj σ_j²; nothing of log π is left when F has divided it.
    """
    critics, mean, std = problems(size)

    def gradient(critics, mean, std):
        _, action, slope = displaced(critics, mean, std)
        return jax.grad(lambda m, s: flow(m, s, action, slope).sum(), argnums=(0, 1))(mean, std)

    of_mean, of_std = jax.jit(jax.vmap(gradient))(critics, mean, std)
    known = -jnp.einsum("cij,crj->cri", critics.H, mean - critics.best[:, None])
    np.testing.assert_allclose(of_mean, known, atol=3e-5)
    curvature = jnp.diagonal(critics.H, axis1=1, axis2=2)[:, None]
    np.testing.assert_allclose(of_std, -curvature * std, atol=3e-5)


@every_size
def test_one_explicit_step_is_the_linear_model_at_a_price(size):
    """WPPG's transport of the mean, m + η g, is ours at λ = 1/(2η)."""
    step, (critics, mean, std) = 0.3, problems(size)

    def stepped(critics, mean, std):
        z, action, slope = displaced(critics, mean, std)
        moved = proximal_step(critics, NOWHERE, action, step, 1) - action
        return slope.mean(1), *gaussian_targets(mean, std, z, moved, 0.0)

    slope, target_mean, target_std = jax.jit(jax.vmap(stepped))(critics, mean, std)
    for case in range(EACH):
        problem = LinearProblem(np.full(3, 1 / 3), np.asarray(slope[case]), 1.0)
        ours = solve_at(problem, 1 / (2 * step)).nearest_r
        np.testing.assert_allclose(target_mean[case] - mean[case], ours, atol=3e-5)
    shrunk = std * (1 - step * jnp.diagonal(critics.H, axis1=1, axis2=2)[:, None])
    np.testing.assert_allclose(target_std, shrunk, rtol=1e-4, atol=1e-5)


@every_size
def test_iterated_the_step_is_the_proximal_map(size):
    """A quadratic is maximised less |a' − a|²/(2η) at (1 + ηH)⁻¹ (a + ηH a*)."""
    step, (critics, mean, _) = 0.5, problems(size)

    def iterated(critics, mean):
        return proximal_step(critics, NOWHERE, mean[:, None], step, 40)[:, 0]

    found = jax.jit(jax.vmap(iterated))(critics, mean)
    curvature = np.asarray(critics.H, np.float64)
    pulled = np.einsum("cij,cj->ci", curvature, critics.best)[:, None]
    known = np.linalg.solve(
        np.eye(size) + step * curvature, (mean + step * pulled).swapaxes(1, 2)
    ).swapaxes(1, 2)
    np.testing.assert_allclose(found, known, atol=1e-4)


def test_transport_and_heat_settle_where_the_entropy_wants_them():
    """σ² → τ / (h (1 − ηh/2)): that of exp(Q/τ) but for the size of the step."""
    rng = np.random.default_rng(6)
    curvature, temperature = (np.float32(10 ** rng.uniform(-1, 1, (1_000, 1))) for _ in range(2))
    step = np.float32(rng.uniform(0.1, 1.0, (1_000, 1))) / curvature  # it settles below 2
    z = jnp.broadcast_to(sphere(1), (1_000, 2, 1))

    def again(_, gaussian):
        mean, std = gaussian
        moved = -(step * curvature)[:, None] * (mean[:, None] + std[:, None] * z)
        return gaussian_targets(mean, std, z, moved, 2 * step * temperature)

    start = jnp.ones((1_000, 1)), 0.1 * jnp.ones((1_000, 1))
    mean, std = jax.lax.fori_loop(0, 400, again, start)
    np.testing.assert_allclose(mean, 0.0, atol=1e-5)
    settled = temperature / (curvature * (1 - step * curvature / 2))
    np.testing.assert_allclose(std**2, settled, rtol=1e-4)


MANY = 1_000


def linear_quadratic(rng):
    """s' = As + Ba at a cost sᵀs + aᵀa, discounted; the best gain by Riccati's equation.

    Q may be no more than thirty times as steep one way as another: gradient steps take as long.
    """
    while True:
        advance, push = rng.normal(size=(2, 2, 2))
        advance /= abs(np.linalg.eigvals(advance)).max()  # what does nothing ends up nowhere
        root = np.sqrt(0.9)
        cost = solve_discrete_are(root * advance, root * push, np.eye(2), np.eye(2))
        curvature = np.eye(2) + 0.9 * push.T @ cost @ push
        if np.linalg.cond(curvature) < 30:
            return advance, push, -np.linalg.solve(curvature, 0.9 * push.T @ cost @ advance)


def value_of(gain, advance, push):
    """P of V(s) = −sᵀPs under a = gain · s, as far as it depends on the state; of many at once.

    P = closedᵀ P closed + 1 + gainᵀ gain, as linear equations in the entries of P.
    """
    closed = np.sqrt(0.9) * (advance + push @ gain)
    turned, cost = closed.swapaxes(1, 2), np.eye(2) + gain.swapaxes(1, 2) @ gain
    onto = np.einsum("nij,nkl->nikjl", turned, turned).reshape(-1, 4, 4)
    return np.linalg.solve(np.eye(4) - onto, cost.reshape(-1, 4, 1)).reshape(-1, 2, 2)


def test_values_are_those_of_lyapunovs_equation():
    rng = np.random.default_rng(4)
    advance, push, best = map(
        np.array, zip(*(linear_quadratic(rng) for _ in range(50)), strict=True)
    )
    for one, A, B, K in zip(value_of(best, advance, push), advance, push, best, strict=True):
        closed = np.sqrt(0.9) * (A + B @ K)
        known = solve_discrete_lyapunov(closed.T, np.eye(2) + K.T @ K)
        np.testing.assert_allclose(one, known, rtol=1e-8)


@pytest.mark.parametrize("kind", ["flow", "proximal"])
def test_both_solve_linear_quadratic_problems(kind):
    """Exact critics, a linear policy: the gain goes to that of Riccati's equation."""
    rng = np.random.default_rng(3)
    states = jnp.asarray(rng.normal(size=(16, 2)), "float32")
    z = jnp.broadcast_to(sphere(2), (16, 4, 2))

    @jax.jit
    @jax.vmap
    def target(worth, gain, step):
        mean = states @ gain.T
        std = 0.1 * jnp.ones_like(mean)
        action = mean[:, None] + std[:, None] * z
        slope = action_slopes(worth, states, action)
        if kind == "flow":
            return mean + step * jax.grad(lambda m: flow(m, std, action, slope).sum())(mean)
        return gaussian_targets(mean, std, z, step * slope, 0.0)[0]

    drawn = zip(*(linear_quadratic(rng) for _ in range(MANY)), strict=True)
    advance, push, best = map(np.array, drawn)
    gain, fit = np.zeros((MANY, 2, 2)), np.linalg.pinv(np.asarray(states, float))
    for _ in range(600):
        P = value_of(gain, advance, push)
        worth = Worth(*(np.float32(x) for x in (advance, push, 0.9 * P)))
        steep = np.linalg.eigvalsh(np.eye(2) + 0.9 * push.swapaxes(1, 2) @ P @ push).max(-1)
        found = target(worth, np.float32(gain), np.float32(0.4 / steep))
        gain = (fit @ np.asarray(found, float)).swapaxes(1, 2)
    np.testing.assert_allclose(gain, best, atol=2e-3)


class Worth(NamedTuple):
    """Two critics that agree: Q of a state and an action, given that of all states."""

    advance: Any
    push: Any
    P: Any

    def __call__(self, flat, action):
        after = flat @ self.advance.T + action @ self.push.T
        value = -(action**2).sum(-1) - ((after @ self.P) * after).sum(-1)
        return jnp.stack([value, value])


def test_the_divergences_of_mean_and_std_are_those_of_gaussians():
    rng = np.random.default_rng(5)
    old_mean, mean = rng.normal(size=(2, 1000, 3)).astype(np.float32)
    old_std, std = np.exp(rng.normal(-1, 0.5, (2, 1000, 3))).astype(np.float32)
    found = decoupled_kl((old_mean, old_std), mean, std)
    old = Normal(torch.from_numpy(old_mean), torch.from_numpy(old_std))
    for ours, new in zip(found, ((mean, old_std), (old_mean, std)), strict=True):
        known = kl_divergence(old, Normal(*map(torch.from_numpy, new))).sum(-1)
        np.testing.assert_allclose(ours, known, rtol=1e-3, atol=1e-5)


def test_rows_draw_for_themselves():
    drawn = normals(jnp.arange(500), 8, 2)
    assert drawn.shape == (500, 8, 2)
    assert abs(float(drawn.mean())) < 0.05
    assert float(drawn.std()) == pytest.approx(1.0, abs=0.05)
    between = np.corrcoef(np.asarray(drawn).reshape(500, -1))[np.triu_indices(500, 1)]
    assert between.std() == pytest.approx(16**-0.5, rel=0.1)  # as if nothing had to do with another
    np.testing.assert_array_equal(normals(jnp.arange(3, 5), 8, 2), drawn[3:5])
