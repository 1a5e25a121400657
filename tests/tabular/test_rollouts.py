"""The compiled rollouts are the real environment's, step for step."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from ottrpo.tabular import FiniteMDP, SteppedProblem, as_problem, kernels
from ottrpo.tabular.problem import streams

ENVIRONMENTS = {
    "cliff": lambda: gym.make("CliffWalking-v1", max_episode_steps=300),
    "slippery cliff": lambda: gym.make("CliffWalking-v1", is_slippery=True, max_episode_steps=300),
    "taxi": lambda: gym.make("Taxi-v4"),
    "rainy taxi": lambda: gym.make("Taxi-v4", is_rainy=True),
    "lake 4x4": lambda: gym.make("FrozenLake-v1"),
    "lake 8x8": lambda: gym.make("FrozenLake8x8-v1"),
    "firm lake": lambda: gym.make("FrozenLake-v1", is_slippery=False, success_rate=0.7),
}


def random_policy(problem, seed):
    return np.random.default_rng(seed).dirichlet(np.ones(problem.n_actions), size=problem.n_states)


def step_for_step(env, policy_sa, seed, episodes):
    """The same rollout by a plain loop over the environment."""
    _, action_rng = streams(seed)
    played = []
    for episode in range(episodes):
        state, _ = env.reset(seed=seed if episode == 0 else None)
        done = False
        while not done:
            cumulative = np.cumsum(policy_sa[state])
            action = int(np.argmax(cumulative > action_rng.random()))
            after, reward, terminated, truncated, _ = env.step(action)
            ending = 1 if terminated else 2 if truncated else 0
            played.append((state, action, reward, after, ending))
            state, done = after, terminated or truncated
    return np.array(played)


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("seed", [0, 7])
def test_compiled_rollout_equals_stepping_the_environment(name, seed):
    env = ENVIRONMENTS[name]()
    mdp = as_problem(env)
    assert isinstance(mdp, FiniteMDP)
    policy_sa = random_policy(mdp, seed)
    batch = mdp.simulator(seed).rollout(policy_sa, min_episodes=8, min_steps=1)
    expected = step_for_step(ENVIRONMENTS[name](), policy_sa, seed, episodes=8)
    assert batch.steps == len(expected) > 8
    np.testing.assert_array_equal(np.column_stack(batch.columns), expected)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_table_and_stepping_are_one_interface(name):
    table = as_problem(ENVIRONMENTS[name]())
    stepped = as_problem(ENVIRONMENTS[name](), use_table=False)
    assert isinstance(stepped, SteppedProblem)
    assert (stepped.n_states, stepped.n_actions, stepped.step_cap) == (
        table.n_states,
        table.n_actions,
        table.step_cap,
    )
    policy_sa = random_policy(table, 3)
    ours, theirs = (p.simulator(1).rollout(policy_sa, 3, 500) for p in (table, stepped))
    np.testing.assert_array_equal(np.column_stack(ours.columns), np.column_stack(theirs.columns))


def test_stepping_gives_whole_episodes_with_the_same_columns():
    stepped = as_problem("FrozenLake-v1", use_table=False)
    batch = stepped.simulator(0).rollout(random_policy(stepped, 0), 5, 40)
    assert batch.steps >= 40
    assert batch.episodes >= 5
    assert batch.ending_t[-1] != kernels.RUNNING
    inside = batch.ending_t[:-1] == kernels.RUNNING
    np.testing.assert_array_equal(batch.next_t[:-1][inside], batch.state_t[1:][inside])


def test_returns_are_the_sums_of_the_same_rollout():
    mdp = as_problem("Taxi-v4")
    policy_sa = random_policy(mdp, 0)
    batch = mdp.simulator(5).rollout(policy_sa, 20, 1)
    ends = np.flatnonzero(batch.ending_t)
    totals = np.add.reduceat(batch.reward_t, np.concatenate([[0], ends[:-1] + 1]))
    np.testing.assert_allclose(mdp.simulator(5).returns(policy_sa, 20), totals, rtol=1e-12)


def fickle_outcomes(env, state, fickle, action):
    """All that the real Taxi can do in one step, by playing every draw it could make."""

    class Dealt:
        def __init__(self, level, choice):
            self.level, self.choice_index = level, choice
            self.chose = False

        def random(self):
            return self.level

        def choice(self, options):
            self.chose = True
            return options[self.choice_index]

    found = {}
    chances = [p for p, *_ in env.P[state][action]]
    edges = np.concatenate([[0.0], np.cumsum(chances)])
    for i, chance in enumerate(chances):
        for choice in range(3):
            dealt = Dealt((edges[i] + edges[i + 1]) / 2, choice)
            env.s, env.fickle_step, env._np_random = state, fickle, dealt
            after, reward, terminated, _, _ = env.step(action)
            share = chance / 3 if dealt.chose else chance
            if dealt.chose or choice == 0:
                key = (after, bool(env.fickle_step), float(reward), bool(terminated))
                found[key] = found.get(key, 0.0) + share
    return found


@pytest.mark.parametrize("rainy", [False, True])
def test_fickle_taxi_table_holds_what_the_environment_does(rainy):
    env = gym.make("Taxi-v4", fickle_passenger=True, is_rainy=rainy)
    mdp = as_problem(env)
    assert not mdp.fully_observed
    assert mdp.n_states == 500
    taxi = env.unwrapped
    taxi.reset(seed=0)
    for fickle in (False, True):
        for state in range(0, 500, 3):
            for action in range(6):
                row = (state + 500 * fickle) * 6 + action
                ours = {}
                for o in range(mdp.offset_r[row], mdp.offset_r[row + 1]):
                    key = (
                        int(mdp.next_o[o] % 500),
                        bool(mdp.next_o[o] >= 500),
                        float(mdp.reward_o[o]),
                        bool(mdp.terminal_o[o]),
                    )
                    ours[key] = ours.get(key, 0.0) + mdp.probability_o[o]
                assert ours == pytest.approx(fickle_outcomes(taxi, state, fickle, action))
    assert mdp.start_s[500:].sum() == pytest.approx(taxi.fickle_probability)


def test_cap_of_cliff_walking_is_the_documented_one():
    mdp = as_problem("CliffWalking-v1")
    assert mdp.step_cap == 5001
    into_the_wall = np.eye(4)[np.full(48, 3)]
    assert mdp.simulator(0).returns(into_the_wall, 2).tolist() == [-5001.0, -5001.0]


def test_own_time_limit_is_kept_and_can_be_tightened():
    assert as_problem("Taxi-v4").step_cap == 200
    assert as_problem("Taxi-v4", step_cap=17).step_cap == 17
    assert as_problem(gym.make("Taxi-v4"), step_cap=500).step_cap == 200
    assert as_problem(gym.make("Taxi-v4").unwrapped, step_cap=500).step_cap == 500


def test_a_cap_that_coincides_with_the_end_is_the_end():
    mdp = as_problem("CliffWalking-v1", step_cap=13)
    best = np.zeros((48, 4))
    best[:, 1] = 1.0
    best[36] = [1, 0, 0, 0]
    best[35] = [0, 0, 1, 0]
    batch = mdp.simulator(0).rollout(best, 1, 1)
    assert batch.steps == 13
    assert batch.ending_t[-1] == kernels.TERMINATED


def test_a_wrapper_that_changes_rewards_is_stepped_not_tabulated():
    doubled = wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda r: 2 * r)
    problem = as_problem(doubled)
    assert isinstance(problem, SteppedProblem)
    assert isinstance(as_problem(gym.make("FrozenLake-v1")), FiniteMDP)


class LyingTable(gym.Env):
    """An environment whose table is not what it does."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)
    initial_state_distrib = np.array([1.0, 0.0])

    def __init__(self):
        self.P = {s: {a: [(1.0, 0, 0.0, False)] for a in range(2)} for s in range(2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, 1.0, True, False, {}


def test_a_table_that_contradicts_the_environment_is_refused():
    with pytest.raises(ValueError, match=r"does not hold the step .* use_table=False"):
        as_problem(LyingTable())


class Shifted(gym.Env):
    """Two states called 5 and 6, two actions called 3 and 4; action 4 pays and ends."""

    observation_space = spaces.Discrete(2, start=5)
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 5, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return 6, float(action == 4), action == 4, False, {}


def test_spaces_that_do_not_start_at_zero():
    simulator = as_problem(Shifted()).simulator(0)
    batch = simulator.rollout(np.array([[0.0, 1.0], [0.5, 0.5]]), 3, 1)
    assert batch.state_t.tolist() == [0, 0, 0]
    assert batch.next_t.tolist() == [1, 1, 1]
    assert batch.reward_t.tolist() == [1.0, 1.0, 1.0]


def test_no_action_without_probability_is_ever_sampled():
    """Rows whose total is a little below one, and the largest level a stream can give."""
    policy_sa = np.array([[0.3, 0.7 - 1e-9, 0.0]])
    assert kernels.sample_action(policy_sa, 0, 1.0 - 2**-53) == 1
    assert kernels.sample_action(policy_sa, 0, 0.0) == 0


def test_arrays_and_environment_tables_give_the_same_mdp():
    lake = as_problem("FrozenLake-v1")
    n, m = lake.n_states, lake.n_actions
    probability, reward = np.zeros((n, m, n)), np.zeros((n, m))
    terminal = np.zeros(n, dtype=bool)
    for row in range(n * m):
        for o in range(lake.offset_r[row], lake.offset_r[row + 1]):
            probability[row // m, row % m, lake.next_o[o]] += lake.probability_o[o]
            reward[row // m, row % m] += lake.probability_o[o] * lake.reward_o[o]
            terminal[lake.next_o[o]] |= lake.terminal_o[o]
    again = FiniteMDP.from_arrays(
        probability, reward, lake.start_s, terminal_s=terminal, step_cap=lake.step_cap
    )
    policy_sa = random_policy(lake, 1)
    ours, theirs = (p.simulator(0).returns(policy_sa, 20_000) for p in (again, lake))
    assert ours.mean() == pytest.approx(theirs.mean(), abs=5 * np.sqrt(2 * 0.25 / 20_000))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability_sab": np.full((2, 2, 2), 0.4)}, "must sum to 1"),
        ({"probability_sab": np.full((2, 2, 3), 1 / 3)}, r"must have shape \[S, A, S\]"),
        ({"reward": np.zeros(3)}, "the rewards must have shape"),
        ({"start_s": [1.0]}, "must have 2 entries"),
        ({"terminal_s": [True]}, "terminal_s must have shape"),
        ({"step_cap": 0}, "step_cap must be a positive integer"),
        ({"allowed_sa": [[1, 0], [0, 0]]}, "forbids all 2 actions in state 1"),
    ],
)
def test_bad_arrays_are_refused_in_one_line(change, message):
    good = {
        "probability_sab": np.full((2, 2, 2), 0.5),
        "reward": np.zeros((2, 2)),
        "start_s": [1.0, 0.0],
    }
    with pytest.raises(ValueError, match=message) as caught:
        FiniteMDP.from_arrays(**{**good, **change})
    assert "\n" not in str(caught.value)


def test_reachability_of_the_end():
    chain = np.zeros((3, 1, 3))
    chain[0, 0, 1] = chain[1, 0, 0] = chain[2, 0, 2] = 1.0
    terminal = [False, False, True]
    island = FiniteMDP.from_arrays(chain, np.zeros((3, 1)), [1, 0, 0], terminal_s=terminal)
    assert not island.reaches_an_end()
    chain[1, 0] = [0.5, 0.0, 0.5]
    bridge = FiniteMDP.from_arrays(chain, np.zeros((3, 1)), [1, 0, 0], terminal_s=terminal)
    assert bridge.reaches_an_end()
