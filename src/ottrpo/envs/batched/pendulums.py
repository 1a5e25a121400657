"""Gymnasium's poles on carts. The arithmetic is Gymnasium's to the bit."""

import numpy as np

from .gymnasium_task import GymnasiumTask
from .task import Array, Fields, Outcome


class InvertedPendulum(GymnasiumTask):
    """One pole."""

    def observe(self, s: Fields) -> Array:
        """Positions and velocities."""
        return np.concatenate((s.qpos, s.qvel), axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """One point while the pole stands."""
        observation = self.observe(s)
        fell = ~np.isfinite(observation).all(axis=1) | (np.abs(observation[:, 1]) > 0.2)
        reward = (~fell).astype(np.int64)
        return Outcome(reward, fell, {"reward_survive": reward})


class InvertedDoublePendulum(GymnasiumTask):
    """A pole on a pole."""

    fields = ("site_xpos", "qfrc_constraint")

    def observe(self, s: Fields) -> Array:
        """The cart, the angles as sine and cosine, velocities, and the force on the cart."""
        angle = s.qpos[:, 1:]
        force = np.clip(s.qfrc_constraint, -10, 10)[:, :1]
        parts = (s.qpos[:, :1], np.sin(angle), np.cos(angle), np.clip(s.qvel, -10, 10), force)
        return np.concatenate(parts, axis=1)

    def score(self, s: Fields, before: None, action: Array) -> Outcome:
        """Standing, less where the tip is and how fast the poles turn."""
        x, _, y = s.site_xpos[:, 0].T
        # x ** 2 of an array is x * x; of Gymnasium's single numbers it is libm's `pow`, which
        # rounds otherwise once in a thousand times, and so does `float_power`
        distance = 0.01 * np.float_power(x, 2) + np.float_power(y - 2, 2)
        first, second = np.float_power(s.qvel[:, 1:3], 2).T
        velocity = 1e-3 * first + 5e-3 * second
        fell = y <= 1
        bonus = self.settings._healthy_reward * (~fell).astype(np.int64)
        parts = {
            "reward_survive": bonus,
            "distance_penalty": -distance,
            "velocity_penalty": -velocity,
        }
        return Outcome(bonus - distance - velocity, fell, parts)
