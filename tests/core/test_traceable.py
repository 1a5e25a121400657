"""The dual of compiled programs against `solve_dual`, many problems at once under ``vmap``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo.core import (
    DualProblem,
    LinearProblem,
    dual_value,
    solve_dual,
    solve_linear,
    solve_rows,
)

PROBLEMS = 400  # of each shape
NUMBERS = ("multiplier", "value", "spent", "split")


def random_rows(rows: int, candidates: int, seed: int):
    """Problems [P, ...] rich in ties, free moves, zero gains, zero weights and useless moves.

    Costs differ from row to row in every candidate, so that they are asymmetric as those of a
    table are.
    """
    rng = np.random.default_rng(seed)
    shape = (PROBLEMS, rows, candidates)
    gain, cost = rng.standard_normal(shape), 2.0 * rng.random(shape)
    coarse = rng.random(PROBLEMS) < 0.5  # few distinct numbers: ties everywhere
    gain[coarse], cost[coarse] = np.round(gain[coarse]), np.round(2 * cost[coarse]) / 2
    gain[rng.random(PROBLEMS) < 0.05] = 0.0
    stay = rng.integers(candidates, size=(PROBLEMS, rows))
    np.put_along_axis(cost, stay[..., None], 0.0, axis=2)
    allowed = rng.random(shape) < np.where(rng.random(PROBLEMS) < 0.5, 1.0, 0.7)[:, None, None]
    np.put_along_axis(allowed, stay[..., None], True, axis=2)
    weight = rng.random((PROBLEMS, rows))
    weight[coarse] = np.ceil(4 * weight[coarse]) / 4
    weight[rng.random(weight.shape) < 0.2] = 0.0
    radius = 10.0 ** rng.uniform(-4, 1.5, PROBLEMS)
    radius[coarse] = np.ceil(4 * radius[coarse]) / 4
    float32 = (array.astype(np.float32) for array in (weight, gain, cost, radius))
    return *float32, allowed, stay  # numbers that both precisions hold


def one_by_one(problems, kind):
    return [solve_dual(kind(*arguments)) for arguments in zip(*problems, strict=True)]


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("rows", "candidates"), [(1, 1), (1, 2), (9, 2), (40, 2), (6, 3), (12, 6), (3, 17)]
)
def test_rows_are_solved_as_solve_dual_solves_them(x64, rows, candidates):
    problems = random_rows(rows, candidates, seed=rows + 100 * candidates)
    expected = one_by_one(problems, DualProblem)
    weight, gain, cost, radius, allowed, stay = problems
    wide = (array.astype(np.float64) for array in (weight, gain, cost, radius))
    found = jax.jit(jax.vmap(solve_rows))(*map(jnp.asarray, (*wide, allowed, stay)))
    for name in NUMBERS:
        reference = np.array([getattr(solution, name) for solution in expected])
        np.testing.assert_allclose(getattr(found, name), reference, rtol=1e-12, atol=1e-12)
    assert found.value.dtype == np.float64
    for name in ("binding", "nearest_r", "farthest_r"):
        reference = np.array([getattr(solution, name) for solution in expected])
        np.testing.assert_array_equal(getattr(found, name), reference)


@pytest.mark.parametrize(("rows", "candidates"), [(9, 2), (40, 2), (12, 6)])
def test_in_single_precision_rows_agree_to_its_rounding(rows, candidates):
    problems = random_rows(rows, candidates, seed=rows)
    weight, gain, cost, radius, allowed, stay = problems
    found = jax.jit(jax.vmap(solve_rows))(*map(jnp.asarray, problems))
    expected = one_by_one(problems, DualProblem)
    assert found.value.dtype == np.float32
    for i, exact in enumerate(expected):
        scale = float((weight[i][:, None] * np.abs(gain[i])).sum()) + 1e-6
        assert found.value[i] == pytest.approx(exact.value, abs=1e-5 * scale)
        assert found.spent[i] == pytest.approx(exact.spent, rel=1e-5)
        # G is all but flat where the slopes of two passages differ by less than the rounding
        problem = DualProblem(weight[i], gain[i], cost[i], radius[i], allowed[i], stay[i])
        assert dual_value(problem, float(found.multiplier[i])) == pytest.approx(
            exact.value, abs=1e-5 * scale
        )


@pytest.mark.parametrize("metric", [None, [2.0, 0.5, 1.0], np.eye(3) + 0.3])
@pytest.mark.parametrize("rows", [1, 50])
def test_linear_gains_are_solved_as_solve_dual_solves_them(x64, rows, metric):
    rng = np.random.default_rng(rows)
    gradient = rng.standard_normal((PROBLEMS, rows, 3))
    gradient[::17] = 0.0
    weight = rng.random((PROBLEMS, rows)) * (rng.random((PROBLEMS, rows)) < 0.8)
    radius = 10.0 ** rng.uniform(-4, 1.5, PROBLEMS)
    expected = [
        solve_dual(LinearProblem(*arguments, metric))
        for arguments in zip(weight, gradient, radius, strict=True)
    ]
    array = None if metric is None else jnp.asarray(metric)
    solve = jax.jit(jax.vmap(lambda w, g, r: solve_linear(w, g, r, array)))
    found = solve(weight, gradient, radius)
    for name in (*NUMBERS, "binding", "nearest_r", "farthest_r"):
        reference = np.array([getattr(solution, name) for solution in expected])
        np.testing.assert_allclose(getattr(found, name), reference, rtol=1e-12, atol=1e-12)
    narrow = jax.vmap(lambda w, g, r: solve_linear(w, g, r, array))(
        *(jnp.asarray(value, dtype=jnp.float32) for value in (weight, gradient, radius))
    )
    for name in (*NUMBERS, "nearest_r"):
        np.testing.assert_allclose(
            getattr(narrow, name), getattr(found, name), rtol=2e-5, atol=2e-6
        )


def test_numpy_arrays_give_numpys_answer():
    problems = random_rows(8, 4, seed=3)
    for arguments, expected in zip(
        zip(*problems, strict=True), one_by_one(problems, DualProblem), strict=True
    ):
        weight, gain, cost, radius, allowed, stay = arguments
        found = solve_rows(weight, gain.astype(np.float64), cost, radius, allowed, stay)
        assert isinstance(found.nearest_r, np.ndarray)
        assert found.multiplier == pytest.approx(expected.multiplier, rel=1e-12)
        assert (found.nearest_r == expected.nearest_r).all()


def test_staying_is_the_first_free_candidate_unless_told():
    gain, cost = jnp.array([[1.0, 1.0, 1.0]]), jnp.array([[1.0, 0.0, 0.0]])
    assert solve_rows(jnp.ones(1), gain, cost, 0.5).nearest_r.tolist() == [1]
    masked = solve_rows(jnp.ones(1), gain, cost, 0.5, jnp.array([[True, False, True]]))
    assert masked.nearest_r.tolist() == [2]


def test_a_solution_is_a_pytree_that_a_scan_carries():
    def step(radius, _):
        solution = solve_rows(jnp.ones(1), jnp.array([[0.0, 1.0]]), jnp.array([[0.0, 1.0]]), radius)
        return radius / 2, solution

    _, solutions = jax.lax.scan(step, jnp.float32(0.5), length=3)
    assert type(solutions).__name__ == "DualSolution"
    assert solutions.spent.tolist() == [0.5, 0.25, 0.125]
    assert solutions.split.tolist() == [0.5, 0.75, 0.875]
