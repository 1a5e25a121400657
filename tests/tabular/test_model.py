"""The empirical model: its counts, what a policy is worth under it, and what it makes of doubt."""

import gymnasium as gym
import numpy as np
import pytest

from ottrpo.tabular import FiniteMDP, TabularOTTRPO, TabularSettings, as_problem, planning
from ottrpo.tabular import model as model_module
from ottrpo.tabular.model import EmpiricalModel


def played(seed=0, steps=600):
    """A batch on a slippery lake with a short cap, so that all three endings occur."""
    lake = as_problem(gym.make("FrozenLake-v1", desc=["SFF", "FHF", "FFG"], max_episode_steps=9))
    return lake.simulator(seed).rollout(np.full((9, 4), 0.25), 1, steps)


@pytest.fixture
def no_restarts(monkeypatch):
    monkeypatch.setattr(model_module, "RESTARTS", 0.0)


def known(mdp, counts=10_000):
    """A model that knows an MDP of fully observed states to the last digit."""
    rows = np.repeat(np.arange(len(mdp.offset_r) - 1), np.diff(mdp.offset_r))
    key_o = (rows * mdp.n_states + mdp.next_o) * 2 + mdp.terminal_o
    order = np.argsort(key_o)
    count_o = counts * mdp.probability_o[order]
    return EmpiricalModel(
        mdp.n_states,
        mdp.n_actions,
        key_o[order],
        count_o,
        count_o * mdp.reward_o[order],
        counts * mdp.start_s,
    )


def random_mdp(seed, *, ends=True):
    rng = np.random.default_rng(seed)
    chance = rng.dirichlet(np.full(5, 0.5), size=(5, 3))
    return FiniteMDP.from_arrays(
        chance,
        rng.standard_normal((5, 3)),
        rng.dirichlet(np.ones(5)),
        terminal_s=[0, 0, 0, 0, ends],
        step_cap=17,
    )


def test_counts_are_those_of_all_steps():
    batch, more = played(steps=300), played(seed=1, steps=500)
    model = EmpiricalModel(9, 4).plus(batch).plus(more)
    count, reward = {}, {}
    for part in (batch, more):
        for s, a, r, after, ending in zip(*part.columns, strict=True):
            key = ((int(s) * 4 + int(a)) * 9 + int(after)) * 2 + int(ending == 1)
            count[key] = count.get(key, 0) + 1
            reward[key] = reward.get(key, 0.0) + r
    assert model.key_o.tolist() == sorted(count)
    assert model.count_o.tolist() == [count[k] for k in sorted(count)]
    assert model.reward_o.tolist() == [reward[k] for k in sorted(count)]
    assert model.visits().sum() == batch.steps + more.steps
    assert model.start_s.tolist() == [batch.episodes + more.episodes] + [0] * 8


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_occupancy_and_q_are_the_slope_of_the_score(no_restarts, seed, ends):
    """d(return of a capped episode) = Σ_s ρ_s Σ_a Q(s, a) dπ(a|s): policy gradient theorem."""
    mdp = random_mdp(seed, ends=ends)
    rng = np.random.default_rng(seed)
    policy_sa = rng.dirichlet(np.ones(3), 5)
    occupancy_s, q_sa = known(mdp).evaluate(policy_sa, mdp.step_cap, 1.0, optimism=0.0)
    score = planning.capped_return(mdp, policy_sa)
    for s in range(5):
        moved_sa, step = policy_sa.copy(), 1e-6
        moved_sa[s, 0] += step * (1 - 2 * (moved_sa[s, 0] > 0.5))
        moved_sa[s, 1] -= moved_sa[s].sum() - 1.0
        slope = (planning.capped_return(mdp, moved_sa) - score) / step
        expected = occupancy_s[s] * (q_sa[s] @ (moved_sa[s] - policy_sa[s])) / step
        assert slope == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_with_a_discount_q_is_that_of_the_endless_problem(no_restarts):
    mdp, policy_sa = random_mdp(3), np.full((5, 3), 1 / 3)
    occupancy_s, q_sa = known(mdp).evaluate(policy_sa, 2_000, 0.9, optimism=0.0)
    exact = planning.evaluate_policy(mdp, policy_sa, 0.9)
    reached = mdp.start_s > 0
    assert q_sa[reached] == pytest.approx(exact.q_sa[reached], rel=1e-6)
    exact_s = planning.exact_occupancy(mdp, policy_sa, 0.9)
    assert occupancy_s * (1 - 0.9) == pytest.approx(exact_s, rel=1e-6)


