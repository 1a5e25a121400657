"""Environments one after the other in this process, without SB3's copies of copies."""

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv

Array = Any


class LeanVecEnv(DummyVecEnv):
    """SB3's `DummyVecEnv`, but what environments say is handed on rather than copied deeply.

    Rewards are float64, as environments give them.
    """

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Step the environments; those whose episode ended start a new one."""
        reward = np.empty(self.num_envs)
        done = np.empty(self.num_envs, np.bool_)
        infos = []
        for i, env in enumerate(self.envs):
            observation, reward[i], terminated, truncated, info = env.step(self.actions[i])
            done[i] = terminated or truncated
            info["TimeLimit.truncated"] = bool(truncated and not terminated)
            if done[i]:
                info["terminal_observation"] = observation
                observation, self.reset_infos[i] = env.reset()
            self._save_obs(i, observation)
            infos.append(info)
        return self._obs_from_buf(), reward, done, infos
