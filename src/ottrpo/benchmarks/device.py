"""Training where the simulation runs: ours and Brax's own PPO in one process, one after the other.

Both train in the same environment for the same number of steps, each with its own settings: ours
are the configuration `device`, Brax's those that its authors publish. Times are of training once it
runs; compilation and evaluations are told apart.
"""

import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import tyro

from ottrpo.core.checks import require, require_one_of
from ottrpo.device import make_train
from ottrpo.device.fleet import Fleet
from ottrpo.envs import functional
from ottrpo.experiments import provenance
from ottrpo.experiments.registry import agent_by_key
from ottrpo.experiments.spec import merge, parse_overrides, read_configuration
from ottrpo.persistence.bundle import write_atomically

from .harness import Benchmark, Figures, Row, tell, timed

BRAX, SIMULATION = "brax-ppo", "simulation"
OURS = ("ottrpo", "clipped-ppo")
ENVIRONMENTS = ("brax:halfcheetah", "brax:ant")
EPISODES = 128  # of an evaluation, as many as Brax has
SIMULATED = 100  # steps of every environment in a turn
# what Brax's authors publish for their tasks; the others begin with the last
_COMMON = {"num_minibatches": 32, "learning_rate": 3e-4, "normalize_observations": True}
_SLOW = {"unroll_length": 20, "num_updates_per_batch": 8, "discounting": 0.95, "num_envs": 2048}
_FAST = {"unroll_length": 5, "num_updates_per_batch": 4, "discounting": 0.97, "num_envs": 4096}
BRAX_SETTINGS: dict[str, dict[str, Any]] = {
    "ant": _FAST | {"reward_scaling": 10, "entropy_cost": 1e-2, "batch_size": 2048},
    "halfcheetah": _SLOW | {"reward_scaling": 1, "entropy_cost": 1e-3, "batch_size": 512},
}
SMALL = {"n_envs": 16, "n_steps": 8, "batch_size": 32, "n_epochs": 2}
SMALL_BRAX = {
    **{"num_envs": 16, "batch_size": 16, "num_minibatches": 2, "unroll_length": 4},
    **{"num_updates_per_batch": 2, "num_eval_envs": 4},
}


@dataclass(frozen=True)
class Moment:
    """Where a training was when it was evaluated: steps, seconds of training alone, return."""

    steps: int
    training: float
    returned: float


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


