"""The compiled passes against the formulas they stand for, written out in plain Python."""

import itertools

import gymnasium as gym
import numpy as np
import pytest

from ottrpo.tabular import FiniteMDP, TabularSettings, as_problem, kernels, planning
from ottrpo.tabular.estimators import Estimates, estimate_occupancy

LAKE = ["SFF", "FHF", "FFG"]


def played(seed=0, steps=600):
    """A batch on a slippery lake with a short cap, so that all three endings occur."""
    mdp = as_problem(gym.make("FrozenLake-v1", desc=LAKE, max_episode_steps=9))
    policy_sa = np.random.default_rng(0).dirichlet(np.ones(4), size=9)
    return mdp, policy_sa, mdp.simulator(seed).rollout(policy_sa, 1, steps)


def td_by_hand(batch, q_sa, policy_sa, allowed_sa, s):
    """Q(s,a) <- (1 - α) Q(s,a) + α (r + γ v(s')), step by step."""
    q_sa, count_sa = q_sa.copy(), np.zeros_like(q_sa)
    order = range(batch.steps)
    for _ in range(s.sweeps):
        for t in reversed(order) if s.direction == "backward" else order:
            state, action, after = batch.state_t[t], batch.action_t[t], batch.next_t[t]
            ending = batch.ending_t[t]
            goes_on = ending == kernels.RUNNING
            cut = ending == kernels.TRUNCATED and s.bootstrap_at_cap
            value = 0.0
            if goes_on and s.target == "sarsa":
                value = q_sa[after, batch.action_t[t + 1]]
            elif goes_on or cut:
                value = (
                    q_sa[after][allowed_sa[after]].max()
                    if s.target == "max"
                    else policy_sa[after] @ q_sa[after]
                )
            count_sa[state, action] += 1
            rate = s.learning_rate / count_sa[state, action] ** s.learning_rate_decay
            target = batch.reward_t[t] + s.discount * value
            q_sa[state, action] = (1 - rate) * q_sa[state, action] + rate * target
    return q_sa


