"""Behaviour that both tabular agents share, and what each does with a policy."""

import json
import warnings
import zipfile

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from ottrpo.core import Binary, TableCost, audit, dual_value, finite_problem, solve_dual
from ottrpo.tabular import (
    WPO,
    FiniteMDP,
    LinearSchedule,
    SteppedProblem,
    TabularOTTRPO,
    as_problem,
)
from ottrpo.tabular.agents import (
    annealed_multiplier,
    lowest_maximiser,
    scalar_multiplier,
    single_map,
)

AGENTS = [TabularOTTRPO, WPO]
ROUND = [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
KEYS = {
    "ot/multiplier",
    "ot/radius",
    "ot/spent",
    "ot/split_mass",
    "ot/active_fraction",
    "ot/violation",
    "ot/dual_gap",
}


def trained(agent, seed=0, steps=6_000, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short runs may not see the goal
        return agent("FrozenLake-v1", seed=seed, steps_per_update=500, **settings).learn(steps)


@pytest.mark.parametrize("agent", AGENTS)
def test_same_seed_same_numbers_other_seed_others(agent):
    first, second, other = trained(agent), trained(agent), trained(agent, seed=1)
    np.testing.assert_array_equal(first.policy_sa, second.policy_sa)
    assert first.last_update == second.last_update
    assert not np.array_equal(first.estimates.q_sa, other.estimates.q_sa)


@pytest.mark.parametrize("agent", AGENTS)
def test_reports_of_an_update(agent):
    reports = []
    updates = agent("FrozenLake-v1", seed=3, initial_q=1.0, steps_per_update=500)
    updates.learn(10_000, callback=lambda a: reports.append((a.last_update, a.last_improvement)))
    assert len(reports) == updates.num_updates > 10
    for report, improvement in reports:
        assert report.keys() >= KEYS
        checked = audit(improvement.problem, improvement.policy_sa, improvement.multiplier)
        assert report["ot/spent"] == pytest.approx(checked.spent, abs=1e-12)
        assert report["ot/violation"] == pytest.approx(checked.violation, abs=1e-12)
        assert report["ot/dual_gap"] == pytest.approx(checked.gap, abs=1e-12)
        np.testing.assert_allclose(improvement.policy_sa.sum(axis=1), 1.0, rtol=1e-12)
        if agent is TabularOTTRPO:
            assert checked.violation == 0.0
            assert report["ot/dual_gap"] == pytest.approx(0.0, abs=1e-12)
            if report["ot/multiplier"] > 0:
                assert report["ot/spent"] == pytest.approx(report["ot/radius"], rel=1e-12)


@pytest.mark.parametrize("agent", AGENTS)
def test_learn_plays_what_it_was_asked_and_stops_when_told(agent):
    lake = agent("FrozenLake-v1", seed=0, steps_per_update=500, initial_q=1.0)
    lake.learn(2_000)
    assert 2_000 <= lake.num_timesteps < 2_000 + 100
    lake.learn(1_000, callback=lambda a: False)
    assert 2_500 <= lake.num_timesteps < 2_700
    with pytest.raises(ValueError, match="total_timesteps must be positive"):
        lake.learn(0)


@pytest.mark.parametrize("agent", AGENTS)
def test_saved_and_loaded_agent_trains_on_as_if_nothing_had_happened(agent, tmp_path):
    whole = agent("Taxi-v4", seed=5, masks=True, radius={"start": 0.1, "end": 0.01})
    whole.learn(3_000, callback=lambda a: a.num_updates < 2)
    whole.save(tmp_path / "half")
    half = agent.load(tmp_path / "half")
    assert half.num_timesteps == whole.num_timesteps
    assert half.settings == whole.settings
    for _ in range(2):
        whole.learn(5_000)
        half.learn(5_000)
        np.testing.assert_array_equal(half.policy_sa, whole.policy_sa)
        np.testing.assert_array_equal(half.estimates.q_sa, whole.estimates.q_sa)
    np.testing.assert_array_equal(half.predict(np.arange(500))[0], whole.predict(np.arange(500))[0])


def test_saved_agent_is_plain_data_and_found_by_any_of_its_names(tmp_path):
    agent = trained(TabularOTTRPO, cost=ROUND)
    agent.save(tmp_path / "run" / "agent")
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["agent.zip"]
    with zipfile.ZipFile(tmp_path / "run" / "agent.zip") as bundle:
        assert bundle.namelist() == ["bundle.json", "data.json", "arrays.safetensors"]
        record = json.loads(bundle.read("data.json"))
    assert record["environment"] == {"id": "FrozenLake-v1", "kwargs": {}}
    for name in ("run", "run/agent", "run/agent.zip"):
        again = TabularOTTRPO.load(tmp_path / name)
        np.testing.assert_array_equal(again.policy_sa, agent.policy_sa)
        np.testing.assert_array_equal(again.settings.cost.matrix(4), agent.settings.cost.matrix(4))


def test_loading_what_is_not_there_or_not_ours(tmp_path):
    agent = trained(TabularOTTRPO)
    agent.save(tmp_path / "a")
    with pytest.raises(ValueError, match="no saved agent"):
        TabularOTTRPO.load(tmp_path / "c")
    with pytest.raises(ValueError, match="holds a TabularOTTRPO, not a WPO"):
        WPO.load(tmp_path / "a")
    (tmp_path / "b.zip").write_text("no")
    with pytest.raises(ValueError, match="is no bundle of ours, or it is damaged"):
        TabularOTTRPO.load(tmp_path / "b")


def test_environment_of_a_saved_agent(tmp_path):
    slippery = gym.make("CliffWalking-v1", is_slippery=True, max_episode_steps=77)
    TabularOTTRPO(slippery).save(tmp_path / "registered")
    again = TabularOTTRPO.load(tmp_path / "registered")
    assert again.problem.step_cap == 77
    assert len(again.problem.next_o) == 3 * 48 * 4
    chain = FiniteMDP.from_arrays(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0])
    TabularOTTRPO(chain, radius=lambda remaining: 0.1 + remaining).save(tmp_path / "own")
    with pytest.raises(ValueError, match="give it: load"):
        TabularOTTRPO.load(tmp_path / "own")
    assert TabularOTTRPO.load(tmp_path / "own", env=chain, radius=0.5).settings.radius == 0.5


@pytest.mark.parametrize("agent", AGENTS)
def test_evaluation_has_its_own_streams(agent):
    lake, twin = trained(agent), trained(agent)
    first = lake.evaluate(50, deterministic=False, seed=4)
    np.testing.assert_array_equal(first, lake.evaluate(50, deterministic=False, seed=4))
    assert not np.array_equal(first, lake.evaluate(50, deterministic=False, seed=5))
    for one in (lake, twin):
        one.learn(1_000)
    np.testing.assert_array_equal(lake.policy_sa, twin.policy_sa)


def test_predict_follows_the_policy():
    agent = TabularOTTRPO("FrozenLake-v1", seed=0)
    policy_sa = np.random.default_rng(0).dirichlet(np.ones(4), size=16)
    policy_sa[3] = [0.0, 0.25, 0.75, 0.0]
    agent.set_parameters({"policy": policy_sa})
    best, state = agent.predict(np.arange(16), deterministic=True)
    assert state is None
    np.testing.assert_array_equal(best, policy_sa.argmax(axis=1))
    assert agent.predict(5, deterministic=True)[0].shape == ()
    drawn, _ = agent.predict(np.full(40_000, 3))
    share = np.bincount(drawn, minlength=4) / 40_000
    assert share[[0, 3]].tolist() == [0.0, 0.0]
    assert share[2] == pytest.approx(0.75, abs=0.02)
    for bad in (16, -1, 0.5):
        with pytest.raises(ValueError, match=r"an observation must be a state 0\.\.15"):
            agent.predict(bad)


def test_parameters_are_copies():
    agent = TabularOTTRPO("FrozenLake-v1")
    agent.get_parameters()["policy"][:] = 0.0
    np.testing.assert_array_equal(agent.policy_sa, np.full((16, 4), 0.25))
    with pytest.raises(ValueError, match=r"policy must have shape \(16, 4\)"):
        agent.set_parameters({"policy": np.full((3, 4), 0.25)})


def test_radius_schedules():
    seen = []
    agent = TabularOTTRPO("Taxi-v4", radius=LinearSchedule(0.3, 0.1), steps_per_update=1_000)
    agent.learn(10_000, callback=lambda a: seen.append(a.last_update["ot/radius"]))
    assert seen[0] == pytest.approx(0.3)
    assert all(np.diff(seen) < 0)
    assert 0.1 < seen[-1] < 0.15
    falling = TabularOTTRPO("FrozenLake-v1", radius=lambda remaining: -1.0)
    with pytest.raises(ValueError, match="radius schedule's value must be positive"):
        falling.learn(100)


def test_settings_are_the_constructors_keywords():
    import inspect

    assert "radius" in inspect.signature(TabularOTTRPO).parameters
    assert "tie" in inspect.signature(WPO).parameters
    assert "tie" not in inspect.signature(TabularOTTRPO).parameters
    with pytest.raises(ValueError, match="'radios' is not a setting; did you mean 'radius'"):
        TabularOTTRPO("FrozenLake-v1", radios=0.1)


# what a user can get wrong: one clear line each


def test_continuous_spaces_are_refused():
    with pytest.raises(ValueError, match=r"Discrete observations and actions, .* OTTRPO") as error:
        TabularOTTRPO("MountainCarContinuous-v0")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="CartPole-v1 has observations in Box"):
        TabularOTTRPO("CartPole-v1")


