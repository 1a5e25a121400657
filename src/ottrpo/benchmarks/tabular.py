"""Finite problems: our training beside a loop over Gymnasium, measured side by side in one run.

Three questions. How much faster is training than the same algorithm written as a loop over
``env.step`` (the two end with the same policy, bit for bit)? Do 30 seeds of Taxi at 4M steps take
less time than Gymnasium needs for 1M steps of a random policy? And how does the cost of an update
grow with the numbers of states and actions?
"""

import argparse
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from ottrpo.core import Binary, Cost, TableCost, update_policy
from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.tabular import TabularOTTRPO
from ottrpo.tabular.problem import streams

ENVIRONMENTS = {
    "CliffWalking-v1": {"radius": 0.05, "steps_per_update": 8_000},
    "Taxi-v4": {"discount": 0.9, "steps_per_update": 16_000},
}
TRAINING_STEPS = {"CliffWalking-v1": 200_000, "Taxi-v4": 1_000_000}
SEEDS = 30
SEED_STEPS = 4_000_000
RANDOM_STEPS = 1_000_000
STATES = (100, 1_000, 10_000, 100_000, 1_000_000)
ACTIONS = (2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Training:
    """Seconds of the same training, compiled and as a loop over Gymnasium."""

    environment: str
    steps: int
    ours: float
    loop: float
    ratio: float


@dataclass(frozen=True)
class Seeds:
    """Seconds of many seeds, and of a random policy in Gymnasium."""

    seeds: int
    steps: int
    ours: float
    random_policy_steps: int
    random_policy: float
    ratio: float


@dataclass(frozen=True)
class Growth:
    """Seconds of one update, and how they grew.

    Attributes:
        cost: which kind.
        states: S.
        actions: A.
        seconds: of one update.
        per_entry: seconds / (S A²); it settles where memory, not overhead, is what counts.
        exponent: growth exponent since the smallest size of the series.
    """

    cost: str
    states: int
    actions: int
    seconds: float
    per_entry: float
    exponent: float | None


def train_by_loop(
    environment: str, steps: int, seed: int, discount: float, radius: float, steps_per_update: int
) -> Floats:
    """`TabularOTTRPO` with its default estimator as a loop over ``env.step``; returns the policy.

    Written with plain lists, which such loops are fastest with, and with the agent's own random
    streams, so that it must arrive at the same policy.
    """
    env: Any = catalogue.make(environment)
    n_states, n_actions = int(env.observation_space.n), int(env.action_space.n)
    learning_rate = 0.5
    _, action_rng = streams(seed)
    policy_sa = np.full((n_states, n_actions), 1.0 / n_actions)
    q_sa = [[0.0] * n_actions for _ in range(n_states)]
    done_steps = 0
    env_seed: int | None = seed
    while done_steps < steps:
        cumulative_sa = np.cumsum(policy_sa, axis=1).tolist()
        batch: list[tuple[int, int, float, int, bool]] = []
        while len(batch) < min(steps_per_update, steps - done_steps):
            state, _ = env.reset(seed=env_seed)
            env_seed = None
            ended = False
            while not ended:
                action = bisect_right(cumulative_sa[state], action_rng.random())
                after, reward, terminated, truncated, _ = env.step(action)
                batch.append((state, action, reward, after, terminated))
                state, ended = after, terminated or truncated
        for state, action, reward, after, terminated in reversed(batch):
            target = reward + discount * (0.0 if terminated else max(q_sa[after]))
            q_sa[state][action] = (1.0 - learning_rate) * q_sa[state][action] + (
                learning_rate * target
            )
        visits = np.bincount([step[0] for step in batch], minlength=n_states).astype(float)
        update = update_policy(policy_sa, visits / visits.sum(), q_sa, Binary(), radius)
        policy_sa = update.policy_sa
        done_steps += len(batch)
    return policy_sa


def compare_training(environment: str, steps: int) -> Training:
    """The best times of both ways to the same policy, taken in turns."""
    settings: dict[str, Any] = {"discount": 0.99, "radius": 0.02, **ENVIRONMENTS[environment]}

    def ours() -> Floats:
        return TabularOTTRPO(environment, seed=0, **settings).learn(steps).policy_sa

    ours()  # compiles, or loads what was compiled before
    loops, times, policies = [], [], []
    for _ in range(2):
        times += [_timed(ours)[0] for _ in range(5)]
        seconds, policy_sa = _timed(lambda: train_by_loop(environment, steps, 0, **settings))
        loops.append(seconds)
        policies.append(policy_sa)
    times += [_timed(ours)[0] for _ in range(5)]
    if not np.array_equal(policies[0], ours()):
        raise RuntimeError("the loop and the agent disagree: they do not run the same algorithm")
    best, loop = min(times), min(loops)
    return Training(environment, steps, best, loop, loop / best)


def many_seeds(seeds: int, steps: int, random_steps: int) -> Seeds:
    """Train Taxi with many seeds, one after another, and step a random policy in Gymnasium.

    The random policy is timed in two halves around ours, so that a busy machine slows both.
    """
    half = _random_policy(random_steps // 2)

    def train() -> None:
        for seed in range(seeds):
            TabularOTTRPO("Taxi-v4", seed=seed, **ENVIRONMENTS["Taxi-v4"]).learn(steps)

    ours, _ = _timed(train)
    theirs = half + _random_policy(random_steps - random_steps // 2)
    return Seeds(seeds, steps, ours, random_steps, theirs, theirs / ours)


def growth(states: Sequence[int], actions: Sequence[int]) -> list[Growth]:
    """Time one update of a random policy over growing tables, for both kinds of cost."""
    measured: list[Growth] = []
    for kind in ("binary", "general"):
        for sizes in ([(s, 4) for s in states], [(250, a) for a in actions]):
            first: Growth | None = None
            for n_states, n_actions in sizes:
                seconds = _update_seconds(n_states, n_actions, kind)
                exponent = None
                if first is not None:
                    larger = n_states * n_actions / (first.states * first.actions)
                    exponent = float(np.log(seconds / first.seconds) / np.log(larger))
                per_entry = seconds / (n_states * n_actions**2)
                measured.append(Growth(kind, n_states, n_actions, seconds, per_entry, exponent))
                first = first or measured[-1]
    return measured


def _update_seconds(n_states: int, n_actions: int, kind: str) -> float:
    rng = np.random.default_rng(0)
    policy_sa = rng.dirichlet(np.ones(n_actions), size=n_states)
    occupancy_s = rng.dirichlet(np.ones(n_states))
    gain_sa = rng.standard_normal((n_states, n_actions))
    cost: Cost = Binary()
    if kind == "general":
        cost = TableCost(rng.uniform(0.5, 1.5, (n_actions, n_actions)) * (1 - np.eye(n_actions)))
    best = np.inf
    end = time.perf_counter() + 0.3
    rounds = 0
    while rounds < 4 or time.perf_counter() < end:
        seconds, _ = _timed(lambda: update_policy(policy_sa, occupancy_s, gain_sa, cost, 0.01))
        best = min(best, seconds)
        rounds += 1
    return float(best)


def _random_policy(steps: int) -> float:
    env = gym.make("Taxi-v4")
    env.action_space.seed(0)

    def play() -> None:
        env.reset(seed=0)
        for _ in range(steps):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return _timed(play)[0]


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def main(arguments: Sequence[str] = ()) -> int:
    """Print the tables; ``--json`` prints the figures for machines."""
    parser = argparse.ArgumentParser(prog="ottrpo bench tabular", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options = parser.parse_args(list(arguments))
    scale = 10 if options.quick else 1
    training = [compare_training(name, TRAINING_STEPS[name] // scale) for name in ENVIRONMENTS]
    seeds = many_seeds(SEEDS // scale, SEED_STEPS, RANDOM_STEPS // scale)
    grown = growth(
        STATES[:3] if options.quick else STATES, ACTIONS[:5] if options.quick else ACTIONS
    )
    if options.json:
        figures = {
            "training": [asdict(t) for t in training],
            "seeds": asdict(seeds),
            "growth": [asdict(g) for g in grown],
        }
        print(json.dumps(figures, indent=2))
    else:
        _print_tables(training, seeds, grown)
    return 0


def _print_tables(training: Sequence[Training], seeds: Seeds, grown: Sequence[Growth]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("environment", "steps", "ours", "loop over Gymnasium", "times faster")
    table.title = "the same training, to the same policy"
    for t in training:
        table.add_row(
            t.environment, f"{t.steps:,}", f"{t.ours:.3f} s", f"{t.loop:.2f} s", f"{t.ratio:.0f}"
        )
    console.print(table)
    console.print(
        f"{seeds.seeds} seeds of Taxi at {seeds.steps:,} steps: {seeds.ours:.1f} s; Gymnasium, "
        f"{seeds.random_policy_steps:,} steps of a random policy: {seeds.random_policy:.1f} s "
        f"({seeds.ratio:.2f} times as long)"
    )
    table = Table("cost", "states", "actions", "one update", "per S A²", "exponent since first")
    table.title = "growth of one update with states S and actions A"
    for g in grown:
        exponent = "" if g.exponent is None else f"{g.exponent:.2f}"
        table.add_row(
            g.cost,
            f"{g.states:,}",
            str(g.actions),
            f"{g.seconds * 1e3:.2f} ms",
            f"{g.per_entry * 1e9:.0f} ns",
            exponent,
        )
    console.print(table)
