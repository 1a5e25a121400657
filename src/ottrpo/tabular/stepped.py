"""Environments without a transition table, played by stepping them: slower, same interface."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
import numpy as np

from ottrpo.core.checks import Bools, Floats, require
from ottrpo.persistence.environments import capture_layers, restore_layers, why_not_exact

from . import kernels
from .problem import Problem, Trajectories, no_mask, refuse_empty_mask, streams, within_mask


@final
@dataclass(frozen=True, eq=False)
class SteppedProblem(Problem):
    """Any environment with Discrete observations and actions, played by stepping it.

    Attributes:
        make: gives a fresh environment; every simulator has its own.
    """

    make: Callable[[], gym.Env[Any, Any]]

    def simulator(
        self, seed: int | np.random.SeedSequence, *, masks: bool = False
    ) -> "SteppingSimulator":
        """A simulator that steps a fresh environment."""
        return SteppingSimulator(self, seed, masks=masks)


@final
class SteppingSimulator:
    """Plays a `SteppedProblem`, one ``env.step`` at a time.

    Masks are learnt as ``info["action_mask"]`` shows them: a state never seen allows everything.

    Args:
        problem: the problem.
        seed: seeds the environment and the policy's stream.
        masks: whether ``info["action_mask"]`` counts.
    """

    def __init__(
        self, problem: SteppedProblem, seed: int | np.random.SeedSequence, *, masks: bool = False
    ) -> None:
        self._problem = problem
        self._env = problem.make()
        spaces: Any = (self._env.observation_space, self._env.action_space)  # both Discrete
        self._first_state, self._first_action = (int(space.start) for space in spaces)
        shape = (problem.n_states, problem.n_actions)
        self.allowed_sa: Bools | None = np.ones(shape, dtype=np.bool_) if masks else None
        env_rng, self.action_rng = streams(seed)
        # a plain seed is the environment's own, so that stepping and the table play alike
        self._env_seed: int | None = seed if isinstance(seed, int) else int(env_rng.integers(2**31))

    def rollout(self, policy_sa: Floats, min_episodes: int, min_steps: int) -> Trajectories:
        """Whole episodes until both minima are met."""
        played: list[tuple[int, int, float, int, int]] = []
        episodes = 0
        while episodes < min_episodes or len(played) < min_steps:
            played.extend(self._episode(policy_sa))
            episodes += 1
        columns = zip(*played, strict=True)
        dtypes = (np.int64, np.int64, np.float64, np.int64, np.int8)
        return Trajectories(*(np.array(c, dtype=d) for c, d in zip(columns, dtypes, strict=True)))

    def returns(self, policy_sa: Floats, episodes: int) -> Floats:
        """Undiscounted returns of that many episodes."""
        return np.array(
            [sum(step[2] for step in self._episode(policy_sa)) for _ in range(episodes)]
        )

    def capture(self, arrays: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """The random streams and what can be captured of the environment, between two episodes."""
        layers, reason = capture_layers(self._env, arrays, "environment")
        state = {
            "env_seed": self._env_seed,
            "env": self._env.unwrapped.np_random.bit_generator.state,
            "action": self.action_rng.bit_generator.state,
            "layers": layers,
        }
        return state, reason

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Continue from `capture`."""
        self._env.reset()  # what is restored must be there
        restore_layers(self._env, state["layers"], arrays)
        self._env_seed = state["env_seed"]
        self._env.unwrapped.np_random.bit_generator.state = state["env"]
        self.action_rng.bit_generator.state = state["action"]

    def why_not_exact(self) -> str | None:
        """Why the environment would not go on exactly; ``None`` if it did in a trial."""
        return why_not_exact(self._env)

    def reseed(self, seed: int) -> None:
        """Seed the environment at its next reset."""
        self._env_seed = seed

    def _episode(self, policy_sa: Floats) -> Iterator[tuple[int, int, float, int, int]]:
        observation, info = self._env.reset(seed=self._env_seed)
        self._env_seed = None  # seeded once; later resets continue the environment's stream
        state = self._state(observation)
        for played in range(1, self._problem.step_cap + 1):
            action = self._choose(policy_sa, state, info)
            observation, reward, terminated, truncated, info = self._env.step(
                action + self._first_action
            )
            after = self._state(observation)
            ending = kernels.RUNNING
            if terminated:
                ending = kernels.TERMINATED
            elif truncated or played == self._problem.step_cap:
                ending = kernels.TRUNCATED
            yield state, action, float(reward), after, ending
            if ending != kernels.RUNNING:
                return
            state = after

    def _state(self, observation: Any) -> int:
        """The number of a state; -1 would be the last one to an array, and 2.7 the one at 2."""
        state = observation - self._first_state
        if not (0 <= state < self._problem.n_states and state == int(state)):
            raise ValueError(
                f"{self._problem.name} returned the observation {observation!r}, which is not in "
                f"its space of {self._problem.n_states} states from {self._first_state} on"
            )
        return int(state)

    def _choose(self, policy_sa: Floats, state: int, info: Mapping[str, Any]) -> int:
        chance_a = policy_sa[state]
        if self.allowed_sa is not None:
            require("action_mask" in info, no_mask(self._problem.name))
            self.allowed_sa[state] = np.asarray(info["action_mask"], dtype=np.bool_)
            refuse_empty_mask(self.allowed_sa[state][None], first_state=state)
            chance_a = within_mask(chance_a[None], self.allowed_sa[state][None])[0]
        return int(kernels.sample_action(chance_a[None], 0, self.action_rng.random()))
