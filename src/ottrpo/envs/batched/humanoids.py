"""Gymnasium's humanoids. The arithmetic is Gymnasium's to the bit."""

from typing import Any

import numpy as np

from .locomotion import Locomotion, squared_sum, within
from .task import Array, Columns, Fields, Outcome

_WHOLE_BODY = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")  # in the order of the observation


def whole_body(settings: Any, s: Fields) -> tuple[Array, ...]:
    """What a humanoid feels of each of its parts, as far as the settings include it."""
    return tuple(
        # the first six of the generalised forces are those on the free torso
        getattr(s, name)[:, 6 if name == "qfrc_actuator" else 1 :].reshape(len(s.qpos), -1)
        for name in _WHOLE_BODY
        if getattr(settings, f"_include_{name}_in_observation") is True
    )


def tendons(s: Fields) -> Columns:
    """How long the tendons are, and how fast that changes."""
    return {"tendon_length": s.ten_length, "tendon_velocity": s.ten_velocity}


class Humanoid(Locomotion):
    """Walks on two legs."""

    axes = 2
    fields = ("xipos", "ten_length", "ten_velocity", *_WHOLE_BODY)

    def position(self, s: Fields) -> Array:
        """The centre of mass."""
        mass = self.settings.model.body_mass
        return np.asarray((np.einsum("b,nbj->nj", mass, s.xipos) / mass.sum())[:, :2])

    def healthy(self, s: Fields) -> Array:
        """Neither too low nor too high."""
        return within(s.qpos[:, 2], self.settings._healthy_z_range)

    def control_cost(self, s: Fields, action: Array) -> Array:
        """Quadratic in the controls that the simulation holds."""
        return super().control_cost(s, s.ctrl)

    def contact_cost(self, s: Fields) -> Array:
        """Quadratic in the forces, clipped."""
        cost = self.settings._contact_cost_weight * squared_sum(s.cfrc_ext)
        return np.asarray(np.clip(cost, *self.settings._contact_cost_range))

    def further(self, s: Fields) -> tuple[Array, ...]:
        """Inertias, velocities and forces of its parts."""
        return whole_body(self.settings, s)

    def whereabouts(self, s: Fields) -> Columns:
        """Where it is, and its tendons."""
        return {**super().whereabouts(s), **tendons(s)}


class HumanoidStandup(Locomotion):
    """Stands up: r = height / time step - control - impact + 1."""

    axes = 2
    fields = ("ten_length", "ten_velocity", *_WHOLE_BODY)

    def further(self, s: Fields) -> tuple[Array, ...]:
        """Inertias, velocities and forces of its parts."""
        return whole_body(self.settings, s)

    def whereabouts(self, s: Fields) -> Columns:
        """Where it is, how high above the start, and its tendons."""
        x, y, z = s.qpos[:, :3].T
        height = z - self.settings.init_qpos[2]
        place = {"x_position": x, "y_position": y, "z_distance_from_origin": height}
        return {**place, **tendons(s)}

    def score(self, s: Fields, before: Array, action: Array) -> Outcome:
        """Height, effort and impact."""
        height = (s.qpos[:, 2] - 0) / self.model.opt.timestep
        control = self.control_cost(s, s.ctrl)
        impact = self.settings._impact_cost_weight * squared_sum(s.cfrc_ext)
        impact = np.clip(impact, *self.settings._impact_cost_range)
        parts = {"reward_linup": height, "reward_quadctrl": -control, "reward_impact": -impact}
        never = np.zeros(len(height), np.bool_)
        return Outcome(height - control - impact + 1, never, {**self.whereabouts(s), **parts})
