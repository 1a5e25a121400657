"""Builders, and what they refuse: every mistake gets one sentence that names it."""

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    DualProblem,
    LinearProblem,
    SquaredEuclidean,
    StateCost,
    TableCost,
    antithetic_problem,
    candidates_problem,
    finite_problem,
    mean_and_sample_problem,
    solve_dual,
    update_policy,
)

POLICY = [[0.5, 0.5], [1.0, 0.0]]
OCCUPANCY = [0.25, 0.75]
GAIN = [[0.0, 1.0], [2.0, 3.0]]


def test_finite_rows_by_hand():
    problem = finite_problem(POLICY, OCCUPANCY, GAIN, TableCost([[0, 2], [1, 0]]), 0.1)
    assert problem.dual.weight_r.tolist() == [0.125, 0.125, 0.75]
    assert problem.dual.gain_rk.tolist() == [[0, 1], [0, 1], [2, 3]]
    assert problem.dual.cost_rk.tolist() == [[0, 2], [1, 0], [0, 2]]
    assert problem.dual.stay_r.tolist() == [0, 1, 0]


def test_mean_and_sample_by_hand():
    problem = mean_and_sample_problem(
        [[0.0], [1.0]], [[2.0], [0.0]], [3.0, -1.0], SquaredEuclidean(), 0.5
    )
    assert problem.weight_r.tolist() == [0.5, 0.5]
    assert problem.gain_rk.tolist() == [[0, 3], [0, -1]]
    assert problem.cost_rk.tolist() == [[0, 4], [0, 1]]
    # knapsack: the first row alone is worth moving, 3/4 per unit; ε = 0.5 buys 0.125 of its 0.5
    solution = solve_dual(problem)
    assert solution.multiplier == 0.75
    assert solution.split == 0.75
    assert solution.value == pytest.approx(0.5 * 0.75)


def test_antithetic_mirrors_bad_actions():
    # going down costs twice what going up costs
    cost = StateCost(lambda a, b, s: (np.maximum(b - a, 0) + 2 * np.maximum(a - b, 0)).sum(-1))
    problem = antithetic_problem(
        [[0.0], [1.0]], [[2.0], [0.0]], [3.0, -1.0], cost, 0.5, state_r=np.zeros((2, 1))
    )
    assert problem.gain_rk.tolist() == [[0, 3], [0, 1]]
    # the bad action 0 of mean 1 speaks for its mirror image 2, one step up: cost 1, not 2
    assert problem.cost_rk.tolist() == [[0, 2], [0, 1]]


def test_candidates_offer_staying_first():
    problem = candidates_problem(
        source_rd=[[0.0], [0.0]],
        candidate_rkd=[[[1.0], [2.0]], [[-1.0], [0.5]]],
        gain_rk=[[1.0, 3.0], [0.0, 1.0]],
        cost=SquaredEuclidean(),
        radius=1.0,
        stay_gain_r=[0.5, 0.0],
        weight_r=[1.0, 2.0],
    )
    assert problem.cost_rk.tolist() == [[0, 1, 4], [0, 1, 0.25]]
    assert problem.gain_rk.tolist() == [[0.5, 1, 3], [0, 0, 1]]
    assert problem.stay_r.tolist() == [0, 0]


def test_candidates_take_labels_and_states():
    cost = TableCost([[[0, 1], [1, 0]], [[0, 7], [1, 0]]])
    problem = candidates_problem(
        [0, 0], [[1], [1]], [[1.0], [1.0]], cost, 1.0, stay_gain_r=[0.0, 0.0], state_r=[0, 1]
    )
    assert problem.cost_rk[:, 1].tolist() == [1, 7]


def test_unnormalised_occupancy_is_allowed():
    half = update_policy(POLICY, OCCUPANCY, GAIN, Binary(), 0.1)
    double = update_policy(POLICY, np.multiply(2, OCCUPANCY), GAIN, Binary(), 0.2)
    assert double.policy_sa == pytest.approx(half.policy_sa)


def test_nothing_visited_nothing_moved():
    update = update_policy(POLICY, [0.0, 0.0], GAIN, Binary(), 0.1)
    assert update.policy_sa.tolist() == POLICY
    assert (update.solution.spent, update.split_mass) == (0.0, 0.0)
    assert update.plan_sab.sum(axis=2).tolist() == POLICY


def test_inputs_are_left_alone():
    policy, gain = np.array(POLICY), np.array(GAIN)
    update_policy(policy, OCCUPANCY, gain, Binary(), 0.1)
    assert policy.tolist() == POLICY
    assert gain.tolist() == GAIN
    stay = np.zeros(1, dtype=np.intp)
    solve_dual(DualProblem([1.0], [[0.0, 1.0]], [[0.0, 1.0]], 5.0, stay_r=stay))
    assert stay.tolist() == [0]