@pytest.mark.parametrize("target", ["sarsa", "expected", "max"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_td_pass_is_the_formula(target, direction, bootstrap):
    mdp, policy_sa, batch = played()
    assert {0, 1, 2} == set(batch.ending_t.tolist())
    assert batch.total_reward > 2
    settings = TabularSettings(
        target=target,
        direction=direction,
        bootstrap_at_cap=bootstrap,
        discount=0.9,
        learning_rate=0.7,
        learning_rate_decay=0.3,
        sweeps=2,
        initial_q=0.25,
    )
    rng = np.random.default_rng(1)
    allowed_sa = rng.random((9, 4)) < 0.7
    allowed_sa[:, 2] = True
    estimates = Estimates.unknown((9, 4), settings.initial_q)
    start_sa = estimates.q_sa.copy()
    q_sa = estimates.update(settings, mdp, batch, policy_sa, allowed_sa)
    expected_sa = td_by_hand(batch, start_sa, policy_sa, allowed_sa, settings)
    np.testing.assert_allclose(q_sa, expected_sa, rtol=1e-12, atol=1e-15)
    assert (q_sa != start_sa).any()


def test_every_option_of_the_td_pass_matters():
    """Each switch changes Q on the same batch, so none is accepted and ignored."""
    mdp, policy_sa, batch = played()
    everything = np.ones((9, 4), dtype=bool)
    base = {
        "target": "sarsa",
        "direction": "forward",
        "bootstrap_at_cap": False,
        "learning_rate": 0.7,
        "learning_rate_decay": 0.0,
        "sweeps": 1,
        "discount": 0.9,
        "initial_q": 0.25,
    }
    changes = {
        "target": "expected",
        "direction": "backward",
        "bootstrap_at_cap": True,
        "learning_rate": 0.6,
        "learning_rate_decay": 0.5,
        "sweeps": 2,
        "discount": 0.8,
        "initial_q": 0.0,
    }
    tables = []
    for change in [{}, *({key: value} for key, value in changes.items())]:
        settings = TabularSettings(**{**base, **change})
        estimates = Estimates.unknown((9, 4), settings.initial_q)
        tables.append(estimates.update(settings, mdp, batch, policy_sa, everything))
    for first, second in itertools.combinations(tables, 2):
        assert not np.array_equal(first, second)


def test_q_is_kept_or_starts_afresh():
    mdp, policy_sa, batch = played()
    everything = np.ones((9, 4), dtype=bool)
    for keep_q in (True, False):
        settings = TabularSettings(keep_q=keep_q, initial_q=0.5)
        estimates = Estimates.unknown((9, 4), 0.5)
        once = estimates.update(settings, mdp, batch, policy_sa, everything).copy()
        twice = estimates.update(settings, mdp, batch, policy_sa, everything).copy()
        assert np.array_equal(once, twice) == (not keep_q)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_monte_carlo_is_the_mean_return_of_each_pair(bootstrap):
    mdp, policy_sa, batch = played()
    settings = TabularSettings(
        estimator="mc", keep_q=False, discount=0.9, bootstrap_at_cap=bootstrap, initial_q=0.5
    )
    estimates = Estimates.unknown((9, 4), 0.5)
    q_sa = estimates.update(settings, mdp, batch, policy_sa, np.ones((9, 4), dtype=bool))
    returns = {}
    for t in range(batch.steps):
        total, u, weight = 0.0, t, 1.0
        while True:
            total += weight * batch.reward_t[u]
            weight *= 0.9
            if batch.ending_t[u] != kernels.RUNNING:
                break
            u += 1
        if bootstrap and batch.ending_t[u] == kernels.TRUNCATED:
            total += weight * 0.5
        returns.setdefault((int(batch.state_t[t]), int(batch.action_t[t])), []).append(total)
    for pair in itertools.product(range(9), range(4)):
        assert q_sa[pair] == pytest.approx(np.mean(returns[pair]) if pair in returns else 0.5)


def test_monte_carlo_z_scores_and_running_means():
    mdp, policy_sa, batch = played()
    everything = np.ones((9, 4), dtype=bool)
    plain = TabularSettings(estimator="mc", keep_q=False, discount=0.9, bootstrap_at_cap=False)
    scored = TabularSettings(
        estimator="mc",
        keep_q=False,
        discount=0.9,
        bootstrap_at_cap=False,
        normalise_returns=True,
    )
    raw = Estimates.unknown((9, 4), 0.0).update(plain, mdp, batch, policy_sa, everything)
    z = Estimates.unknown((9, 4), 0.0).update(scored, mdp, batch, policy_sa, everything)
    weights = np.zeros((9, 4))
    np.add.at(weights, (batch.state_t, batch.action_t), 1.0)
    assert np.sum(weights * z) == pytest.approx(0.0, abs=1e-8)  # z-scores of all steps sum to 0
    seen = weights > 0
    assert np.corrcoef(raw[seen], z[seen])[0, 1] == pytest.approx(1.0)

    kept = TabularSettings(
        estimator="mc",
        keep_q=True,
        discount=0.9,
        bootstrap_at_cap=False,
        learning_rate=1.0,
        learning_rate_decay=1.0,
    )
    estimates = Estimates.unknown((9, 4), 0.0)
    second = played(seed=5)[2]
    for data in (batch, second):
        estimates.update(kept, mdp, data, policy_sa, everything)
    other = Estimates.unknown((9, 4), 0.0).update(plain, mdp, second, policy_sa, everything)
    both = estimates.count_sa == 2
    assert both.sum() > 10
    np.testing.assert_allclose(estimates.q_sa[both], (raw[both] + other[both]) / 2)


def test_occupancies_by_counting():
    mdp, policy_sa, batch = played()
    count_s, weight_s, age = np.zeros(9), np.zeros(9), 0
    for t in range(batch.steps):
        count_s[batch.state_t[t]] += 1
        weight_s[batch.state_t[t]] += 0.9**age
        age = age + 1 if batch.ending_t[t] == kernels.RUNNING else 0
    settings = {"discount": 0.9}
    visits = estimate_occupancy(TabularSettings(**settings), mdp, batch, policy_sa)
    np.testing.assert_allclose(visits, count_s / count_s.sum())
    discounted = TabularSettings(**settings, occupancy="discounted")
    np.testing.assert_allclose(
        estimate_occupancy(discounted, mdp, batch, policy_sa), weight_s / weight_s.sum()
    )
    per_episode = TabularSettings(**settings, occupancy="discounted", normalise_occupancy=False)
    np.testing.assert_allclose(
        estimate_occupancy(per_episode, mdp, batch, policy_sa), weight_s / batch.episodes
    )


def test_estimates_converge_to_the_exact_ones():
    """TD with falling rates, Monte-Carlo and discounted counts find what planning computes."""
    mdp = as_problem("FrozenLake-v1", step_cap=100_000)
    policy_sa = np.random.default_rng(0).dirichlet(np.ones(4), size=16)
    batch = mdp.simulator(0).rollout(policy_sa, 1, 400_000)
    exact = planning.evaluate_policy(mdp, policy_sa, 0.8)
    seen = np.zeros((16, 4))
    np.add.at(seen, (batch.state_t, batch.action_t), 1.0)
    often = seen > 5000
    assert often.sum() > 10
    everything = np.ones((16, 4), dtype=bool)
    for settings in (
        TabularSettings(estimator="mc", keep_q=False, discount=0.8),
        TabularSettings(target="expected", discount=0.8, learning_rate=1.0, learning_rate_decay=1),
        TabularSettings(target="sarsa", discount=0.8, learning_rate=1.0, learning_rate_decay=1),
    ):
        estimates = Estimates.unknown((16, 4), 0.0)
        q_sa = estimates.update(settings, mdp, batch, policy_sa, everything)
        assert np.abs(q_sa - exact.q_sa)[often].max() < 0.02
    discounted = TabularSettings(discount=0.8, occupancy="discounted")
    occupancy_s = estimate_occupancy(discounted, mdp, batch, policy_sa)
    exact_s = planning.exact_occupancy(mdp, policy_sa, 0.8)
    np.testing.assert_allclose(occupancy_s, exact_s / exact_s.sum(), atol=0.01)


def test_exact_estimates_need_a_table():
    stepped = as_problem("FrozenLake-v1", use_table=False)
    batch = stepped.simulator(0).rollout(np.full((16, 4), 0.25), 1, 1)
    policy_sa = np.full((16, 4), 0.25)
    with pytest.raises(ValueError, match="need a known transition table"):
        estimate_occupancy(TabularSettings(occupancy="exact"), stepped, batch, policy_sa)
    with pytest.raises(ValueError, match="need a known transition table"):
        Estimates.unknown((16, 4), 0.0).update(
            TabularSettings(estimator="exact"), stepped, batch, policy_sa, policy_sa > 0
        )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"discount": 1.5}, r"discount must lie in \[0, 1\], got 1.5"),
        ({"learning_rate": 0.0}, r"learning_rate must lie in \(0, 1\]"),
        ({"learning_rate_decay": -1.0}, "must not be negative"),
        ({"sweeps": 0}, "sweeps must be at least 1"),
        ({"target": "q"}, "target must be one of sarsa, expected, max; got 'q'"),
        ({"direction": "up"}, "direction must be one of"),
        ({"estimator": "gae"}, "estimator must be one of model, td, mc, exact"),
        ({"occupancy": "all"}, "occupancy must be one of"),
        ({"normalise_returns": True}, "normalise_returns needs estimator 'mc'"),
        ({"initial_q": float("nan")}, "initial_q must be finite"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"radius": {"start": 1}}, "a radius schedule has a 'start' and an 'end'"),
        ({"episodes_per_update": 0}, "episodes_per_update must be a positive integer"),
        ({"steps_per_update": 1.5}, "steps_per_update must be a positive integer"),
        ({"step_cap": 0}, "step_cap must be a positive integer"),
        ({"cost": "euclid"}, "is not a cost"),
    ],
)
def test_bad_settings_are_refused_in_one_line(setting, message):
    with pytest.raises(ValueError, match=message) as caught:
        TabularSettings(**setting)
    assert "\n" not in str(caught.value)


