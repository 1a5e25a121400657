"""Regions with entropy, against mpmath, POT, SciPy and the exact dual."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import ot
import pytest
from scipy.optimize import brentq
from scipy.special import rel_entr

from ottrpo.core import (
    DualProblem,
    SinkhornProblem,
    TableCost,
    average_discrepancy,
    dual_value,
    finite_problem,
    kl_problem,
    push_plan,
    solve_at,
    solve_dual,
    solve_rows,
    solve_sinkhorn,
)

CASES = 1_200


def random_problem(rng: np.random.Generator) -> SinkhornProblem:
    """Ties, candidates that may not be used, rows without weight; all scales of gains."""
    rows, candidates = int(rng.integers(1, 7)), int(rng.integers(2, 6))
    gain_rk, cost_rk = rng.standard_normal((rows, candidates)), 2 * rng.random((rows, candidates))
    if rng.random() < 0.4:
        gain_rk, cost_rk = np.round(gain_rk), np.round(2 * cost_rk) / 2
    cost_rk[np.arange(rows), rng.integers(candidates, size=rows)] = 0.0
    weight_r = rng.random(rows) * (rng.random(rows) < 0.8)
    weight_r[0] += not weight_r.any()
    gain_rk *= 10.0 ** rng.choice([-9, 0, 0, 0, 9])
    entropy = 10.0 ** rng.uniform(-2.5, 0.7)
    reference_rk = np.full(gain_rk.shape, 1.0 / candidates)
    if rng.random() < 0.5:
        reference_rk = rng.dirichlet(np.full(candidates, 0.5), rows)
        reference_rk[rng.random(gain_rk.shape) < 0.2] = 0.0
        reference_rk[reference_rk.sum(1) == 0] = 1.0
        reference_rk /= reference_rk.sum(1, keepdims=True)
    least, most = ends(weight_r, gain_rk, cost_rk, entropy, reference_rk)
    radius = least + rng.uniform(0.01, 1.1) * (most - least)
    if most - least < 1e-9:
        radius = least + 0.1
    return SinkhornProblem(weight_r, gain_rk, cost_rk, radius, entropy, reference_rk)


def ends(weight_r, gain_rk, cost_rk, entropy, reference_rk):
    """What the plans of λ = ∞ and of λ = 0 spend, in closed form."""
    best_r = np.where(reference_rk > 0, gain_rk, -np.inf).max(1, keepdims=True)
    references = reference_rk, np.where(gain_rk == best_r, reference_rk, 0.0)
    return (
        -entropy * weight_r @ np.log((q_rk * np.exp(-cost_rk / entropy)).sum(1))
        for q_rk in references
    )


def spent_by_mpmath(problem: SinkhornProblem, multiplier: mpmath.mpf) -> mpmath.mpf:
    """S_τ of the plan of λ, from the definition, in forty digits."""
    total = mpmath.mpf(0)
    arrays = problem.weight_r, problem.gain_rk, problem.cost_rk, problem.reference_rk
    for weight, gain_k, cost_k, q_k in zip(*arrays, strict=True):
        if weight == 0:
            continue
        entries = [
            (mpmath.mpf(a), mpmath.mpf(c), mpmath.mpf(q))
            for a, c, q in zip(gain_k, cost_k, q_k, strict=True)
            if q > 0
        ]
        mass = [q * mpmath.exp((a / multiplier - c) / problem.entropy) for a, c, q in entries]
        normal, all_q = sum(mass), sum(q for _, _, q in entries)
        for (_, cost, q), part in zip(entries, mass, strict=True):
            share = part / normal
            if share > 0:
                total += weight * share * (cost + problem.entropy * mpmath.log(share * all_q / q))
    return total


def test_the_multiplier_is_right_to_1e_12():
    rng = np.random.default_rng(0)
    bound = flat = 0
    with mpmath.workdps(40):
        for _ in range(CASES):
            problem = random_problem(rng)
            solution = solve_dual(problem)
            if not solution.binding:
                assert solution.multiplier == 0
                continue
            bound += 1
            found, radius = mpmath.mpf(solution.multiplier), mpmath.mpf(problem.radius)
            tolerance = mpmath.mpf("1e-12")
            above = spent_by_mpmath(problem, found * (1 - tolerance))
            below = spent_by_mpmath(problem, found * (1 + tolerance))
            if above >= radius >= below:
                continue
            # the region hardly feels λ: no float64 of S_τ tells it from its neighbours
            flat += 1
            assert (above - below) / (2 * tolerance * radius) < 1e-3
            assert abs(spent_by_mpmath(problem, found) - radius) < 2e-15 * radius
    assert bound > 1_000
    assert flat < 0.05 * bound


def test_no_plan_is_better_and_none_leaves_the_region():
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        problem = random_problem(rng)
        solution, weight_r = solve_dual(problem), problem.weight_r
        p_rk, q_rk = solution.plan_rk, problem.reference_rk
        transport = weight_r @ (p_rk * problem.cost_rk).sum(1)
        spent = transport + problem.entropy * (weight_r @ rel_entr(p_rk, q_rk).sum(1))
        np.testing.assert_allclose(p_rk.sum(1), 1.0, rtol=1e-14)
        assert solution.spent == pytest.approx(spent, rel=1e-12, abs=1e-13)
        assert solution.transport == pytest.approx(transport, rel=1e-13)
        assert transport - 1e-14 <= solution.spent <= problem.radius
        scale = weight_r @ np.abs(problem.gain_rk).max(1) or 1.0
        primal = weight_r @ (p_rk * problem.gain_rk).sum(1)
        # weak duality: G bounds every plan of the region, and this one attains it
        multiplier = solution.multiplier or 1e-9 * scale
        assert dual_value(problem, multiplier) == pytest.approx(primal, abs=1e-8 * scale)
        if solution.binding:
            rounding = 1e-13 * scale + 1e-14 * multiplier * problem.radius
            assert solution.value == pytest.approx(primal, abs=rounding)
            assert dual_value(problem, multiplier) == pytest.approx(primal, abs=rounding)
            assert solution.spent == pytest.approx(problem.radius, rel=1e-13)


def test_the_derivative_of_the_dual_is_what_is_left_of_the_radius():
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        problem = random_problem(rng)
        scale = np.abs(problem.gain_rk).max() or 1.0
        multiplier = scale * 10.0 ** rng.uniform(-1, 1)
        step = 1e-5 * multiplier
        slope = dual_value(problem, multiplier + step) - dual_value(problem, multiplier - step)
        left = problem.radius - solve_at(problem, multiplier).spent
        assert slope / (2 * step) == pytest.approx(left, abs=1e-4 * (1 + problem.radius))


def random_rows(rng: np.random.Generator) -> DualProblem:
    rows, candidates = int(rng.integers(2, 9)), int(rng.integers(2, 6))
    gain_rk, cost_rk = rng.standard_normal((rows, candidates)), rng.random((rows, candidates))
    cost_rk[np.arange(rows), rng.integers(candidates, size=rows)] = 0.0
    weight_r = rng.dirichlet(np.ones(rows))
    everything = weight_r @ cost_rk[np.arange(rows), gain_rk.argmax(1)]
    return DualProblem(weight_r, gain_rk, cost_rk, max(0.6 * everything, 0.05))


def test_it_tends_to_the_exact_dual_linearly_in_the_entropy():
    rng = np.random.default_rng(3)
    entropies = np.array([1e-2, 1e-3, 1e-4, 1e-5])
    slopes = []
    for _ in range(300):
        problem = random_rows(rng)
        exact = solve_dual(problem)
        errors = []
        for entropy in entropies:
            smooth = solve_dual(SinkhornProblem.smoothing(problem, entropy))
            errors.append(exact.value - smooth.value)
            charge = entropy * np.log(problem.gain_rk.shape[1])
            arrays = problem.weight_r, problem.gain_rk, problem.cost_rk
            inside = solve_dual(DualProblem(*arrays, problem.radius - charge))
            assert -1e-13 <= errors[-1] <= inside.multiplier * charge + 1e-13
        if exact.binding:
            slopes.append(np.polyfit(np.log(entropies[1:]), np.log(errors[1:]), 1)[0])
            assert smooth.multiplier == pytest.approx(exact.multiplier, rel=3e-3)
    assert len(slopes) > 250
    assert 0.99 < np.median(slopes) < 1.01
    assert min(slopes) > 0.9


def test_the_rate_is_that_of_a_thousand_problems_at_once():
    rng = np.random.default_rng(8)
    gain, cost = rng.standard_normal((CASES, 5, 4)), rng.random((CASES, 5, 4))
    cost[..., 0] = 0.0
    weight = rng.dirichlet(np.ones(5), CASES)
    everything = np.take_along_axis(cost, gain.argmax(2)[..., None], 2)[..., 0]
    radius = np.maximum(0.6 * (weight * everything).sum(1), 0.05)
    entropies = np.array([1e-2, 1e-3, 1e-4])
    charge = entropies[:, None] * np.log(4)
    with jax.enable_x64(True):
        rows = tuple(map(jnp.asarray, (weight, gain, cost)))
        exactly = jax.jit(jax.vmap(solve_rows))
        smoothly = jax.jit(jax.vmap(solve_sinkhorn, in_axes=(0, 0, 0, 0, None)))
        exact = exactly(*rows, jnp.asarray(radius))
        inside = np.array([exactly(*rows, radius - each).multiplier for each in charge])
        smooth = np.array([smoothly(*rows, jnp.asarray(radius), each).value for each in entropies])
    errors = np.asarray(exact.value) - smooth
    assert (errors >= -1e-13).all()
    assert (errors <= inside * charge + 1e-13).all()
    binding = np.asarray(exact.binding)
    assert binding.sum() > 1_000
    slopes = np.log10(errors[1, binding] / errors[2, binding])
    assert 0.98 < np.median(slopes) < 1.02
    assert slopes.min() > 0.8


def test_its_plans_are_those_of_pots_sinkhorn_and_transport_within_the_radius():
    rng = np.random.default_rng(4)
    for _ in range(CASES):
        states, actions = 3, int(rng.integers(2, 6))
        policy_sa = rng.dirichlet(np.ones(actions), states)
        occupancy_s = rng.dirichlet(np.ones(states))
        cost = rng.random((actions, actions))
        np.fill_diagonal(cost, 0.0)
        entropy = rng.uniform(0.1, 0.4)
        radius = entropy * np.log(actions) + rng.uniform(0.0, 0.2)
        gain_sa = rng.standard_normal((states, actions))
        finite = finite_problem(policy_sa, occupancy_s, gain_sa, TableCost(cost), radius)
        solution = solve_dual(SinkhornProblem.smoothing(finite.dual, entropy))
        new_sa = push_plan(finite, solution.plan_rk)
        np.testing.assert_allclose(new_sa.sum(1), 1.0, rtol=1e-14)
        for s in range(states):
            plan_ab = solution.plan_rk[finite.state_r == s] * policy_sa[s][:, None]
            pot_ab = ot.sinkhorn(
                policy_sa[s], new_sa[s], cost, entropy, stopThr=1e-13, numItermax=100_000
            )
            np.testing.assert_allclose(plan_ab, pot_ab, atol=1e-10)
        discrepancy = average_discrepancy(policy_sa, new_sa, occupancy_s, TableCost(cost))
        assert discrepancy <= solution.transport + 1e-12
        assert solution.transport <= solution.spent <= radius


def test_states_that_were_not_visited_keep_their_rows():
    policy_sa = np.array([[0.2, 0.8], [0.3, 0.7]])
    finite = finite_problem(policy_sa, [1.0, 0.0], [[1.0, 0.0]] * 2, TableCost(1 - np.eye(2)), 0.5)
    new_sa = push_plan(finite, solve_dual(SinkhornProblem.smoothing(finite.dual, 0.1)).plan_rk)
    assert (new_sa[1] == policy_sa[1]).all()
    assert new_sa[0, 0] > 0.6


def test_the_region_of_kullback_and_leibler_is_that_of_scipy():
    rng = np.random.default_rng(5)
    for _ in range(CASES):
        states, actions = int(rng.integers(1, 5)), int(rng.integers(2, 6))
        policy_sa = rng.dirichlet(np.ones(actions), states)
        occupancy_s = rng.dirichlet(np.ones(states))
        gain_sa = rng.standard_normal((states, actions))
        radius = 10.0 ** rng.uniform(-6, -1)

        def improved(multiplier, policy_sa=policy_sa, gain_sa=gain_sa):
            mass_sa = policy_sa * np.exp((gain_sa - gain_sa.max(1, keepdims=True)) / multiplier)
            return mass_sa / mass_sa.sum(1, keepdims=True)

        def excess(log, policy_sa=policy_sa, occupancy_s=occupancy_s, radius=radius):
            divergence_s = rel_entr(improved(np.exp(log)), policy_sa).sum(1)
            return occupancy_s @ divergence_s / radius - 1.0

        if excess(-7.0) < 0:
            continue
        expected = np.exp(brentq(excess, -7.0, 20.0, xtol=1e-14, rtol=1e-14))
        solution = solve_dual(kl_problem(policy_sa, occupancy_s, gain_sa, radius))
        # SciPy's divergences carry their own rounding, which a small radius shows
        assert solution.multiplier == pytest.approx(expected, rel=1e-9 + 1e-14 / radius)
        np.testing.assert_allclose(solution.plan_rk, improved(solution.multiplier), rtol=1e-10)
        assert solution.spent <= radius


def test_a_tiny_region_of_kullback_and_leibler_keeps_its_digits():
    policy_sa, gain_sa = np.array([[0.25, 0.75]]), np.array([[1.0, 0.0]])
    for radius in (1e-8, 1e-12, 1e-16, 1e-24, 1e-40, 1e-200):
        solution = solve_dual(kl_problem(policy_sa, [1.0], gain_sa, radius))
        # to second order KL = Var(A) / (2λ²)
        assert solution.multiplier == pytest.approx(
            np.sqrt(0.25 * 0.75 / (2 * radius)), rel=3 * np.sqrt(radius) + 1e-7
        )


def test_policies_that_are_updated_again_and_again_stay_distributions():
    """What a row lacks to 1 by rounding must not grow with every update."""
    rng = np.random.default_rng(7)
    policy_sa, occupancy_s = rng.dirichlet(np.ones(6), 20), np.full(20, 0.05)
    for _ in range(250):
        gain_sa = rng.standard_normal((20, 6))
        policy_sa = solve_dual(kl_problem(policy_sa, occupancy_s, gain_sa, 0.01)).plan_rk
    np.testing.assert_allclose(policy_sa.sum(1), 1.0, rtol=1e-14)


def test_mass_below_the_range_of_float64_stays_gone():
    policy_sa = np.array([[1.0, 1e-311], [0.5, 0.5]])
    solution = solve_dual(kl_problem(policy_sa, [0.5, 0.5], [[0.0, 1.0], [0.0, 1.0]], 0.1))
    np.testing.assert_array_equal(solution.plan_rk[0], [1.0, 0.0])
    assert rel_entr(solution.plan_rk[1], 0.5).sum() == pytest.approx(0.2, rel=1e-13)


def test_compiled_and_mapped_it_is_the_same():
    rng = np.random.default_rng(6)
    shape = CASES, 5, 4
    weight, gain, cost = rng.random(shape[:2]), rng.standard_normal(shape), rng.random(shape)
    cost[..., 0] = 0.0
    weight[::7, 0], gain[::11] = 0.0, 0.0
    reference = rng.dirichlet(np.ones(4), shape[:2])
    entropy, radius = 10.0 ** rng.uniform(-2, 0, CASES), np.empty(CASES)
    for i in range(CASES):
        least, most = ends(weight[i], gain[i], cost[i], entropy[i], reference[i])
        radius[i] = least + 0.01 + rng.uniform(0, 1.1) * (most - least)
    problems = weight, gain, cost, radius, entropy, reference
    expected = [solve_dual(SinkhornProblem(*one)) for one in zip(*problems, strict=True)]
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(solve_sinkhorn))(*map(jnp.asarray, problems))
        for name in found._fields:
            reference_values = np.array([getattr(one, name) for one in expected])
            np.testing.assert_allclose(getattr(found, name), reference_values, rtol=1e-9, atol=1e-9)
        values = jax.grad(lambda *one: solve_sinkhorn(*one).value, argnums=(1, 3))
        values = jax.jit(jax.vmap(values))
        by_gain, by_radius = values(*map(jnp.asarray, problems))
    np.testing.assert_allclose(by_gain, weight[..., None] * np.asarray(found.plan_rk), atol=1e-9)
    np.testing.assert_allclose(by_radius, found.multiplier, atol=1e-9)
    assert 0 < np.asarray(found.binding).mean() < 1
    narrow = jax.jit(jax.vmap(solve_sinkhorn))(
        *(jnp.asarray(array, jnp.float32) for array in problems)
    )
    assert narrow.value.dtype == np.float32
    np.testing.assert_allclose(narrow.value, found.value, atol=2e-4)
    np.testing.assert_allclose(narrow.spent, found.spent, atol=2e-4)


@pytest.mark.parametrize(
    ("weight", "gain", "radius"),
    [(1e-296, 1e-252, 1e-320), (1e190, 1e-189, 1e-262), (1e300, 1e300, 1e300)],
)
def test_a_region_that_float64_can_not_tell_from_nothing_is_refused(weight, gain, radius):
    # each was answered with a plan that spent nothing or 10²⁵ times its radius, or with a warning
    with pytest.raises(ValueError, match="too far apart"):
        solve_dual(kl_problem([[0.6, 0.4]], [weight], [[gain, -gain]], radius))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"entropy": 0.0}, "entropy must be positive"),
        ({"radius": -1.0}, "radius must be positive"),
        ({"radius": 0.1}, "the radius must be above 0.37"),
        ({"reference_rk": [[0.5, 0.4]]}, "reference_rk must sum to 1"),
        ({"cost_rk": [[0.0, -1.0]]}, "cost_rk must not be negative"),
        ({"gain_rk": [[0.0, np.nan]]}, "gain_rk must be finite"),
    ],
)
def test_what_makes_no_problem_is_refused(changes, told):
    arguments = {
        "weight_r": [1.0],
        "gain_rk": [[0.0, 1.0]],
        "cost_rk": [[0.0, 1.0]],
        "radius": 0.5,
        "entropy": 0.5 if "radius" not in changes else 1.0,
    }
    with pytest.raises(ValueError, match=told):
        solve_dual(SinkhornProblem(**(arguments | changes)))
