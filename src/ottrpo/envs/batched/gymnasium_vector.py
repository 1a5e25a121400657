"""Batched environments as Gymnasium knows vector environments."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from .environments import Environments, Step
from .task import Array, Columns, Task


class BatchedVectorEnv(VectorEnv[Array, Array, Array]):
    """Environments of one task, stepped in one call, with Gymnasium's `VectorEnv` interface.

    An episode that ends starts anew in the same step, as with `SyncVectorEnv` in the mode
    ``AutoresetMode.SAME_STEP``: ``infos["final_obs"]`` and ``infos["final_info"]`` tell its end.
    """

    def __init__(self, task: Task, n_envs: int, threads: int, seed: int | None = None) -> None:
        self.task = task
        self.environments = Environments(task, n_envs, threads)
        self.num_envs = n_envs
        self.spec = task.spec
        self.render_mode = task.render_mode
        self.metadata = {
            **getattr(task.shown, "metadata", {}),
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.single_observation_space = self.environments.observation_space
        self.single_action_space = task.action_space
        self.observation_space = batch_space(self.single_observation_space, n_envs)
        self.action_space = batch_space(self.single_action_space, n_envs)
        self._seed = seed

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start all episodes anew; the seeds are as in Gymnasium's, by default those given."""
        seed, self._seed = self._seed if seed is None else seed, None
        if seed is None or isinstance(seed, int):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"there are {self.num_envs} environments, got {len(seed)} seeds")
        observation, info = self.environments.reset(seed)
        return observation, _told(info, np.ones(self.num_envs, np.bool_))

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step all environments."""
        step = self.environments.step(actions)
        flags = (step.terminated, step.truncated)
        return step.observation, step.reward, *flags, _all_told(step)

    def render(self) -> tuple[Any, ...]:
        """A picture of each environment."""
        pictures = []
        for i in range(self.num_envs):
            self.environments.show(i)
            pictures.append(self.task.shown.render())
        return tuple(pictures)

    def close_extras(self, **kwargs: Any) -> None:
        """Close what draws the pictures."""
        self.task.shown.close()


def _all_told(step: Step) -> dict[str, Any]:
    """What there is to say of the step, and of the episodes that ended."""
    if not step.ended.size:
        return _told(step.info, ~step.terminated)
    ended = step.terminated | step.truncated
    told: dict[str, Any] = {}
    final = np.full(len(ended), None, dtype=object)
    for k, i in enumerate(step.ended.tolist()):
        final[i] = step.final[k]
    told |= {"final_obs": final, "_final_obs": ended}
    told |= {"final_info": _told(step.info, ended), "_final_info": ended.copy()}
    told |= _told(step.info, ~ended)
    for name, column in step.restart.items():  # of the new episodes where there is one
        told.setdefault(name, np.zeros((len(ended), *column.shape[1:]), column.dtype))
        told[name][step.ended] = column
        told[f"_{name}"] = told.get(f"_{name}", np.zeros_like(ended)) | ended
    return told


def _told(columns: Columns, of: Array) -> dict[str, Any]:
    """Columns, and whose entries in them count; the others are zero."""
    told: dict[str, Any] = {}
    for name, column in columns.items() if of.any() else ():
        kept = column.copy()
        kept[~of] = 0
        told |= {name: kept, f"_{name}": of.copy()}
    return told
