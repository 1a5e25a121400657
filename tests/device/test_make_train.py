"""A training as a pure function: compiled, mapped over seeds and numbers, and back to an agent."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ottrpo import BGPG, OTTRPO, ClippedPPO
from ottrpo.agents.settings import OTTRPOSettings
from ottrpo.collect.device import CULPRITS
from ottrpo.device import State
from ottrpo.device import make_train as make

from .pendulum import Breaking, Pendulum

SMALL = {
    **{"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 2},
    "policy_kwargs": {"net_arch": [8]},
}
UPDATE = 4 * 32
make_train = partial(make, evaluations=2, episodes=3)


class Choosing:
    """The right label is that of the state, which is a number; an episode lasts 8 steps."""

    observation_space = spaces.Discrete(3, start=1)
    action_space = spaces.Discrete(3)
    max_episode_steps = 8
    costly_reset = True

    def reset(self, key):
        key, now = jax.random.split(key)
        return State(key, jax.random.randint(now, (), 1, 4))

    def step(self, state, action):
        after = self.reset(state.world)
        return after._replace(reward=(action == state.obs - 1).astype(float))


def same(one, other, **within):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(a, b, **within)


@pytest.fixture(scope="module")
def training():
    return make_train(Pendulum(), SMALL, total_timesteps=4 * UPDATE, learn_std=True)


def test_numbers_side_by_side_are_the_trainings_one_by_one(training):
    """vmap over keys, a radius and a learning rate: each row is the training of its own."""
    keys = jax.random.split(jax.random.key(0), 3)
    radius, rate = jnp.array([0.01, 0.1, 0.3]), jnp.array([1e-4, 3e-3, 1e-3])

    def one(key, radius, rate):
        return training(key, radius=radius, learning_rate=rate)

    states, metrics = jax.jit(jax.vmap(one))(keys, radius, rate)
    assert metrics["ot/radius"].shape == (3, 4)
    np.testing.assert_allclose(metrics["train/learning_rate"], rate[:, None].repeat(4, 1))
    alone = jax.jit(one)
    for i in range(3):
        row = jax.tree.map(lambda x, i=i: x[i], (states, metrics))
        same(alone(keys[i], radius[i], rate[i]), row, rtol=1e-3, atol=1e-4)
    given = make_train(
        Pendulum(), SMALL, total_timesteps=4 * UPDATE, learn_std=True, radius=radius[0]
    )
    same(jax.jit(given)(keys[0], learning_rate=rate[0]), alone(keys[0], radius[0], rate[0]))


def test_evaluations_are_told_with_their_steps(training):
    state, metrics = jax.jit(training)(jax.random.key(0))
    assert metrics["evaluation/timestep"].tolist() == [2 * UPDATE, 4 * UPDATE]
    assert metrics["evaluation/returns"].shape == (2, 3)
    assert np.isfinite(metrics["evaluation/returns"]).all()
    assert int(state.progress.steps) == 4 * UPDATE
    assert (metrics["ot/violation"] == 0).all()


def test_the_result_is_an_ordinary_agent_and_comes_back(training, tmp_path):
    state, _ = jax.jit(training)(jax.random.key(0))
    agent = training.as_agent(state)
    agent.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent")
    seen = np.random.default_rng(0).normal(size=(5, 3))
    flat = training.loop.algorithm.estimate.normaliser(state.observations, jnp.asarray(seen))
    mean, _ = state.networks.policy.gaussian(flat)
    chosen, _ = loaded.predict(seen, deterministic=True)
    np.testing.assert_allclose(chosen, 2.0 * np.clip(mean, -1.0, 1.0), rtol=1e-5, atol=1e-6)
    assert loaded.num_timesteps == 4 * UPDATE
    again = make_train(Pendulum(), SMALL, total_timesteps=UPDATE, learn_std=True, start_from=loaded)
    same(again.loop.init(jax.random.key(1), again.start).train.networks, state.networks)
    after, _ = jax.jit(again)(jax.random.key(1))
    count = float(after.observations.moments.count)
    assert count == float(state.observations.moments.count) + UPDATE
    with pytest.raises(ValueError, match="other networks"):
        make_train(Pendulum(), total_timesteps=UPDATE, start_from=loaded)


@pytest.mark.parametrize("agent", [OTTRPO, ClippedPPO])
def test_labels_are_learnt(agent):
    train = make_train(
        Choosing(),
        SMALL | {"learning_rate": 1e-2, "n_epochs": 5},
        total_timesteps=40 * UPDATE,
        agent=agent,
    )
    _, metrics = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 3))
    assert (metrics["evaluation/returns"][:, -1].mean(-1) > 7.0).all()  # of 8


def test_a_time_limit_is_no_ending():
    """What would have followed counts: rewards of 1 for ever are worth more than an episode."""

    class Paying(Pendulum):
        max_episode_steps = 4

        def step(self, state, action):
            after = super().step(state, action)
            return after._replace(reward=jnp.ones(()), done=jnp.zeros((), bool))

    class Ending(Paying):
        max_episode_steps = None

        def reset(self, key):
            first = super().reset(key)
            return first._replace(world=(first.world, jnp.zeros((), int)))

        def step(self, state, action):
            after = super().step(state._replace(world=state.world[0]), action)
            steps = state.world[1] + 1
            return after._replace(world=(after.world, steps), done=steps >= 4)

    told = {}
    for kind in (Paying, Ending):
        settings = SMALL | {"learning_rate": 1e-2, "gamma": 0.9, "normalize_reward": False}
        train = make_train(kind(), settings, total_timesteps=60 * UPDATE)
        state, _ = jax.jit(train)(jax.random.key(0))
        seen = train.loop.environment.reset(jax.random.key(1)).obs[None]
        flat = train.loop.algorithm.estimate.normaliser(state.observations, seen)
        told[kind] = float(state.networks.value(flat)[0])
    assert told[Ending] < 4.0
    assert told[Paying] > 5.0  # 10 in the limit


class Telling(Pendulum):
    """It tells what every step costs, and that it was one."""

    def step(self, state, action):
        after = super().step(state, action)
        metrics = {"cost": -after.reward, "steps": jnp.ones(())}
        return after._replace(done=jnp.array(False), metrics=metrics)


def test_what_an_environment_tells_is_logged():
    loop = make_train(Telling(), SMALL, total_timesteps=UPDATE).loop
    first = jax.jit(loop.init)(jax.random.key(0))
    after, told = jax.jit(loop.update)(first)
    assert told["env/steps"] == 1.0
    # no episode has ended: what it cost so far is what the running ones have lost
    np.testing.assert_allclose(told["env/cost"] * UPDATE, -after.score.sum(), rtol=1e-5)


def test_an_update_that_is_no_number_is_taken_back_and_the_others_go_on():
    train = make_train(Breaking(), SMALL, total_timesteps=4 * UPDATE)
    loop = train.loop
    before = jax.jit(jax.vmap(loop.init))(jax.random.split(jax.random.key(0), 8))
    after, _ = jax.jit(jax.vmap(loop.update))(before)
    broken = np.asarray(after.broken)
    assert {CULPRITS[i - 1] for i in broken if i} == {"reward"}
    assert 0 < (broken > 0).sum() < 8
    weight = [np.asarray(x.train.networks.policy.head.weight) for x in (before, after)]
    assert [(a == b).all() for a, b in zip(*weight, strict=True)] == (broken > 0).tolist()
    later, _ = jax.jit(jax.vmap(loop.update))(after)
    stayed = later.train.progress.steps == 0
    assert (np.asarray(stayed)[broken > 0]).all()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"radius": -1.0}, "positive"),
        ({"n_epochs": jnp.array(2)}, "n_epochs"),
        ({"advantage": "mixed"}, "keeps rollouts of the host"),
        ({"clip_range": 0.1}, "clip_range"),
    ],
)
def test_what_can_not_be_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        make_train(Pendulum(), total_timesteps=100, **wrong)


def test_an_array_counts_as_the_number_does():
    """Also where the loss is another object's than the trust region's."""
    tiny = SMALL | {"n_epochs": 1, "n_actions": 2, "n_features": 4, "dual_steps": 2}
    make_bgpg = partial(make, Pendulum(), total_timesteps=UPDATE, agent=BGPG, evaluations=1)
    key, weight = jax.random.key(0), 3.0
    given, usual = make_bgpg(tiny | {"vf_coef": weight}, episodes=1), make_bgpg(tiny, episodes=1)
    asked = jax.jit(lambda key, number: usual(key, vf_coef=number))(key, weight)
    same(jax.jit(given)(key), asked, rtol=1e-4, atol=1e-5)


def test_numbers_of_other_agents_are_refused():
    train = make_train(Pendulum(), SMALL, total_timesteps=100, agent=ClippedPPO)
    with pytest.raises(ValueError, match="has no radius"):
        train(jax.random.key(0), radius=jnp.array(0.1))
    priced = make_train(Pendulum(), SMALL | {"multiplier": 20.0}, total_timesteps=100)
    with pytest.raises(ValueError, match="no meaning beside a multiplier or a step"):
        priced(jax.random.key(0), radius=jnp.array(0.1))


def test_settings_may_be_an_agent_s_own():
    told = OTTRPOSettings(n_envs=2, n_steps=16, batch_size=16)
    train = make_train(Pendulum(), told, total_timesteps=100, n_steps=8)
    assert (train.loop.n_envs, train.loop.n_steps, train.loop.updates) == (2, 8, 7)
