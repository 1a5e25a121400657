"""The kernelised Wasserstein natural gradient against dense algebra and differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo.engine.algorithms import natural_gradient as natural

BASIS, ROWS, SIZE, PARAMETERS = 5, 12, 7, 40


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def points(seed=0):
    rng = np.random.default_rng(seed)
    embedding = rng.standard_normal((ROWS, SIZE))
    basis = embedding[rng.permutation(ROWS)[:BASIS]]
    coordinate = rng.integers(0, SIZE, BASIS)
    return jnp.asarray(basis), jnp.asarray(coordinate), jnp.asarray(embedding)


def system(seed=0, basis=BASIS, rank=None):
    """K of a given rank, and T with slopes of very different sizes."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((basis, rank or basis))
    slope = rng.standard_normal((basis, PARAMETERS)) * np.exp(2 * rng.standard_normal(PARAMETERS))
    return root @ root.T, slope, rng.standard_normal(PARAMETERS)


def test_the_kernels_derivatives_are_those_of_automatic_differentiation():
    basis, coordinate, embedding = points()
    width = 1.7

    def kernel(x, y):
        return jnp.exp(-((x - y) ** 2).sum() / (2 * width))

    mixed = natural.mixed_derivatives(basis, coordinate, embedding, width)
    both = jax.jacfwd(jax.grad(kernel, 0), 1)
    every = np.asarray(jax.vmap(jax.vmap(both, (None, 0)), (0, None))(basis, embedding))
    for m in range(BASIS):
        np.testing.assert_allclose(mixed[m], every[m, :, coordinate[m]], rtol=1e-10, atol=1e-14)


def test_the_mixed_derivative_is_the_slope_of_the_basis_functions_mean():
    basis, coordinate, embedding = points()
    width, weight = 1.7, jnp.full(ROWS, 1.0 / ROWS)

    def mean(embedding):
        difference = basis[:, None] - embedding
        kernel = jnp.exp(-(difference**2).sum(-1) / (2 * width))
        along = jnp.stack([difference[m, :, i] for m, i in enumerate(coordinate)])
        return (-kernel * along / width) @ weight

    slope = jax.jacrev(mean)(embedding)
    mixed = natural.mixed_derivatives(basis, coordinate, embedding, width)
    np.testing.assert_allclose(slope, mixed * weight[:, None], rtol=1e-10, atol=1e-14)


def test_the_gram_matrix_and_the_bandwidth_are_weighted_means():
    basis, coordinate, embedding = points()
    weight = np.zeros(ROWS)
    weight[:4] = 0.25
    mixed = np.asarray(natural.mixed_derivatives(basis, coordinate, embedding, 1.7))
    expected = np.einsum("mnr,knr->mk", mixed[:, :4], mixed[:, :4]) / 4
    np.testing.assert_allclose(natural.gram(mixed, weight), expected, rtol=1e-12)
    distance = [((x - y) ** 2).sum() for x in basis for y in embedding[:4]]
    squared = natural.bandwidth(basis, embedding, weight, "squared")
    assert float(squared) == pytest.approx(np.mean(distance))
    root = natural.bandwidth(basis, embedding, weight, "root")
    assert float(root) == pytest.approx(np.sqrt(np.mean(distance)))