def test_a_cost_of_the_wrong_size_is_refused_before_training():
    with pytest.raises(ValueError, match="is for 3 actions, the problem has 4"):
        TabularOTTRPO("FrozenLake-v1", cost=TableCost(Binary().matrix(3)))


class Masked(gym.Env):
    """Three actions; the mask is what the caller says, and the second action pays."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(3)

    def __init__(self, mask):
        self.mask = np.array(mask, dtype=np.int8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {"action_mask": self.mask}

    def step(self, action):
        assert self.mask[action]
        return 1, float(action == 1), True, False, {"action_mask": self.mask}


def test_a_mask_that_forbids_everything_is_refused():
    with pytest.raises(ValueError, match="forbids all 3 actions in state 0"):
        TabularOTTRPO(Masked([0, 0, 0]), masks=True).learn(10)
    with pytest.raises(ValueError, match="forbids all 2 actions in state 0"):
        FiniteMDP.from_arrays(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0], allowed_sa=[[0, 0]])


@pytest.mark.parametrize("use_table", [True, False])
def test_masks_that_do_not_exist_are_not_silently_ignored(use_table):
    lake = as_problem("FrozenLake-v1", use_table=use_table)
    with pytest.raises(ValueError, match="FrozenLake-v1 reports no action mask"):
        TabularOTTRPO(lake, masks=True).learn(10)


def test_seeds_and_exact_estimates_are_checked_at_once():
    with pytest.raises(ValueError, match="seed must be 0 or a positive integer, got -1"):
        TabularOTTRPO("FrozenLake-v1", seed=-1)
    with pytest.raises(ValueError, match="need a known transition table"):
        TabularOTTRPO(as_problem("FrozenLake-v1", use_table=False), estimator="exact")


def test_masks_met_while_stepping_are_obeyed():
    agent = TabularOTTRPO(Masked([0, 1, 1]), masks=True, radius=0.2, steps_per_update=20)
    agent.learn(500)
    np.testing.assert_allclose(agent.policy_sa[0], [0.0, 1.0, 0.0], atol=1e-12)


def test_taxi_masks_are_the_environments_and_are_obeyed():
    taxi = gym.make("Taxi-v4")
    mdp = as_problem(taxi)
    reference = np.array([taxi.unwrapped.action_mask(s) for s in range(500)], dtype=bool)
    np.testing.assert_array_equal(mdp.allowed_sa, reference)
    agent = TabularOTTRPO("Taxi-v4", masks=True)
    agent.learn(20_000)
    assert agent.policy_sa[~reference].max() == 0.0
    free = TabularOTTRPO("Taxi-v4")
    free.learn(20_000)
    assert free.policy_sa[~reference].max() > 0.0


@pytest.mark.parametrize("use_table", [True, False])
def test_an_unreachable_goal_stops_at_the_cap_and_says_so(use_table):
    island = gym.make("CliffWalking-v1", max_episode_steps=30)
    stuck = np.zeros((48, 4))  # walks into the wall for ever, and can't learn much in 90 steps
    stuck[:, 3] = 1.0
    agent = TabularOTTRPO(
        as_problem(island, use_table=use_table), initial_policy=stuck, steps_per_update=30
    )
    with pytest.warns(
        UserWarning, match="all 3 episodes of CliffWalking-v1 stopped at the cap of 30"
    ):
        agent.learn(90)


def test_a_goal_behind_a_wall_is_named_as_such():
    probability = np.zeros((2, 1, 2))
    probability[0, 0, 0] = probability[1, 0, 1] = 1.0
    mdp = FiniteMDP.from_arrays(
        probability, np.zeros((2, 1)), [1, 0], terminal_s=[False, True], step_cap=5
    )
    with pytest.warns(UserWarning, match="no terminal state can be reached from a start state"):
        TabularOTTRPO(mdp, steps_per_update=5).learn(20)
    endless = FiniteMDP.from_arrays(probability, np.zeros((2, 1)), [1, 0], step_cap=5)
    TabularOTTRPO(endless, steps_per_update=5).learn(20)  # nothing to say


def test_progress_bar(capsys):
    TabularOTTRPO("FrozenLake-v1", initial_q=1.0).learn(5_000, progress_bar=True)
    assert "FrozenLake-v1" in capsys.readouterr().out


# WPO


def dual_of(seed=0, states=30, actions=4):
    rng = np.random.default_rng(seed)
    return finite_problem(
        rng.dirichlet(np.ones(actions), size=states),
        rng.dirichlet(np.ones(states)),
        np.round(4 * rng.normal(size=(states, actions))) / 4,  # many ties, exact in binary
        Binary(),
        0.05,
    )


@pytest.mark.parametrize("seed", range(8))
def test_multiplier_of_wpo_is_the_sorted_breakpoint(seed):
    """peers: β* = smallest β >= 0 at which the mass of gaps above β is at most the radius."""
    problem = dual_of(seed)
    gap_r = (
        problem.gain_sa.max(axis=1)[problem.state_r]
        - problem.gain_sa[problem.state_r, problem.action_r]
    )
    weight_r = problem.dual.weight_r
    candidates = np.unique(np.concatenate([[0.0], gap_r]))
    enough = [b for b in candidates if weight_r[gap_r > b].sum() <= 0.05]
    exact = solve_dual(problem.dual).multiplier
    assert exact == pytest.approx(min(enough), abs=1e-12)
    assert scalar_multiplier(problem.dual) == pytest.approx(exact, abs=1e-4)
    annealed = annealed_multiplier(problem.dual, np.random.default_rng(0))
    assert dual_value(problem.dual, annealed) >= dual_value(problem.dual, exact) - 1e-12
    assert annealed == pytest.approx(exact, abs=0.1)


@pytest.mark.parametrize("seed", range(8))
def test_tie_rules_straddle_the_radius(seed):
    problem = dual_of(seed)
    solution = solve_dual(problem.dual)
    assert solution.multiplier > 0

    def cost(target_r):
        return problem.dual.weight_r @ problem.dual.cost_rk[np.arange(problem.dual.rows), target_r]

    assert cost(solution.nearest_r) <= 0.05 + 1e-12 <= cost(solution.farthest_r) + 2e-12
    lowest_r = lowest_maximiser(
        problem.dual, solution.multiplier, solution.nearest_r, solution.farthest_r
    )
    score_rk = problem.dual.gain_rk - solution.multiplier * problem.dual.cost_rk
    close_rk = score_rk > score_rk.max(axis=1, keepdims=True) - 1e-9
    np.testing.assert_array_equal(lowest_r, close_rk.argmax(axis=1))


def test_single_map_breaks_exact_ties_by_the_rule():
    problem = finite_problem([[0.2, 0.8, 0.0]], [1.0], [[1.0, 1.0, 1.0]], Binary(), 0.1)
    targets = {
        tie: single_map(problem.dual, 0.0, tie).tolist() for tie in ("lowest", "stay", "move")
    }
    assert targets == {"lowest": [0, 0], "stay": [0, 1], "move": [1, 0]}


def test_wpo_without_splitting_jumps_or_stays():
    """The paper's two-action example: mass one moves whole or not at all; OT-TRPO moves ε."""
    bandit = FiniteMDP.from_arrays(
        np.array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]),
        np.array([[-1.0, 1.0], [0.0, 0.0]]),
        [1.0, 0.0],
        terminal_s=[False, True],
    )
    left = np.array([[1.0, 0.0], [1.0, 0.0]])
    exact = {"estimator": "exact", "occupancy": "exact", "discount": 0.0, "steps_per_update": 1}
    split = TabularOTTRPO(bandit, radius=0.25, initial_policy=left, **exact)
    chances = []
    split.learn(4, callback=lambda a: chances.append(a.policy_sa[0, 1]))
    np.testing.assert_allclose(chances, [0.25, 0.5, 0.75, 1.0])
    for tie, chance, violated in (("stay", 0.0, False), ("move", 1.0, True)):
        whole = WPO(bandit, radius=0.25, initial_policy=left, tie=tie, **exact).learn(1)
        assert whole.policy_sa[0, 1] == chance
        assert (whole.last_update["ot/violation"] > 0) == violated


