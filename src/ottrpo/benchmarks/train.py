"""Training speed of any agents beside OT-TRPO's, in turns in one process.

Each agent is measured twice: with its own configuration for the environment, and with matched
settings, where all take the same steps per update, epochs and batch size in one environment, as
far as they have such (A2C has no minibatches and keeps its library's defaults). Each figure is the
median over rounds in which everybody trains once, so a busy machine slows all alike. The bare loop
steps the environment with random actions and does nothing else.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar
from unittest.mock import patch

import gymnasium
import numpy as np
import tyro

from ottrpo.core.checks import require
from ottrpo.envs import catalogue
from ottrpo.experiments.registry import agent_for
from ottrpo.experiments.spec import read_configuration

from .harness import Benchmark, Figures, Row, play, resident_megabytes, tell, timed

ENVIRONMENTS = ("Hopper-v5", "Swimmer-v5", "HalfCheetah-v5", "MountainCarContinuous-v0")
REFERENCE, SAMPLES, PPO = "ottrpo", "ottrpo samples", "ppo"
WORK: dict[str, Any] = {"n_steps": 2048, "batch_size": 64, "n_epochs": 10}
NORMALISED = {"normalize_obs": True, "normalize_reward": True}
BARE_STEPS = 20_000
MILLION = 1_000_000
# what the breakdown times: part -> method of the algorithm
PARTS = {"estimate": "estimate", "dual": "plan", "update": "move", "region": "return_to_region"}
FIRST_UPDATE = {
    "ottrpo": "from ottrpo import OTTRPO as Agent; keywords = {}",
    "ppo": "from stable_baselines3 import PPO as Agent; keywords = {'device': 'cpu'}",
}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Who takes part, and with which settings."""

    agent: str
    way: str
    settings: dict[str, Any]
    processes: bool = False  # SB3's other vector environment: a process for each

    def build(self, env_id: str) -> Any:
        """The agent, untrained."""
        env: Any = env_id
        if self.processes:
            from stable_baselines3.common.vec_env import SubprocVecEnv

            env = SubprocVecEnv([partial(gymnasium.make, env_id)] * self.settings["n_envs"])
        entry = agent_for(self.agent.split()[0], env_id, finite=False)
        return entry.build(env, self.settings, seed=0)


def contenders(names: Sequence[str], env_id: str, n_envs: int = 1) -> list[Contender]:
    """Every agent with its own settings and with the matched ones; OT-TRPO always takes part.

    Ours normalises observations and rewards in both; PPO, which does not by itself, takes part a
    third time to show what that costs. With ``n_envs`` above 1 everybody takes part once more in so
    many environments, with as much work per update; PPO also with a process for each of them, and
    ours also with samples alone, whose gradient steps are as many as PPO's: critics take more.

    Raises:
        ValueError: if there is no such agent.
    """
    found = []
    for name in dict.fromkeys((REFERENCE, *names)):
        entry = agent_for(name, env_id, finite=False)
        own = read_configuration(entry.config_folder, "default").settings_for(env_id)
        known = entry.known_settings()
        # without minibatches, rollouts of this length would mean next to no updates
        matched = {k: v for k, v in WORK.items() if k in known} if "batch_size" in known else {}
        same = {name: matched}
        if name == PPO:
            same[f"{PPO} normalised"] = matched | NORMALISED
        if name == REFERENCE and n_envs > 1:
            same[SAMPLES] = matched | {"advantage": "gae"}
        found += [Contender(agent=who, way="matched", settings=it) for who, it in same.items()]
        found.append(Contender(agent=name, way="own", settings=own))
        if n_envs > 1 and matched and "n_envs" in known:
            found += _in_several(same, n_envs)
    return found


def bare_seconds(env_id: str, steps: int) -> float:
    """Seconds of so many steps with random actions, drawn before; resets count as well."""
    with catalogue.make(env_id, disable_env_checker=True) as env:
        env.action_space.seed(0)
        env.reset(seed=0)
        actions = [env.action_space.sample() for _ in range(steps)]
        seconds, _ = timed(lambda: play(env, actions))
    return seconds


