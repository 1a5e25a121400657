"""Experience that outlives its update: a window of the last steps, and what it says of Q(s, a).

A policy that stays within a small transport radius resembles the policies of many updates before,
so their experience still speaks of it. How much, the ratio of its probabilities to theirs tells:
traces of returns are cut where it falls below 1 (Retrace of Munos et al., 2016), so that old steps
teach about one step ahead, and new ones about a long way.
"""

from typing import Any, NamedTuple

import numpy as np

from .arrays import namespace, put, sums_to_the_end, wide

Array = Any


class Replay(NamedTuple):
    """The last W steps of n environments, oldest first.

    Attributes:
        flat: raw features [W + 1, n, f]; the last entry is where the next rollout starts.
        action: as drawn, not clipped [W, n, d].
        log_prob: its log-density when it was drawn, up to a constant [W, n].
        reward: raw [W, n].
        done: the episode ended with this step [W, n].
        terminated: for good, rather than by a time limit [W, n].
        held: kept out of every fit, to tell what generalises [W, n].
        filled: how many of the W steps are there yet.
    """

    flat: Array
    action: Array
    log_prob: Array
    reward: Array
    done: Array
    terminated: Array
    held: Array
    filled: Array

    def followed_by(self, rollout: Any) -> "Replay":
        """The window after a `Rollout`; the oldest steps go."""
        steps, window = len(rollout.reward), len(self.reward)
        drawn, xp = rollout.drawn, namespace(rollout.reward)
        log_prob = log_density(drawn["action"], drawn["mean"], drawn["std"])

        def then(old: Array, new: Array) -> Array:
            # the last observation of the window is the first of the rollout
            return xp.concatenate([old[:window], new])[-len(old) :].astype(old.dtype)

        return Replay(
            flat=then(self.flat, rollout.flat),
            action=then(self.action, drawn["action"]),
            log_prob=then(self.log_prob, log_prob),
            reward=then(self.reward, rollout.reward),
            done=then(self.done, rollout.done),
            terminated=then(self.terminated, rollout.terminated),
            held=then(self.held, xp.zeros_like(rollout.done)),
            filled=xp.minimum(self.filled + np.int32(steps), np.int32(window)),
        )

    def holding(self, held_r: Array) -> "Replay":
        """The window with rows of the last rollout marked that no fit may see."""
        last = held_r.reshape(-1, self.held.shape[1])
        return self._replace(held=put(self.held, (slice(-len(last), None),), last))

    def rows(self, uniform: Array) -> Array:
        """Numbers of rows of the window that is there, for uniform numbers below 1."""
        total = len(self.reward) * self.reward.shape[1]
        there = self.filled * self.reward.shape[1]
        return total - 1 - (uniform * there).astype(np.int32)


def empty_replay(window: int, environments: int, features: int, size: int) -> Replay:
    """A window without any step yet."""
    shape = (window, environments)
    return Replay(
        np.zeros((window + 1, environments, features), np.float32),
        np.zeros((*shape, size), np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.int32(0),
    )


def log_density(action: Array, mean: Array, std: Array) -> Array:
    """Of a diagonal Gaussian, up to a constant."""
    xp = namespace(action)
    return -(0.5 * ((action - mean) / std) ** 2 + xp.log(std)).sum(-1)


def retrace(
    replay: Replay,
    reward_tn: Array,
    value_tn: Array,
    next_value_tn: Array,
    log_prob_tn: Array,
    discount: Array,
    trace_decay: Array,
) -> tuple[Array, Array]:
    """Targets of Q(s, a) in the window, and how much of it speaks of the policy of now.

    y_t = Q_t + Σ_k (Π_j γ λ min(1, π/μ)_j) δ_{t+k}, with δ_t = r_t + γ V(s_{t+1}) − Q_t. What
    followed a step that was cut off by a time limit was not kept: such a step gets its own value as
    target, and teaches nothing.

    Args:
        replay: the window.
        reward_tn: its rewards, normalised.
        value_tn: Q(s_t, a_t).
        next_value_tn: Q(s_{t+1}, a') of an action of the policy of now.
        log_prob_tn: log-density of the actions under the policy of now.
        discount: γ.
        trace_decay: λ.
    """
    xp = namespace(reward_tn)
    ratio_tn = xp.exp(xp.minimum(log_prob_tn - replay.log_prob, 0.0))
    unknown_tn = replay.done & ~replay.terminated
    delta_tn = reward_tn + discount * next_value_tn * ~replay.terminated - value_tn
    next_ratio_tn = xp.concatenate([ratio_tn[1:], 0.0 * ratio_tn[:1]])
    carry_tn = discount * trace_decay * next_ratio_tn * ~replay.done
    more_tn = sums_to_the_end(wide(xp.where(unknown_tn, 0.0, delta_tn)), wide(carry_tn))
    there = xp.arange(len(ratio_tn)) >= len(ratio_tn) - replay.filled
    speaks = (ratio_tn.mean(1) * there).sum() / xp.maximum(replay.filled, 1)
    return value_tn + more_tn, speaks


def held_out(weight: Array, index: Array, held: Array) -> Array:
    """Weights of the rows of minibatches, without those that are held out."""
    xp = namespace(held)
    weight = weight * ~held[index]
    return (weight / xp.maximum(weight.sum(1, keepdims=True), 1e-12)).astype(np.float32)
