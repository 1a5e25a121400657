"""Experience that outlives its update: a window of the last steps, and the returns in it."""

from typing import Any, NamedTuple

import numpy as np

from .arrays import namespace, wide

Array = Any


class Replay(NamedTuple):
    """The last W steps of n environments, oldest first.

    Attributes:
        flat: raw features [W + 1, n, f]; the last entry is where the next rollout starts.
        action: as drawn, not clipped [W, n, d].
        reward: raw [W, n].
        done: the episode ended with this step [W, n].
        terminated: for good, rather than by a time limit [W, n].
        filled: how many of the W steps are there yet.
    """

    flat: Array
    action: Array
    reward: Array
    done: Array
    terminated: Array
    filled: Array

    def followed_by(self, rollout: Any) -> "Replay":
        """The window after a `Rollout`; the oldest steps go."""
        steps, window = len(rollout.reward), len(self.reward)
        xp = namespace(rollout.reward)

        def then(old: Array, new: Array) -> Array:
            # the last observation of the window is the first of the rollout
            return xp.concatenate([old[:window], new])[-len(old) :].astype(old.dtype)

        return Replay(
            flat=then(self.flat, rollout.flat),
            action=then(self.action, rollout.drawn["action"]),
            reward=then(self.reward, rollout.reward),
            done=then(self.done, rollout.done),
            terminated=then(self.terminated, rollout.terminated),
            filled=xp.minimum(self.filled + np.int32(steps), np.int32(window)),
        )

    def picked(self, uniform: Array) -> tuple[Array, Array]:
        """Steps and environments of the window that is there, for uniform numbers below 1."""
        steps, rows = self.reward.shape
        row = steps * rows - 1 - (uniform * (self.filled * rows)).astype(np.int32)
        return row // rows, row % rows


def empty_replay(window: int, environments: int, features: int, size: int) -> Replay:
    """A window without any step yet."""
    shape = (window, environments)
    return Replay(
        np.zeros((window + 1, environments, features), np.float32),
        np.zeros((*shape, size), np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.int32(0),
    )


class Ahead(NamedTuple):
    """What the next steps brought, from every step of a window.

    Attributes:
        reward: discounted sum [W, n].
        discount: of the value of where they led to; 0 if the episode had ended [W, n].
        where: that step [W, n].
        known: whether anything is; what followed a step that was cut off by a time limit was not
            kept [W, n].
    """

    reward: Array
    discount: Array
    where: Array
    known: Array


def look_ahead(replay: Replay, reward_tn: Array, discount: Array, steps: int) -> Ahead:
    """Returns of ``steps`` steps, or of fewer where the episode or the window ends before.

    Args:
        replay: the window.
        reward_tn: its rewards, normalised.
        discount: γ.
        steps: how many.
    """
    xp = namespace(reward_tn)
    window = len(reward_tn)
    first_tn = xp.arange(window)[:, None] + xp.zeros_like(replay.done, np.int32)
    cut_tn = replay.done & ~replay.terminated
    reward_tn = wide(reward_tn)
    total, weight = xp.zeros_like(reward_tn), xp.ones_like(reward_tn)
    where, goes_on, known = first_tn, xp.ones_like(replay.done), ~cut_tn
    for k in range(steps):
        now = xp.minimum(first_tn[:, 0] + k, window - 1)
        goes_on = goes_on & ~cut_tn[now] & (first_tn + k < window)
        total = total + xp.where(goes_on, weight * reward_tn[now], 0.0)
        where = xp.where(goes_on, first_tn + k + 1, where)
        ended = goes_on & replay.terminated[now]
        weight = xp.where(ended, 0.0, xp.where(goes_on, weight * discount, weight))
        goes_on = goes_on & ~ended
    return Ahead(total, weight, where, known)


def block(rows: int, share: float, rng: Any) -> Array:
    """Which rows of a rollout to hold out: some that follow each other.

    Rows that stand side by side share their noise: the same rewards are in their advantages, and
    coloured noise in their actions. Single rows among those that are fitted would seem to gain.
    """
    start = rng.random(()) * (rows - round(share * rows))
    row = namespace(start).arange(rows)
    return (row >= start) & (row < start + round(share * rows))


def held_out(weight: Array, index: Array, held: Array) -> Array:
    """Weights of the rows of minibatches, without those that are held out."""
    xp = namespace(held)
    weight = weight * ~held[index]
    return (weight / xp.maximum(weight.sum(1, keepdims=True), 1e-12)).astype(np.float32)
