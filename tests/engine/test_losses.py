"""Each loss against the formula it stands for."""

import equinox as eqx
import jax
import numpy as np
import pytest

from ottrpo.core import Mahalanobis, PNorm, SquaredEuclidean
from ottrpo.engine.models.candidates import regularised_gaussian_advantage, towards_gaussian_targets
from ottrpo.engine.models.finite import regularised_finite_advantage, towards_finite_targets
from ottrpo.engine.models.linear import towards_displaced_gaussian
from ottrpo.engine.networks import Architecture, Policy

ROWS = 6
RNG = np.random.default_rng(0)
FLAT = RNG.normal(size=(ROWS, 3)).astype(np.float32)
WEIGHT = np.full(ROWS, 1.0 / ROWS, np.float32)


@pytest.fixture(scope="module")
def policy():
    architecture = Architecture(inputs=3, outputs=2, log_std_init=-0.5, ortho_init=False)
    return Policy(architecture, np.random.default_rng(0))


def gradient(function, policy):
    trained, static = eqx.partition(policy, eqx.is_array)
    return jax.tree.leaves(jax.grad(lambda p: function(eqx.combine(p, static)))(trained))


@pytest.mark.parametrize("metric", [None, np.array([[2.0, 0.5], [0.5, 1.0]])])
def test_regression_on_linear_targets_is_the_regularised_advantage(policy, metric):
    """∇ of |m_θ − m − M⁻¹g/2λ|²_M equals −∇ of (g·(m_θ − m) − λ|m_θ − m|²_M)/λ."""
    g = RNG.normal(size=(ROWS, 2)).astype(np.float32)
    start = RNG.normal(size=(ROWS, 2)).astype(np.float32)
    multiplier = 0.7
    cost = SquaredEuclidean() if metric is None else Mahalanobis(metric)
    full = np.eye(2) if metric is None else metric
    rows = {"flat": FLAT, "images": (), "target_mean": start + g @ np.linalg.inv(full) / 1.4}
    regression = towards_displaced_gaussian(metric, learn_std=False)

    def advantage(policy):
        mean, _ = policy.gaussian(FLAT)
        gain = (g * (mean - start)).sum(1) - multiplier * cost(mean, start)
        return -(gain / multiplier).mean()

    ours = gradient(lambda p: regression(p, rows, WEIGHT, {}), policy)
    for left, right in zip(ours, gradient(advantage, policy), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def candidate_rows(sources):
    target = RNG.normal(size=(ROWS, sources, 2, 2)).astype(np.float32)
    share = np.broadcast_to(np.array([0.3, 0.7], np.float32), (ROWS, sources, 2))
    return {
        "flat": FLAT,
        "images": (),
        "noise": RNG.normal(size=(ROWS, sources, 2)).astype(np.float32),
        "target": target,
        "share": share,
        "candidate": target,
        "gain": RNG.normal(size=(ROWS, sources, 2)).astype(np.float32),
    }


@pytest.mark.parametrize("cost", [SquaredEuclidean(), PNorm(1)])
@pytest.mark.parametrize("sources", [1, 3])
def test_candidate_losses_are_their_formulas(policy, cost, sources):
    rows, multiplier = candidate_rows(sources), 0.4
    mean, std = (np.asarray(x) for x in policy.gaussian(FLAT))
    left, climbed = 0.0, 0.0
    for r in range(ROWS):
        for j in range(sources):
            source = mean[r] + std[r] * rows["noise"][r, j]
            costs = [float(cost(source, rows["target"][r, j, k])) for k in range(2)]
            left += 0.3 * costs[0] + 0.7 * costs[1]
            climbed += max(rows["gain"][r, j, k] - multiplier * costs[k] for k in range(2))
    count = ROWS * sources
    regression = towards_gaussian_targets(cost, learn_std=False)(policy, rows, WEIGHT, {})
    assert float(regression) == pytest.approx(left / count, rel=1e-4)
    ascent = regularised_gaussian_advantage(cost, learn_std=False)
    value = ascent(policy, rows, WEIGHT, {"multiplier": multiplier})
    assert float(value) == pytest.approx(-climbed / count, rel=1e-4)


def test_std_is_moved_only_if_it_is_learnt(policy):
    rows = candidate_rows(3)
    position = [leaf is policy.log_std for leaf in jax.tree.leaves(policy)].index(True)
    for learn_std in (False, True):
        loss = towards_gaussian_targets(SquaredEuclidean(), learn_std=learn_std)
        moved = gradient(lambda p, loss=loss: loss(p, rows, WEIGHT, {}), policy)[position]
        assert bool(np.abs(moved).max() > 0) is learn_std


def test_finite_losses_are_their_formulas():
    architecture = Architecture(inputs=3, outputs=6, ortho_init=False)
    policy = Policy(architecture, np.random.default_rng(1))
    allowed = np.ones((ROWS, 2, 3), bool)
    allowed[:, 1, 2] = False
    logits = np.array(policy.logits(FLAT, (), 3), np.float64)
    logits[~allowed] = -np.inf
    probability = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    target, worth = RNG.random((2, ROWS, 2, 3))
    rows = {"flat": FLAT, "images": (), "allowed": allowed, "target": target, "worth": worth}
    squared = ((probability - target) ** 2).sum((1, 2)).mean()
    assert float(towards_finite_targets(3)(policy, rows, WEIGHT, {})) == pytest.approx(
        squared, rel=1e-4
    )
    climbed = (probability * worth).sum((1, 2)).mean()
    value = float(regularised_finite_advantage(3)(policy, rows, WEIGHT, {}))
    assert value == pytest.approx(-climbed, rel=1e-4)
