"""Costs: values, broadcasting, matrices, algebra, and one definition for NumPy and JAX."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    Mahalanobis,
    Nearby,
    Ordinal,
    PNorm,
    SquaredEuclidean,
    StateCost,
    TableCost,
)

ASYMMETRIC = [[0.0, 2.0, 0.5], [1.0, 0.0, 3.0], [0.25, 4.0, 0.0]]
METRIC = [[2.0, 0.5], [0.5, 1.0]]
POINT_COSTS = [
    SquaredEuclidean(),
    PNorm(1),
    PNorm(2),
    PNorm(2, power=2),
    PNorm(3, power=1.5),
    PNorm(math.inf),
    Mahalanobis(METRIC),
    0.5 * SquaredEuclidean() + 2 * PNorm(1),
]
LABEL_COSTS = [Binary(), Ordinal(), TableCost(ASYMMETRIC), 3 * Binary() + TableCost(ASYMMETRIC)]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (SquaredEuclidean(), 25.0),
        (PNorm(1), 7.0),
        (PNorm(2), 5.0),
        (PNorm(2, power=2), 25.0),
        (PNorm(math.inf, power=3), 64.0),
        (Mahalanobis(METRIC), 2 * 9 + 2 * 0.5 * 12 + 16),  # Σ M_ij d_i d_j with d = (3, 4)
        (Mahalanobis([[1.0, 0.0], [0.0, 1.0]]), 25.0),
        (2 * PNorm(1) + SquaredEuclidean(), 39.0),
    ],
)
def test_values_by_hand(cost, expected):
    assert cost(np.array([3.0, 4.0]), np.zeros(2)) == pytest.approx(expected, rel=1e-12)
    assert cost(np.array([3, 4]), np.array([0, 0])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("cost", POINT_COSTS, ids=repr)
def test_point_costs_broadcast(cost):
    rng = np.random.default_rng(0)
    source, target = rng.standard_normal((5, 1, 2)), rng.standard_normal((1, 7, 2))
    table = cost(source, target)
    assert table.shape == (5, 7)
    assert table[3, 4] == pytest.approx(cost(source[3, 0], target[0, 4]), rel=1e-12)
    assert (cost(source, source) == 0).all()
    assert (table > 0).all()


@pytest.mark.parametrize("cost", LABEL_COSTS, ids=repr)
def test_label_costs_broadcast(cost):
    source, target = np.arange(3)[:, None], np.arange(3)[None, :]
    assert cost(source, target) == pytest.approx(cost.matrix(3))
    assert float(cost(1, 2)) == cost.matrix(3)[1, 2]
    assert np.diagonal(cost.matrix(3)) == pytest.approx(np.zeros(3))


def test_asymmetric_table_keeps_its_orientation():
    matrix = TableCost(ASYMMETRIC).matrix(3)
    assert matrix.tolist() == ASYMMETRIC  # row: from, column: to
    assert float(TableCost(ASYMMETRIC)(0, 1)) == 2.0


def test_matrix_of_points_and_of_a_line():
    assert SquaredEuclidean().matrix(3).tolist() == [[0, 1, 4], [1, 0, 1], [4, 1, 0]]
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    assert PNorm(1).matrix(corners).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]


def test_state_dependent_costs():
    per_state = TableCost([[[0, 1], [1, 0]], [[0, 5], [2, 0]]])
    assert per_state.depends_on_state
    assert per_state.matrix(2, states=2)[1].tolist() == [[0, 5], [2, 0]]
    assert per_state.matrix(2, states=[1])[0].tolist() == [[0, 5], [2, 0]]
    slippery = StateCost(lambda a, b, s: (1.0 + s) * (a != b), takes_labels=True)
    total = 2 * slippery + Binary()
    assert total.depends_on_state
    assert total.matrix(2, states=3)[2, 0, 1] == 2 * 3 + 1
    wind = StateCost(lambda a, b, s: s[..., 0] * ((a - b) ** 2).sum(-1))
    assert wind(np.ones((4, 2)), np.zeros((4, 2)), np.full((4, 1), 0.5)) == pytest.approx(
        np.ones(4)
    )
    for cost in (per_state, slippery):
        with pytest.raises(ValueError, match="state"):
            cost(0, 1)


@pytest.mark.parametrize("cost", POINT_COSTS, ids=repr)
def test_one_definition_serves_jax(cost):
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(1)
    source, target = rng.standard_normal((6, 2)), rng.standard_normal((6, 2))
    traced = jax.jit(cost)(jax.numpy.asarray(source), jax.numpy.asarray(target))
    assert isinstance(traced, jax.Array)
    assert np.asarray(traced) == pytest.approx(cost(source, target), rel=1e-5)
    slope = jax.grad(lambda a: cost(a, jax.numpy.asarray(target)).sum())(jax.numpy.asarray(source))
    assert np.isfinite(np.asarray(slope)).all()


@pytest.mark.parametrize("cost", LABEL_COSTS, ids=repr)
def test_one_definition_serves_jax_labels(cost):
    jax = pytest.importorskip("jax")
    label = jax.numpy.arange(3)
    traced = jax.jit(cost)(label[:, None], label[None, :])
    assert isinstance(traced, jax.Array)
    assert np.asarray(traced) == pytest.approx(cost.matrix(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TableCost([[0, 1], [1, 0.5]]), r"c\(a, a\), must be 0"),
        (lambda: TableCost([[0, -1], [1, 0]]), "negative"),
        (lambda: TableCost([[0, np.nan], [1, 0]]), "finite"),
        (lambda: TableCost([[0, 1, 2], [1, 0, 2]]), "shape"),
        (lambda: TableCost("dear"), "numbers"),
        (lambda: TableCost(ASYMMETRIC).matrix(4), "3 actions"),
        (lambda: TableCost([ASYMMETRIC] * 2).matrix(3, states=5), "2 states"),
        (lambda: PNorm(0.5), "at least 1"),
        (lambda: PNorm(2, power=0), "power"),
        (lambda: Mahalanobis([[1, 2], [0, 1]]), "symmetric"),
        (lambda: Mahalanobis([[1, 0], [0, -1]]), "positive definite"),
        (lambda: Mahalanobis([[1, 0]]), "square"),
        (lambda: -1 * Binary(), "positive"),
        (lambda: math.inf * Binary(), "positive"),
        (lambda: Binary() + SquaredEuclidean(), "labels"),
        (lambda: Binary() + 3, "costs"),
    ],
)
def test_bad_costs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_cost_is_dear_near_a_place_and_says_what_it_needs():
    dear = Nearby(Mahalanobis(METRIC), feature=1, place=2.0, width=0.5, factor=4.0)
    source, target = np.random.default_rng(0).standard_normal((2, 5, 2))
    state = np.array([[9.0, 2.0], [9.0, 2.5], [9.0, 1.5], [2.0, 9.0], [2.0, -9.0]])
    weight = [4.0, 1 + 3 * math.exp(-1), 1 + 3 * math.exp(-1), 1.0, 1.0]
    expected = weight * Mahalanobis(METRIC)(source, target)
    np.testing.assert_allclose(dear(source, target, state), expected, rtol=1e-12)
    jax = pytest.importorskip("jax")
    inside = jax.jit(dear)(*map(jax.numpy.asarray, (source, target, state)))
    np.testing.assert_allclose(inside, expected, rtol=1e-5)
    for wrong in (None, state[:, :1], np.arange(5)):
        with pytest.raises(ValueError, match="needs states with entry 1"):
            dear(source, target, wrong)
    for changes in ({"feature": -1}, {"width": 0.0}, {"factor": -1.0}, {"place": math.nan}):
        with pytest.raises(ValueError, match="must be"):
            replace(dear, **changes)