def test_every_visited_state_has_weight():
    """States that the policy avoids are improved too, or it would avoid them for ever."""
    lake = as_problem("FrozenLake-v1")
    batch = lake.simulator(0).rollout(np.full((16, 4), 0.25), 1, 20_000)
    model = EmpiricalModel(16, 4).plus(batch)
    still_sa = np.eye(4)[np.full(16, 3)]  # up, along the edge
    occupancy_s, _ = model.evaluate(still_sa, 100, 1.0, optimism=1.0)
    visited = model.visits().any(axis=1)
    assert (occupancy_s[visited] > 0).all()
    assert (occupancy_s[~visited] == 0).all()


@pytest.mark.parametrize(
    ("going", "ending", "best", "worst"),
    [
        ([-1.0, -100.0], [-1.0], [-1.0, -1.0, -1.0], [-1.0, -100.0, -200.0]),  # the cliff
        ([0.0], [0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),  # the lake
        ([0.0], [0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),  # before the goal was found
        ([0.5, 2.0], [], [2.0, 2.0, 4.0], [0.0, 0.5, 0.5]),  # an endless task
    ],
)
def test_bounds_follow_from_the_rewards_seen(going, ending, best, worst):
    n = len(going) + len(ending)
    reward_o = np.array([*going, *ending])
    key_o = np.array([*np.arange(len(going)) * 2, *(np.arange(len(ending)) + len(going)) * 2 + 1])
    model = EmpiricalModel(n, 1, key_o, np.ones(n), reward_o, np.ones(n))
    assert model.bound(2, best=True)[1:].tolist() == best[1:]
    assert model.bound(2, best=False)[1:].tolist() == worst[1:]


def test_doubt_makes_little_tried_pairs_worth_trying():
    mdp = random_mdp(0)
    policy_sa = np.full((5, 3), 1 / 3)
    certain = known(mdp, counts=10).evaluate(policy_sa, 17, 1.0, optimism=0.0)[1]
    doubted = known(mdp, counts=10).evaluate(policy_sa, 17, 1.0, optimism=10.0)[1]
    trusted = known(mdp, counts=10**9).evaluate(policy_sa, 17, 1.0, optimism=10.0)[1]
    assert (doubted > certain).all()
    assert trusted == pytest.approx(certain, abs=1e-5)


def test_doubt_of_what_is_known_is_small_over_a_whole_episode():
    """It is met at every step: 300 steps, each tried 10,000 times, promise less than 1/1000."""
    n = 300
    key_o = (np.arange(n) * n + np.minimum(np.arange(n) + 1, n - 1)) * 2  # a chain
    key_o = np.append(key_o, key_o[-1] + 1)  # whose end pays, once
    count_o, reward_o = np.full(n + 1, 1e4), np.zeros(n + 1)
    count_o[-1] = reward_o[-1] = 1.0
    model = EmpiricalModel(n, 1, key_o, count_o, reward_o, np.eye(n)[0])
    q_sa = [
        model.evaluate(np.ones((n, 1)), n, 1.0, optimism=k, settling=False)[1] for k in (0.0, 10.0)
    ]
    assert 0 < q_sa[1][0, 0] - q_sa[0][0, 0] < 1e-3


def test_drawn_models_scatter_about_the_counts_as_they_leave_it_possible():
    mdp, policy_sa = random_mdp(0), np.full((5, 3), 1 / 3)
    rng = np.random.default_rng(0)

    def drawn(counts):
        model = known(mdp, counts=counts)
        certain = model.evaluate(policy_sa, 17, 1.0, optimism=0.0)[1]
        draws = [model.evaluate(policy_sa, 17, 1.0, 0.0, rng=rng)[1] for _ in range(400)]
        return np.mean(draws, axis=0) - certain, np.std(draws, axis=0)

    (off, few), (_, many) = drawn(10**2), drawn(10**4)
    assert (np.abs(off) < few).all()
    assert few / many == pytest.approx(10.0, rel=0.3)


def test_where_pairs_have_one_outcome_nothing_is_drawn():
    cliff = as_problem("CliffWalking-v1")
    policy_sa = np.full((48, 4), 0.25)
    model = EmpiricalModel(48, 4).plus(cliff.simulator(0).rollout(policy_sa, 1, 5_000))
    plain = model.evaluate(policy_sa, 100, 1.0, 10.0)
    drawn = model.evaluate(policy_sa, 100, 1.0, 10.0, rng=np.random.default_rng(0))
    assert all((one == other).all() for one, other in zip(plain, drawn, strict=True))


@pytest.mark.parametrize(("optimism", "remaining"), [(10.0, 0.1), (0.0, 0.9)])
def test_a_policy_that_settles_or_never_explores_goes_by_the_counts(optimism, remaining):
    agent = TabularOTTRPO("FrozenLake-v1", optimism=optimism)
    batch = agent.problem.simulator(0).rollout(agent.policy_sa, 1, 2_000)
    before = agent._update_rng.bit_generator.state
    agent._estimate(batch, remaining)
    assert agent._update_rng.bit_generator.state == before


@pytest.mark.parametrize("number", [316, 328])
def test_bad_luck_in_a_hundred_tries_is_not_the_end(number):
    """One state beside a hole kept the wrong action: .86 and .71 of the optimum."""
    agent = TabularOTTRPO(f"ottrpo/RandomLake{number}-v0", seed=number).learn(1_000_000)
    reached = planning.capped_return(agent.problem, agent.policy_sa)
    assert reached > 0.97 * planning.best_capped_return(agent.problem)


def test_settings_of_other_estimators_choose_them_or_are_refused():
    assert TabularSettings().estimator == "model"
    assert TabularSettings().discount == 1.0
    assert TabularSettings(radius=0.1, discount=0.9).occupancy == "model"
    by_td = TabularSettings(learning_rate=0.3)
    assert (by_td.estimator, by_td.discount, by_td.occupancy) == ("td", 0.99, "visits")
    assert by_td.radius_at(1.0, 2.0) == pytest.approx(0.04)
    assert by_td.steps_until_update(10**6) == 4_000
    for given in (
        {"estimator": "model", "learning_rate": 0.3},
        {"estimator": "td", "optimism": 1.0},
        {"estimator": "td", "occupancy": "model"},
        {"optimism": -1.0},
    ):
        with pytest.raises(ValueError, match=r"estimator|optimism"):
            TabularSettings(**given)


def test_what_follows_from_the_problem():
    settings = TabularSettings()
    assert settings.radius_at(1.0, typical_cost=5.0) == pytest.approx(1.5)
    assert settings.radius_at(0.0, typical_cost=5.0) == pytest.approx(0.015)
    assert settings.steps_until_update(1_000_000) == 4_000
    assert settings.optimism_at(1.0) == 10.0
    assert settings.optimism_at(0.6) == pytest.approx(5.0)
    assert settings.optimism_at(0.2) == pytest.approx(0.0, abs=1e-12)
    table = TabularSettings(cost=[[0, 2, 4], [2, 0, 2], [4, 2, 0]])
    assert table.typical_cost(10, 3) == pytest.approx(8 / 3)
    assert settings.typical_cost(10, 1) == 1.0


def test_a_horizon_too_long_to_keep_is_cut(monkeypatch, no_restarts):
    monkeypatch.setattr(model_module, "VALUES_AT_MOST", 50)
    mdp = random_mdp(1, ends=False)
    occupancy_s, _ = known(mdp).evaluate(np.full((5, 3), 1 / 3), 10**9, 1.0, optimism=0.0)
    assert occupancy_s.sum() == pytest.approx(10.0)


def test_no_update_leaves_the_region_and_all_are_logged():
    agent, seen = TabularOTTRPO("FrozenLake-v1", seed=1), []
    agent.learn(50_000, callback=lambda one: seen.append(one.last_update))
    assert len(seen) > 150
    assert all(update["ot/spent"] <= update["ot/radius"] for update in seen)
    assert all(update["ot/violation"] == 0 for update in seen)
    assert seen[0]["ot/radius"] == pytest.approx(0.3)
    assert any(update["ot/split_mass"] > 0 for update in seen)


def test_a_saved_agent_keeps_its_model(tmp_path):
    agent = TabularOTTRPO("FrozenLake-v1", seed=1).learn(20_000)
    agent.save(tmp_path / "agent")
    loaded = TabularOTTRPO.load(tmp_path / "agent")
    for name in model_module.KEPT:
        kept = getattr(loaded.estimates.model, name)
        assert (kept == getattr(agent.estimates.model, name)).all()
    assert (loaded.learn(20_000).policy_sa == agent.learn(20_000).policy_sa).all()


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        ("key_o", lambda a: a[::-1].copy()),
        ("key_o", lambda a: a + 10**6),
        ("key_o", lambda a: a.astype(np.float64)),
        ("count_o", lambda a: a * 0.0),
        ("reward_o", lambda a: a[1:]),
        ("start_s", lambda a: -a),
    ],
)
def test_a_spoilt_model_is_refused(name, spoilt):
    arrays = EmpiricalModel(9, 4).plus(played()).to_arrays()
    EmpiricalModel.from_arrays((9, 4), arrays)
    arrays[f"model.{name}"] = spoilt(arrays[f"model.{name}"])
    with pytest.raises(ValueError, match="model"):
        EmpiricalModel.from_arrays((9, 4), arrays)
