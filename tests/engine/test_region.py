import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest

from ottrpo.core import (
    Binary,
    Mahalanobis,
    PNorm,
    SquaredEuclidean,
    TableCost,
    average_discrepancy,
    gaussian_w2_squared,
)
from ottrpo.engine.models.base import gaussian_spent
from ottrpo.engine.models.labels import finite_spent, greedy_cost
from ottrpo.engine.networks import Architecture, Policy
from ottrpo.engine.update import MARGIN, between, largest_share

ROWS = 9
RNG = np.random.default_rng(0)
FLAT = RNG.normal(size=(ROWS, 3)).astype(np.float32)


def gaussian_rows():
    return {
        "flat": FLAT,
        "images": (),
        "mean": RNG.normal(size=(ROWS, 2)).astype(np.float32),
        "std": RNG.uniform(0.5, 1.5, size=(ROWS, 2)).astype(np.float32),
    }


def gaussian_policy(**changes):
    architecture = Architecture(inputs=3, outputs=2, log_std_init=-0.2, ortho_init=False, **changes)
    return Policy(architecture, np.random.default_rng(0))


@pytest.mark.parametrize("use_sde", [False, True])
def test_spent_is_the_wasserstein_distance_of_the_gaussians(use_sde):
    policy, rows = gaussian_policy(use_sde=use_sde), gaussian_rows()
    mean, std = (np.asarray(x, np.float64) for x in policy.gaussian(FLAT))
    exact = np.mean(
        [
            gaussian_w2_squared(
                rows["mean"][r], np.diag(rows["std"][r] ** 2), mean[r], np.diag(std[r] ** 2)
            )
            for r in range(ROWS)
        ]
    )
    spent = gaussian_spent(SquaredEuclidean(), np.eye(2), std_moves=True)
    assert float(spent(policy, rows)) == pytest.approx(exact, rel=1e-4)


def test_with_equal_deviations_it_is_the_cost_of_the_shift():
    policy, rows = gaussian_policy(), gaussian_rows()
    mean = np.asarray(policy.gaussian(FLAT)[0])
    for cost in (PNorm(1), Mahalanobis([[2.0, 0.3], [0.3, 1.0]])):
        spent = gaussian_spent(cost, None, std_moves=False)
        assert float(spent(policy, rows)) == pytest.approx(
            float(np.mean(cost(rows["mean"], mean))), rel=1e-4
        )


def finite_rows(choices):
    policy = Policy(
        Architecture(inputs=3, outputs=2 * choices, ortho_init=False), np.random.default_rng(0)
    )
    old = RNG.dirichlet(np.ones(choices), size=(ROWS, 2)).astype(np.float32)
    allowed = np.ones((ROWS, 2, choices), bool)
    logits = np.asarray(policy.logits(FLAT, (), choices), np.float64)
    new = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    rows = {"flat": FLAT, "images": (), "allowed": allowed, "probability": old}
    return policy, rows, old / old.sum(-1, keepdims=True, dtype=np.float64), new


def exact_discrepancy(old, new, cost):
    weight = np.full(ROWS, 1 / ROWS)
    return sum(average_discrepancy(old[:, f], new[:, f], weight, cost) for f in range(2))


@pytest.mark.parametrize(
    ("cost", "choices"),
    [(Binary(), 3), (2.5 * Binary(), 3), (TableCost([[0, 1], [3, 0]]), 2)],
)
def test_finite_policies_spend_the_exact_discrepancy(cost, choices):
    policy, rows, old, new = finite_rows(choices)
    exact = exact_discrepancy(old, new, cost)
    assert float(finite_spent(cost, choices)(policy, rows)) == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_under_general_costs_it_is_never_less_and_not_much_more(seed):
    rng = np.random.default_rng(seed)
    cost = TableCost(rng.uniform(0.5, 2.0, (4, 4)) * (1 - np.eye(4)))
    policy, rows, old, new = finite_rows(4)
    exact = exact_discrepancy(old, new, cost)
    spent = float(finite_spent(cost, 4)(policy, rows))
    assert exact * (1 - 1e-4) <= spent <= 1.25 * exact


def test_the_plan_of_cheap_moves_costs_no_less_than_pots():
    """A thousand states, each with a cost of its own."""
    rng = np.random.default_rng(1)
    old, new = rng.dirichlet(np.full(4, 0.5), (2, 1000))
    cost = rng.uniform(0.2, 2.0, (1000, 4, 4)) * (1 - np.eye(4))
    exact = np.array([ot.emd2(*each) for each in zip(old, new, cost, strict=True)])
    found = greedy_cost(old, new, cost)
    assert (found >= exact * (1 - 1e-9) - 1e-12).all()
    assert np.median(found / exact) < 1.1


@pytest.mark.parametrize("power", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("full", [0.5, 1.0, 1.001, 3.0, 1e6])
def test_stepping_back_ends_inside_and_never_without_need(power, full):
    for whole in (full, jnp.float32(full)):  # on the host, and as a compiled program would
        share, spent = largest_share(whole, lambda share: full * share**power, 1.0)
        assert_inside(full, share, spent)


def assert_inside(full, share, spent):
    assert spent <= 1.0
    if full <= 1.0 - MARGIN:
        assert share == 1.0
    else:
        assert spent >= 0.9  # not further back than needed
        assert 0 < share < 1


def test_where_nothing_fits_the_old_policy_stays():
    for full in (5.0, jnp.float32(5.0)):
        found = largest_share(full, lambda share: 5.0 * (share > 0), radius=1.0)
        assert found == (0.0, 0.0)


def test_a_policy_between_two_is_between_them():
    old, new = gaussian_policy(), gaussian_policy(use_sde=False)
    new = jax.tree.map(lambda x: x + 1.0, new)
    middle = between(old, new, 0.25)
    np.testing.assert_allclose(middle.log_std, old.log_std + 0.25)
