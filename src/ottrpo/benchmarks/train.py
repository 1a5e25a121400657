"""Training speed of any agents beside OT-TRPO's, in turns in one process.

Each agent is measured twice: with its own configuration for the environment, and with matched
settings, where all take the same steps per update, epochs and batch size in one environment, as
far as they have such (A2C has no minibatches and keeps its library's defaults). Each figure is the
median over rounds in which everybody trains once, so a busy machine slows all alike. The bare loop
steps the environment with random actions and does nothing else.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ottrpo.envs.stepping import step_seconds
from ottrpo.experiments.registry import agent_for
from ottrpo.experiments.spec import read_configuration

ENVIRONMENTS = ("Hopper-v5", "Swimmer-v5", "HalfCheetah-v5", "MountainCarContinuous-v0")
AGENTS = ("ottrpo", "trpo", "ppo")
REFERENCE = "ottrpo"
WORK: dict[str, Any] = {"n_steps": 2048, "batch_size": 64, "n_epochs": 10}
NORMALISED = {"normalize_obs": True, "normalize_reward": True}
BARE_STEPS = 20_000
MILLION = 1_000_000
# what the breakdown times: part -> method of the agent
PARTS = {
    "collect": "collect_rollout",
    "estimate": "experience",
    "dual": "_plan",
    "update": "_move",
    "region": "_return_to_region",
}
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

    def build(self, env_id: str) -> Any:
        """The agent, untrained."""
        return agent_for(self.agent.split()[0], env_id, finite=False).build(
            env_id, self.settings, seed=0
        )


def contenders(names: Sequence[str], env_id: str) -> list[Contender]:
    """Every agent with its own settings and with the matched ones; OT-TRPO always takes part.

    Ours normalises observations and rewards in both; PPO, which does not by itself, takes part a
    third time to show what that costs.

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
        found.append(Contender(agent=name, way="matched", settings=matched))
        found.append(Contender(agent=name, way="own", settings=own))
        if name == "ppo":
            both = matched | NORMALISED
            found.append(Contender(agent="ppo normalised", way="matched", settings=both))
    return found


def speed(agent: Any, steps: int) -> float:
    """Steps per second over at least ``steps`` steps and one update."""
    before = agent.num_timesteps
    began = time.perf_counter()
    agent.learn(steps, reset_num_timesteps=False)
    return float((agent.num_timesteps - before) / (time.perf_counter() - began))


