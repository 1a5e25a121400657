"""Environments for runs that are killed: `gym.make("killed_environments:NAME")` imports this."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ottrpo.envs.toys import Match


class Drifting(gym.Env):
    """Nothing is known about it: it can't be captured, so its runs are cut into segments."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._own = np.random.default_rng(seed)
        self._position = self._own.normal()
        return self._seen(), {}

    def step(self, action):
        self._position += float(action[0]) + 0.1 * self._own.normal()
        return self._seen(), -abs(self._position), abs(self._position) > 5, False, {}

    def _seen(self):
        return np.array([self._position, 1.0], np.float32)


gym.register("Drifting-v0", Drifting, max_episode_steps=100)
gym.register("Dictionary-v0", Match, kwargs={"observations": "dict"})
