"""Steps per second of the ways to step many environments, in turns in one process.

Everybody gets the same random actions, and episodes that end start again. The loop is one
environment of Gymnasium's by itself, whatever the number of environments.
"""

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import tyro

from ottrpo.core.checks import require
from ottrpo.envs import catalogue, make_vec

from .harness import Benchmark, Figures, Row, in_turns, play, resident_megabytes, tell

ENVIRONMENTS = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
COUNTS = (1, 8, 32, 128)
TURN_STEPS = 256  # steps of all environments together in a turn
CROWD = 256  # environments, to see what one more takes in memory
OURS, LOOP, PROCESSES = "ours", "gym.step", "SubprocVecEnv"
Turn = Callable[[], None]


def measured(env_id: str, count: int, threads: int | None, seconds: float) -> Row:
    """Steps per second of everybody with so many environments."""
    tell(f"{env_id}: {count} environments")
    with ExitStack() as closing:
        turns = contenders(env_id, count, threads, closing)
        best = in_turns(turns, seconds)
    speed = {name: _steps(1 if name == LOOP else count) / best[name] for name in turns}
    others = {"ours_over_loop": LOOP, "ours_over_processes": PROCESSES}
    ratios = {name: speed[OURS] / speed[other] for name, other in others.items()}
    return {"environment": env_id, "environments": count, **speed, **ratios}


def contenders(env_id: str, count: int, threads: int | None, closing: ExitStack) -> dict[str, Turn]:
    """Everybody, ready to take a turn; what they hold is closed in the end."""
    from gymnasium.vector import AsyncVectorEnv
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    one = partial(catalogue.make, env_id, disable_env_checker=True)
    vectors: dict[str, Any] = {
        "DummyVecEnv": DummyVecEnv([one] * count),
        # forked, since so many fresh interpreters would take minutes to start
        PROCESSES: SubprocVecEnv([one] * count, start_method="fork"),
        "AsyncVectorEnv": AsyncVectorEnv([one] * count, context="fork"),
        OURS: make_vec(env_id, count, threads=threads, seed=0),
    }
    pool = _envpool(env_id, count, threads)
    if pool is not None:
        vectors["EnvPool"] = pool
    space = vectors[OURS].action_space
    shape = (_steps(count) // count, count, *space.shape)
    action_tn = np.random.default_rng(0).uniform(space.low, space.high, shape).astype(np.float32)
    alone = closing.enter_context(one())
    alone.reset(seed=0)
    turns: dict[str, Turn] = {
        LOOP: partial(play, alone, action_tn.reshape(-1, *space.shape)[: _steps(1)])
    }
    for name, env in vectors.items():
        closing.callback(env.close)
        env.reset()
        turns[name] = partial(_step_all, env, action_tn.astype(env.action_space.dtype))
    return turns


def memory(env_id: str) -> Row:
    """Resident megabytes that one more environment of ours takes."""
    used = []
    for count in (1, CROWD):
        env = make_vec(env_id, count, seed=0)
        env.reset()
        _step_all(env, np.zeros((20, count, *env.action_space.shape), np.float32))
        used.append(resident_megabytes())
        env.close()
    return {"environment": env_id, "megabytes": (used[1] - used[0]) / (CROWD - 1)}


def _steps(count: int) -> int:
    return max(TURN_STEPS // count, 2) * count


def _step_all(env: Any, action_tn: Any) -> None:
    for action_n in action_tn:
        env.step(action_n)


def _envpool(env_id: str, count: int, threads: int | None) -> Any:
    """EnvPool's environments of that name, where it is installed and has them."""
    try:
        envpool = importlib.import_module("envpool")
    except (ImportError, OSError):  # of which the latter is a wheel without its data
        return None
    if env_id not in envpool.list_all_envs():
        return None
    return envpool.make(env_id, env_type="gymnasium", num_envs=count, num_threads=threads or 0)


@dataclass(frozen=True, kw_only=True)
class Envs(Benchmark):
    """Steps per second of many environments: ours beside SB3's, Gymnasium's and EnvPool's."""

    titles: ClassVar = {
        "stepping": "steps per second, all environments together",
        "memory": "resident megabytes per environment of ours",
    }

    envs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ENV")] = ENVIRONMENTS
    """which environments"""
    counts: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N")] = COUNTS
    """how many of each"""
    threads: int | None = None
    """threads of our physics; by default one per core"""
    seconds: float = 10.0
    """of measuring for each environment and number; quickly one"""

    def __post_init__(self) -> None:
        require(all(n >= 1 for n in self.counts), f"--counts must be positive, got {self.counts}")

    def measure(self) -> Figures:
        """One environment after the other."""
        seconds = 1.0 if self.quick else self.seconds
        figures: Figures = {"stepping": [], "memory": [memory(env_id) for env_id in self.envs]}
        for env_id in self.envs:
            for count in self.counts[:2] if self.quick else self.counts:
                figures["stepping"].append(measured(env_id, count, self.threads, seconds))
        return figures