def _in_several(alone: dict[str, dict[str, Any]], n_envs: int) -> Iterator[Contender]:
    """The same work per update in so many environments."""
    for name, settings in alone.items():
        many = settings | {"n_envs": n_envs, "n_steps": WORK["n_steps"] // n_envs}
        there = Contender(agent=f"{name} in {n_envs}", way="matched", settings=many)
        yield there
        if name == PPO:
            yield replace(there, agent=f"{there.agent} processes", processes=True)


def speed(agent: Any, steps: int) -> float:
    """Steps per second over at least ``steps`` steps and one update."""
    before = agent.num_timesteps
    seconds, _ = timed(lambda: agent.learn(steps, reset_num_timesteps=False))
    return float((agent.num_timesteps - before) / seconds)


def compare(env_id: str, taking_part: Sequence[Contender], rounds: int) -> dict[str, list[Row]]:
    """Steps per second of everybody, and what follows from them."""
    agents = []
    for contender in taking_part:
        tell(f"{env_id}: starting {contender.agent} ({contender.way})")
        agents.append(contender.build(env_id))
        agents[-1].learn(1)  # a whole update: what is compiled is compiled here
    measured: list[list[float]] = [[] for _ in agents]
    bare: list[float] = []
    for turn in range(rounds):
        tell(f"{env_id}: round {turn + 1} of {rounds}")
        bare.append(BARE_STEPS / bare_seconds(env_id, BARE_STEPS))
        for agent, speeds in zip(agents, measured, strict=True):
            speeds.append(speed(agent, WORK["n_steps"]))
    ours = {c.way: x for c, x in zip(taking_part, measured, strict=True) if c.agent == REFERENCE}
    speeds = [statistics.median(them) for them in measured]
    training = [
        {
            "environment": env_id,
            "agent": contender.agent,
            "settings": contender.way,
            "steps_per_second": median,
            "seconds_per_million": MILLION / median,
            "relative_time": statistics.median(
                own / other for own, other in zip(ours[contender.way], them, strict=True)
            ),
        }
        for contender, median, them in zip(taking_part, speeds, measured, strict=True)
    ]
    loop = statistics.median(bare)
    share = {"environment": env_id, "steps_per_second": loop, "share": speeds[0] / loop}
    parts = {"at": env_id} | breakdown(agents[0], updates=2 * rounds)
    for agent in agents:
        agent.get_env().close()  # ends the processes
    many = together(env_id, training)
    return {"training": training, "bare_loop": [share], "parts": [parts], "together": many}


def together(env_id: str, training: Sequence[Row]) -> list[Row]:
    """OT-TRPO in several environments beside one, and beside PPO where PPO is quickest."""
    matched = [row for row in training if row["settings"] == "matched"]
    speeds = {row["agent"]: row["steps_per_second"] for row in matched}
    ppo = {name: speed for name, speed in speeds.items() if name.split()[0] == PPO}
    best = max(ppo, key=ppo.__getitem__, default=None)
    return [
        {
            "environment": env_id,
            "agent": name,
            "steps_per_second": speed,
            "over_one": speed / speeds[name.rpartition(" in ")[0]],
            "best_ppo": best,
            "over_best_ppo": speed / ppo[best] if best else None,
        }
        for name, speed in speeds.items()
        if name.startswith(REFERENCE) and " in " in name
    ]


def breakdown(agent: Any, updates: int) -> dict[str, float]:
    """Microseconds per step by part: environment, acting and buffers make up the collecting."""
    spent: dict[str, float] = {}
    algorithm, env = agent.algorithm, agent.get_env().envs[0]
    clocked = {
        method: Clocked(getattr(algorithm, method), part, spent) for part, method in PARTS.items()
    }
    collect = Clocked(agent.collect_rollout, "collect", spent)
    step = Clocked(env.step, "environment", spent)
    steps = updates * WORK["n_steps"]
    with (
        patch.dict(vars(algorithm), clocked),  # it is frozen
        patch.object(agent, "collect_rollout", collect),
        patch.object(env, "step", step),
    ):
        total, _ = timed(lambda: agent.learn(steps, reset_num_timesteps=False))
    acting = _acting_seconds(agent) * steps
    collecting, stepping = spent.pop("collect"), spent.pop("environment")
    parts = {
        "environment": stepping,
        "acting": acting,
        "buffers": max(collecting - stepping - acting, 0.0),
        **spent,
        "rest": total - collecting - sum(spent.values()),
    }
    return {part: seconds / steps * 1e6 for part, seconds in parts.items()}


def _acting_seconds(agent: Any, calls: int = 5000) -> float:
    """Seconds of one policy evaluation; timed apart, as a clock per call would cost as much."""
    actor = agent.actor(1, 1, np.random.default_rng(0))
    observation = np.zeros((1, agent.layout.features))
    return timeit.timeit(lambda: actor.act(0, observation), number=calls) / calls


def first_update(rounds: int) -> list[Row]:
    """Seconds from the start of the process to the end of the first update on Hopper."""
    measured: dict[str, list[float]] = {name: [] for name in (*FIRST_UPDATE, "ottrpo, cold cache")}
    for turn in range(rounds):
        tell(f"first update: round {turn + 1} of {rounds}")
        for name, code in FIRST_UPDATE.items():
            measured[name].append(_process_seconds(code, {}))
        with tempfile.TemporaryDirectory() as folder:
            cold = _process_seconds(FIRST_UPDATE["ottrpo"], {"OTTRPO_CACHE": folder})
        measured["ottrpo, cold cache"].append(cold)
    return [{"agent": name, "seconds": statistics.median(x)} for name, x in measured.items()]


def _process_seconds(code: str, variables: dict[str, str]) -> float:
    work = f"{code}\nAgent('MlpPolicy', 'Hopper-v5', seed=0, **keywords, **{WORK!r}).learn(2048)"
    variables = {"OMP_NUM_THREADS": "1"} | variables  # torch is slower with more
    command = [sys.executable, "-W", "ignore", "-c", work]  # our own code, in a fresh interpreter
    return timed(lambda: subprocess.run(command, check=True, env=os.environ | variables))[0]


def memory_growth(updates: int) -> Row:
    """Resident megabytes after the first updates and after many more."""
    from ottrpo import OTTRPO

    tell(f"memory: {updates} updates")
    agent = OTTRPO("MlpPolicy", "MountainCarContinuous-v0", **WORK, seed=0)
    agent.learn(5 * WORK["n_steps"])
    first = resident_megabytes()
    agent.learn(updates * WORK["n_steps"], reset_num_timesteps=False)
    last = resident_megabytes()
    return {"updates": updates, "after_5": first, "after_all": last, "growth": last - first}


class Clocked:
    """Does what a function does, and is all else that it is, but takes the time."""

    def __init__(self, function: Callable[..., Any], part: str, spent: dict[str, float]) -> None:
        self._function, self._part, self._spent = function, part, spent
        spent[part] = 0.0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the function returns."""
        began = time.perf_counter()
        result = self._function(*arguments, **keywords)
        self._spent[self._part] += time.perf_counter() - began
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


@dataclass(frozen=True, kw_only=True)
class Train(Benchmark):
    """Training speed of any agents beside OT-TRPO's, in turns in one process."""

    titles: ClassVar = {
        "training": "training, and its time over OT-TRPO's with settings of the same kind",
        "together": "OT-TRPO in several environments: over one, and over PPO at its quickest",
        "bare_loop": "OT-TRPO, matched, beside a loop that steps the environment at random",
        "parts": "OT-TRPO, matched: microseconds per step",
        "first_update": "the first update on Hopper, from the start of the process",
        "memory": "resident megabytes over many updates",
    }

    agents: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "ottrpo,trpo,ppo"
    """names with commas between; OT-TRPO always takes part"""
    envs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ENV")] = ENVIRONMENTS
    """where they train"""
    n_envs: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """also train in so many environments at once, with as much work per update"""
    rounds: int = 5
    """turns of each agent; quickly one, and neither start-up nor memory"""

    def __post_init__(self) -> None:
        require(self.rounds >= 1, f"--rounds must be at least 1, got {self.rounds}")
        fits = 1 <= self.n_envs <= WORK["n_steps"]
        require(fits, f"--n-envs must lie between 1 and {WORK['n_steps']}, got {self.n_envs}")
        self._taking_part()  # refuses agents that there are not

    def _taking_part(self) -> dict[str, list[Contender]]:
        names = [name for name in self.agents.split(",") if name]
        return {env_id: contenders(names, env_id, self.n_envs) for env_id in self.envs}

    def measure(self) -> Figures:
        """One environment after the other, then start-up and memory."""
        import torch

        torch.set_num_threads(1)
        rounds = 1 if self.quick else self.rounds
        figures: Figures = {"work": WORK}
        for env_id, them in self._taking_part().items():
            for key, rows in compare(env_id, them, rounds).items():
                if rows:
                    figures.setdefault(key, []).extend(rows)
        if not self.quick:
            figures["first_update"] = first_update(min(rounds, 3))
            figures["memory"] = memory_growth(updates=100)
        return figures