@pytest.mark.parametrize("damping", [1e-5, 1e-2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_dense_solution(damping, seed):
    gram, slope, gradient = system(seed)
    whitened = natural.whiten(gram, slope, 0.0)
    found = np.asarray(natural.natural_gradient(whitened, gradient, damping))
    # the definition, with another factorisation of K: TᵀK⁻¹T does not depend on it
    metric = slope.T @ np.linalg.solve(gram, slope)
    columns = np.sqrt(np.diag(metric)) + 1e-8
    damped = metric + damping * np.diag(columns)
    dense = np.linalg.solve(damped, gradient)
    # how well float64 knows the answer: entries of all sizes are no trouble, near-dependence is
    scaled = damped / np.sqrt(np.outer(np.diag(damped), np.diag(damped)))
    rounding = max(1e-12, 0.01 * np.finfo(float).eps * np.linalg.cond(scaled))
    assert np.linalg.norm(found - dense) < rounding * np.linalg.norm(dense)


def test_it_is_the_dense_solution_at_the_smallest_damping():
    """At 1e-10 the dense matrix itself is ill-conditioned: compare what it gives back."""
    gram, slope, gradient = system()
    whitened = natural.whiten(gram, slope, 0.0)
    found = np.asarray(natural.natural_gradient(whitened, gradient, 1e-10))
    t = np.asarray(whitened.slope)
    scale = 1.0 / (np.linalg.norm(t, axis=0) + 1e-8)
    # in the limit: the part of g that the metric does not explain, rescaled
    explained = t.T @ np.linalg.solve((t * scale) @ t.T, t @ (scale * gradient))
    limit = scale * (gradient - explained) / 1e-10
    assert np.linalg.norm(found - limit) < 1e-6 * np.linalg.norm(limit)


def test_the_rank_is_at_most_the_number_of_basis_points():
    gram, slope, _ = system()
    whitened = natural.whiten(gram, slope, 0.0)
    assert np.linalg.matrix_rank(np.asarray(whitened.slope)) == BASIS
    assert whitened.active.all()


def test_directions_without_length_are_left_out():
    gram, slope, gradient = system(rank=3)
    whitened = natural.whiten(gram, slope, 1e-8)
    assert int(whitened.active.sum()) == 3
    np.testing.assert_array_equal(whitened.slope[~whitened.active], 0.0)
    t = np.asarray(whitened.slope)[np.asarray(whitened.active)]
    columns = np.linalg.norm(t, axis=0) + 1e-8
    dense = np.linalg.solve(t.T @ t + 1e-3 * np.diag(columns), gradient)
    found = np.asarray(natural.natural_gradient(whitened, gradient, 1e-3))
    assert np.linalg.norm(found - dense) < 1e-10 * np.linalg.norm(dense)


def test_large_damping_leaves_the_rescaled_gradient():
    gram, slope, gradient = system()
    whitened = natural.whiten(gram, slope, 0.0)
    found = natural.natural_gradient(whitened, gradient, 1e12)
    expected = natural.diagonal(whitened) * gradient / 1e12
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_single_precision_survives_basis_points_that_coincide():
    with jax.enable_x64(False):
        gram, slope, gradient = (x.astype(np.float32) for x in system(rank=1))
        whitened = natural.whiten(gram, slope, 0.0)
        found = natural.natural_gradient(whitened, gradient, np.float32(1e-10))
        assert found.dtype == jnp.float32
        assert np.isfinite(found).all()
        assert np.isfinite(natural.length_of(found))


def test_it_gives_way_to_the_gradient_when_they_disagree():
    gradient = jnp.asarray([1.0, 2.0])
    kept, agrees = natural.uphill(jnp.asarray([3.0, -1.0]), gradient)
    assert bool(agrees)
    assert kept.tolist() == [3.0, -1.0]
    replaced, agrees = natural.uphill(jnp.asarray([-3.0, 1.0]), gradient)
    assert not bool(agrees)
    assert replaced.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("rule", "length", "expected"),
    [
        ("unit", 0.4, 0.4),
        ("unit", 0.6, 1.0),  # the published rule makes it longer
        ("unit", 7.0, 1.0),
        ("clip", 0.4, 0.4),
        ("clip", 0.6, 0.5),
        ("clip", 1e30, 0.5),
    ],
)
def test_the_two_rules_for_long_gradients(rule, length, expected):
    with jax.enable_x64(False):
        vector = jnp.asarray(length * np.array([0.6, 0.0, 0.8]), jnp.float32)
        shortened = natural.shorten(vector, 0.5, rule)
        assert float(natural.length_of(shortened)) == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(shortened / expected, [0.6, 0.0, 0.8], rtol=1e-5)


def follow(rule, losses, expected=1.0, value=1e-2):
    """The damping, in units of the first, at each of a row of losses."""

    def step(damping, loss):
        adapted = natural.adapt(damping, loss, rule)
        return natural.remember(adapted, loss, jnp.float32(expected)), adapted.value

    losses = np.asarray(losses, np.float32)
    return np.asarray(jax.lax.scan(step, natural.start_damping(value), losses)[1]) / value


def test_damping_shrinks_after_good_steps_every_fifth_minibatch():
    falling = [5.0 - 0.5 * k for k in range(10)]  # each ratio is 2 · 0.5 / 1 = 1
    for rule in ("shrink", "two-sided"):
        expected = [1.0] * 4 + [0.85] * 5 + [0.85**2]
        np.testing.assert_allclose(follow(rule, falling), expected, rtol=1e-6)
    np.testing.assert_allclose(follow("fixed", falling), 1.0, rtol=1e-6)


def test_only_the_two_sided_rule_lets_damping_grow():
    rising = [1.0 + 0.5 * k for k in range(10)]
    np.testing.assert_allclose(follow("shrink", rising), 1.0)
    np.testing.assert_allclose(follow("two-sided", rising)[-1], 0.85**-2, rtol=1e-6)


def test_the_published_rule_does_not_look_at_the_fifth_ratio():
    losses = [1.0, 1.0, 1.0, 1.0, 0.0]  # only the last step reduces the loss
    assert follow("shrink", losses)[-1] == pytest.approx(1.0)
    assert follow("two-sided", losses)[-1] == pytest.approx(0.85)


def test_the_published_rule_takes_a_loss_of_minus_one_or_less_for_unknown():
    losses = [-2.0 - k for k in range(5)]
    assert follow("shrink", losses)[-1] == pytest.approx(1.0)
    assert follow("two-sided", losses)[-1] == pytest.approx(0.85)


def test_damping_stays_in_its_range_and_finite():
    falling = list(-0.5 * np.arange(1000.0) + 1000)
    assert follow("shrink", falling, value=1e-9)[-1] == pytest.approx(0.1, rel=1e-5)
    assert np.isfinite(follow("two-sided", [1.0, 0.5, 0.2, 0.1, 0.0], expected=0.0)).all()
