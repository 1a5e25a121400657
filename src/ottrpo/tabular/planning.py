r"""Exact methods for MDPs with a known table: evaluation, occupancy, optimum.

Discounted quantities ignore the step cap (they are those of the endless problem); the *capped*
ones are undiscounted returns of episodes that the cap ends, which is what scores measure.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from ottrpo.core.checks import Floats, Integers, distributions, require

from .mdp import FiniteMDP
from .problem import Problem

# Improvements below this, relative to the largest reward, are rounding of the linear solver.
POLICY_ITERATION_RTOL = 1e-10
# Up to this many states a dense solve is quicker than building sparse factors, for which SciPy is
# needed.
DENSE_AT_MOST = 512


@final
@dataclass(frozen=True, eq=False)
class PolicyValue:
    """The exact value of a policy.

    Attributes:
        q_sa: Q(s, a).
        value_s: V(s) = Σ_a π(a|s) Q(s, a).
        performance: J = Σ_s ρ₀(s) V(s).
    """

    q_sa: Floats
    value_s: Floats
    performance: float

    @property
    def advantage_sa(self) -> Floats:
        """A(s, a) = Q(s, a) − V(s)."""
        return self.q_sa - self.value_s[:, None]


def known_table(problem: Problem) -> FiniteMDP:
    """The problem as an MDP whose table the exact methods can use."""
    require(
        isinstance(problem, FiniteMDP) and problem.fully_observed,
        f"exact estimates need a known transition table of fully observed states; {problem.name} "
        "has none: use estimator 'td' or 'mc' and occupancy 'visits' or 'discounted'",
    )
    return problem  # type: ignore[return-value]  # checked above


class Transitions(NamedTuple):
    """A sparse matrix P, entry by entry; entries of the same place add up.

    Attributes:
        from_o: a pair s·A + a, or a state, if a policy chose the action.
        to_o: the state that follows.
        chance_o: of going there and on: 0 where the episode ends.
    """

    from_o: Integers
    to_o: Integers
    chance_o: Floats

    def ahead(self, value_s: Floats, rows: int) -> Floats:
        """P v, what is expected of the states that follow."""
        worth_o = self.chance_o * value_s[self.to_o]
        return np.bincount(self.from_o, worth_o, minlength=rows).astype(np.float64)

    def turned(self) -> "Transitions":
        """Pᵀ."""
        return Transitions(self.to_o, self.from_o, self.chance_o)


def transitions(mdp: FiniteMDP) -> Transitions:
    """Of all pairs (s, a)."""
    row_o = np.repeat(np.arange(len(mdp.offset_r) - 1), np.diff(mdp.offset_r))
    return Transitions(row_o, mdp.next_o, np.where(mdp.terminal_o, 0.0, mdp.probability_o))


def mean_reward(mdp: FiniteMDP) -> Floats:
    """r(s, a), the expected reward of each pair."""
    pay_o = mdp.probability_o * mdp.reward_o
    # rows are never empty, so the sums between offsets are what reduceat gives
    return np.add.reduceat(pay_o, mdp.offset_r[:-1]).reshape(-1, mdp.n_actions)


def evaluate_policy(mdp: FiniteMDP, policy_sa: ArrayLike, discount: float) -> PolicyValue:
    """Solve V = r_π + γ P_π V."""
    policy = _state_policy(mdp, policy_sa)
    transition, reward_sa = transitions(mdp), mean_reward(mdp)
    value_s = _solve(_under(policy, transition), (policy * reward_sa).sum(axis=1), discount)
    ahead_sa = transition.ahead(value_s, reward_sa.size).reshape(reward_sa.shape)
    q_sa = reward_sa + discount * ahead_sa
    return PolicyValue(q_sa, value_s, float(mdp.start_s @ value_s))


def exact_occupancy(mdp: FiniteMDP, policy_sa: ArrayLike, discount: float) -> Floats:
    """ρ(s) = (1 − γ) Σ_t γᵗ P(s_t = s).

    It sums to one where no episode ends; an ended episode visits nothing more.
    """
    under = _under(_state_policy(mdp, policy_sa), transitions(mdp))
    occupancy_s = (1.0 - discount) * _solve(under.turned(), mdp.start_s, discount)
    return np.maximum(occupancy_s, 0.0)  # the solver may leave -1e-20 at unreachable states


def policy_iteration(mdp: FiniteMDP, discount: float) -> tuple[Floats, PolicyValue]:
    """An optimal deterministic policy and its value, by Howard's policy iteration."""
    require(mdp.fully_observed, f"the states of {mdp.name} are not fully observed")
    tolerance = POLICY_ITERATION_RTOL * max(float(np.abs(mdp.reward_o).max()), 1e-300)
    choice_s = mean_reward(mdp).argmax(axis=1)
    while True:
        policy_sa = np.eye(mdp.n_actions)[choice_s]
        value = evaluate_policy(mdp, policy_sa, discount)
        held_s = value.q_sa[np.arange(mdp.n_states), choice_s]
        better_s = value.q_sa.max(axis=1) > held_s + tolerance
        if not better_s.any():
            return policy_sa, value
        choice_s = np.where(better_s, value.q_sa.argmax(axis=1), choice_s)


