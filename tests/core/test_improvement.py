"""The surrogate and the improvement bound on random Markov decision processes, solved exactly."""

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    TableCost,
    discrepancy_by_state,
    improvement_bound,
    surrogate,
    update_policy,
)

DISCOUNT = 0.9


class Process:
    """A random Markov decision process with everything about a policy in closed form."""

    def __init__(self, seed, states=6, actions=4):
        rng = np.random.default_rng(seed)
        self.transition_sat = rng.dirichlet(np.full(states, 0.3), (states, actions))
        self.reward_sa = rng.standard_normal((states, actions))
        self.start_s = rng.dirichlet(np.ones(states))
        self.policy_sa = rng.dirichlet(np.ones(actions), states)

    def evaluate(self, policy_sa):
        """J, the advantage and the normalised occupancy of a policy."""
        step_st = np.einsum("sa,sat->st", policy_sa, self.transition_sat)
        resolvent = np.linalg.inv(np.eye(len(step_st)) - DISCOUNT * step_st)
        value_s = resolvent @ (policy_sa * self.reward_sa).sum(axis=1)
        q_sa = self.reward_sa + DISCOUNT * self.transition_sat @ value_s
        occupancy_s = (1 - DISCOUNT) * self.start_s @ resolvent
        return self.start_s @ value_s, q_sa - value_s[:, None], occupancy_s


@pytest.mark.parametrize("seed", range(40))
def test_every_update_improves_and_keeps_its_bound(seed):  # prop:exact-policy-improv
    process = Process(seed)
    cost = [Binary(), TableCost(np.random.default_rng(seed).random((4, 4)) * (1 - np.eye(4)))][
        seed % 2
    ]
    policy_sa = process.policy_sa
    for _ in range(5):
        performance, advantage_sa, occupancy_s = process.evaluate(policy_sa)
        update = update_policy(policy_sa, occupancy_s, advantage_sa, cost, radius=0.05)
        new_performance, _, new_occupancy_s = process.evaluate(update.policy_sa)
        discrepancy_s = discrepancy_by_state(policy_sa, update.policy_sa, cost)
        bound = improvement_bound(
            performance, update.solution.multiplier, discrepancy_s, new_occupancy_s, DISCOUNT
        )
        assert new_performance >= bound - 1e-9
        assert bound >= performance
        # the performance-difference lemma: with the new occupancy the surrogate is exact
        exact = surrogate(performance, new_occupancy_s, update.policy_sa, advantage_sa, DISCOUNT)
        assert exact == pytest.approx(new_performance, abs=1e-9)
        policy_sa = update.policy_sa


@pytest.mark.parametrize("seed", range(20))
def test_bound_with_a_wrong_advantage(seed):
    process = Process(seed)
    rng = np.random.default_rng(seed)
    performance, advantage_sa, occupancy_s = process.evaluate(process.policy_sa)
    error = 0.3
    wrong_sa = advantage_sa + error * rng.choice([-1.0, 1.0], advantage_sa.shape)
    update = update_policy(process.policy_sa, occupancy_s, wrong_sa, Binary(), radius=0.2)
    new_performance, _, new_occupancy_s = process.evaluate(update.policy_sa)
    bound = improvement_bound(
        performance,
        update.solution.multiplier,
        discrepancy_by_state(process.policy_sa, update.policy_sa, Binary()),
        new_occupancy_s,
        DISCOUNT,
        advantage_error=error,
    )
    assert new_performance >= bound - 1e-9


def test_surrogate_of_the_same_policy_is_its_performance():
    process = Process(0)
    performance, advantage_sa, occupancy_s = process.evaluate(process.policy_sa)
    same = surrogate(performance, occupancy_s, process.policy_sa, advantage_sa, DISCOUNT)
    assert same == pytest.approx(performance, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount": 1.0}, r"discount must lie in \[0, 1\)"),
        ({"multiplier": -1.0}, "multiplier must not be negative"),
        ({"advantage_error": -0.1}, "advantage_error must not be negative"),
        ({"discrepancy_s": [0.1, 0.2]}, "discrepancy_s must have shape"),
        ({"new_occupancy_s": [0.5]}, "new_occupancy_s must sum to 1"),
    ],
)
def test_bad_bounds_are_refused(change, message):
    good = {
        "performance": 0.0,
        "multiplier": 1.0,
        "discrepancy_s": [0.1],
        "new_occupancy_s": [1.0],
        "discount": 0.9,
    }
    improvement_bound(**good)
    with pytest.raises(ValueError, match=message):
        improvement_bound(**(good | change))
