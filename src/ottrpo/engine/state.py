"""All that training carries from one update to the next, and the running normalisation in it.

Statistics are folded in once per rollout, in one batch, and are frozen while the policy acts, so
an environment step pays for a subtraction and a product only.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import namespace, single, sums_so_far, wide

Array = Any
VARIANCE_FLOOR = 1e-8  # as in SB3's VecNormalize


class Learner(NamedTuple):
    """What an optimiser changes: the trained modules and its own moments."""

    networks: Any
    moments: Any


class Moments(NamedTuple):
    """Count, mean and variance of all rows seen, updated batch by batch (Chan et al.)."""

    mean: Array
    variance: Array
    count: Array

    def fold(self, row_rd: Array) -> "Moments":
        """The moments when the rows of a batch are taken into account."""
        rows = len(row_rd)
        if rows == 0:
            return self
        xp = namespace(row_rd)
        mean, variance = row_rd.mean(0), row_rd.var(0)
        total = self.count + rows
        shift = mean - self.mean
        within = self.variance * self.count + variance * rows
        joint = (within + shift**2 * self.count * rows / total) / total
        first = self.count == 0
        return Moments(
            xp.where(first, mean, self.mean + shift * rows / total),
            xp.where(first, variance, joint),
            total,
        )


def no_moments(size: int) -> Moments:
    """Moments of nothing yet: mean 0 and variance 1."""
    return Moments(np.zeros(size), np.ones(size), np.float64(0.0))


class Observations(NamedTuple):
    """Statistics of the observations, and what the policy acts with.

    ``mean`` and ``scale`` are part of the policy: a step that leaves the trust region takes them
    back together with the weights.
    """

    moments: Moments
    mean: Array
    scale: Array


class Rewards(NamedTuple):
    """Statistics of the discounted return."""

    moments: Moments
    return_n: Array  # discounted return of the running episodes, once more discounted


class Progress(NamedTuple):
    """How far a training that is compiled whole has come.

    Attributes:
        steps: of all environments together.
        updates: how many.
        lengths: of the last episodes, in any order [w].
        episodes: how many have ended.
    """

    steps: Array
    updates: Array
    lengths: Array
    episodes: Array


class Signal(NamedTuple):
    """What was learnt of how much a step gains, where steps follow that.

    Attributes:
        pace: factor of the learning rate of what follows samples.
        slope_pace: and of what follows critics.
        gain: what steps gained per length of late, on rows that had no say in them.
        updates: how many there were.
        ended: 1.0 once an episode has ended for good, rather than by a time limit.
        returned: sum of the returns of episodes that ended in an update, averaged as policies are.
        episodes: how many there were, likewise.
        best: mean return of the policies whose average is played.
        elected: the update at which it was chosen; 0 if none is yet.
    """

    pace: Array = np.float64(1.0)
    slope_pace: Array = np.float64(1.0)
    gain: Array = np.float64(0.0)
    updates: Array = np.float64(0.0)
    ended: Array = np.float64(0.0)
    returned: Array = np.float64(0.0)
    episodes: Array = np.float64(0.0)
    best: Array = np.float64(0.0)
    elected: Array = np.float64(0.0)


class Played(NamedTuple):
    """A policy that is kept to be played, and the normalisation it acts with."""

    policy: Any
    mean: Array
    scale: Array


class TrainState(NamedTuple):
    """What deep training carries from one update to the next, as one tree of arrays.

    Attributes:
        learners: networks and optimisers by name; ``agent`` is the policy and the value function.
        observations: their statistics.
        rewards: theirs.
        key: what is left to draw from; ``None`` on the host, whose generator draws.
        progress: a `Progress`; ``None`` on the host, where the agent counts as SB3 wants it.
        replay: a window of past rollouts, of algorithms that learn from more than the last.
        signal: what steps gain, of algorithms that follow it.
    """

    learners: dict[str, Learner]
    observations: Observations
    rewards: Rewards
    key: Any = None
    progress: Any = None
    replay: Any = None
    signal: Signal = Signal()

    @property
    def networks(self) -> Any:
        """Policy and value function."""
        return self.learners["agent"].networks

    @property
    def played(self) -> tuple[Any, Observations]:
        """The policy to act with once training is over, the one that is kept for it if any is."""
        kept = self.learners.get("played")
        if kept is None:
            return self.networks.policy, self.observations
        policy, mean, scale = kept.networks
        return policy, self.observations._replace(mean=mean, scale=scale)

    def with_learner(self, name: str, learner: Learner) -> "TrainState":
        """The state with another learner under this name."""
        return self._replace(learners=self.learners | {name: learner})

    def elsewhere(self, environments: int) -> "TrainState":
        """The state in other environments: their returns begin anew, and may be of another task."""
        none = np.float64(0.0)
        rewards = self.rewards._replace(return_n=np.zeros(environments))
        signal = self.signal._replace(returned=none, episodes=none, elected=none)
        return self._replace(rewards=rewards, signal=signal)


@dataclass(frozen=True, kw_only=True, eq=False)
class Normaliser:
    """How observations and rewards are normalised.

    Attributes:
        measured: which features are measurements; the others are codes, and left alone.
        clip_obs: normalised observations are clipped to this.
        clip_reward: and rewards to this.
        discount: of the return whose spread is the unit of rewards.
        observations: whether observations are normalised at all.
        rewards: whether rewards are.
    """

    measured: NDArray[np.bool_]
    clip_obs: float = 10.0
    clip_reward: float = 10.0
    discount: float = 0.99
    observations: bool = True
    rewards: bool = True

    def start(self, environments: int) -> tuple[Observations, Rewards]:
        """Statistics of nothing yet."""
        size = len(self.measured)
        mean, scale = np.zeros(size, np.float32), np.ones(size, np.float32)
        observations = Observations(no_moments(size), mean, scale)
        return observations, Rewards(no_moments(1), np.zeros(environments))

    def __call__(self, seen: Observations, flat: Array) -> Array:
        """(observation − mean) · scale, clipped, in float32."""
        if not self.observations:
            return flat.astype(np.float32)
        scaled = (flat - seen.mean) * seen.scale
        xp = namespace(scaled)
        return xp.clip(scaled, -self.clip_obs, self.clip_obs).astype(np.float32)

    def fold_observations(self, seen: Observations, flat: Array) -> Observations:
        """Take a rollout's observations [rows, features] into account, and use the result."""
        if not self.observations:
            return seen
        moments = seen.moments.fold(wide(flat))
        xp = namespace(flat)
        scale = 1.0 / xp.sqrt(moments.variance + VARIANCE_FLOOR)
        mean, scale = (
            xp.where(self.measured, value, other).astype(np.float32)
            for value, other in ((moments.mean, 0.0), (scale, 1.0))
        )
        return Observations(moments, mean, scale)

    def fold_rewards(
        self, seen: Rewards, reward_tn: Array, done_tn: Array
    ) -> tuple[Rewards, Array]:
        """Take a rollout's rewards [steps, environments] into account, and normalise them.

        They are divided by the running standard deviation of the discounted return, and clipped.
        """
        if not self.rewards:
            return seen, reward_tn
        xp = namespace(reward_tn)
        keep_tn = xp.where(done_tn, 0.0, self.discount)
        running_tn, return_n = sums_so_far(reward_tn, keep_tn, seen.return_n)
        moments = seen.moments.fold(running_tn.reshape(-1, 1))
        seen = Rewards(moments, return_n)
        return seen, self.scaled_rewards(seen, reward_tn)

    def scaled_rewards(self, seen: Rewards, reward_tn: Array) -> Array:
        """Rewards in the unit of the statistics, clipped."""
        if not self.rewards:
            return reward_tn
        xp = namespace(reward_tn)
        deviation = self.reward_unit(seen)
        return xp.clip(reward_tn / deviation, -self.clip_reward, self.clip_reward)

    def reward_unit(self, seen: Rewards) -> Array:
        """What values and advantages are to be multiplied by, to be in the unit of raw rewards."""
        if not self.rewards:
            return 1.0
        variance = seen.moments.variance
        return namespace(variance).sqrt(variance[0] + VARIANCE_FLOOR)


def scale_between(old: Observations, new: Observations, share: Array) -> Observations:
    """What the policy acts with ``share`` of the way from ``old`` to ``new``."""
    mean, scale = (
        a + single(share) * (b - a) for a, b in ((old.mean, new.mean), (old.scale, new.scale))
    )
    return new._replace(mean=mean, scale=scale)