def test_every_setting_of_wpo_matters():
    base = {"radius": 0.05, "episodes_per_update": 20, "steps_per_update": 1, "initial_q": 0.0}
    base |= {"solve_episodes": 40, "target": "sarsa", "keep_q": False, "multiplier": "original"}
    base |= {"occupancy": "discounted", "fixed_multiplier": 3.0, "fixed_multiplier_spread": 0.0}
    base |= {"update_unvisited": True, "tie": "lowest"}
    changes = [
        {},
        {"multiplier": "exact"},
        {"multiplier": "exact", "tie": "stay"},
        {"multiplier": "exact", "tie": "move"},
        {"multiplier": "scalar"},
        {"solve_episodes": 80},
        {"fixed_multiplier": 0.2},
        {"fixed_multiplier_spread": 6.0},
    ]
    results = [
        WPO("Taxi-v4", seed=0, **{**base, **change})
        .learn(100_000, callback=lambda a: a.num_updates < 15)
        .policy_sa
        for change in changes
    ]
    for i in range(len(results)):
        for j in range(i):
            assert not np.array_equal(results[i], results[j]), (changes[i], changes[j])


def test_unvisited_states_collapse_only_if_asked_and_only_at_multiplier_zero():
    """With λ = 0 and ties to the lowest index, WPO sends all mass of unseen states to action 0."""
    for update_unvisited in (True, False):
        agent = WPO(
            "FrozenLake8x8-v1",
            radius=100.0,
            steps_per_update=1,
            update_unvisited=update_unvisited,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            agent.learn(1)
        assert agent.last_update["ot/multiplier"] == 0.0
        collapsed = bool((agent.policy_sa[55] == [1.0, 0.0, 0.0, 0.0]).all())
        assert collapsed == update_unvisited


def test_a_stepped_agent_trains_on_after_loading_too(tmp_path):
    def lake():
        return wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda r: 2 * r)

    whole = TabularOTTRPO(lake(), seed=3, initial_q=2.0, steps_per_update=100).learn(300)
    assert isinstance(whole.problem, SteppedProblem)
    whole.save(tmp_path / "half")
    with pytest.raises(ValueError, match="not a registered environment"):
        TabularOTTRPO.load(tmp_path / "half")
    half = TabularOTTRPO.load(tmp_path / "half", env=lake())
    for agent in (whole, half):
        agent.learn(300)
    np.testing.assert_array_equal(half.estimates.q_sa, whole.estimates.q_sa)
    assert half.num_timesteps == whole.num_timesteps


@pytest.mark.parametrize("wrong", [-1, 2.7, 16, float("nan")])
def test_an_observation_that_is_no_state_is_refused(wrong):
    class Wrong(gym.ObservationWrapper):
        def observation(self, observation):
            return wrong

    agent = TabularOTTRPO(Wrong(gym.make("FrozenLake-v1")), radius=0.1)
    with pytest.raises(ValueError, match=f"returned the observation {wrong}, which is not in its"):
        agent.learn(100)
