"""The paper's worked examples, with the arithmetic written out, and its errata as facts."""

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    DualProblem,
    TableCost,
    audit,
    average_discrepancy,
    dual_value,
    finite_problem,
    push_forward,
    regularised_advantage,
    solve_dual,
    update_policy,
)

LEFT, RIGHT = 0, 1


class TestMassSplitting:
    """appendix:mass-splitting: one transport map cannot describe the optimal update."""

    @pytest.mark.parametrize("radius", [0.1, 0.25, 0.9])
    def test_one_state_two_actions(self, radius):  # example:wrong
        # all mass on a1, A(a1) = 0, A(a2) = 1, c = 1: move as much as allowed, i.e. ε
        update = update_policy([[1.0, 0.0]], [1.0], [[0.0, 1.0]], Binary(), radius)
        assert update.policy_sa[0].tolist() == pytest.approx([1 - radius, radius], abs=1e-15)
        solution = update.solution
        assert (solution.nearest_r.tolist(), solution.farthest_r.tolist()) == ([0], [1])
        assert solution.split == pytest.approx(1 - radius, abs=1e-15)  # t* = 1 − ε
        # a single map leaves everything (worth 0 < ε) or moves everything (costs 1 > ε)
        problem = update.problem
        stay = audit(problem, push_forward(problem, [(solution.nearest_r, 1.0)]), 1.0)
        move = audit(problem, push_forward(problem, [(solution.farthest_r, 1.0)]), 1.0)
        assert (stay.primal, stay.violation) == (0.0, 0.0)
        assert stay.gap == pytest.approx(radius)
        assert move.violation == pytest.approx(1 - radius)

    def test_left_right_converges_in_one_over_radius_updates(self):  # ex:mass-split
        # r(L) = −1, r(R) = +1, start at L: π_k(R) = k ε, optimal after 1/ε updates
        radius, policy = 0.125, np.array([[1.0, 0.0]])
        for k in range(1, 9):
            policy = update_policy(policy, [1.0], [[-1.0, 1.0]], Binary(), radius).policy_sa
            assert policy[0, RIGHT] == pytest.approx(k * radius, abs=1e-15)
        assert policy[0].tolist() == [0.0, 1.0]


class TestRunningExample:
    """app:details-policy-update, with t* corrected: π(L) = θ, A(L) = 2(θ − 1), A(R) = 2θ."""

    @staticmethod
    def update(theta, radius):
        gain = [[2 * (theta - 1), 2 * theta]]
        return update_policy([[theta, 1 - theta]], [1.0], gain, Binary(), radius)

    @pytest.mark.parametrize(("theta", "radius"), [(0.5, 0.1), (1.0, 0.25), (0.3, 0.29)])
    def test_active_constraint(self, theta, radius):
        update = self.update(theta, radius)
        solution = update.solution
        # G(λ) = λε + 2θ − θ min(2, λ): slope ε − θ < 0 below 2, ε > 0 above
        assert solution.multiplier == pytest.approx(2.0, rel=1e-15)
        assert solution.value == pytest.approx(2 * radius)
        # erratum: t* = 1 − ε/θ, not ε: the farthest map spends θ, the nearest 0
        assert solution.split == pytest.approx(1 - radius / theta, rel=1e-12)
        assert solution.split != pytest.approx(radius)
        assert update.policy_sa[0, LEFT] == pytest.approx(theta - radius, rel=1e-12)
        assert solution.spent == pytest.approx(radius, rel=1e-12)

    @pytest.mark.parametrize(("theta", "radius"), [(0.1, 0.5), (0.25, 0.25)])
    def test_inactive_constraint(self, theta, radius):
        # erratum: this case is θ ≤ ε (one label says ≥); at θ = ε every λ in [0, 2] is optimal
        update = self.update(theta, radius)
        assert update.solution.multiplier == 0.0
        assert update.policy_sa[0].tolist() == [0.0, 1.0]
        assert update.solution.value == pytest.approx(2 * theta)

    def test_what_the_printed_split_would_do(self):
        theta, radius = 0.5, 0.1
        update = self.update(theta, radius)
        maps = update.solution.nearest_r, update.solution.farthest_r
        printed = push_forward(update.problem, [(maps[0], radius), (maps[1], 1 - radius)])
        # t* = ε moves (1 − ε) θ = 0.45 instead of 0.1
        assert audit(update.problem, printed, 2.0).violation == pytest.approx(0.45 - 0.1)