NAN, INF = np.nan, np.inf
BAD_ROWS = [
    (([-0.1], [[0, 1]], [[0, 1]], 0.1), "weight_r must not be negative"),
    (([NAN], [[0, 1]], [[0, 1]], 0.1), "weight_r must be finite"),
    (([INF], [[0, 1]], [[0, 1]], 0.1), "weight_r must be finite"),
    (([1.0], [[0, NAN]], [[0, 1]], 0.1), r"gain_rk must be finite, got nan at \[0, 1\]"),
    (([1.0], [[0, -INF]], [[0, 1]], 0.1), "gain_rk must be finite"),
    (([1.0], [[0, 1]], [[0, INF]], 0.1), "cost_rk must be finite"),
    (([1.0], [[0, 1]], [[0, -1]], 0.1), "cost_rk must not be negative"),
    (([1.0], [[0, 1]], [[0, 1, 2]], 0.1), "cost_rk must have shape"),
    (([1.0, 1.0], [[0, 1]], [[0, 1]], 0.1), "weight_r must have shape"),
    (([[1.0]], [[0, 1]], [[0, 1]], 0.1), "weight_r must have 1 axes"),
    (([1.0], [0, 1], [[0, 1]], 0.1), "gain_rk must have 2 axes"),
    (([1.0], [[0, 1]], [[0, 1]], 0.0), "radius must be positive"),
    (([1.0], [[0, 1]], [[0, 1]], -1), "radius must be positive"),
    (([1.0], [[0, 1]], [[0, 1]], NAN), "radius must be positive"),
    (([1.0], [[0, 1]], [[0, 1]], INF), "radius must be positive"),
    (([1.0], [[0, 1]], [[0, 1]], "wide"), "radius must be a positive number"),
    (([1.0], [[0, 1]], [[0, 1]], None), "radius must be a positive number"),
    (([], np.zeros((0, 2)), np.zeros((0, 2)), 0.1), "empty"),
    (([1.0], np.zeros((1, 0)), np.zeros((1, 0)), 0.1), "empty"),
    (([1.0], [[0, 1]], [[0.5, 1]], 0.1), "cost 0"),
    (([1.0], [[0, 1]], [[0, 1]], 0.1, [[0, 1]]), "allowed to stay"),
    (([1.0], [[0, 1]], [[0, 1]], 0.1, [[0, 2]]), "True and False"),
    (([1.0], [[0, 1]], [[0, 1]], 0.1, None, [1]), "staying costs 1"),
    (([1.0], [[0, 1]], [[0, 1]], 0.1, None, [7]), r"candidates 0\.\.1"),
    (([1.0], [["a", 1]], [[0, 1]], 0.1), "gain_rk must be an array of numbers"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_ROWS)
def test_bad_rows_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DualProblem(*arguments)


BAD_FINITE = [
    (([[0.5, 0.6]], [1.0], [[0, 1]], Binary(), 0.1), "policy_sa must sum to 1"),
    (([[1.5, -0.5]], [1.0], [[0, 1]], Binary(), 0.1), "policy_sa must not be negative"),
    (([[0.5, 0.5]], [1.0, 1.0], [[0, 1]], Binary(), 0.1), "occupancy_s must have shape"),
    (([[0.5, 0.5]], [-1.0], [[0, 1]], Binary(), 0.1), "occupancy_s must not be negative"),
    (([[0.5, 0.5]], [1.0], [[0, 1, 2]], Binary(), 0.1), "gain_sa must have shape"),
    (([[0.5, 0.5]], [1.0], [[0, NAN]], Binary(), 0.1), "gain_sa must be finite"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], "binary", 0.1), "cost must be a cost"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], TableCost(np.zeros((3, 3))), 0.1), "3 actions"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], TableCost(np.zeros((4, 2, 2))), 0.1), "4 states"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], StateCost(lambda a, b, s: a + b + 1.0, True), 0.1), "staying"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], Binary(), 0.1, [[False, False]]), "forbids every action"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], Binary(), 0.1, [[True, False]]), "which the mask forbids"),
    (([[0.5, 0.5]], [1.0], [[0, 1]], Binary(), 0.1, [[True]]), "allowed_sa must have shape"),
    ((np.zeros((0, 2)), [], np.zeros((0, 2)), Binary(), 0.1), "empty"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_FINITE)
def test_bad_policies_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        update_policy(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [[NAN]], 0.1), "gradient_rd must be finite"),
        (([1.0, 1.0], [[1.0]], 0.1), "weight_r must have shape"),
        (([1.0], [[1.0]], 0.0), "radius must be positive"),
        (([1.0], [[1.0, 2.0]], 0.1, [1.0]), r"metric must have shape \[2\]"),
        (([1.0], [[1.0, 2.0]], 0.1, [1.0, 0.0]), "diagonal metric must be positive"),
        (([1.0], [[1.0, 2.0]], 0.1, [[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (([], np.zeros((0, 2)), 0.1), "empty"),
    ],
)
def test_bad_linear_problems_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinearProblem(*arguments)


@pytest.mark.parametrize("build", [mean_and_sample_problem, antithetic_problem])
def test_bad_samples_are_refused(build):
    with pytest.raises(ValueError, match="action_rd must have shape"):
        build([[0.0]], [[0.0, 1.0]], [1.0], SquaredEuclidean(), 0.1)
    with pytest.raises(ValueError, match="advantage_r must be finite"):
        build([[0.0]], [[1.0]], [NAN], SquaredEuclidean(), 0.1)


def test_bad_candidates_are_refused():
    with pytest.raises(ValueError, match="rows and columns"):
        candidates_problem([[0.0]], [[[1.0]]], [[1.0, 2.0]], SquaredEuclidean(), 0.1, [0.0])
