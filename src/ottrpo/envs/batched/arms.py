"""Gymnasium's arms: near is good, effort is not. The arithmetic is Gymnasium's to the bit."""

import numpy as np

from .gymnasium_task import GymnasiumTask
from .locomotion import norm, squared_sum
from .task import Array, Fields, Outcome


class Arm(GymnasiumTask):
    """Bodies are to come near each other."""

    fields = ("xpos",)

    def at(self, s: Fields, body: str) -> Array:
        """Where a body is."""
        return np.asarray(s.xpos[:, self.model.body(body).id])

    def distance(self, s: Fields, body: str, other: str) -> Array:
        """How far two bodies are apart."""
        return norm(self.at(s, body) - self.at(s, other))

    def control(self, action: Array) -> Array:
        """The reward for little effort."""
        return np.asarray(-squared_sum(action) * self.settings._reward_control_weight)


class Reacher(Arm):
    """A fingertip to a target."""

    def observe(self, s: Fields) -> Array:
        """Angles as cosine and sine, the target, velocities, the way to the target."""
        angle = s.qpos[:, :2]
        way = (self.at(s, "fingertip") - self.at(s, "target"))[:, :2]
        parts = (np.cos(angle), np.sin(angle), s.qpos[:, 2:], s.qvel[:, :2], way)
        return np.concatenate(parts, axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """Near, with little effort."""
        far = -self.distance(s, "fingertip", "target") * self.settings._reward_dist_weight
        control = self.control(action)
        parts = {"reward_dist": far, "reward_ctrl": control}
        return Outcome(far + control, np.zeros(len(far), np.bool_), parts)


class Pusher(Arm):
    """An object to a goal, by an arm."""

    def observe(self, s: Fields) -> Array:
        """Angles, their velocities, and where tip, object and goal are."""
        bodies = (self.at(s, body) for body in ("tips_arm", "object", "goal"))
        return np.concatenate((s.qpos[:, :7], s.qvel[:, :7], *bodies), axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """The object near the goal, the tip near the object, with little effort."""
        near = -self.distance(s, "object", "tips_arm") * self.settings._reward_near_weight
        far = -self.distance(s, "object", "goal") * self.settings._reward_dist_weight
        control = self.control(action)
        parts = {"reward_dist": far, "reward_ctrl": control, "reward_near": near}
        return Outcome(far + control + near, np.zeros(len(far), np.bool_), parts)