class TestErrata:
    def test_multiplier_zero_takes_the_nearest_map(self):
        # corollaries say t* = 0 at λ* = 0, which is the farthest map; the prose says the closest.
        # With A ≡ 0 the farthest map moves all mass: it spends 1 where 0.1 is allowed.
        update = update_policy([[1.0, 0.0]], [1.0], [[0.0, 0.0]], Binary(), 0.1)
        assert (update.solution.multiplier, update.solution.split) == (0.0, 1.0)
        assert update.policy_sa[0].tolist() == [1.0, 0.0]
        literal = push_forward(update.problem, [(update.solution.farthest_r, 1.0)])
        assert audit(update.problem, literal, 0.0).violation == pytest.approx(0.9)

    def test_derivative_of_phi_is_minus_the_cost(self):
        # the lemma lacks the minus sign: dΦ/dλ = −c(a, T(a))
        problem = DualProblem([1.0], [[0.0, 3.0]], [[0.0, 0.5]], 0.1)
        h = 1e-6
        slope = (regularised_advantage(problem, 1 + h) - regularised_advantage(problem, 1 - h)) / (
            2 * h
        )
        assert slope[0] == pytest.approx(-0.5, rel=1e-6)

    def test_log_six_is_not_below_one(self):
        assert np.log(6) == pytest.approx(1.791759, abs=1e-6)

    def test_shifting_gains_by_state_changes_nothing(self):
        # so Q serves as well as the advantage, and keeps exact ties exact
        rng = np.random.default_rng(0)
        policy, occupancy = rng.dirichlet(np.ones(3), 5), rng.dirichlet(np.ones(5))
        q = rng.integers(-4, 5, (5, 3)).astype(float)
        value = np.arange(5.0)[:, None]
        with_q = update_policy(policy, occupancy, q, Binary(), 0.1)
        with_a = update_policy(policy, occupancy, q - value, Binary(), 0.1)
        assert with_q.policy_sa.tolist() == with_a.policy_sa.tolist()

    def test_cheap_as_defined_makes_passenger_actions_dearer(self):
        # "Cheap" has c(move, passenger) > c(passenger, move), although the prose calls moving mass
        # to passenger actions incentivised: under the definition it buys less of it, not more
        move, passenger = 0, 1
        gain, radius = [[0.0, 1.0]], 0.1
        equal = update_policy([[1.0, 0.0]], [1.0], gain, Binary(), radius)
        defined = TableCost([[0.0, 1.2], [1.0, 0.0]])
        assert defined.matrix(2)[move, passenger] > defined.matrix(2)[passenger, move]
        cheap = update_policy([[1.0, 0.0]], [1.0], gain, defined, radius)
        assert cheap.policy_sa[0, passenger] < equal.policy_sa[0, passenger]


class TestCliffWalkingPolicies:
    """section:experiments: two policies that differ at one state, by Down instead of Right."""

    UP, RIGHT, DOWN, ACTIONS = 0, 1, 2, 4

    def policies(self):
        # along the cliff's edge: right, right, ..., and down above the goal; π drops one step early
        path = 11
        optimal = np.zeros((path + 1, self.ACTIONS))
        optimal[:path, self.RIGHT] = 1.0
        optimal[path, self.DOWN] = 1.0
        close = optimal.copy()
        close[path - 1] = np.eye(self.ACTIONS)[self.DOWN]
        occupancy = np.full(path + 1, 1 / (path + 1))
        return close, optimal, occupancy

    def test_transport_is_finite_where_divergence_is_not(self):
        close, optimal, occupancy = self.policies()
        cost = TableCost(np.array([[0, 1, 2, 1], [1, 0, 1.5, 2], [2, 0.5, 0, 1], [1, 2, 1, 0]]))
        # only the one state differs, so the discrepancy is ρ(s) c(Down, Right)
        spent = average_discrepancy(close, optimal, occupancy, cost)
        assert spent == pytest.approx(occupancy[10] * 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(optimal > 0, np.log(optimal / close), 0.0)
        divergence = (occupancy[:, None] * np.where(optimal > 0, optimal * ratio, 0.0)).sum()
        assert divergence == np.inf

    def test_the_update_reaches_across(self):
        close, optimal, occupancy = self.policies()
        gain = np.where(optimal > 0, 0.0, -1.0)  # the optimal action is best in every state
        for _ in range(3):
            update = update_policy(close, occupancy, gain, Binary(), radius=0.03)
            close = update.policy_sa
            assert audit(update.problem, close, update.solution.multiplier).violation == 0.0
        # one state of occupancy 1/12 needs 1/12 of mass: 0.03 + 0.03 + 0.0233
        assert close == pytest.approx(optimal)


def test_dual_value_bounds_every_feasible_policy():  # weak duality
    rng = np.random.default_rng(2)
    policy, occupancy = rng.dirichlet(np.ones(3), 4), rng.dirichlet(np.ones(4))
    problem = finite_problem(policy, occupancy, rng.standard_normal((4, 3)), Binary(), 0.2)
    best = solve_dual(problem.dual)
    for _ in range(200):
        other = rng.dirichlet(np.ones(3), 4)
        share = min(1.0, 0.2 / average_discrepancy(policy, other, occupancy, Binary()))
        feasible = policy + share * (other - policy)
        report = audit(problem, feasible, best.multiplier)
        assert report.violation == 0.0
        assert report.primal <= best.value + 1e-12
        assert report.primal <= dual_value(problem.dual, 3 * best.multiplier) + 1e-12
