"""Training speed beside Stable-Baselines3's PPO and sb3-contrib's TRPO, in turns in one process.

All agents take the same steps per update, epochs, batch size and networks, in one environment;
ours normalises observations and rewards, PPO is measured with and without. Each figure is the
median over rounds in which everybody trains once, so a busy machine slows all alike. The bare
loop steps the environment with random actions and does nothing else.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

ENVIRONMENTS = ("Hopper-v5", "Swimmer-v5", "HalfCheetah-v5", "MountainCarContinuous-v0")
WORK: dict[str, Any] = {"n_steps": 2048, "batch_size": 64, "n_epochs": 10}
BARE_STEPS = 20_000
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


def bare_loop(env_id: str) -> float:
    """Steps per second of the environment alone."""
    env = gym.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(BARE_STEPS)]
    began = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    seconds = time.perf_counter() - began
    env.close()
    return BARE_STEPS / seconds


def contenders(env_id: str) -> dict[str, Any]:
    """The agents, built and warm: each has done its first update."""
    import torch
    from sb3_contrib import TRPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    from ottrpo import OTTRPO

    torch.set_num_threads(1)
    common: dict[str, Any] = {"n_steps": WORK["n_steps"], "batch_size": WORK["batch_size"]}
    normalised = VecNormalize(make_vec_env(env_id, 1))
    agents: dict[str, Any] = {
        "ottrpo": OTTRPO("MlpPolicy", env_id, **WORK, seed=0),
        "ppo": PPO("MlpPolicy", env_id, **WORK, seed=0, device="cpu"),
        "ppo normalised": PPO("MlpPolicy", normalised, **WORK, seed=0, device="cpu"),
        "trpo": TRPO("MlpPolicy", env_id, **common, seed=0, device="cpu"),
    }
    for agent in agents.values():
        agent.learn(WORK["n_steps"])
    return agents


def speed(agent: Any, updates: int) -> float:
    """Steps per second over ``updates`` updates."""
    steps: int = updates * WORK["n_steps"]
    began = time.perf_counter()
    agent.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - began)


def compare(env_id: str, rounds: int) -> dict[str, Any]:
    """Steps per second of everybody, and what follows from them."""
    agents = contenders(env_id)
    measured: dict[str, list[float]] = {name: [] for name in ("bare loop", *agents)}
    for _ in range(rounds):
        measured["bare loop"].append(bare_loop(env_id))
        for name, agent in agents.items():
            measured[name].append(speed(agent, updates=2 if name == "ottrpo" else 1))
    median = {name: statistics.median(values) for name, values in measured.items()}
    return {
        "environment": env_id,
        "steps_per_second": median,
        "times_faster": {
            name: statistics.median(
                ours / theirs
                for ours, theirs in zip(measured["ottrpo"], measured[name], strict=True)
            )
            for name in agents
            if name != "ottrpo"
        },
        "share_of_bare_loop": median["ottrpo"] / median["bare loop"],
        "microseconds_per_step": breakdown(agents["ottrpo"], updates=2 * rounds),
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
    for _ in range(rounds):
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


def main(arguments: Sequence[str] = ()) -> int:
    """Print the tables; ``--json`` prints the figures for machines."""
    parser = argparse.ArgumentParser(prog="ottrpo bench train", description=__doc__)
    parser.add_argument("environments", nargs="*", default=list(ENVIRONMENTS))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each agent")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="one round, no start-up or memory")
    options = parser.parse_args(list(arguments))
    rounds = 1 if options.quick else options.rounds
    figures: dict[str, Any] = {"work": WORK, "rounds": rounds}
    figures["training"] = [compare(env_id, rounds) for env_id in options.environments]
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
    speeds = Table(title="training, steps per second (times ours is faster)")
    parts = Table(title="ours, microseconds per step")
    for i, row in enumerate(figures["training"]):
        if i == 0:
            for column in ("environment", *row["steps_per_second"], "share of bare loop"):
                speeds.add_column(column, justify="right")
            for column in ("environment", *row["microseconds_per_step"]):
                parts.add_column(column, justify="right")
        cells = []
        for name, value in row["steps_per_second"].items():
            times = row["times_faster"].get(name)
            cells.append(f"{value:,.0f}" + ("" if times is None else f" ({times:.1f}x)"))
        speeds.add_row(row["environment"], *cells, f"{row['share_of_bare_loop']:.0%}")
        parts.add_row(
            row["environment"], *(f"{v:.1f}" for v in row["microseconds_per_step"].values())
        )
    console.print(speeds)
    console.print(parts)
    for name, seconds in figures.get("first_update_seconds", {}).items():
        console.print(f"first update on Hopper, {name}: {seconds:.1f} s from the process's start")
    if "memory" in figures:
        memory = figures["memory"]
        console.print(
            f"memory over {memory['updates']} updates: {memory['after_5']:.0f} MB, then "
            f"{memory['after_all']:.0f} MB"
        )
