"""The compiled updates of BGPG and WNPG against a plain reading of their definitions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from ottrpo.engine.algorithms import natural_gradient as natural
from ottrpo.engine.algorithms.behaviour import Features, Smoothing, draw_features
from ottrpo.engine.algorithms.bgpg import BehaviourGuided
from ottrpo.engine.algorithms.guided import GuidedDraws, draw_noise
from ottrpo.engine.algorithms.objective import (
    Objective,
    Outputs,
    gaussian_log_probability,
    guided_loss,
)
from ottrpo.engine.algorithms.wnpg import WassersteinNatural, draw_basis
from ottrpo.engine.networks import Architecture, Networks
from ottrpo.engine.update import minibatches

ROWS, ACTIONS, SIZE, FEATURES = 8, 4, 2, 30
OBJECTIVE = Objective(
    clip_range=10.0,
    clip_range_vf=10.0,
    normalize_advantage=True,
    ent_coef=0.01,
    vf_coef=0.25,
    wasserstein_coef=0.1,
)
SMOOTHING = Smoothing(strength=1.0, steps=3, learning_rate=0.05)
RATE = 1e-3


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def doubled(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64) if eqx.is_array(x) else x, tree)


def problem(batch_size=5):
    """Networks, features, rows, minibatches, noise: all that an update takes."""
    rng = np.random.default_rng(0)
    architecture = Architecture(
        inputs=3, outputs=SIZE, policy_layers=(5,), value_layers=(4,), log_std_init=-0.2
    )
    networks = doubled(Networks(architecture, rng))
    features = Features(*doubled(tuple(draw_features(FEATURES, SIZE, 0.5, rng))))
    mean, std = 0.3 * rng.standard_normal((ROWS, SIZE)), np.full((ROWS, SIZE), 0.8)
    action = mean + std * rng.standard_normal((ROWS, SIZE))
    rows = {
        "flat": rng.standard_normal((ROWS, 3)),
        "images": (),
        "id": np.arange(ROWS),
        "action": action,
        "log_probability": np.asarray(gaussian_log_probability(action, mean, std)),
        "old_action": mean[:, None] + std[:, None] * rng.standard_normal((ROWS, ACTIONS, SIZE)),
        "advantage": rng.standard_normal(ROWS),
        "return": rng.standard_normal(ROWS),
        "value": rng.standard_normal(ROWS),
    }
    index, weight = minibatches(ROWS, batch_size, 2, rng)
    table, draws = draw_noise(index, SMOOTHING.steps, (ACTIONS, SIZE), rng)
    draws = draw_basis(draws, weight, 3, ACTIONS * SIZE + 1, rng)
    weight = weight.astype(np.float64)
    return networks, features, rows, GuidedDraws(None, index, weight, table, draws)


def plain_phi(features, action, xp=jnp):
    angle = 2 * np.pi * (action @ np.asarray(features.frequency).T + np.asarray(features.phase))
    return (2 / FEATURES) ** 0.5 * xp.cos(angle)


def reference(problem, change_of, *, by_sample):
    """The published algorithm in plain steps: NumPy for the test functions, one state at a time."""
    networks, features, rows, (_, index, weight, table, draws) = problem
    trained, static = eqx.partition(networks, eqx.is_array)
    flat, unravel = ravel_pytree(trained)
    optimiser = optax.adam(RATE, eps=1e-5)
    moments = optimiser.init(flat)
    beta = np.zeros((2, ROWS, FEATURES))  # of states, or of places in a minibatch

    @jax.jit
    def outputs(flat, state):
        both = eqx.combine(unravel(flat), static)
        return *both.policy.gaussian(state), both.value(state)

    def loss(flat, rows, beta, noise):
        mean, std, value = outputs(flat, rows["flat"])
        old, new = rows["old_action"], mean[:, None] + std[:, None] * noise
        u = (plain_phi(features, new) * beta[0][:, None]).sum(-1)
        u += (plain_phi(features, old) * beta[1][:, None]).sum(-1)
        penalty = (u - jnp.exp(u - ((new - old) ** 2).sum(-1))).mean()
        advantage = rows["advantage"] - rows["advantage"].mean()
        advantage /= advantage.std() + 1e-8
        z = (rows["action"] - mean) / std
        log_probability = -(0.5 * z**2 + jnp.log(std * jnp.sqrt(2 * jnp.pi))).sum(1)
        policy_loss = -(jnp.exp(log_probability - rows["log_probability"]) * advantage).mean()
        value_loss = ((value - rows["return"]) ** 2).mean()
        entropy = jnp.log(std).sum(1).mean()
        return policy_loss + 0.1 * penalty + 0.25 * value_loss - 0.01 * entropy

    @jax.jit
    def embedding(flat, rows, noise):
        mean, std, value = outputs(flat, rows["flat"])
        action = mean[:, None] + std[:, None] * noise
        return jnp.concatenate([action.reshape(len(action), -1), value[:, None]], 1)

    slope = jax.jit(jax.grad(loss))
    for k, (picked, share) in enumerate(zip(index, weight, strict=True)):
        used = picked[share > 0]
        here = jax.tree.map(lambda array, used=used: array[used], rows)
        shape = (SMOOTHING.steps + 1, len(picked), ACTIONS, SIZE)
        stretch = table[draws.offset[k] :][: np.prod(shape)]
        noise = stretch.reshape(shape)[:, : len(used)]
        mean, std, _ = (np.asarray(x) for x in outputs(flat, here["flat"]))
        places = used if by_sample else np.arange(len(used))
        for t in range(SMOOTHING.steps):
            for n, place in enumerate(places):
                old, new = here["old_action"][n], mean[n] + std[n] * noise[t][n]
                phi, phi_old = plain_phi(features, new, np), plain_phi(features, old, np)
                u = phi @ beta[0, place] + phi_old @ beta[1, place]
                w = 1 - np.exp(u - ((new - old) ** 2).sum(1))
                beta[0, place] += 0.05 * (w[:, None] * phi).mean(0)
                beta[1, place] += 0.05 * (w[:, None] * phi_old).mean(0)
        gradient = slope(flat, here, beta[:, places], noise[-1])
        direction = change_of(
            flat,
            gradient,
            lambda flat, here=here, noise=noise: embedding(flat, here, noise[-1]),
            draws.basis[k],
            draws.coordinate[k],
        )
        change, moments = optimiser.update(direction, moments)
        flat = flat + change
    return flat


def clipped(flat, gradient, embedding, basis, coordinate):
    return gradient * jnp.minimum(1.0, 0.5 / jnp.linalg.norm(gradient))


def dense_natural(damping):
    """The preconditioner with explicit Jacobians and a dense solve."""

    def change(flat, gradient, embedding, basis, coordinate):
        y = embedding(flat)
        x = y[basis]
        difference = x[:, None] - y[None]
        width = (difference**2).sum(-1).mean()

        def means(flat):
            moved = x[:, None] - embedding(flat)[None]
            kernel = jnp.exp(-(moved**2).sum(-1) / (2 * width))
            along = jnp.stack([moved[m, :, i] for m, i in enumerate(coordinate)])
            return (-kernel * along / width).mean(1)

        slope = jax.jit(jax.jacrev(means))(flat)
        kernel = jnp.exp(-(difference**2).sum(-1) / (2 * width))
        mixed = np.zeros(difference.shape)
        for m, i in enumerate(coordinate):
            mixed[m] = -difference[m, :, i, None] * difference[m] / width**2
            mixed[m, :, i] += 1 / width
        mixed *= kernel[..., None]
        gram = np.einsum("mnr,knr->mk", mixed, mixed) / len(y)
        metric = slope.T @ np.linalg.solve(gram, slope)
        columns = jnp.sqrt(jnp.diag(metric)) + 1e-8
        found = jnp.linalg.solve(metric + damping * jnp.diag(columns), gradient)
        length = jnp.linalg.norm(found)
        return found / length if length > 0.5 else found

    return change


def flat_of(learner):
    return ravel_pytree(eqx.filter(learner.networks, eqx.is_array))[0]


def algorithm(kind, **settings):
    """An algorithm of which only the minibatches are looked at."""
    unasked = dict.fromkeys(("architecture", "actions", "estimate", "batch_size", "n_epochs"))
    sizes = {"n_actions": ACTIONS, "n_features": FEATURES, "feature_bandwidth": 0.5}
    usual = {"smoothing": SMOOTHING, "max_grad_norm": 0.5, "by_sample": False}
    return kind(**unasked, **sizes, **vars(OBJECTIVE), **usual | settings)


@pytest.mark.parametrize("by_sample", [False, True])
def test_bgpg_is_its_definition(by_sample):
    case = problem()
    networks, features, rows, draws = case
    guided = algorithm(BehaviourGuided, by_sample=by_sample)
    learner, fit = guided.alternate(guided.start(networks, features), rows, draws, RATE)
    expected = reference(case, clipped, by_sample=by_sample)
    np.testing.assert_allclose(flat_of(learner), expected, rtol=1e-6, atol=1e-8)
    assert float(fit["dual_last"]) != float(fit["dual_first"])


def test_wnpg_is_its_definition():
    case = problem()
    networks, features, rows, draws = case
    guided = algorithm(WassersteinNatural, damping=1e-2, damping_rule="fixed")
    learner, fit = guided.alternate(doubled(guided.start(networks, features)), rows, draws, RATE)
    expected = reference(case, dense_natural(1e-2), by_sample=False)
    np.testing.assert_allclose(flat_of(learner), expected, rtol=1e-5, atol=1e-7)
    assert float(fit["natural_used"]) == 1.0
    assert float(fit["rank"]) == 3.0


def test_damping_is_carried_from_rollout_to_rollout():
    networks, features, rows, draws = problem()
    guided = algorithm(
        WassersteinNatural,
        norm_rule="clip",
        damping=1e-2,
        damping_rule="two-sided",
        kernel_bandwidth="root",
        singular_tolerance=1e-8,
        optimizer="sgd",
    )
    learner = doubled(guided.start(networks, features))
    assert isinstance(learner.moments.damping, natural.Damping)
    for rollout in (1, 2):
        learner, _ = guided.alternate(learner, rows, draws, RATE)
        assert int(learner.moments.damping.steps) == rollout * len(draws.index)
    assert float(learner.moments.damping.value) != 1e-2


def test_clipping_holds_ratios_and_values_back():
    """Where a ratio or a value has left its range in the wanted direction, nothing pulls on it."""
    objective = Objective(
        clip_range=0.2,
        clip_range_vf=0.1,
        normalize_advantage=False,
        ent_coef=0.0,
        vf_coef=1.0,
        wasserstein_coef=0.0,
    )
    rows = {
        "action": np.array([[1.0], [1.0]]),
        "log_probability": np.array([-3.0, -3.0]),  # ratios far above 1.2
        "advantage": np.array([1.0, -1.0]),
        "return": np.array([1.0, -1.0]),
        "value": np.array([0.0, 0.0]),
    }
    outputs = Outputs(np.full((2, 1), 0.5), np.ones((2, 1)), np.array([0.5, 0.5]))
    weight = np.full(2, 0.5)
    slopes = jax.grad(lambda o: guided_loss(o, np.zeros(2), rows, weight, objective)[0])(outputs)
    assert float(slopes.mean[0, 0]) == 0.0
    assert float(slopes.mean[1, 0]) != 0.0
    assert float(slopes.value[0]) == 0.0  # on its way to 1, but 0.1 is as far as it may go
    assert float(slopes.value[1]) == pytest.approx(1.5)


def test_basis_points_are_different_rows_and_prefer_those_that_count():
    weight = np.zeros((50, 8), np.float32)
    weight[:, :5] = 0.2
    index = np.zeros((50, 8), np.int32)
    rng = np.random.default_rng(0)
    _, draws = draw_noise(index, 25, (10, 3), rng)
    draws = draw_basis(draws, weight, 5, 31, rng)
    assert (np.sort(draws.basis, axis=1) == np.arange(5)).all()
    assert draws.coordinate.min() == 0
    assert draws.coordinate.max() == 30
    assert draws.offset.shape == (50,)
    fewer = draw_basis(draws, weight, 20, 31, rng)
    assert fewer.basis.shape == (50, 8)