def compare(env_id: str, names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Steps per second of everybody, and what follows from them."""
    taking_part = contenders(names, env_id)
    agents = []
    for contender in taking_part:
        _tell(f"{env_id}: starting {contender.agent} ({contender.way})")
        agents.append(contender.build(env_id))
        agents[-1].learn(1)  # a whole update: what is compiled is compiled here
    measured: list[list[float]] = [[] for _ in agents]
    bare = []
    for turn in range(rounds):
        _tell(f"{env_id}: round {turn + 1} of {rounds}")
        bare.append(1 / step_seconds(env_id, BARE_STEPS))
        for agent, speeds in zip(agents, measured, strict=True):
            speeds.append(speed(agent, WORK["n_steps"]))
    by_way: dict[str, dict[str, list[float]]] = {"matched": {}, "own": {}}
    for contender, speeds in zip(taking_part, measured, strict=True):
        by_way[contender.way][contender.agent] = speeds
    return {
        "environment": env_id,
        "steps_per_second": {
            way: {name: statistics.median(speeds) for name, speeds in them.items()}
            for way, them in by_way.items()
        },
        "bare_loop": statistics.median(bare),
        "relative_time": {way: _relative(them) for way, them in by_way.items()},
        "share_of_bare_loop": statistics.median(by_way["matched"][REFERENCE])
        / statistics.median(bare),
        "microseconds_per_step": breakdown(agents[0], updates=2 * rounds),
    }


def _relative(speeds: dict[str, list[float]]) -> dict[str, float]:
    """Time per step over OT-TRPO's, round by round: how many times faster ours is."""
    return {
        name: statistics.median(
            ours / theirs for ours, theirs in zip(speeds[REFERENCE], values, strict=True)
        )
        for name, values in speeds.items()
    }


def breakdown(agent: Any, updates: int) -> dict[str, float]:
    """Microseconds per step by part: environment, acting and buffers make up the collecting."""
    spent: dict[str, float] = {}
    env = agent.get_env().envs[0]
    kept = {}
    for part, method in PARTS.items():
        kept[method] = getattr(agent, method)
        setattr(agent, method, _timed(kept[method], part, spent))
    step = env.step
    env.step = _timed(step, "environment", spent)
    began = time.perf_counter()
    steps = updates * WORK["n_steps"]
    agent.learn(steps, reset_num_timesteps=False)
    total = time.perf_counter() - began
    env.step = step
    for method, function in kept.items():
        setattr(agent, method, function)
    acting = _acting_seconds(agent) * steps
    collecting = spent.pop("collect")
    named = sum(spent.values()) - spent["environment"]
    parts = {
        "environment": spent["environment"],
        "acting": acting,
        "buffers": max(collecting - spent["environment"] - acting, 0.0),
        **{part: spent[part] for part in ("estimate", "dual", "update", "region")},
        "rest": total - collecting - named,
    }
    return {part: seconds / steps * 1e6 for part, seconds in parts.items()}


def _acting_seconds(agent: Any, calls: int = 5000) -> float:
    """Seconds of one policy evaluation; timed apart, as a clock per call would cost as much."""
    from ottrpo.deep.acting import actor_for

    actor = actor_for(
        agent.learner.networks.policy,
        agent.observation_normaliser,
        agent.actions,
        steps=1,
        rows=1,
        rng=np.random.default_rng(0),
    )
    observation = np.zeros((1, agent.layout.features))
    began = time.perf_counter()
    for _ in range(calls):
        actor.act(0, observation)
    return (time.perf_counter() - began) / calls


def first_update(rounds: int) -> dict[str, float]:
    """Seconds from the start of the process to the end of the first update on Hopper."""
    measured: dict[str, list[float]] = {name: [] for name in (*FIRST_UPDATE, "ottrpo, cold cache")}
    for turn in range(rounds):
        _tell(f"first update: round {turn + 1} of {rounds}")
        for name, code in FIRST_UPDATE.items():
            measured[name].append(_process_seconds(code, {}))
        with tempfile.TemporaryDirectory() as folder:
            cold = _process_seconds(FIRST_UPDATE["ottrpo"], {"OTTRPO_CACHE": folder})
        measured["ottrpo, cold cache"].append(cold)
    return {name: statistics.median(values) for name, values in measured.items()}


def _process_seconds(code: str, variables: dict[str, str]) -> float:
    work = f"{code}\nAgent('MlpPolicy', 'Hopper-v5', seed=0, **keywords, **{WORK!r}).learn(2048)"
    variables = {"OMP_NUM_THREADS": "1"} | variables  # torch is slower with more
    began = time.perf_counter()
    subprocess.run(  # our own code, in a fresh interpreter
        [sys.executable, "-W", "ignore", "-c", work], check=True, env=os.environ | variables
    )
    return time.perf_counter() - began


def memory_growth(updates: int) -> dict[str, float]:
    """Resident megabytes after the first updates and after many more."""
    from ottrpo import OTTRPO

    _tell(f"memory: {updates} updates")
    agent = OTTRPO("MlpPolicy", "MountainCarContinuous-v0", **WORK, seed=0)
    agent.learn(5 * WORK["n_steps"])
    first = _resident_megabytes()
    agent.learn(updates * WORK["n_steps"], reset_num_timesteps=False)
    last = _resident_megabytes()
    return {"updates": updates, "after_5": first, "after_all": last, "growth": last - first}


def _resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _timed(function: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    spent[part] = 0.0

    def timed(*arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments, **keywords)
        spent[part] += time.perf_counter() - began
        return result

    return timed


def _tell(line: str) -> None:
    """Where a long benchmark is; what it found goes to the standard output."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] = ()) -> int:
    """Print the tables; ``--json`` prints the figures for machines."""
    parser = argparse.ArgumentParser(prog="ottrpo bench train", description=__doc__)
    parser.add_argument("--agents", default=",".join(AGENTS), help="names with commas between")
    parser.add_argument("--envs", nargs="+", default=list(ENVIRONMENTS), metavar="ENV")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each agent")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="one round, no start-up or memory")
    options = parser.parse_args(list(arguments))
    names = [name for name in options.agents.split(",") if name]
    rounds = 1 if options.quick else options.rounds
    try:
        for env_id in options.envs:
            contenders(names, env_id)
    except ValueError as error:
        parser.error(str(error))
    import torch

    torch.set_num_threads(1)
    figures: dict[str, Any] = {"work": WORK, "rounds": rounds}
    figures["training"] = [compare(env_id, names, rounds) for env_id in options.envs]
    if not options.quick:
        figures["first_update_seconds"] = first_update(min(rounds, 3))
        figures["memory"] = memory_growth(updates=100)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        _print_tables(figures)
    return 0


def _print_tables(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    times = Table(title="seconds per million steps (times OT-TRPO's)")
    for column in ("environment", "agent", "matched", "own configuration"):
        times.add_column(column, justify="left" if column == "agent" else "right")
    parts = Table(title="OT-TRPO at matched settings, microseconds per step")
    for row in figures["training"]:
        for name in row["steps_per_second"]["matched"]:
            times.add_row(
                row["environment"], name, *(_cell(row, w, name) for w in ("matched", "own"))
            )
        if not parts.columns:
            for column in ("", *row["microseconds_per_step"]):
                parts.add_column(column, justify="right")
        cells = (f"{v:.1f}" for v in row["microseconds_per_step"].values())
        parts.add_row(row["environment"], *cells)
    console.print(times)
    console.print(parts)
    for row in figures["training"]:
        share = f"{row['share_of_bare_loop']:.0%}"
        console.print(f"{row['environment']}: OT-TRPO trains at {share} of the speed of env.step")
    for name, seconds in figures.get("first_update_seconds", {}).items():
        console.print(f"first update on Hopper, {name}: {seconds:.1f} s from the process's start")
    if "memory" in figures:
        memory = figures["memory"]
        console.print(
            f"memory over {memory['updates']} updates: {memory['after_5']:.0f} MB, then "
            f"{memory['after_all']:.0f} MB"
        )


def _cell(row: dict[str, Any], way: str, name: str) -> str:
    if name not in row["steps_per_second"][way]:
        return ""
    seconds = MILLION / row["steps_per_second"][way][name]
    return f"{math.ceil(seconds):,} s ({row['relative_time'][way][name]:.2f})"
