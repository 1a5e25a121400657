"""`make_train`: the settings of an agent and an environment of JAX become one pure function."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.agents.base import DeepAgent
from ottrpo.agents.ottrpo import OTTRPO
from ottrpo.agents.policies import density_of
from ottrpo.collect.device import DeviceTraining, Loop
from ottrpo.core.checks import require, require_one_of, require_whole
from ottrpo.engine.algorithms.base import Algorithm
from ottrpo.engine.algorithms.ottrpo import TrustRegion
from ottrpo.engine.state import TrainState
from ottrpo.envs import functional

Array = Any
Metrics = dict[str, Array]
EVALUATIONS, EPISODES = 10, 10
# settings that may be arrays of JAX: numbers that are known only when the program runs
NUMBERS = (
    *("learning_rate", "gamma", "gae_lambda", "noise_color", "radius"),
    *("vf_coef", "max_grad_norm", "clip_obs", "clip_reward"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """A training as a pure function of a key: ``state, metrics = training(key)``.

    It can be compiled, and mapped over keys and numbers (`NUMBERS`):
    ``jax.vmap(lambda key, rate: training(key, learning_rate=rate))(keys, rates)``.

    Attributes:
        loop: what is done.
        agent: one with the same settings and networks, untrained; it is never changed.
        evaluations: how often the policy's mode is evaluated, the last time at the end.
        episodes: of one evaluation.
        start: what was learnt before, to go on from.
    """

    loop: DeviceTraining
    agent: DeepAgent
    evaluations: int = EVALUATIONS
    episodes: int = EPISODES
    start: TrainState | None = None

    def __call__(self, key: Array, **numbers: Array) -> tuple[TrainState, Metrics]:
        """Train from the beginning to the end.

        Args:
            key: of everything random.
            numbers: settings, in the place of those that the training was made with.

        Returns:
            what was learnt, and what is told: of every update [updates], and of the evaluations
            ``evaluation/timestep`` [evaluations] and ``evaluation/returns`` [evaluations,
            episodes].
        """
        training = with_numbers(self.loop, numbers)
        updates = training.updates
        due = np.unique(np.linspace(0, updates, self.evaluations + 1).round()[1:]).astype(int) - 1

        def step(loop: Loop, given: tuple[Array, Array]) -> tuple[Loop, Any]:
            now, stream = given
            loop, report = training.update(loop)
            returns = jax.lax.cond(
                now,
                lambda: training.evaluate(loop.train, stream, self.episodes),
                lambda: jnp.full(self.episodes, jnp.nan),
            )
            return loop, (report, loop.train.progress.steps, returns)

        streams = jax.random.split(jax.random.fold_in(key, 1), updates)
        each = (jnp.isin(jnp.arange(updates), due), streams)
        first = replace(self, loop=training).begin(key)
        loop, (report, steps, returns) = jax.lax.scan(step, first, each)
        told = {"timestep": steps[due], "returns": returns[due]}
        return loop.train, report | {f"evaluation/{name}": x for name, x in told.items()}

    def begin(self, key: Array) -> Loop:
        """The training at its first step."""
        return self.loop.init(jax.random.fold_in(key, 0), self.start)

    def as_agent(self, state: TrainState, seed: int | None = None) -> DeepAgent:
        """An ordinary agent that has learnt this: it predicts, is saved, and goes on learning.

        Args:
            state: of one training; of several side by side take one:
                ``jax.tree.map(lambda x: x[i], states)``.
            seed: of what the agent draws from now on.
        """
        settings = asdict_of(self.agent.told) | {"seed": seed}
        agent = agent_for(type(self.agent), self.loop.environment, settings)
        progress = jax.device_get(state.progress)
        agent.train_state = on_the_host(state, agent.train_state)
        agent.num_timesteps = agent._total_timesteps = int(progress.steps)
        agent._n_updates = int(progress.updates)
        left = 1.0 - progress.steps / self.loop.total_timesteps
        agent._current_progress_remaining = max(float(left), 0.0)
        return agent


def make_train(
    env: Any,
    settings: Any = None,
    *,
    total_timesteps: int,
    agent: type[DeepAgent] = OTTRPO,
    evaluations: int = EVALUATIONS,
    episodes: int = EPISODES,
    start_from: DeepAgent | None = None,
    **kwargs: Any,
) -> Training:
    """A training as a pure function of a key, which JAX compiles into one program.

    Args:
        env: an `Environment`, or the name of one: ``gymnax:...``, ``brax:...``, ``playground:...``.
        settings: of the agent, as a mapping or as its settings object; its defaults otherwise.
        total_timesteps: of all environments together; the last rollout is always completed.
        agent: its class.
        evaluations: how often the policy's mode is evaluated, the last time at the end.
        episodes: of one evaluation.
        start_from: go on from what this agent has learnt.
        kwargs: settings, laid over the others. Some may be arrays of JAX: see `NUMBERS`.

    Raises:
        ValueError: if there is no such environment or setting, or it can't be trained so.
    """
    environment = functional.make(env) if isinstance(env, str) else env
    given = {**(asdict_of(settings) if is_dataclass(settings) else settings or {}), **kwargs}
    numbers = {name: value for name, value in given.items() if isinstance(value, jax.Array)}
    for name in numbers:
        require_one_of(name, NUMBERS, "a setting that may be an array")
    require_whole("total_timesteps", total_timesteps, 1)
    plain = {name: value for name, value in given.items() if name not in numbers}
    model = agent_for(agent, environment, plain)
    if start_from is not None:
        require(
            start_from.architecture == model.architecture,
            "start_from has other networks than the settings say",
        )
    return Training(
        loop=with_numbers(training_of(model, environment, total_timesteps), numbers),
        agent=model,
        evaluations=evaluations,
        episodes=episodes,
        start=None if start_from is None else start_from.train_state,
    )


def agent_for(
    kind: type[DeepAgent], environment: functional.Environment, settings: Mapping[str, Any]
) -> DeepAgent:
    """An untrained agent for the spaces of an environment, without any."""
    require(
        settings.get("advantage") != "mixed",
        "advantage 'mixed' keeps rollouts of the host; on the device use 'gae' or 'network'",
    )
    made: Any = kind
    usual = "network" if density_of(settings.get("policy_kwargs")) else "gae"
    if "advantage" in kind.settings_type.names():
        settings = {**settings, "advantage": settings.get("advantage") or usual}
    agent: DeepAgent = made("MlpPolicy", None, _init_setup_model=False, **settings)
    agent.observation_space = environment.observation_space
    agent.action_space = environment.action_space
    agent._setup_model()
    return agent


def training_of(
    agent: DeepAgent, environment: functional.Environment, total_timesteps: int
) -> DeviceTraining:
    """What the agent would do, as a program."""
    told = agent.told
    return DeviceTraining(
        algorithm=agent.algorithm,
        environment=environment,
        # SB3 makes a number of the learning rate, which nothing is while a program is compiled
        schedules=replace(agent.schedules, learning_rate=told.learning_rate),
        total_timesteps=total_timesteps,
        n_envs=told.n_envs,
        n_steps=told.n_steps,
        window=told.stats_window_size,
        sde_sample_freq=told.sde_sample_freq,
    )


def with_numbers(training: DeviceTraining, numbers: Mapping[str, Array]) -> DeviceTraining:
    """The training with other numbers in the place of its own.

    Raises:
        ValueError: if one of them can't be replaced.
    """
    if not numbers:
        return training
    for name in numbers:
        require_one_of(name, NUMBERS, "a setting that may be an array")
    algorithm: Algorithm = training.algorithm
    estimate = algorithm.estimate
    if "radius" in numbers:
        if not isinstance(algorithm, TrustRegion):
            raise ValueError(f"{type(algorithm).__name__} has no radius")
        if training.schedules.multiplier is not None:
            raise ValueError("a radius has no meaning beside a multiplier or a step")
        algorithm = replace(algorithm, relative=False)

    def laid_over(told: Any, **more: Any) -> Any:
        names = [field.name for field in fields(told) if field.name in numbers]
        return replace(told, **{name: numbers[name] for name in names}, **more)

    unit = {"discount": numbers["gamma"]} if "gamma" in numbers else {}
    estimate = replace(estimate, normaliser=laid_over(estimate.normaliser, **unit))
    algorithm = laid_over(algorithm, estimate=estimate)
    return replace(training, algorithm=algorithm, schedules=laid_over(training.schedules))


def asdict_of(settings: Any) -> dict[str, Any]:
    """The fields of a settings object; costs and schedules as they are."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def on_the_host(state: TrainState, like: TrainState) -> TrainState:
    """What was learnt elsewhere, in the types of the host's ``like``."""
    plain = state._replace(key=None, progress=None, replay=like.replay)
    one = plain._replace(rewards=plain.rewards._replace(return_n=like.rewards.return_n))

    def moved(pattern: Any, leaf: Any) -> Any:
        array = np.asarray(leaf, pattern.dtype)
        return jnp.asarray(array) if isinstance(pattern, jax.Array) else array

    settled: TrainState = jax.tree.map(moved, like, one)
    return settled
