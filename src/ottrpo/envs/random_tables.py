"""Finite problems that nobody chose: slippery lakes and decision processes drawn by number.

Importing this module registers ``ottrpo/RandomLake0-v0``, ``ottrpo/RandomLake1-v0``, ... and
``ottrpo/RandomMDP0-v0``, ... with Gymnasium. A number is always the same problem; all of them carry
their transition table, as Gymnasium's own finite problems do.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map
from gymnasium.envs.toy_text.utils import categorical_sample

NUMBERS = 500  # of each kind
SIZES = (5, 6, 7, 8, 9, 10)
MDP_STEPS = 100


def random_lake(number: int, render_mode: str | None = None) -> FrozenLakeEnv:
    """A slippery lake of 5x5 to 10x10 fields, four fifths of them frozen, as Gymnasium draws it."""
    desc = generate_random_map(size=SIZES[number % len(SIZES)], seed=number)
    return FrozenLakeEnv(render_mode=render_mode, desc=desc, is_slippery=True)


class RandomMDP(gym.Env[Any, Any]):
    """5 to 40 states, 2 to 5 actions, up to five outcomes of each, rewards of either sign.

    Every third has a state that ends the episode; the others go on to the time limit.

    Args:
        number: which one.
    """

    def __init__(self, number: int) -> None:
        rng = np.random.default_rng([number, 0x4D4450])
        n_states, n_actions = int(rng.integers(5, 41)), int(rng.integers(2, 6))
        outcomes = int(rng.integers(1, 6))
        ends = n_states - 1 if number % 3 == 0 else -1

        def row() -> list[tuple[float, int, float, bool]]:
            chance_o = rng.dirichlet(np.ones(outcomes))
            after_o = rng.choice(n_states, outcomes, replace=False)
            reward = float(rng.standard_normal())
            return [
                (float(p), int(s), reward, int(s) == ends)
                for p, s in zip(chance_o, after_o, strict=True)
            ]

        self.P = {s: {a: row() for a in range(n_actions)} for s in range(n_states)}
        self.initial_state_distrib = np.eye(n_states)[0]
        self.observation_space = spaces.Discrete(n_states)
        self.action_space = spaces.Discrete(n_actions)
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._state = int(categorical_sample(self.initial_state_distrib, self.np_random))
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw one of the outcomes."""
        outcomes = self.P[self._state][int(action)]
        drawn = categorical_sample([outcome[0] for outcome in outcomes], self.np_random)
        _, self._state, reward, terminated = outcomes[drawn]
        return self._state, reward, terminated, False, {}


for _number in range(NUMBERS):
    _fields = SIZES[_number % len(SIZES)] ** 2
    for _kind, _entry, _steps in (
        ("RandomLake", random_lake, 4 * _fields),
        ("RandomMDP", RandomMDP, MDP_STEPS),
    ):
        if f"ottrpo/{_kind}{_number}-v0" not in gym.registry:
            gym.register(
                id=f"ottrpo/{_kind}{_number}-v0",
                entry_point=f"{__name__}:{_entry.__name__}",
                max_episode_steps=_steps,
                kwargs={"number": _number},
            )
