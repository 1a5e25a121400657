"""Finite problems: our training beside a loop over Gymnasium.

Three questions. How much faster is training than the same algorithm written as a loop over
``env.step`` (the two end with the same policy, bit for bit)? Do 30 seeds of Taxi at 4M steps take
less time than Gymnasium needs for 1M steps of a random policy? And how does the cost of an update
grow with the numbers of states and actions?
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from ottrpo.core import Binary, Cost, TableCost, update_policy
from ottrpo.core.checks import Floats
from ottrpo.envs import catalogue
from ottrpo.tabular import TabularOTTRPO
from ottrpo.tabular.problem import streams

from .harness import Benchmark, Figures, Row, in_turns, play, timed

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


def train_by_loop(
    environment: str, steps: int, seed: int, discount: float, radius: float, steps_per_update: int
) -> Floats:
    """`TabularOTTRPO` with temporal differences as a loop over ``env.step``; returns the policy.

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


def compare_training(environment: str, steps: int) -> Row:
    """The best times of both ways to the same policy, taken in turns."""
    settings: dict[str, Any] = {"discount": 0.99, "radius": 0.02, **ENVIRONMENTS[environment]}

    def ours() -> Floats:
        agent = TabularOTTRPO(environment, seed=0, estimator="td", **settings)
        return agent.learn(steps).policy_sa

    def loop() -> Floats:
        return train_by_loop(environment, steps, 0, **settings)

    if not np.array_equal(ours(), loop()):  # it also compiles, or loads what was compiled before
        raise RuntimeError("the loop and the agent disagree: they do not run the same algorithm")
    taken = in_turns({f"ours {i}": ours for i in range(5)} | {"loop": loop}, seconds=0.0)
    by_loop, best = taken.pop("loop"), min(taken.values())  # ours is over in no time
    row = {"environment": environment, "steps": steps, "ours": best, "loop": by_loop}
    return row | {"ratio": by_loop / best}


def many_seeds(seeds: int, steps: int, random_steps: int) -> Row:
    """Train Taxi with many seeds, one after another, and step a random policy in Gymnasium.

    The random policy is timed in two halves around ours, so that a busy machine slows both.
    """

    def train() -> None:
        for seed in range(seeds):
            settings: dict[str, Any] = {"estimator": "td", **ENVIRONMENTS["Taxi-v4"]}
            TabularOTTRPO("Taxi-v4", seed=seed, **settings).learn(steps)

    half = _random_policy(random_steps // 2)
    ours, _ = timed(train)
    theirs = half + _random_policy(random_steps - random_steps // 2)
    return {
        "seeds": seeds,
        "steps": steps,
        "ours": ours,
        "random_policy_steps": random_steps,
        "random_policy": theirs,
        "ratio": theirs / ours,
    }


def growth(states: Sequence[int], actions: Sequence[int]) -> list[Row]:
    """Time one update of a random policy over growing tables, for both kinds of cost.

    ``per_entry`` is in seconds / (S A²), which settles where memory, not overhead, is what counts;
    ``exponent`` is that of the growth since the smallest size of the series.
    """
    measured: list[Row] = []
    for kind in ("binary", "general"):
        for sizes in ([(s, 4) for s in states], [(250, a) for a in actions]):
            series = [(s, a, _update_seconds(s, a, kind)) for s, a in sizes]
            smallest = series[0][0] * series[0][1]
            for n_states, n_actions, seconds in series:
                larger = n_states * n_actions / smallest
                grown = np.log(seconds / series[0][2])
                exponent = float(grown / np.log(larger)) if larger > 1 else None
                per_entry = seconds / (n_states * n_actions**2)
                size = {"cost": kind, "states": n_states, "actions": n_actions}
                taken = {"seconds": seconds, "per_entry": per_entry, "exponent": exponent}
                measured.append(size | taken)
    return measured


def _update_seconds(n_states: int, n_actions: int, kind: str) -> float:
    rng = np.random.default_rng(0)
    policy_sa = rng.dirichlet(np.ones(n_actions), size=n_states)
    occupancy_s = rng.dirichlet(np.ones(n_states))
    gain_sa = rng.standard_normal((n_states, n_actions))
    cost: Cost = Binary()
    if kind == "general":
        cost = TableCost(rng.uniform(0.5, 1.5, (n_actions, n_actions)) * (1 - np.eye(n_actions)))
    update = partial(update_policy, policy_sa, occupancy_s, gain_sa, cost, 0.01)
    return in_turns({kind: update}, seconds=0.3)[kind]


def _random_policy(steps: int) -> float:
    env = gym.make("Taxi-v4")
    env.action_space.seed(0)
    env.reset(seed=0)
    return timed(lambda: play(env, (env.action_space.sample() for _ in range(steps))))[0]


@dataclass(frozen=True, kw_only=True)
class Tabular(Benchmark):
    """Finite problems: training beside a loop over Gymnasium, many seeds, growing tables."""

    titles: ClassVar = {
        "training": "the same training, to the same policy, seconds",
        "seeds": "many seeds of Taxi, and Gymnasium's steps of a random policy, seconds",
        "growth": "growth of one update with states S and actions A; an entry is one of S A²",
    }

    def measure(self) -> Figures:
        """All three questions; quickly, a tenth of everything."""
        scale = 10 if self.quick else 1
        return {
            "training": [
                compare_training(name, steps // scale) for name, steps in TRAINING_STEPS.items()
            ],
            "seeds": many_seeds(SEEDS // scale, SEED_STEPS, RANDOM_STEPS // scale),
            "growth": growth(STATES[:3], ACTIONS[:5]) if self.quick else growth(STATES, ACTIONS),
        }
