"""Gymnasium's walkers, runners and swimmers: r = forward + healthy - control - contact.

The arithmetic is Gymnasium's to the bit, order of operations and precision included: a control
cost of float32 actions is summed in float32, as NumPy sums one environment's.
"""

from typing import ClassVar

import numpy as np

from .gymnasium_task import GymnasiumTask
from .task import Array, Columns, Fields, Outcome


def squared_sum(array_n: Array) -> Array:
    """The sum of squares of each row, added up as NumPy does for one row by itself."""
    flat = np.ascontiguousarray(array_n).reshape(len(array_n), -1)
    return np.asarray(np.sum(np.square(flat), axis=1))


def norm(vector_nk: Array) -> Array:
    """|v| of each row by the same BLAS call as `np.linalg.norm` of one; multiplying differs."""
    return np.asarray(np.sqrt(np.vecdot(vector_nk, vector_nk)))


def within(value: Array, bounds: tuple[float, float]) -> Array:
    """Whether values lie strictly between the bounds."""
    low, high = bounds
    return (low < value) & (value < high)


class Locomotion(GymnasiumTask):
    """Moving along x is rewarded.

    Attributes:
        axes: how many axes its position has, the first entries of `qpos`: x, or x and y.
    """

    axes: ClassVar[int] = 1

    def position(self, s: Fields) -> Array:
        """What moves, [n, axes]."""
        return np.asarray(s.qpos[:, : self.axes])

    def remember(self, s: Fields) -> Array:
        """Where it was."""
        return self.position(s).copy()

    def healthy(self, s: Fields) -> Array | None:
        """Whether it still stands; ``None`` if that is not asked."""
        return None

    def control_cost(self, s: Fields, action: Array) -> Array:
        """What its effort costs."""
        return np.asarray(self.settings._ctrl_cost_weight * squared_sum(action))

    def contact_cost(self, s: Fields) -> Array | None:
        """What touching costs; ``None`` if that is not asked."""
        return None

    def velocities(self, s: Fields) -> Array:
        """The observed velocities, [n, nv]."""
        return np.asarray(s.qvel)

    def further(self, s: Fields) -> tuple[Array, ...]:
        """What is observed beside positions and velocities."""
        return ()

    def observe(self, s: Fields) -> Array:
        """Positions, without where along the way if so set, velocities, and what more there is."""
        skipped = self.axes if self.settings._exclude_current_positions_from_observation else 0
        return np.concatenate((s.qpos[:, skipped:], self.velocities(s), *self.further(s)), axis=1)

    def whereabouts(self, s: Fields) -> Columns:
        """Where it is."""
        place = {"x_position": s.qpos[:, 0]}
        if self.axes == 2:
            place["y_position"] = s.qpos[:, 1]
            place["distance_from_origin"] = norm(s.qpos[:, :2])
        return place

    def score(self, s: Fields, before: Array, action: Array) -> Outcome:
        """Forward reward, health and costs."""
        velocity = (self.position(s) - before) / self.dt
        speed = {f"{'xy'[i]}_velocity": velocity[:, i] for i in range(self.axes)}
        gain = forward = self.settings._forward_reward_weight * velocity[:, 0]
        cost = control = self.control_cost(s, action)
        parts = {"reward_forward": forward, "reward_ctrl": -control}
        terminated = np.zeros(len(gain), np.bool_)
        healthy, contact = self.healthy(s), self.contact_cost(s)
        if contact is not None:
            cost = control + contact
            parts["reward_contact"] = -contact
        if healthy is not None:
            parts["reward_survive"] = survive = healthy * self.settings._healthy_reward
            gain = forward + survive
            if self.settings._terminate_when_unhealthy:
                terminated = ~healthy
        return Outcome(gain - cost, terminated, {**self.whereabouts(s), **speed, **parts})


class HalfCheetah(Locomotion):
    """Runs."""


class Swimmer(Locomotion):
    """Swims in the plane."""

    axes = 2


class Walker2d(Locomotion):
    """Walks upright in the vertical plane."""

    def healthy(self, s: Fields) -> Array:
        """Neither too low nor too high, and not leaning too much."""
        upright = within(s.qpos[:, 2], self.settings._healthy_angle_range)
        return within(s.qpos[:, 1], self.settings._healthy_z_range) & upright

    def velocities(self, s: Fields) -> Array:
        """Clipped."""
        return np.asarray(np.clip(s.qvel, -10, 10))

    def whereabouts(self, s: Fields) -> Columns:
        """Where along the way, and how high above the start."""
        height = s.qpos[:, 1] - self.settings.init_qpos[1]
        return {**super().whereabouts(s), "z_distance_from_origin": height}


class Hopper(Walker2d):
    """Hops."""

    def healthy(self, s: Fields) -> Array:
        """As a walker, and nothing out of its range but where along the way it is, and how high."""
        bounds = self.settings._healthy_state_range
        inside = within(s.qpos[:, 2:], bounds).all(axis=1) & within(s.qvel, bounds).all(axis=1)
        return np.asarray(inside & super().healthy(s))


class Ant(Locomotion):
    """Walks on four legs."""

    axes = 2
    fields = ("xpos", "cfrc_ext")

    def position(self, s: Fields) -> Array:
        """The torso's."""
        return np.asarray(s.xpos[:, self.model.body(self.settings._main_body).id, :2])

    def healthy(self, s: Fields) -> Array:
        """All finite, and at a height that is allowed, bounds included."""
        low, high = self.settings._healthy_z_range
        finite = np.isfinite(s.qpos).all(axis=1) & np.isfinite(s.qvel).all(axis=1)
        return np.asarray(finite & (low <= s.qpos[:, 2]) & (s.qpos[:, 2] <= high))

    def contact_forces(self, s: Fields) -> Array:
        """Clipped to their range."""
        return np.asarray(np.clip(s.cfrc_ext, *self.settings._contact_force_range))

    def contact_cost(self, s: Fields) -> Array:
        """Quadratic in the clipped forces."""
        forces = squared_sum(self.contact_forces(s))
        return np.asarray(self.settings._contact_cost_weight * forces)

    def further(self, s: Fields) -> tuple[Array, ...]:
        """The contact forces on all bodies but the world."""
        if not self.settings._include_cfrc_ext_in_observation:
            return ()
        return (self.contact_forces(s)[:, 1:].reshape(len(s.qpos), -1),)
