"""Environments of JAX: those of other libraries where they are installed, and their host's face."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ottrpo.envs import catalogue, functional
from ottrpo.envs.functional import adapters
from tests.device import toy

# name, library that it needs, observation, action, time limit
KNOWN = [
    ("gymnax:MountainCarContinuous-v0", "gymnax", (2,), (1,), 999),
    ("gymnax:CartPole-v1", "gymnax", (4,), (), 500),
    ("brax:fast", "brax.envs", (2,), (1,), 1000),
    ("brax:ant", "brax.envs", (27,), (8,), 1000),
    ("brax:reacher/mjx", "brax.envs", (11,), (2,), 1000),
    ("playground:CheetahRun", "mujoco_playground", (17,), (6,), 1000),
]


@pytest.mark.filterwarnings("default")  # of these libraries
@pytest.mark.parametrize(("name", "library", "seen", "done", "limit"), KNOWN)
def test_environments_of_other_libraries_have_our_shape(name, library, seen, done, limit):
    pytest.importorskip(library)
    env = functional.make(name)
    assert (env.observation_space.shape, env.action_space.shape) == (seen, done)
    assert env.max_episode_steps == limit
    first = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, first, env.action_space.sample())
    assert after.obs.shape == first.obs.shape == seen
    assert jax.tree.structure(after.world) == jax.tree.structure(first.world)
    assert (after.reward.shape, after.done.shape) == ((), ())


@pytest.mark.filterwarnings("default")
def test_the_time_limit_of_gymnax_is_no_ending():
    pytest.importorskip("gymnax")
    env = functional.make("gymnax:Pendulum-v1")
    state = jax.jit(env.reset)(jax.random.key(0))

    def step(state, _):
        state = env.step(state, jnp.zeros(1))
        return state, state.done

    assert not jax.lax.scan(step, state, None, length=env.max_episode_steps + 5)[1].any()


def test_what_is_missing_is_named_in_one_line(monkeypatch):
    monkeypatch.setitem(functional.FAMILIES, "brax", ("brax.nowhere", "Brax"))
    functional.make.cache_clear()
    with pytest.raises(ImportError, match=r"^brax:ant: brax is not installed: pip install 'ottrpo"):
        functional.make("brax:ant")
    with pytest.raises(ValueError, match="no environment of JAX"):
        functional.make("Hopper-v5")


def test_one_environment_is_stepped_on_the_host_like_any_other(monkeypatch):
    monkeypatch.setattr(adapters, "Toy", None, raising=False)
    toy.install(monkeypatch.setattr)
    env = catalogue.make("toy:Pendulum")
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    other, _ = env.reset(seed=4)
    assert env.spec.id == "toy:Pendulum"
    assert (first == again).all()
    assert (first != other).any()
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(50)]
    assert ends == [(False, False)] * 49 + [(False, True)]
