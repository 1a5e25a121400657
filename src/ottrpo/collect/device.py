"""Training inside JAX: environments that are functions, and updates as one compiled program.

    training = DeviceTraining(...)
    loop = training.init(jax.random.key(0))
    loop, report = jax.lax.scan(lambda loop, _: training.update(loop), loop, None, length=100)

The engine is that of the host. Seeds side by side are a ``vmap`` over keys.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ottrpo.engine.acting import act, draw_noise
from ottrpo.engine.algorithms.base import Algorithm, Report
from ottrpo.engine.arrays import Randomness
from ottrpo.engine.estimate import CutOff, Rollout
from ottrpo.engine.schedules import Schedules, value_at
from ottrpo.engine.state import Progress, TrainState

Array = Any


class Step(NamedTuple):
    """What one environment answers to an action; it goes on after its end until it is reset."""

    world: Any
    flat: Array
    reward: Array
    terminated: Array
    truncated: Array


class Environment(Protocol):
    """One environment, as functions that can be compiled."""

    def reset(self, key: Array) -> tuple[Any, Array]:
        """A first state of the world, and the features that are seen of it."""

    def step(self, world: Any, action: Array) -> Step:
        """What follows."""


class Loop(NamedTuple):
    """All that goes from one update to the next.

    Attributes:
        train: what is learnt.
        world: states of the environments.
        flat: what is seen of them [n, f].
        age: steps of the running episodes [n].
        score: their returns so far [n].
    """

    train: TrainState
    world: Any
    flat: Array
    age: Array
    score: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceTraining:
    """An algorithm in environments of JAX.

    Attributes:
        algorithm: what is learnt from a rollout.
        environment: where.
        schedules: of its settings.
        total_timesteps: after which schedules end.
        n_envs: environments side by side.
        n_steps: steps per environment and update.
        window: episodes whose lengths tell the horizon of gamma "auto".
        sde_sample_freq: steps between draws of gSDE's noise; -1: once per rollout.
    """

    algorithm: Algorithm
    environment: Environment
    schedules: Schedules
    total_timesteps: int
    n_envs: int = 1
    n_steps: int = 2048
    window: int = 100
    sde_sample_freq: int = -1

    def init(self, key: Array) -> Loop:
        """A training at its first step."""
        rng = Randomness(key)
        state = self.algorithm.init(rng, rng, self.n_envs)
        rng.key, key = jax.random.split(rng.key)
        world, flat = self._reset(key)
        nothing = jnp.zeros(self.n_envs)
        progress = Progress(0, 0, jnp.zeros(self.window), 0)
        state = jax.tree.map(jnp.asarray, state._replace(key=rng.key, progress=progress))
        return Loop(state, world, flat, nothing, nothing)

    def update(self, loop: Loop) -> tuple[Loop, Report]:
        """A rollout, and what is learnt from it."""
        before, rng = loop.train, Randomness(loop.train.key)
        loop, rollout, lengths, scores = self._collect(loop, rng)
        progress = self._progress(before.progress, rollout.done, lengths)
        known = progress.lengths.sum() / jnp.clip(progress.episodes, 1, self.window)
        lasted = jnp.where(progress.episodes > 0, known, progress.steps / self.n_envs)
        now = self.schedules.now(self._left(progress), lasted)
        state, batch = self.algorithm.estimate(before, rollout, now)
        draws = self.algorithm.draw(self.n_steps * self.n_envs, rng)
        state, report = self.algorithm.improve(before, state, batch, draws, now)
        ended = rollout.done.sum()
        mean = (scores * rollout.done).sum() / ended  # NaN where no episode ended
        state = state._replace(key=rng.key, progress=progress)
        return loop._replace(train=state), report | {"rollout/ep_rew_mean": mean}

    def _collect(self, loop: Loop, rng: Randomness) -> tuple[Loop, Rollout, Array, Array]:
        """Act for a rollout; also the lengths and returns of episodes where they ended."""
        state, actions = loop.train, self.algorithm.actions
        policy = state.networks.policy
        noise = draw_noise(
            policy,
            actions,
            rng,
            steps=self.n_steps,
            rows=self.n_envs,
            sde_sample_freq=self.sde_sample_freq,
            noise_color=value_at(self.schedules.noise_color, self._left(state.progress)),
        )

        def step(loop: Loop, given: tuple[Array, Array]) -> tuple[Loop, Any]:
            t, key = given
            seen = self.algorithm.estimate.normaliser(state.observations, loop.flat)
            action, drawn = act(policy, actions, seen, (), noise.at(t))
            after = jax.vmap(self.environment.step)(loop.world, action)
            done = after.terminated | after.truncated
            age, score = loop.age + 1, loop.score + after.reward
            world, flat = self._reset(key)
            next_loop = loop._replace(
                world=_where(done, world, after.world),
                flat=_where(done, flat, after.flat),
                age=jnp.where(done, 0.0, age),
                score=jnp.where(done, 0.0, score),
            )
            return next_loop, (loop.flat, after._replace(world=None), done, drawn, age, score)

        keys = jax.random.split(rng.key, self.n_steps + 1)
        rng.key = keys[0]
        loop, kept = jax.lax.scan(step, loop, (jnp.arange(self.n_steps), keys[1:]))
        flat, after, done, drawn, age, score = kept
        flat = jnp.concatenate([flat, loop.flat[None]])
        where = tuple(jnp.indices(done.shape).reshape(2, -1))
        ends = CutOff(where, after.flat.reshape(-1, flat.shape[-1]), ())
        return (
            loop,
            Rollout(flat, (), after.reward, done, after.terminated, drawn, ends),
            age,
            score,
        )

    def _reset(self, key: Array) -> tuple[Any, Array]:
        return jax.vmap(self.environment.reset)(jax.random.split(key, self.n_envs))

    def _left(self, progress: Progress) -> Array:
        return jnp.maximum(1.0 - progress.steps / self.total_timesteps, 0.0)

    def _progress(self, before: Progress, done: Array, length: Array) -> Progress:
        """Count, and keep the lengths of the last episodes."""
        done, length = done.reshape(-1), length.reshape(-1)
        number = before.episodes + jnp.cumsum(done) - 1
        episodes = before.episodes + done.sum()
        recent = done & (number >= episodes - self.window)
        place = jnp.where(recent, number % self.window, self.window)
        return Progress(
            before.steps + done.size,
            before.updates + 1,
            before.lengths.at[place].set(length, mode="drop"),
            episodes,
        )


def _where(done: Array, first: Any, second: Any) -> Any:
    """Per environment, the one or the other."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(done.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, first, second)