def test_planning_on_a_chain_with_known_answers():
    """Two states, advance or stay; advancing from the second pays 1 and ends."""
    probability = np.zeros((3, 2, 3))
    probability[0, 0, 0] = probability[1, 0, 1] = 1.0  # stay
    probability[0, 1, 1] = probability[1, 1, 2] = 1.0  # advance
    probability[2, :, 2] = 1.0
    reward = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    mdp = FiniteMDP.from_arrays(
        probability, reward, [1, 0, 0], terminal_s=[False, False, True], step_cap=2
    )
    policy_sa, value = planning.policy_iteration(mdp, 0.5)
    assert policy_sa[:2].argmax(axis=1).tolist() == [1, 1]
    assert value.performance == pytest.approx(0.5)
    np.testing.assert_allclose(value.q_sa[:2], [[0.25, 0.5], [0.5, 1.0]])
    assert planning.capped_return(mdp, policy_sa) == planning.best_capped_return(mdp) == 1.0
    half = np.full((3, 2), 0.5)
    assert planning.capped_return(mdp, half) == pytest.approx(0.25)
    occupancy_s = planning.exact_occupancy(mdp, policy_sa, 0.5)
    np.testing.assert_allclose(occupancy_s, [0.5, 0.25, 0.0])
    # half of the time in state 0: V0 = (V0 + V1) / 4, V1 = 1/2 + V1 / 4
    assert planning.evaluate_policy(mdp, half, 0.5).value_s[:2] == pytest.approx([2 / 9, 2 / 3])


