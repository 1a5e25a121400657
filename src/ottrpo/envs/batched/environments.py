"""Many environments of one task, stepped in one call; episodes start again by themselves."""

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.utils import seeding
from mujoco.batch import Batch

from .forces import FORCE_FIELDS
from .task import Array, Columns, Fields, Task

_STATE = ("qpos", "qvel", "act", "ctrl", "time")
# of episodes that ended: last observations, lengths, returns, what is said of the new ones
Finished = tuple[Array, Array, Array, Columns]
_NONE: Finished = (np.empty((0, 0)), np.empty(0, np.int64), np.empty(0), {})
_WHOLE = mujoco.mjtState.mjSTATE_INTEGRATION


class Step(NamedTuple):
    """What a step of all environments brought.

    Attributes:
        observation: [n, d]; of the next episode where one ended.
        reward: [n].
        terminated: the episode is over for good, [n].
        truncated: it was cut off, [n].
        info: what else there is to say, [n, ...] each.
        ended: which episodes ended, [k].
        final: their last observations, [k, d].
        lengths: their steps, [k].
        returns: their sums of rewards, as Python's `sum` adds them up, [k].
        restart: what there is to say of the new episodes, [k, ...] each.
    """

    observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    info: Columns
    ended: Array
    final: Array
    lengths: Array
    returns: Array
    restart: Columns