def ours(
    env_id: str, agent: str, settings: dict[str, Any], steps: int, evaluations: int, limit: float
) -> Iterator[Moment]:
    """Train one of ours; the first moment is before the first update, all compiled."""
    kind = agent_by_key(agent).load()
    training = make_train(env_id, settings, total_timesteps=steps, agent=kind)
    updates = training.loop.updates
    fleet = Fleet(training, [0], chunk=-(-updates // evaluations))
    fleet.compile()
    tell(f"{env_id}, {agent}: {fleet.require_room()}")
    fleet.begin()
    episodes = SMALL_BRAX["num_eval_envs"] if settings["n_envs"] == SMALL["n_envs"] else EPISODES
    score = partial(fleet.evaluate, [[0]], [0.0], episodes)
    spent, done = 0.0, 0
    yield Moment(0, 0.0, float(score().mean()))
    while done < updates and spent < limit:
        now = min(fleet.chunk, updates - done)
        spent += timed(partial(fleet.advance, now))[0]
        done += now
        yield Moment(done * fleet.rows, spent, float(score().mean()))


def brax_ppo(
    env_id: str, settings: dict[str, Any], steps: int, evaluations: int, limit: float
) -> list[tuple[float, Moment]]:
    """Brax's own trainer; its moments, each with the time of day at which it was told."""
    ppo = importlib.import_module("brax.training.agents.ppo.train")
    envs = importlib.import_module("brax.envs")
    name, _, backend = env_id.partition(":")[2].partition("/")
    told: list[tuple[float, Moment]] = []

    def progress(steps: int, metrics: dict[str, Any]) -> None:
        spent = float(metrics.get("training/walltime", 0.0))
        moment = Moment(int(steps), spent, float(metrics["eval/episode_reward"]))
        told.append((time.perf_counter(), moment))
        if spent > limit:
            raise _Enough

    with _replicating(), suppress(_Enough):
        ppo.train(
            environment=envs.get_environment(name, backend=backend or "spring"),
            num_timesteps=steps,
            num_evals=evaluations + 1,
            episode_length=1000,
            deterministic_eval=True,  # as ours
            progress_fn=progress,
            **settings,
        )
    return told


def figures_of(moments: list[tuple[float, Moment]], began: float) -> Row:
    """Speed once it runs, and what came before: compilation, by when the first stretch was done.

    The first stretch counts as compilation as far as it was longer than the others.
    """
    stretches = [
        (after.steps - before.steps, after.training - before.training)
        for (_, before), (_, after) in pairwise(moments)
    ]
    running = stretches[1:] or stretches
    steps, seconds = (sum(column) for column in zip(*running, strict=True))
    usual = median(taken / count for count, taken in running) * stretches[0][0]
    return {
        "steps": moments[-1][1].steps,
        "steps_per_s": steps / seconds,
        "compile_s": moments[0][0] - began + max(stretches[0][1] - usual, 0.0),
        "all_s": moments[-1][0] - began,
        "score": moments[-1][1].returned,
        "best": max(moment.returned for _, moment in moments),
    }


def seeds_together(
    env_id: str, settings: dict[str, Any], counts: tuple[int, ...], updates: int
) -> list[Row]:
    """The same number of updates of one seed, and of several in one program."""
    rows: list[Row] = []
    for count in counts:
        training = make_train(env_id, settings, total_timesteps=10**9)
        fleet = Fleet(training, range(count), chunk=updates, devices=jax.devices()[:1])
        compiling = fleet.compile()
        fleet.begin()
        fleet.advance(1)
        seconds, _ = timed(partial(fleet.advance, updates))
        over = seconds / rows[0]["seconds"] if rows else 1.0
        rows.append(
            {"environment": env_id, "seeds": count, "seconds": seconds, "over_one": over}
            | {"steps_per_s": count * updates * fleet.rows / seconds, "compile_s": compiling}
        )
    return rows


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


@dataclass(frozen=True, kw_only=True)
class Device(Benchmark):
    """Training on an accelerator: ours, PPO's loss on the same engine, and Brax's own PPO."""

    titles: ClassVar = {
        SIMULATION: "the bare simulation, random actions",
        "training": "training once it runs, without evaluations; compilation apart",
        "seeds": "several seeds in one program",
    }

    envs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ENV")] = ENVIRONMENTS
    """which environments, of Brax"""
    who: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")] = (SIMULATION, *OURS, BRAX)
    """what is measured, in this order"""
    steps: int = 50_000_000
    """environment steps of each training; quickly 4,096"""
    evaluations: int = 10
    """stretches of a training, each followed by an evaluation"""
    seconds: float = 600.0
    """of a training, evaluations not counted, after which it ends with its stretch"""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N")] = ()
    """how long so many seeds take in one program; the first is what the others are compared with"""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """settings of ours, laid over the configuration"""
    out: Path | None = None
    """a folder for device.json, written anew after every part"""

    def __post_init__(self) -> None:
        for name in self.who:
            require_one_of(name, (SIMULATION, *OURS, BRAX), "measured here")
        for env_id in self.envs:
            require(functional.family_of(env_id) == "brax", f"{env_id!r} is not of Brax")
        require(self.evaluations >= 2, f"--evaluations must be 2 or more, got {self.evaluations}")

    def measure(self) -> Figures:
        """One after the other; what is known is written down at once."""
        figures: Figures = {
            "hardware": provenance.hardware()
            | {"devices": [device.device_kind for device in jax.devices()]},
            "versions": provenance.versions() | {"brax": version("brax")},
            "commit": provenance.commit(),
        }
        parts: dict[str, Callable[[str], dict[str, Any]]] = {
            name: partial(self._training, name) for name in (*OURS, BRAX)
        }
        for env_id in self.envs:
            for name in self.who:
                tell(f"{env_id}: {name}")
                part = parts.get(name, self._simulation)
                self._keep(figures, part(env_id))
            if self.seeds:
                settings, updates = self._settings("ottrpo", env_id), 2 if self.quick else 10
                rows = seeds_together(env_id, settings, self.seeds, updates)
                self._keep(figures, {"seeds": rows})
        return figures

    def _simulation(self, env_id: str) -> dict[str, Any]:
        n_envs = self._settings("ottrpo", env_id)["n_envs"]
        return {SIMULATION: [simulated(env_id, n_envs, 4 if self.quick else SIMULATED)]}

    def _training(self, name: str, env_id: str) -> dict[str, Any]:
        steps = 4096 if self.quick else self.steps
        began = time.perf_counter()
        given = (steps, self.evaluations, self.seconds)
        if name == BRAX:
            settings = BRAX_SETTINGS.get(env_id.partition(":")[2].partition("/")[0], _SLOW)
            settings = _COMMON | settings | (SMALL_BRAX if self.quick else {})
            moments = brax_ppo(env_id, settings, *given)
        else:
            settings = self._settings(name, env_id)
            told = ours(env_id, name, settings, *given)
            moments = [(time.perf_counter(), moment) for moment in told]
        row = {"environment": env_id, "who": name} | figures_of(moments, began)
        curve = [{"at_s": at - began, **vars(moment)} for at, moment in moments]
        about = {"environment": env_id, "who": name, "settings": settings, "curve": curve}
        return {"training": [row], "curves": [about]}

    def _settings(self, agent: str, env_id: str) -> dict[str, Any]:
        configuration = read_configuration(agent_by_key(agent).config_folder, "device")
        settings = merge(configuration.settings_for(env_id), parse_overrides(self.set))
        return settings | (SMALL if self.quick else {})

    def _keep(self, figures: Figures, found: dict[str, Any]) -> None:
        for key, rows in found.items():
            figures.setdefault(key, []).extend(rows)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / "device.json", json.dumps(figures, indent=2).encode())
