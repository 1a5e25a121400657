"""Training inside JAX: environments that are functions, and updates as one compiled program.

    training = DeviceTraining(...)
    loop = training.init(jax.random.key(0))
    loop, report = jax.lax.scan(lambda loop, _: training.update(loop), loop, None, length=100)

The engine is that of the host. Seeds side by side are a ``vmap`` over keys.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces

from ottrpo.engine.acting import act, draw_noise
from ottrpo.engine.algorithms.base import Algorithm, Report
from ottrpo.engine.arrays import Randomness
from ottrpo.engine.estimate import CutOff, Rollout
from ottrpo.engine.schedules import Schedules, value_at
from ottrpo.engine.state import Progress, TrainState
from ottrpo.envs.catalogue import DEFAULT_CAP
from ottrpo.envs.functional import Environment, State

Array = Any
# what may be no number, in the order in which one makes the next so: `Loop.broken` counts from 1
CULPRITS = ("observation", "reward", "advantage", "gradient or parameter")


class Loop(NamedTuple):
    """All that goes from one update to the next.

    Attributes:
        train: what is learnt.
        world: states of the environments.
        obs: what is seen of them [n, ...].
        age: steps of the running episodes [n].
        score: their returns so far [n].
        broken: 0, or which of `CULPRITS` was no number: then nothing changes any more.
    """

    train: TrainState
    world: Any
    obs: Array
    age: Array
    score: Array
    broken: Array


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

    @property
    def updates(self) -> int:
        """How many it takes; the last rollout is always completed."""
        return -(-self.total_timesteps // (self.n_steps * self.n_envs))

    def init(self, key: Array, start: TrainState | None = None) -> Loop:
        """A training at its first step; ``start``: with what was learnt elsewhere."""
        rng = Randomness(key)
        state = self.algorithm.init(rng, rng, self.n_envs)
        if start is not None:
            rewards = start.rewards._replace(return_n=state.rewards.return_n)
            state = start._replace(rewards=rewards, replay=state.replay)
        first = self._reset(rng, self.n_envs)
        nothing = jnp.zeros(self.n_envs)
        progress = Progress(0, 0, jnp.zeros(self.window), 0)
        # in the precision that JAX has: the host's statistics are wider
        state = jax.tree.map(jnp.asarray, state._replace(key=rng.key, progress=progress))
        loop = Loop(state, first.world, first.obs, nothing, nothing, 0)
        settled: Loop = jax.tree.map(_settled, loop)
        return settled

    def update(self, loop: Loop) -> tuple[Loop, Report]:
        """A rollout, and what is learnt from it; nothing, if something is no number."""
        before, rng = loop.train, Randomness(loop.train.key)
        after, rollout, lengths, scores, metrics = self._collect(loop, rng)
        progress = self._progress(before.progress, rollout.done, lengths)
        known = progress.lengths.sum() / jnp.clip(progress.episodes, 1, self.window)
        lasted = jnp.where(progress.episodes > 0, known, progress.steps / self.n_envs)
        now = self.schedules.now(self._left(progress), lasted, before.signal.ended)
        state, batch = self.algorithm.estimate(before, rollout, now)
        draws = self.algorithm.draw(self.n_steps * self.n_envs, rng)
        state, report = self.algorithm.improve(before, state, batch, draws, now)
        ended = rollout.done.sum()
        mean = (scores * rollout.done).sum() / ended  # NaN where no episode ended
        state = state._replace(key=rng.key, progress=progress)
        after = after._replace(train=state)
        suspects = (rollout.flat, rollout.reward, batch.advantage, state.learners)
        broken = jnp.where(loop.broken > 0, loop.broken, _first_broken(suspects))
        after = _where(broken > 0, loop, after)._replace(broken=broken)
        told = {f"env/{name}": value for name, value in metrics.items()}
        return after, report | told | {"rollout/ep_rew_mean": mean}

    def evaluate(self, state: TrainState, key: Array, episodes: int, noisy: Array = 0.0) -> Array:
        """Undiscounted returns [episodes] of whole episodes; nothing of training changes.

        Args:
            state: what has been learnt.
            key: of the environments and of the noise.
            episodes: how many, side by side.
            noisy: 1.0: actions are drawn; 0.0: the policy's mode.
        """
        rng = Randomness(key)
        first = self._reset(rng, episodes)
        limit = self.environment.max_episode_steps or DEFAULT_CAP
        noise = self._noise(state, rng, limit, episodes)

        def unfinished(playing: tuple[Any, ...]) -> Array:
            t, *_, alive = playing
            return (t < limit) & alive.any()

        def step(playing: tuple[Any, ...]) -> tuple[Any, ...]:
            t, world, obs, score, alive = playing
            after, _ = self._step(state, world, obs, noisy * noise.at(t))
            score = score + jnp.where(alive, after.reward, 0.0)
            return t + 1, after.world, after.obs, score, alive & ~after.done

        start = (0, first.world, first.obs, jnp.zeros(episodes), jnp.ones(episodes, bool))
        return jax.lax.while_loop(unfinished, step, jax.tree.map(_settled, start))[3]

    def _collect(
        self, loop: Loop, rng: Randomness
    ) -> tuple[Loop, Rollout, Array, Array, dict[str, Array]]:
        """Act for a rollout; also lengths and returns of episodes where they ended, and metrics."""
        state, limit = loop.train, self.environment.max_episode_steps
        noise = self._noise(state, rng, self.n_steps, self.n_envs)
        starts = self._reset(rng, self.n_envs) if self.environment.costly_reset else None

        def step(loop: Loop, given: tuple[Array, Array]) -> tuple[Loop, Any]:
            t, key = given
            after, drawn = self._step(state, loop.world, loop.obs, noise.at(t))
            age, score = loop.age + 1, loop.score + after.reward
            late = age >= limit if limit is not None else jnp.zeros_like(after.done)
            terminated = after.done & ~after.truncation
            done = after.done | late
            first = starts or self._reset(Randomness(key), self.n_envs)
            next_loop = loop._replace(
                world=_where(done, first.world, after.world),
                obs=_where(done, first.obs, after.obs),
                age=jnp.where(done, 0.0, age),
                score=jnp.where(done, 0.0, score),
            )
            kept = (loop.obs, after.obs, after.reward, done, terminated)
            metrics = jax.tree.map(jnp.mean, after.metrics)
            return next_loop, (*kept, drawn, age, score, metrics)

        keys = jax.random.split(rng.key, self.n_steps + 1)
        rng.key = keys[0]
        loop, kept = jax.lax.scan(step, loop, (jnp.arange(self.n_steps), keys[1:]))
        obs, seen, reward, done, terminated, drawn, age, score, metrics = kept
        flat = self._flat(jnp.concatenate([obs, loop.obs[None]]), 2)
        # of every step, whether it was cut off or not: what follows is then a mere replacement
        ends = CutOff((), self._flat(seen, 2).reshape(-1, flat.shape[-1]), ())
        rollout = Rollout(flat, (), reward, done, terminated, drawn, ends)
        return loop, rollout, age, score, jax.tree.map(jnp.mean, metrics)

    def _step(
        self, train: TrainState, world: Any, obs: Array, noise: Array
    ) -> tuple[State, dict[str, Array]]:
        """Act once in every environment; the states after it, and the record of the actions."""
        flat = self._flat(obs, 1)
        seen = self.algorithm.estimate.normaliser(train.observations, flat)
        action, drawn = act(train.networks.policy, self.algorithm.actions, seen, (), noise)

        def step(world: Any, obs: Array, action: Array) -> State:
            return self.environment.step(State(world, obs), action)

        after = jax.vmap(step)(world, obs, action)
        # a loop wants the types that it began with, whatever an environment answers
        world, obs = jax.tree.map(
            lambda new, old: new.astype(old.dtype), (after.world, after.obs), (world, obs)
        )
        done, cut = (jnp.broadcast_to(x, (len(flat),)) > 0 for x in (after.done, after.truncation))
        reward = jnp.asarray(after.reward, jnp.float32)
        return State(world, obs, reward, done | cut, cut, after.metrics), drawn

    def _noise(self, state: TrainState, rng: Randomness, steps: int, rows: int) -> Any:
        left, ended = self._left(state.progress), state.signal.ended
        return draw_noise(
            state.networks.policy,
            self.algorithm.actions,
            rng,
            steps=steps,
            rows=rows,
            sde_sample_freq=self.sde_sample_freq,
            noise_color=value_at(self.schedules.noise_color, left, ended),
        )

    def _flat(self, obs: Array, axes: int) -> Array:
        """Features of observations with so many axes before their own, as the host encodes them."""
        space = self.environment.observation_space
        if isinstance(space, spaces.Discrete):
            return jax.nn.one_hot(obs - int(space.start), int(space.n))
        return obs.reshape(*obs.shape[:axes], -1).astype(jnp.float32)

    def _reset(self, rng: Randomness, count: int) -> State:
        rng.key, key = jax.random.split(rng.key)
        return jax.vmap(self.environment.reset)(jax.random.split(key, count))

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


def _where(which: Array, first: Any, second: Any) -> Any:
    """Per environment, or altogether, the one or the other."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(which.reshape(*which.shape, *(1,) * (a.ndim - which.ndim)), a, b)

    return jax.tree.map(choose, first, second)


def _settled(leaf: Any) -> Array:
    """As an array whose type is its own, not that of whatever it meets."""
    array = jnp.asarray(leaf)
    chance = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return array if chance else array.astype(array.dtype)


def _first_broken(suspects: tuple[Any, ...]) -> Array:
    """The number, from 1, of the first that holds NaN or infinity; 0 if none does."""

    def fine(suspect: Any) -> Array:
        arrays = jax.tree.leaves(eqx.filter(suspect, eqx.is_array))
        return jnp.stack([jnp.isfinite(array).all() for array in arrays]).all()

    bad = ~jnp.stack([fine(suspect) for suspect in suspects])
    return jnp.where(bad.any(), bad.argmax() + 1, 0).astype(jnp.int32)
