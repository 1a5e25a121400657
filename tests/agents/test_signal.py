"""What a step really gains, and the settings by which it follows that."""

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ottrpo import OTTRPO
from ottrpo.core import PNorm
from ottrpo.engine.algorithms.critics import empty_replay
from ottrpo.engine.critic import slopes
from ottrpo.engine.schedules import value_at
from ottrpo.engine.update import block
from ottrpo.persistence import bundle

SMALL = {"n_steps": 256, "batch_size": 64, "n_epochs": 4, "seed": 0}
GAINS = {"ot/gain_fitted", "ot/gain_held_out", "ot/gain_held_out_per_cost"}


class Aim(gym.Env):
    """The nearer the action to a goal that is seen, the better; noise only costs."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal = self.np_random.uniform(-0.5, 0.5, 2).astype(np.float32)
        return self.goal, {}

    def step(self, action):
        reward = -float(((action - self.goal) ** 2).sum())
        return self.reset()[0], reward, True, False, {}


class Noise(Aim):
    """Nothing that is done matters."""

    def step(self, action):
        return self.reset()[0], float(self.np_random.normal()), True, False, {}


class Drift(Noise):
    """Nor in long episodes, whose rewards hang together."""

    def reset(self, *, seed=None, options=None):
        self.level, self.left = 0.0, 100
        return super().reset(seed=seed)

    def step(self, action):
        self.level = 0.9 * self.level + float(self.np_random.normal())
        self.left -= 1
        return self.goal, self.level, self.left == 0, False, {}


def history(agent, steps):
    """What every update logged."""
    updates, record = [], agent._train_and_record
    agent._train_and_record = lambda rollout: (record(rollout), updates.append(agent.last_update))
    agent.learn(steps)
    return updates


def std_of(agent):
    return float(np.exp(np.asarray(agent.train_state.networks.policy.log_std)).mean())


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_gains_are_logged_where_rows_are_held_out(env):
    without = OTTRPO("MlpPolicy", env, advantage="gae", **SMALL).learn(256)
    assert not GAINS & set(without.last_update)
    assert set(OTTRPO("MlpPolicy", env, hold_out=0.2, **SMALL).learn(256).last_update) >= GAINS


def test_a_real_gain_is_one_on_rows_that_were_not_fitted():
    real, noise = (
        history(OTTRPO("MlpPolicy", env, advantage="gae", hold_out=0.3, **SMALL), 16 * 256)
        for env in (Aim(), Noise())
    )
    fitted, out = (np.array([u[key] for u in real]) for key in sorted(GAINS)[:2])
    assert out.mean() > 0.3 * fitted.mean() > 0
    fitted, out = (np.array([u[key] for u in noise]) for key in sorted(GAINS)[:2])
    assert fitted.mean() > 0
    # no more than chance, which has a standard error
    assert abs(out.mean()) < 4 * out.std() / len(out) ** 0.5


def test_rows_that_are_held_out_follow_each_other():
    rng = np.random.default_rng(0)
    for _ in range(100):
        held = np.flatnonzero(block(200, 0.1, rng))
        assert len(held) == 20
        assert (np.diff(held) == 1).all()


def test_what_coloured_noise_repeats_is_no_gain():
    """Rewards that depend on nothing, actions that repeat themselves: single rows would gain."""
    settings = SMALL | {"advantage": "gae", "hold_out": 0.2, "noise_color": 2.0}
    agent = OTTRPO("MlpPolicy", Drift(), gamma=0.99, gae_lambda=0.98, **settings)
    gains = np.array([update["ot/gain_held_out"] for update in history(agent, 24 * 256)])
    assert abs(gains.mean()) < 4 * gains.std() / len(gains) ** 0.5


@pytest.mark.parametrize(("advantage", "fit"), [("gae", "move"), ("mixed", "score")])
def test_minibatches_of_the_policy_are_all_rows_but_those_held_out(advantage, fit):
    agent = OTTRPO("MlpPolicy", "Pendulum-v1", hold_out=0.2, advantage=advantage, **SMALL)
    draws = agent.algorithm.draw(256, agent.rng)
    index, weight = getattr(draws, fit)
    assert not weight[draws.held[index]].any()
    assert set(index[weight > 0]) == set(np.flatnonzero(~draws.held))
    np.testing.assert_allclose(weight.sum(1), 1.0, rtol=1e-5)


def test_what_is_held_out_has_no_say_in_the_fit():
    agent = OTTRPO("MlpPolicy", "Pendulum-v1", hold_out=0.2, advantage="gae", **SMALL)
    agent._setup_learn(256, None)
    rollout, before, algorithm = agent.collect_rollout(None), agent.train_state, agent.algorithm
    now = agent.schedules.now(1.0, 100.0)
    state, batch = algorithm.estimate(before, rollout, now)
    draws = algorithm.draw(len(batch.flat), agent.rng)
    policies = []
    for spoil in (0.0, 100.0):
        changed = batch._replace(target=batch.target + spoil * draws.held)
        after, _ = algorithm.improve(before, state, changed, draws, now)
        policies.append(np.asarray(after.networks.policy.head.weight))
    np.testing.assert_array_equal(*policies)


@pytest.mark.parametrize(("env", "often"), [(Aim, 0.8), (Noise, 0.8)])
def test_the_pace_leads_to_most_of_the_radius_and_never_beyond(env, often):
    agent = OTTRPO("MlpPolicy", env(), adapt_pace=True, **SMALL)
    share = np.array([u["ot/spent"] / u["ot/radius"] for u in history(agent, 40 * 256)])
    assert share.max() <= 1.0
    assert (share[20:] > 0.5).mean() >= often


def test_sigma_moves_where_its_slope_is_known_and_stays_where_it_is_noise():
    for env, low, high in ((Aim(), 0.0, 0.8), (Noise(), 0.93, 1.07)):
        agent = OTTRPO("MlpPolicy", env, std_step=0.02, **SMALL)
        first = std_of(agent)
        agent.learn(16 * 256)
        assert low < std_of(agent) / first < high


def test_samples_and_critics_learn_and_stay_in_the_region():
    settings = SMALL | {"n_steps": 128, "learning_rate": 1e-3, "buffer_size": 2048}
    agent = OTTRPO("MlpPolicy", Aim(), advantage="mixed", radius="5%", **settings)
    before = agent.evaluate(200, env=Aim(), deterministic=True, seed=1).mean()
    updates = history(agent, 60 * 128)
    assert max(update["ot/spent"] / update["ot/radius"] for update in updates) <= 1.0
    assert (
        agent.evaluate(200, env=Aim(), deterministic=True, seed=1).mean() > 0.3 * before
    )  # both negative


def test_settings_that_would_be_ignored_are_refused():
    for settings in (
        {"std_step": 0.01, "learn_std": True},
        {"std_step": 0.01, "model": "sample"},
        {"advantage": "mixed", "use_sde": True},
        {"advantage": "mixed", "log_std_final": -1.0},
        {"advantage": "mixed", "hold_out": 0.0},
    ):
        with pytest.raises(ValueError, match=r"std_step|mixed"):
            OTTRPO("MlpPolicy", "Pendulum-v1", **settings)
    with pytest.raises(ValueError, match="Box"):
        OTTRPO("MlpPolicy", "CartPole-v1", advantage="mixed", std_step=0.01)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, "mixed"),
        ({"radius": "3%", "gamma": 0.99}, "mixed"),
        ({"learn_std": True}, "gae"),
        ({"use_sde": True}, "gae"),
        ({"model": "sample"}, "gae"),
        ({"model": "sample", "cost": PNorm(1)}, "gae"),
        ({"trust_region": "paper"}, "gae"),
        ({"advantage": "gae"}, "gae"),
    ],
)
def test_samples_and_critics_are_mixed_where_they_can_be(settings, found):
    assert OTTRPO("MlpPolicy", "Pendulum-v1", **settings).estimator == found


def test_one_choice_among_labels_has_critics():
    assert OTTRPO("MlpPolicy", "CartPole-v1").estimator == "mixed"


def test_the_multiplier_is_that_of_what_steps_really_gain():
    real, noise = (
        history(OTTRPO("MlpPolicy", env, hold_out=0.5, **SMALL), 24 * 256)[-1]
        for env in (Aim(), Noise())
    )
    for update in (real, noise):
        expected = 0.5 * max(update["ot/gain"], 0.0) / update["ot/radius"] ** 0.5
        assert update["ot/multiplier"] == pytest.approx(expected)
    # three seeds had 0.27 to 0.36, and 0.05 to 0.09: the critics learn from rows held out as well
    assert real["ot/gain"] > 0.2
    assert abs(noise["ot/gain"]) < 0.16


def test_the_critics_find_a_slope_that_is_there():
    agent = OTTRPO("MlpPolicy", Aim(), **SMALL | {"n_steps": 512})
    agent.learn(30 * 512)
    state, normaliser = agent.train_state, agent.algorithm.estimate.normaliser
    goal = np.random.default_rng(0).uniform(-0.5, 0.5, (256, 2))
    flat, aside = normaliser(state.observations, goal), np.random.default_rng(1).normal(size=(2, 2))
    policy = state.networks.policy
    elsewhere = eqx.tree_at(lambda p: p.head.bias, policy, policy.head.bias + 0.3 * aside[0])
    mean, slope = slopes(state.learners["critic"].networks, elsewhere, flat, 0.0 * goal)
    way = goal - np.asarray(mean)
    lengths = np.linalg.norm(way, axis=1) * np.linalg.norm(slope, axis=1)
    assert ((way * slope).sum(1) / lengths).mean() > 0.7


class Lasting(Aim):
    """Is cut off after 40 steps, and never ends."""

    def reset(self, *, seed=None, options=None):
        self.left = 40
        return super().reset(seed=seed)

    def step(self, action):
        self.left -= 1
        return self.goal, 0.0, False, self.left == 0, {}


@pytest.mark.parametrize(("env", "ended"), [(Aim, 1.0), (Lasting, 0.0)])
def test_where_episodes_end_for_good_the_view_is_short_and_the_noise_soon_white(env, ended):
    agent = OTTRPO("MlpPolicy", env(), **SMALL)
    schedules = agent.schedules
    assert agent.learn(256).train_state.signal.ended == ended
    horizons = [1.0 / (1.0 - schedules.now(0.85, x, ended).discount) for x in (5.0, 50.0, 1e3, 1e5)]
    far = [100.0, 100.0, 200.0, 200.0] if ended else [100.0, 500.0, 1e4, 1e4]
    assert horizons == pytest.approx(far)
    assert (value_at(schedules.noise_color, 0.6, ended) > 0) == (not ended)
    assert value_at(schedules.noise_color, 0.5, ended) == 0.0
    assert (schedules.now(0.85, 1000.0, ended).trace_decay > 0.9) == (not ended)
    # 256 steps are one rollout: there is no time for slow noise
    assert value_at(agent.schedules.noise_color, 1.0, ended) == 0.0
    kept = OTTRPO("MlpPolicy", env(), gamma=0.98, gae_lambda=0.7, **SMALL).learn(256)
    assert (kept.discount, kept.trace_decay) == (0.98, 0.7)


def test_a_long_view_is_that_of_mixed_alone():
    schedules = OTTRPO("MlpPolicy", Lasting(), advantage="gae", **SMALL).schedules
    assert schedules.now(0.5, 1e5, 0.0).discount == pytest.approx(0.999)


class Outwards(Lasting):
    """Pays for what the first coordinate is, as far as the box goes."""

    ends = False  # for good, rather than by the time limit

    def step(self, action):
        self.left -= 1
        over = self.ends and self.left == 0
        return self.goal, float(action[0]), over, self.left == 0 and not over, {}


class OutwardsAndOver(Outwards):
    ends = True


@pytest.mark.parametrize(("env", "stays"), [(Outwards, True), (OutwardsAndOver, False)])
def test_means_stay_near_the_box_where_nothing_ends(env, stays):
    agent = OTTRPO("MlpPolicy", env(), **SMALL | {"radius": "30%"}).learn(40 * 256)
    mean, std = agent.train_state.networks.policy.gaussian(np.zeros((1, 2), np.float32))
    assert mean[0, 0] > 0.9  # it has learnt where to go
    assert (mean[0, 0] < 1.0 + 1.5 * std[0, 0]) == stays


@pytest.mark.parametrize(("env", "falls"), [(Aim, False), (Lasting, True)])
def test_the_rate_of_critics_falls_where_nothing_ends(env, falls):
    agent = OTTRPO("MlpPolicy", env(), **SMALL)
    fit, rates = agent.algorithm.fit_critics, []

    def watched(*given):
        rates.append(float(given[-1]))
        return fit(*given)

    vars(agent.algorithm)["fit_critics"] = watched  # it is frozen
    agent.learn(10 * 256)
    # the first update has seen whether episodes end
    assert rates == pytest.approx(np.linspace(9.1e-4, 1e-4, 10) if falls else 10 * [1e-3])
    # in a short training nothing fades
    rates.clear()
    agent.learn(256)
    assert rates == pytest.approx([1e-3])


def test_what_is_kept_is_the_average_of_late_policies():
    agent = OTTRPO("MlpPolicy", Aim(), **SMALL | {"n_steps": 64})
    policies, record = [], agent._train_and_record

    def watched(rollout):
        record(rollout)
        policies.append(np.asarray(agent.train_state.networks.policy.head.weight))

    agent._train_and_record = watched
    agent.learn(60 * 64)
    expected = policies[0]
    for i in range(1, 60):  # a twentieth of the updates so far, one at least
        expected = expected + (policies[i] - expected) / max(1.0, 0.05 * (i + 1))
    average = agent.train_state.learners["average"].networks
    np.testing.assert_allclose(average.head.weight, expected, atol=1e-6)
    assert np.abs(policies[-1] - expected).max() > 1e-4


class Spoilt(Aim):
    """Pays a hundred less from a given step on."""

    def __init__(self, after):
        self.left = after

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        self.left -= 1
        return obs, reward - 100.0 * (self.left < 0), terminated, truncated, info


def average_and_played(agent):
    state = agent.train_state
    policy, seen = state.played
    assert np.isfinite(seen.mean).all()
    return state.learners["average"].networks.head.weight, policy.head.weight


def test_what_is_played_is_the_average_that_did_best():
    agent = OTTRPO("MlpPolicy", Spoilt(24 * 64), **SMALL | {"n_steps": 64})
    agent.learn(24 * 64)
    kept, before = agent.train_state.played[0].head.weight, agent.train_state.signal
    agent.learn(12 * 64, reset_num_timesteps=False)
    average, played = average_and_played(agent)
    np.testing.assert_array_equal(played, kept)
    assert np.abs(played - average).max() > 1e-4
    after = agent.train_state.signal
    assert after.best == before.best
    assert after.returned / after.episodes < before.best - 10.0
    # and acted with: mean of the kept policy, seen as it saw
    policy, seen = agent.train_state.played
    flat = agent.algorithm.estimate.normaliser(seen, np.full((1, 2), 0.3))
    action, _ = agent.predict(np.full(2, 0.3, np.float32), deterministic=True)
    np.testing.assert_allclose(action, policy.gaussian(flat)[0][0], atol=1e-5)
    # what stays worse is taken for what there is
    agent.learn(26 * 64, reset_num_timesteps=False)
    assert agent.train_state.signal.best < before.best - 10.0
    assert np.abs(agent.train_state.played[0].head.weight - kept).max() > 1e-4


def test_another_task_begins_anew():
    agent = OTTRPO("MlpPolicy", Aim(), **SMALL | {"n_steps": 64}).learn(20 * 64)
    assert agent.train_state.signal.elected > 0
    agent.set_env(Spoilt(0))
    agent.learn(64, reset_num_timesteps=False)
    average, played = average_and_played(agent)
    np.testing.assert_array_equal(average, played)


@pytest.mark.parametrize("seed", range(40))
def test_returns_are_those_of_episodes_that_ended_of_late(seed):
    rng = np.random.default_rng(seed)
    window, steps, n = 12, int(rng.integers(1, 6)), 2
    filled = int(rng.integers(steps, window + 1))
    replay = empty_replay(window, n, 1, 1)
    reward, done = rng.integers(-5, 6, (window, n)), rng.random((window, n)) < 0.3
    there = np.arange(window)[:, None] >= window - filled
    replay = replay._replace(
        reward=np.where(there, reward, 0).astype(np.float32),
        done=done & there,
        filled=np.int32(filled),
    )
    total, count = 0, 0
    for env in range(n):
        # of what was running when the oldest step that is kept was done nothing is known
        since, score, whole = window - filled, 0, filled < window
        for t in range(since, window):
            score += int(reward[t, env])
            if done[t, env]:
                if whole and t >= window - steps:
                    total, count = total + score, count + 1
                score, whole = 0, True
    for array in (np.asarray, jnp.asarray):
        returned, episodes = jax.tree.map(array, replay).returns(steps)
        assert (float(returned), int(episodes)) == (total, count)


def test_parameters_without_an_average_are_played_themselves():
    agent = OTTRPO("MlpPolicy", Aim(), **SMALL).learn(256)
    weights = {k: 0.5 * v for k, v in agent.get_parameters().items() if k.startswith("agent")}
    agent.set_parameters(weights, exact_match=False)
    state = agent.train_state
    assert eqx.tree_equal(state.played[0], state.networks.policy)
    np.testing.assert_array_equal(state.played[1].mean, state.observations.mean)


def test_an_agent_that_was_saved_without_one_plays_the_average(tmp_path):
    agent = OTTRPO("MlpPolicy", Aim(), **SMALL).learn(256)
    agent.save(tmp_path / "agent")
    arrays, data = bundle.read(tmp_path / "agent.zip", "OTTRPO")
    old = {name: array for name, array in arrays.items() if not name.startswith("played")}
    for name in ("returned", "episodes", "best", "elected"):
        del data["state"]["signal"][name]
    bundle.write(tmp_path / "old.zip", "OTTRPO", old, data)
    loaded = OTTRPO.load(tmp_path / "old.zip")
    state = loaded.train_state
    assert eqx.tree_equal(state.played[0], agent.train_state.learners["average"].networks)
    loaded.set_env(Aim())
    loaded.learn(64)
