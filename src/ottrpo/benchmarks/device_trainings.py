"""Who trains where the simulation runs: ours, Brax's own PPO, and the bare simulation."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ottrpo.device import make_train
from ottrpo.device.fleet import Fleet
from ottrpo.envs import functional
from ottrpo.experiments.registry import agent_by_key

from .harness import Row, tell, timed

SIMULATED = 100  # steps of every environment in a turn
# What Brax's authors publish for their tasks. For Hopper and Walker2d they publish SAC's alone:
# there PPO has the half cheetah's, with SAC's discount. All others have the half cheetah's.
_COMMON = {"num_minibatches": 32, "learning_rate": 3e-4, "normalize_observations": True}
_SLOW: dict[str, Any] = {
    **{"unroll_length": 20, "num_updates_per_batch": 8, "discounting": 0.95, "num_envs": 2048},
    **{"reward_scaling": 1, "entropy_cost": 1e-3, "batch_size": 512},
}
BRAX_SETTINGS: dict[str, dict[str, Any]] = {
    "ant": {
        **{"unroll_length": 5, "num_updates_per_batch": 4, "discounting": 0.97, "num_envs": 4096},
        **{"reward_scaling": 10, "entropy_cost": 1e-2, "batch_size": 2048},
    },
    "halfcheetah": _SLOW,
    "hopper": _SLOW | {"discounting": 0.997},
    "walker2d": _SLOW | {"discounting": 0.997},
    "humanoid": _SLOW
    | {"unroll_length": 10, "discounting": 0.97, "reward_scaling": 0.1, "batch_size": 1024},
}
SMALL = {"n_envs": 16, "n_steps": 8, "batch_size": 32, "n_epochs": 2}
SMALL_BRAX = {
    **{"num_envs": 16, "batch_size": 16, "num_minibatches": 2, "unroll_length": 4},
    **{"num_updates_per_batch": 2},
}


def brax_settings(env_id: str, *, small: bool) -> dict[str, Any]:
    """What Brax's PPO trains with in an environment; ``small``: to see that it works."""
    own = BRAX_SETTINGS.get(env_id.partition(":")[2].partition("/")[0], _SLOW)
    return _COMMON | own | (SMALL_BRAX if small else {})


@dataclass(frozen=True)
class Moment:
    """Where a training was when it was evaluated: steps, seconds of training alone, return."""

    steps: int
    training: float
    returned: float


Note = Callable[[Moment], None]


class Budget(NamedTuple):
    """What is asked of a training; it ends early with the stretch in which so many seconds pass."""

    steps: int
    evaluations: int
    episodes: int
    seconds: float


class _Enough(Exception):
    """The time for a training is up."""


def simulated(env_id: str, n_envs: int, steps: int) -> Row:
    """Steps per second of the bare environments, with random actions."""
    environment = functional.make(env_id)
    space = environment.action_space

    def turn(states: Any, key: Any) -> Any:
        def step(states: Any, key: Any) -> tuple[Any, None]:
            action = jax.random.uniform(key, (n_envs, *space.shape), minval=-1.0, maxval=1.0)
            return jax.vmap(environment.step)(states, action), None

        return jax.lax.scan(step, states, jax.random.split(key, steps))[0]

    keys = jax.random.split(jax.random.key(0), n_envs)
    states = jax.jit(jax.vmap(environment.reset))(keys)
    seconds, program = timed(jax.jit(turn).lower(states, jax.random.key(1)).compile)
    # the types of an environment settle with its first step
    states = program(states, jax.random.key(1))

    def once() -> None:
        ended: Any = program(states, jax.random.key(2))
        ended.reward.block_until_ready()

    best = min(timed(once)[0] for _ in range(4))
    speed = n_envs * steps / best
    return {"environment": env_id, "n_envs": n_envs, "steps_per_s": speed, "compile_s": seconds}


def our_fleet(env_id: str, agent: str, settings: dict[str, Any], budget: Budget) -> Fleet:
    """The program of one training, compiled."""
    kind = agent_by_key(agent).load()
    training = make_train(env_id, settings, total_timesteps=budget.steps, agent=kind)
    fleet = Fleet(training, [0], chunk=-(-training.loop.updates // budget.evaluations))
    fleet.compile(evaluation=(1, budget.episodes))
    tell(f"{env_id}, {agent}: {fleet.require_room()}")
    return fleet


def ours(fleet: Fleet, seed: int, budget: Budget, note: Note) -> None:
    """Train one of ours; the first moment is before the first update, all compiled."""
    updates = fleet.training.loop.updates
    fleet.seeds = (seed,)
    fleet.begin()
    score = partial(fleet.evaluate, [[seed]], [0.0], budget.episodes)
    spent, done = 0.0, 0
    note(Moment(0, 0.0, float(score().mean())))
    while done < updates and spent <= budget.seconds:
        now = min(fleet.chunk, updates - done)
        spent += timed(partial(fleet.advance, now))[0]
        done += now
        note(Moment(done * fleet.rows, spent, float(score().mean())))


def brax_ppo(env_id: str, settings: dict[str, Any], seed: int, budget: Budget, note: Note) -> None:
    """Brax's own trainer."""
    ppo = importlib.import_module("brax.training.agents.ppo.train")
    envs = importlib.import_module("brax.envs")
    name, _, backend = env_id.partition(":")[2].partition("/")

    def progress(steps: int, metrics: dict[str, Any]) -> None:
        spent = float(metrics.get("training/walltime", 0.0))
        note(Moment(int(steps), spent, float(metrics["eval/episode_reward"])))
        if spent > budget.seconds:
            raise _Enough

    with _replicating(), suppress(_Enough):
        ppo.train(
            environment=envs.get_environment(name, backend=backend or "spring"),
            num_timesteps=budget.steps,
            num_evals=budget.evaluations + 1,
            num_eval_envs=budget.episodes,
            episode_length=1000,
            deterministic_eval=True,  # as ours
            seed=seed,
            progress_fn=progress,
            **settings,
        )


def seeds_together(
    env_id: str, settings: dict[str, Any], counts: tuple[int, ...], updates: int
) -> Iterator[Row]:
    """The same number of updates of one seed, and of several in one program."""
    first = None
    for count in counts:
        training = make_train(env_id, settings, total_timesteps=10**9)
        fleet = Fleet(training, range(count), chunk=updates, devices=jax.devices()[:1])
        compiling = fleet.compile()
        fleet.begin()
        fleet.advance(1)
        seconds, _ = timed(partial(fleet.advance, updates))
        first = first or seconds
        yield {
            **{"environment": env_id, "seeds": count, "seconds": seconds},
            **{"over_one": seconds / first, "compile_s": compiling},
            "steps_per_s": count * updates * fleet.rows / seconds,
        }


@contextmanager
def _replicating() -> Iterator[None]:
    """Brax asks JAX for a function that newer ones do not have; here is what it did."""
    if hasattr(jax, "device_put_replicated"):
        yield
        return

    def replicated(tree: Any, devices: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(devices)), tree)

    stand_in: Any = jax
    stand_in.device_put_replicated = replicated
    try:
        yield
    finally:
        del stand_in.device_put_replicated
