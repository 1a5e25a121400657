"""What a task is: a MuJoCo model, and functions of many simulations of it at once."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
from numpy.typing import NDArray

from .forces import FORCE_FIELDS, with_forces

Array = NDArray[Any]
Columns = Mapping[str, Array]  # one entry per environment
# MjData's fields, [n, ...] each; `qpos`, `qvel`, `act`, `ctrl`, `time` and what a task asks for
Fields = Any


class Outcome(NamedTuple):
    """What a step brought.

    Attributes:
        reward: [n].
        terminated: the episode is over for good, [n].
        info: what else there is to say, [n, ...] each.
    """

    reward: Array
    terminated: Array
    info: Columns


class Task(ABC):
    """A task of one's own: an MJCF, and observations and rewards for all simulations at once.

    Args:
        mjcf: the model, a file or its text; a compiled model if no forces on bodies are read.
        frame_skip: steps of the simulation in a step of the environment.
        max_episode_steps: where episodes are cut off; ``None`` for nowhere.
        render_mode: how to draw pictures, as Gymnasium names it; ``None`` for not at all.

    Attributes:
        fields: what `observe`, `score` and `remember` read of MjData beside the state. As in
            Gymnasium they are of the last simulated step, so one step of the simulation behind
            `qpos` and `qvel`.
        model: the MjModel.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    spec: gym.envs.registration.EnvSpec | None = None

    def __init__(
        self,
        mjcf: str | Path | mujoco.MjModel,
        *,
        frame_skip: int = 1,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        forces = not FORCE_FIELDS.isdisjoint(self.fields)
        self.model = _load(mjcf, forces=forces)
        self.data = mujoco.MjData(self.model)
        self.frame_skip = frame_skip
        self.max_episode_steps = max_episode_steps
        self.render_mode = render_mode
        self._renderer: Any = None
        low, high = self.model.actuator_ctrlrange.copy().astype(np.float32).T
        self.observation_space: gym.spaces.Space[Any] | None = None  # as `observe` has it
        self.action_space: gym.spaces.Space[Any] = gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return type(self).__name__

    @property
    def dt(self) -> float:
        """Simulated seconds in a step of the environment."""
        return float(self.model.opt.timestep * self.frame_skip)

    @abstractmethod
    def observe(self, s: Fields) -> Array:
        """Observations [n, d]."""

    @abstractmethod
    def score(self, s: Fields, before: Any, action: Array) -> Outcome:
        """What the step from ``before`` to ``s`` brought."""

    def remember(self, s: Fields) -> Array | None:
        """What `score` needs to know of the state before the step; a copy, [n, ...]."""
        return None

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Positions and velocities in which an episode starts; the model's own by default."""
        return self.model.qpos0, np.zeros(self.model.nv)

    def whereabouts(self, s: Fields) -> Columns:
        """What to say at the start of an episode."""
        return {}

    @property
    def shown(self) -> Any:
        """What answers for an environment whose state was put into `data`."""
        return self

    @property
    def unwrapped(self) -> "Task":
        """The task itself."""
        return self

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute; there are no wrappers."""
        return getattr(self, name)

    def render(self) -> Any:
        """A picture of what is in `data`."""
        if self._renderer is None:
            self._renderer = MujocoRenderer(self.model, self.data)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Close what draws the pictures."""
        if self._renderer is not None:
            self._renderer.close()


def _load(mjcf: str | Path | mujoco.MjModel, *, forces: bool) -> mujoco.MjModel:
    """The model, which computes forces on bodies if it is to.

    Raises:
        ValueError: if MuJoCo does not take it.
    """
    if isinstance(mjcf, mujoco.MjModel):
        return mjcf
    text = isinstance(mjcf, str) and mjcf.lstrip().startswith("<")
    try:
        if forces:
            spec = mujoco.MjSpec.from_string(mjcf) if text else mujoco.MjSpec.from_file(str(mjcf))
            return with_forces(spec)
        if text:
            return mujoco.MjModel.from_xml_string(mjcf)
        return mujoco.MjModel.from_xml_path(str(mjcf))
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"the MJCF can't be loaded: {reason}") from error