@pytest.mark.parametrize("kwargs", [{}, {"is_rainy": True}])
def test_sparse_and_dense_solvers_agree(kwargs, monkeypatch):
    mdp = as_problem(gym.make("Taxi-v4", **kwargs))
    policy_sa = np.random.default_rng(0).dirichlet(np.ones(6), size=500)
    dense = planning.evaluate_policy(mdp, policy_sa, 0.95)
    monkeypatch.setattr(planning, "DENSE_AT_MOST", 0)
    sparse = planning.evaluate_policy(mdp, policy_sa, 0.95)
    np.testing.assert_allclose(sparse.q_sa, dense.q_sa, rtol=1e-9)


def test_known_optima():
    """What the catalogue of findings states: -13, 7.93; capped planning bounds every policy."""
    for env, optimum in (("CliffWalking-v1", -13.0), ("Taxi-v4", 7.93)):
        mdp = as_problem(env)
        policy_sa, _ = planning.policy_iteration(mdp, 0.9)
        assert planning.capped_return(mdp, policy_sa) == pytest.approx(optimum)
        assert planning.best_capped_return(mdp) == pytest.approx(optimum)


def test_hidden_state_is_evaluated_but_not_planned():
    mdp = as_problem(gym.make("Taxi-v4", fickle_passenger=True))
    policy_sa = np.full((500, 6), 1 / 6)
    mean = mdp.simulator(0).returns(policy_sa, 4000).mean()
    assert planning.capped_return(mdp, policy_sa) == pytest.approx(mean, abs=10)
    with pytest.raises(ValueError, match="not fully observed"):
        planning.policy_iteration(mdp, 0.9)