def capped_return(mdp: FiniteMDP, policy_sa: ArrayLike) -> float:
    """Expected undiscounted return of an episode, the step cap included."""
    policy = _state_policy(mdp, policy_sa)
    back = _under(policy, transitions(mdp)).turned()
    reward_s = (policy * mean_reward(mdp)).sum(axis=1)
    alive_s, total = mdp.start_s, 0.0
    for _ in range(mdp.step_cap):
        total += float(alive_s @ reward_s)
        alive_s = back.ahead(alive_s, len(alive_s))
    return total


def best_capped_return(mdp: FiniteMDP) -> float:
    """The largest expected undiscounted return that *any* agent can have, step cap included.

    Backward induction over the steps that are left: the best policy may depend on them, so this
    bounds every policy that does not.
    """
    transition, reward_sa = transitions(mdp), mean_reward(mdp)
    value_s = np.zeros(len(mdp.start_s))
    for _ in range(mdp.step_cap):
        ahead_sa = transition.ahead(value_s, reward_sa.size).reshape(reward_sa.shape)
        value_s = (reward_sa + ahead_sa).max(axis=1)
    return float(mdp.start_s @ value_s)


def _state_policy(mdp: FiniteMDP, policy_sa: ArrayLike) -> Floats:
    """The policy as a function of the state, which may be finer than what is observed."""
    policy = distributions("policy_sa", policy_sa, ndim=2)
    shape = (mdp.n_states, mdp.n_actions)
    require(policy.shape == shape, f"policy_sa must have shape {shape}, got {policy.shape}")
    state_policy: Floats = policy[mdp.observation_s]
    return state_policy


def _under(policy: Floats, transition: Transitions) -> Transitions:
    """P_π [S, S]: the transitions when the policy chooses the action."""
    state_o = transition.from_o // policy.shape[1]
    return Transitions(
        state_o, transition.to_o, policy.ravel()[transition.from_o] * transition.chance_o
    )


def _solve(matrix: Transitions, right_s: Floats, discount: float) -> Floats:
    """Solve x = right + γ · matrix · x."""
    require(0 <= discount < 1, f"an exact discounted value needs 0 <= discount < 1, got {discount}")
    n = len(right_s)
    if n <= DENSE_AT_MOST:
        place_o = matrix.from_o * n + matrix.to_o
        dense = np.bincount(place_o, matrix.chance_o, minlength=n * n).reshape(n, n)
        left_ss = (np.eye(n) - discount * dense).astype(np.float64)
        return np.linalg.solve(left_ss, right_s).astype(np.float64)
    from scipy import sparse
    from scipy.sparse import linalg

    places = (matrix.chance_o, (matrix.from_o, matrix.to_o))
    left = sparse.eye_array(n, format="csc") - discount * sparse.csc_array(places, shape=(n, n))
    sparse_s: Floats = linalg.spsolve(left, right_s)
    return sparse_s
