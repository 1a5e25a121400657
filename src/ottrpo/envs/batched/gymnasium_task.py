"""Gymnasium's MuJoCo environments as tasks: their settings, models and random draws are theirs."""

from typing import Any

import numpy as np

from .forces import FORCE_FIELDS
from .task import Array, Task


class GymnasiumTask(Task):
    """The task of one of Gymnasium's environments.

    Args:
        env: the environment as `gymnasium.make` gives it. It is asked for its settings and its
            random draws, so that no default stands in two places, and it draws the pictures.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.settings = env.unwrapped
        forces = not FORCE_FIELDS.isdisjoint(self.fields)
        super().__init__(
            self.settings.fullpath if forces else self.settings.model,
            frame_skip=self.settings.frame_skip,
            max_episode_steps=env.spec.max_episode_steps,
            render_mode=env.render_mode,
        )
        self.spec = env.spec
        self.data = self.settings.data
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self._drawn: tuple[Array, Array] = (np.empty(0), np.empty(0))
        self._drawing = _drawing(self)

    @property
    def name(self) -> str:
        """The id."""
        return str(self.env.spec.id)

    @property
    def shown(self) -> Any:
        """Gymnasium's environment."""
        return self.env

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """What Gymnasium's `reset` draws."""
        self.settings._np_random = rng
        self._drawing.reset_model()
        return self._drawn


def _drawing(task: GymnasiumTask) -> Any:
    """The environment, but that setting its state only says which it would be."""

    def note(self: Any, qpos: Array, qvel: Array) -> None:
        task._drawn = (qpos.copy(), qvel.copy())

    kind = type(task.settings)
    names = {"set_state": note, "_get_obs": lambda self: None}
    drawing: Any = object.__new__(type(kind.__name__, (kind,), names))
    drawing.__dict__ = task.settings.__dict__
    return drawing
