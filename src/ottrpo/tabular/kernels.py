"""Compiled inner loops of the finite problems: simulation, TD passes, returns, occupancy.

Every loop visits one step after another, as the paper writes it, and is compiled by numba. The
tables are those of `ottrpo.tabular.mdp.FiniteMDP`: the outcomes of the pair (s, a) lie in
``offset[s * A + a] : offset[s * A + a + 1]`` of the outcome arrays.

Random numbers are drawn in the order in which Gymnasium's toy-text environments draw them (one
per reset, one per step, whether the outcome is random or not). A rollout therefore *is* the
rollout of the real environment seeded alike, step for step; the tests compare them.
"""

from typing import Any

import numba
import numpy as np

RUNNING, TERMINATED, TRUNCATED = 0, 1, 2  # how a step ended: not at all, by the task, by the cap
SARSA, EXPECTED, MAX = 0, 1, 2  # what a TD target puts in place of the value of the next state

Array = Any  # numba reads the types from the arrays it is given

_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _first_above(cumulative: Array, start: int, stop: int, level: float) -> int:
    """The first index whose cumulative probability exceeds ``level``; the start if none does.

    The last clause is what ``argmax(cumsum > u)`` returns when rounding leaves the total below
    one, so it is kept.
    """
    for i in range(start, stop):
        if cumulative[i] > level:
            return i
    return start


@_compiled
def _first_above_sorted(cumulative: Array, level: float) -> int:
    """The same by bisection, for the long table of start states."""
    index = int(np.searchsorted(cumulative, level, side="right"))
    return index if index < len(cumulative) else 0


@_compiled
def sample_action(policy_sa: Array, state: int, level: float) -> int:
    """The first action at which the cumulative probability exceeds ``level``.

    Rounding may leave the total of a row below ``level``: then the last action that has any
    probability is taken, never one that has none.
    """
    total = 0.0
    last = 0
    for a in range(policy_sa.shape[1]):
        if policy_sa[state, a] > 0.0:
            total += policy_sa[state, a]
            last = a
            if total > level:
                return a
    return last


@_compiled
def simulate(
    tables: Array,
    policy_sa: Array,
    env_rng: Array,
    action_rng: Array,
    step_cap: int,
    min_episodes: int,
    min_steps: int,
    out: Array,
) -> tuple[int, int]:
    """Play whole episodes until both minima are met; returns the numbers of steps and episodes.

    Args:
        tables: (offset, cumulative, next, reward, terminal, start_cumulative, observation).
        policy_sa: probability of each action for each *observation*.
        env_rng: the stream of the environment's dynamics.
        action_rng: the stream of the policy's draws.
        step_cap: steps after which an episode is truncated.
        min_episodes: episodes to play at least.
        min_steps: steps to play at least.
        out: (state, action, reward, next state, ending) to fill, one entry per step.
    """
    offset_r, cumulative_o, next_o, reward_o, terminal_o, start_cumulative_s, observation_s = tables
    state_t, action_t, reward_t, next_t, ending_t = out
    n_actions = policy_sa.shape[1]
    steps = 0
    episodes = 0
    while episodes < min_episodes or steps < min_steps:
        state = _first_above_sorted(start_cumulative_s, env_rng.random())
        for played in range(1, step_cap + 1):
            observation = observation_s[state]
            action = sample_action(policy_sa, observation, action_rng.random())
            row = state * n_actions + action
            outcome = _first_above(cumulative_o, offset_r[row], offset_r[row + 1], env_rng.random())
            state = next_o[outcome]
            state_t[steps] = observation
            action_t[steps] = action
            reward_t[steps] = reward_o[outcome]
            next_t[steps] = observation_s[state]
            ending = RUNNING
            if terminal_o[outcome]:
                ending = TERMINATED
            elif played == step_cap:
                ending = TRUNCATED
            ending_t[steps] = ending
            steps += 1
            if ending != RUNNING:
                break
        episodes += 1
    return steps, episodes


@_compiled
def td_sweeps(
    q_sa: Array,
    count_sa: Array,
    batch: Array,
    policy_sa: Array,
    allowed_sa: Array,
    discount: float,
    learning_rate: float,
    decay: float,
    target: int,
    sweeps: int,
    backward: bool,
    bootstrap_at_cap: bool,
) -> None:
    """Q(s, a) ← (1 − α) Q(s, a) + α (r + γ v(s')), in place, over the steps of a batch.

    v(s') is Q(s', a') with the action that was taken there (SARSA), the mean of Q(s', ·) under
    the policy (EXPECTED) or its maximum (MAX); 0 at terminal states. At the step cap no action
    is taken, so SARSA bootstraps there with the mean, and only if ``bootstrap_at_cap``.
    α = learning_rate / n(s, a)^decay, n(s, a) counting the updates of the pair.
    """
    state_t, action_t, reward_t, next_t, ending_t = batch
    steps = len(state_t)
    for _ in range(sweeps):
        for i in range(steps):
            t = steps - 1 - i if backward else i
            s, a, after, ending = state_t[t], action_t[t], next_t[t], ending_t[t]
            value = 0.0
            if ending == RUNNING and target == SARSA:
                value = q_sa[after, action_t[t + 1]]
            elif ending == RUNNING or (ending == TRUNCATED and bootstrap_at_cap):
                # written out: a call that passes three arrays costs more than the loop itself
                if target == MAX:
                    value = -np.inf
                    for b in range(q_sa.shape[1]):
                        if allowed_sa[after, b] and q_sa[after, b] > value:
                            value = q_sa[after, b]
                else:
                    for b in range(q_sa.shape[1]):
                        value += policy_sa[after, b] * q_sa[after, b]
            count_sa[s, a] += 1
            rate = learning_rate
            if decay > 0.0:
                rate = learning_rate / count_sa[s, a] ** decay
            q_sa[s, a] = (1.0 - rate) * q_sa[s, a] + rate * (reward_t[t] + discount * value)