class Environments:
    """``count`` environments of a task on so many threads, each with random draws of its own.

    Results do not depend on the number of threads.
    """

    def __init__(self, task: Task, count: int, threads: int) -> None:
        self.task = task
        self.count = count
        self.batch = Batch(task.model, count, threads)
        self._all = SimpleNamespace(
            **{name: self.batch.bind(name) for name in (*_STATE, *task.fields)}
        )
        self._fresh = self.batch.state[0].copy()  # what `mj_resetData` makes of a simulation
        self._stale = _not_computed_by_forward(task)
        self._rng: list[np.random.Generator | None] = [None] * count
        self._before: Array | None = None
        self._begun = False
        self._length = np.zeros(count, np.int64)
        self._return = RunningSum(count)
        features = self._observed().shape[1:]
        space = gym.spaces.Box(-np.inf, np.inf, features, np.float64)
        self.observation_space = task.observation_space or space

    def reset(self, seeds: Sequence[int | None]) -> tuple[Array, Columns]:
        """Start all episodes anew; a seed also starts the random draws anew."""
        for i, seed in enumerate(seeds):
            if seed is not None or self._rng[i] is None:
                self._rng[i] = seeding.np_random(seed)[0]
        observation, info = self._start(np.arange(self.count))
        self._before = self.task.remember(self._all)
        self._begun = True
        return observation, info

    def step(self, action: Array) -> Step:
        """Step every environment; those whose episode ended start a new one."""
        if not self._begun:
            raise gym.error.ResetNeeded("call reset() before the first step()")
        action = np.ascontiguousarray(action)
        if action.shape != self._all.ctrl.shape:
            raise ValueError(f"actions must be of shape {self._all.ctrl.shape}, got {action.shape}")
        task, s = self.task, self._all
        s.ctrl[:] = action
        self.batch.step(nstep=task.frame_skip)
        score, terminated, info = task.score(s, self._before, action)
        reward = np.array(score, np.float64)
        info = {name: _owned(column) for name, column in info.items()}
        observation = _owned(task.observe(s))
        self._length += 1
        self._return.add(reward)
        truncated = np.zeros(self.count, np.bool_)
        if task.max_episode_steps is not None:
            truncated = self._length >= task.max_episode_steps
        ended = np.flatnonzero(terminated | truncated)
        said = (reward, terminated, truncated, info, ended)
        finished = _NONE
        if ended.size:
            last = (observation[ended], self._length[ended], self._return.value(ended))
            observation[ended], restart = self._start(ended)
            finished = (*last, restart)
        self._before = task.remember(s)
        return Step(observation, *said, *finished)

    def show(self, index: int) -> None:
        """Put the state of one environment into the task's own simulation, to look at it."""
        mujoco.mj_setState(self.task.model, self.task.data, self.batch.state[index], _WHOLE)
        mujoco.mj_forward(self.task.model, self.task.data)
        self.task.shown.unwrapped._np_random = self._rng[index]

    def take_back(self, index: int) -> None:
        """Take over what was done to the simulation since it was shown."""
        row = self.batch.state[index]
        shown = np.empty_like(row)
        mujoco.mj_getState(self.task.model, self.task.data, shown, _WHOLE)
        physics = mujoco.mj_stateSize(self.task.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        if not np.array_equal(shown[:physics], row[:physics], equal_nan=True):
            row[:] = shown
            fields = {name: np.array([getattr(self.task.data, name)]) for name in vars(self._all)}
            before = self.task.remember(SimpleNamespace(**fields))
            if self._before is not None and before is not None:
                self._before[index] = before[0]

    def capture(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        return {
            "simulations": self.batch.state.copy(),
            "before": self._before,
            "generators": list(self._rng),
            "length": self._length.copy(),
            "return": self._return.parts.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was captured, after a reset.

        Raises:
            ValueError: if it was captured from other environments.
        """
        for name, mine in self.capture().items():
            found, here = _shape(state.get(name)), _shape(mine)
            if found != here:
                raise ValueError(f"{self.task.name}: {name} of shape {here}, the saved is {found}")
        self.batch.state[:] = state["simulations"]
        self._before = state["before"]
        self._rng = list(state["generators"])
        self._length[:] = state["length"]
        self._return.parts[:] = state["return"]

    def _start(self, ids: Array) -> tuple[Array, Columns]:
        """New episodes in these environments."""
        drawn = [self.task.draw(rng) for i in ids if (rng := self._rng[i]) is not None]
        self.batch.state[ids] = self._fresh
        self._all.qpos[ids] = [qpos for qpos, _ in drawn]
        self._all.qvel[ids] = [qvel for _, qvel in drawn]
        self.batch.forward(ids)
        s = self._rows(ids)
        self._length[ids] = 0
        self._return.clear(ids)
        return self.task.observe(s), self.task.whereabouts(s)

    def _rows(self, ids: Array) -> Fields:
        rows = {name: array[ids] for name, array in vars(self._all).items()}
        # what `mj_forward` leaves alone is zero after a reset, and another simulation's in a batch
        return SimpleNamespace(**rows | {name: np.zeros_like(rows[name]) for name in self._stale})

    def _observed(self) -> Array:
        first = np.zeros(1, np.int64)
        self.batch.forward(first)
        return self.task.observe(self._rows(first))


def _owned(array: Array) -> Array:
    """A copy of what looks into the simulations, which move on."""
    return array if array.base is None else array.copy()


def _shape(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list):  # of random generators
        return (sum(isinstance(item, np.random.Generator) for item in value),)
    return value.shape if isinstance(value, np.ndarray) else None


class RunningSum:
    """Running sums that equal Python's `sum` of floats bit for bit.

    From 3.12 on Python carries the rounding errors along; before, it did not.
    """

    compensated = sys.version_info >= (3, 12)

    def __init__(self, count: int) -> None:
        self.parts = np.zeros((2, count))  # the sums, and what rounding has lost of them

    def add(self, term: Array) -> None:
        """Add a term to each sum."""
        total, lost = self.parts
        if self.compensated:
            new = total + term
            larger = np.abs(total) >= np.abs(term)
            lost += np.where(larger, (total - new) + term, (term - new) + total)
            total[:] = new
        else:
            total += term

    def value(self, ids: Array) -> Array:
        """Some of the sums."""
        total, lost = self.parts[:, ids]
        return np.asarray(total + np.where(np.isfinite(lost), lost, 0.0))

    def clear(self, ids: Array) -> None:
        """Begin some of them anew."""
        self.parts[:, ids] = 0.0


def _not_computed_by_forward(task: Task) -> tuple[str, ...]:
    """The forces that a task reads and that only a step computes, unless a sensor needs them."""
    asked = [name for name in task.fields if name in FORCE_FIELDS]
    data = mujoco.MjData(task.model)
    for name in asked:
        getattr(data, name)[:] = np.nan
    mujoco.mj_forward(task.model, data)
    return tuple(name for name in asked if np.isnan(getattr(data, name)).all())
