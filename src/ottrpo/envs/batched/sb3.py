"""Batched environments as Stable-Baselines3 knows vector environments."""

import time
from collections.abc import Mapping
from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from .environments import Environments, Step
from .task import Array, Columns, Task

Infos = list[dict[str, Any]]
# what is the same in every environment, and asked for often
_SHARED = ("spec", "render_mode", "metadata", "observation_space", "action_space", "model")


class BatchedVecEnv(VecEnv):
    """Environments of one task, stepped in one call, with SB3's `VecEnv` interface.

    As with `DummyVecEnv`, an episode that ended has its last observation in
    ``info["terminal_observation"]`` and says in ``info["TimeLimit.truncated"]`` whether it was cut
    off; as with `Monitor`, ``info["episode"]`` has its return and length. Rewards are float64, as
    Gymnasium's are.
    """

    def __init__(self, task: Task, n_envs: int, threads: int) -> None:
        self.task = task
        self.environments = Environments(task, n_envs, threads)
        self.threads = threads
        self._action: Array = np.empty(0)
        self._started = time.time()
        super().__init__(n_envs, self.environments.observation_space, task.action_space)

    def reset(self) -> Array:
        """Start all episodes anew."""
        observation, info = self.environments.reset(self._seeds)
        self.reset_infos = _dictionaries(info, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: Array) -> None:
        """Take the actions; they are carried out by `step_wait`."""
        self._action = actions

    def step_wait(self) -> tuple[Array, Array, Array, Infos]:
        """Step all environments."""
        step = self.advance(self._action)
        return step.observation, step.reward, step.terminated | step.truncated, self.told(step)

    def advance(self, action: Array) -> Step:
        """Step all environments, and say nothing of each: `told` and `endings` do."""
        step = self.environments.step(action)
        if step.ended.size:
            infos = _dictionaries(step.restart, len(step.ended))
            for i, info in zip(step.ended.tolist(), infos, strict=True):
                self.reset_infos[i] = info
        return step

    def told(self, step: Step) -> Infos:
        """What there is to say of the step, one dictionary per environment."""
        infos = _dictionaries({**step.info, **_cut_off(step)}, self.num_envs)
        if step.ended.size:
            for i, info in zip(step.ended.tolist(), self.endings(step), strict=True):
                infos[i] = info
        return infos

    def endings(self, step: Step) -> Infos:
        """What there is to say of the episodes that ended, one dictionary for each."""
        columns = {**step.info, **_cut_off(step)}
        infos = _dictionaries({k: v[step.ended] for k, v in columns.items()}, len(step.ended))
        seconds = round(time.time() - self._started, 6)
        for k, info in enumerate(infos):
            length, total = int(step.lengths[k]), float(step.returns[k])
            info["episode"] = {"r": round(total, 6), "l": length, "t": seconds}
            info["terminal_observation"] = step.final[k]
        return infos

    def close(self) -> None:
        """Close what draws the pictures."""
        self.task.shown.close()

    def get_images(self) -> list[Array | None]:
        """A picture of each environment."""
        return self.env_method("render")

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of each environment, which is looked at one after the other."""
        return [self._attribute(attr_name, i) for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Change a setting of all environments."""
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError(
                f"{self.task.name}: one model and one set of settings serve all environments; "
                f"{attr_name!r} can be set for all of them only"
            )
        setattr(self.task.shown.unwrapped, attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        """Call a method of each environment; what it does to the simulation is kept."""
        if method_name in ("reset", "step"):
            raise ValueError(
                f"environments are stepped together: call {method_name}() of the batch"
            )
        results = []
        for i in self._get_indices(indices):
            results.append(self._attribute(method_name, i)(*args, **kwargs))
            self.environments.take_back(i)
        return results

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Whether episodes are monitored (always), or the environment is wrapped so."""
        wrapped = wrapper_class is Monitor or is_wrapped(self.task.shown, wrapper_class)
        return [wrapped for _ in self._get_indices(indices)]

    def capture_state(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        return self.environments.capture()

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what was captured."""
        self.environments.restore(state)

    def _attribute(self, name: str, index: int) -> Any:
        if name not in _SHARED:
            self.environments.show(index)
        value = self.task.shown.get_wrapper_attr(name)
        return copy(value) if value is self.task.data else value


def _cut_off(step: Step) -> Columns:
    return {"TimeLimit.truncated": step.truncated & ~step.terminated}


def _dictionaries(columns: Columns, rows: int) -> Infos:
    """One dictionary per environment."""
    if not columns:
        return [{} for _ in range(rows)]
    # numbers and flags become Python's, which is three times as fast; arrays stay what they are
    values = [c.tolist() if c.ndim == 1 else list(c) for c in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