@_compiled
def discounted_returns(
    batch: Array,
    value_at_cap_s: Array,
    discount: float,
    return_t: Array,
) -> None:
    """Fill ``return_t`` with the discounted return that followed each step.

    An episode that was cut at the step cap goes on with ``value_at_cap_s`` of its last state.
    """
    state_t, _, reward_t, next_t, ending_t = batch
    value = 0.0
    for t in range(len(state_t) - 1, -1, -1):
        if ending_t[t] == TERMINATED:
            value = 0.0
        elif ending_t[t] == TRUNCATED:
            value = value_at_cap_s[next_t[t]]
        value = reward_t[t] + discount * value
        return_t[t] = value


@_compiled
def visit_weights(batch: Array, discount: float, occupancy_s: Array) -> None:
    """Add the weight discount^t of every visit, t counted from the start of its episode."""
    state_t, _, _, _, ending_t = batch
    weight = 1.0
    for t in range(len(state_t)):
        occupancy_s[state_t[t]] += weight
        weight = weight * discount if ending_t[t] == RUNNING else 1.0


@_compiled
def values_to_go(model: Array, unknown_h: Array, policy_sa: Array) -> Array:
    """V_h(s): what the policy is worth with h = 0, 1, ... steps to go.

    Args:
        model: (offset, next, chance, reward, doubt), the tables of `EmpiricalModel.evaluate`.
        unknown_h: what a pair is worth as far as it is in doubt.
        policy_sa: the policy.
    """
    offset_r, next_o, chance_o, reward_r, doubt_r = model
    n_states, n_actions = policy_sa.shape
    value_hs = np.zeros((len(unknown_h), n_states))
    for h in range(1, len(unknown_h)):
        for s in range(n_states):
            for a in range(n_actions):
                row = s * n_actions + a
                if policy_sa[s, a] > 0.0:
                    q = reward_r[row]
                    for o in range(offset_r[row], offset_r[row + 1]):
                        q += chance_o[o] * value_hs[h - 1, next_o[o]]
                    q += doubt_r[row] * (unknown_h[h] - q)
                    value_hs[h, s] += policy_sa[s, a] * q
    return value_hs


@_compiled
def weigh(
    model: Array, unknown_h: Array, policy_sa: Array, value_hs: Array, start_s: Array
) -> tuple[Array, Array, Array]:
    """Expected visits of each state in an episode, Q at its start, and the mean of Q over visits.

    Where doubt came true the episode is over: nothing is known of what follows.
    """
    offset_r, next_o, chance_o, reward_r, doubt_r = model
    n_states, n_actions = policy_sa.shape
    occupancy_s = np.zeros(n_states)
    first_sa, q_sa = np.zeros((n_states, n_actions)), np.zeros((n_states, n_actions))
    here_s = start_s.copy()
    for h in range(len(unknown_h) - 1, 0, -1):
        there_s = np.zeros(n_states)
        for s in range(n_states):
            if here_s[s] > 0.0:
                occupancy_s[s] += here_s[s]
                for a in range(n_actions):
                    row = s * n_actions + a
                    mass = here_s[s] * policy_sa[s, a] * (1.0 - doubt_r[row])
                    q = reward_r[row]
                    for o in range(offset_r[row], offset_r[row + 1]):
                        q += chance_o[o] * value_hs[h - 1, next_o[o]]
                        there_s[next_o[o]] += mass * chance_o[o]
                    q += doubt_r[row] * (unknown_h[h] - q)
                    q_sa[s, a] += here_s[s] * q
        if h == len(unknown_h) - 1:
            first_sa = q_sa.copy()
        here_s = there_s
    return occupancy_s, _per_visit(first_sa, start_s), _per_visit(q_sa, occupancy_s)


@_compiled
def _per_visit(sum_sa: Array, visits_s: Array) -> Array:
    """Means from sums, in place; 0 where nothing was visited."""
    for s in range(len(visits_s)):
        if visits_s[s] > 0.0:
            sum_sa[s] /= visits_s[s]
    return sum_sa
