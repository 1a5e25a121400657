"""What the paper proves, checked by computation on random MDPs and on its own examples."""

import warnings

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    TableCost,
    discrepancy_by_state,
    improvement_bound,
    update_policy,
)
from ottrpo.tabular import FiniteMDP, TabularOTTRPO, as_problem, planning

RANDOM_MDPS = 200
ROUNDING = 1e-9


def random_mdp(seed):
    """2 to 8 states, 2 to 5 actions, sparse or dense transitions, endless."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(2, 9)), int(rng.integers(2, 6))
    spread = rng.choice([0.1, 1.0, 10.0])
    probability = rng.dirichlet(np.full(n_states, spread), size=(n_states, n_actions))
    reward = rng.normal(size=(n_states, n_actions))
    if seed % 3 == 0:
        reward = np.round(reward)  # ties
    mdp = FiniteMDP.from_arrays(probability, reward, rng.dirichlet(np.ones(n_states)))
    cost = Binary()
    if seed % 2:
        table = rng.uniform(0.2, 2.0, size=(n_actions, n_actions))
        np.fill_diagonal(table, 0.0)
        cost = TableCost(table)
    policy_sa = rng.dirichlet(np.ones(n_actions), size=n_states)
    return mdp, cost, policy_sa, float(rng.uniform(0.5, 0.97)), rng


def one_update(mdp, policy_sa, cost, radius, discount, error_sa=0.0):
    value = planning.evaluate_policy(mdp, policy_sa, discount)
    occupancy_s = planning.exact_occupancy(mdp, policy_sa, discount)
    assert occupancy_s.sum() == pytest.approx(1.0)
    update = update_policy(policy_sa, occupancy_s, value.advantage_sa + error_sa, cost, radius)
    after = planning.evaluate_policy(mdp, update.policy_sa, discount)
    bound = improvement_bound(
        value.performance,
        update.solution.multiplier,
        discrepancy_by_state(policy_sa, update.policy_sa, cost),
        planning.exact_occupancy(mdp, update.policy_sa, discount),
        discount,
        advantage_error=float(np.abs(error_sa).max()),
    )
    return value.performance, after.performance, bound, update


def test_every_update_improves_and_satisfies_the_bound_and_reaches_the_optimum():
    """prop:exact-policy-improv on RANDOM_MDPS problems, each followed to its optimum."""
    updates = 0
    for seed in range(RANDOM_MDPS):
        mdp, cost, policy_sa, discount, rng = random_mdp(seed)
        _, best = planning.policy_iteration(mdp, discount)
        scale = ROUNDING * max(1.0, abs(best.performance)) / (1 - discount)
        radius = float(rng.uniform(0.02, 0.2))
        for _ in range(400):
            before, after, bound, update = one_update(mdp, policy_sa, cost, radius, discount)
            assert after >= before - scale
            assert after >= bound - scale
            moved = not np.array_equal(update.policy_sa, policy_sa)
            policy_sa = update.policy_sa
            updates += 1
            if best.performance - after <= scale or not moved:
                break
        assert after == pytest.approx(best.performance, abs=10 * scale), seed
    assert updates > 5 * RANDOM_MDPS  # small radii: the optimum is not one step away


def test_bound_with_a_known_error_of_the_advantage():
    """With Â = A + e, |e| <= δ, J may fall, but never below the bound with its error term."""
    fell = 0
    for seed in range(RANDOM_MDPS):
        mdp, cost, policy_sa, discount, rng = random_mdp(seed)
        best_sa, _ = planning.policy_iteration(mdp, discount)
        policy_sa = 0.9 * best_sa + 0.1 * policy_sa  # near the top there is something to lose
        for size in (0.01, 0.3, 2.0):
            error_sa = rng.uniform(-size, size, size=policy_sa.shape)
            before, after, bound, _ = one_update(
                mdp, policy_sa, cost, float(rng.uniform(0.02, 1.0)), discount, error_sa
            )
            assert after >= bound - ROUNDING * max(1.0, abs(before)) / (1 - discount)
            fell += after < before
    assert fell > 20  # the errors are large enough to matter


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_agent_with_exact_estimates_does_the_same(seed):
    mdp, cost, _, discount, _ = random_mdp(seed)
    _, best = planning.policy_iteration(mdp, discount)
    values = []
    agent = TabularOTTRPO(
        mdp,
        radius=0.1,
        cost=cost,
        estimator="exact",
        occupancy="exact",
        discount=discount,
        steps_per_update=1,
    )
    agent.learn(
        400_000,
        callback=lambda a: (
            values.append(planning.evaluate_policy(mdp, a.policy_sa, discount).performance),
            len(values) < 400,
        )[1],
    )
    assert np.diff(values).min() >= -1e-9
    assert values[-1] == pytest.approx(best.performance, abs=1e-9)


# the close-to-optimal policy of CliffWalking (section 5 of the paper)

UP, RIGHT, DOWN, LEFT = range(4)
START = 36  # row 3, column 0
EDGE = 34  # row 2, column 10: the cell above the last cell of the cliff


def optimal_and_close():
    """Up, along the cliff, down into the goal; the close policy steps down one cell early."""
    choice_s = np.full(48, RIGHT)
    choice_s[START] = UP
    choice_s[35] = DOWN
    best_sa = np.eye(4)[choice_s]
    close_sa = best_sa.copy()
    close_sa[EDGE] = np.eye(4)[DOWN]
    return best_sa, close_sa


def test_the_two_policies_are_what_the_paper_draws():
    mdp = as_problem("CliffWalking-v1")
    best_sa, close_sa = optimal_and_close()
    assert planning.capped_return(mdp, best_sa) == -13.0
    assert planning.capped_return(mdp, close_sa) < -30_000  # falls, starts again, falls, ...
    assert np.flatnonzero((best_sa != close_sa).any(axis=1)).tolist() == [EDGE]
    # C(π, π*) at the one state is c(Down, Right) = 1, and the average is its share of the visits
    discrepancy_s = discrepancy_by_state(close_sa, best_sa, Binary())
    assert discrepancy_s[EDGE] == 1.0
    assert discrepancy_s.sum() == 1.0


@pytest.mark.parametrize("radius", [0.01, 0.1])
@pytest.mark.parametrize("estimator", ["exact", "td"])
def test_ot_trpo_leaves_the_close_policy_for_the_optimum(radius, estimator):
    _, close_sa = optimal_and_close()
    occupancy = "exact" if estimator == "exact" else "visits"
    agent = TabularOTTRPO(
        "CliffWalking-v1",
        radius=radius,
        discount=0.95,
        estimator=estimator,
        occupancy=occupancy,
        initial_policy=close_sa,
        steps_per_update=1,
        step_cap=200,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first episodes can't end
        agent.learn(200_000, callback=lambda a: a.num_updates < 400)
    reached = planning.capped_return(as_problem("CliffWalking-v1"), agent.policy_sa)
    assert reached == pytest.approx(-13.0, abs=1e-9)


def test_no_kl_trust_region_contains_a_way_out():
    """KL(π̃ ‖ π) and KL(π ‖ π̃) between the two policies are infinite, and so is every step.

    Maximise the surrogate over {π̃ : Σ ρ KL(π̃ ‖ π) <= δ}: wherever π(a|s) = 0, a finite KL needs
    π̃(a|s) = 0. π is deterministic on the states it visits, so the region holds π alone there,
    whatever δ is. The closed form π̃ ∝ π exp(A/η) says the same for every η.
    """
    mdp = as_problem("CliffWalking-v1")
    best_sa, close_sa = optimal_and_close()
    occupancy_s = planning.exact_occupancy(mdp, close_sa, 0.95)
    visited_s = occupancy_s > 0
    assert visited_s[EDGE]
    with np.errstate(divide="ignore", invalid="ignore"):
        kl_s = np.where(best_sa > 0, best_sa * np.log(best_sa / close_sa), 0.0).sum(axis=1)
    assert np.isinf(occupancy_s[visited_s] @ kl_s[visited_s])
    value = planning.evaluate_policy(mdp, close_sa, 0.95)
    assert value.advantage_sa[EDGE, RIGHT] > 50  # there is all the reason to leave
    for temperature in np.logspace(-6, 6, 49):  # every KL radius has one of these multipliers
        advantage_sa = value.advantage_sa - value.advantage_sa.max(axis=1, keepdims=True)
        tilted_sa = close_sa * np.exp(np.maximum(advantage_sa / temperature, -700.0))
        tilted_sa /= tilted_sa.sum(axis=1, keepdims=True)
        np.testing.assert_array_equal(tilted_sa, close_sa)
    # a direct search agrees: mixing in any of the other actions leaves every KL ball
    for action in (UP, RIGHT, LEFT):
        for share in (1e-12, 1e-6, 0.1, 1.0):
            mixed_a = (1 - share) * close_sa[EDGE] + share * np.eye(4)[action]
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(mixed_a > 0, mixed_a * np.log(mixed_a / close_sa[EDGE]), 0.0)
            assert terms.sum() == np.inf
