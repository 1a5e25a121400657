"""Running normalisation of observations and rewards.

Statistics are folded in once per rollout, in one batch, and are frozen while the policy acts, so
an environment step pays for a subtraction and a product only.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import kernels

Floats = NDArray[np.float64]
VARIANCE_FLOOR = 1e-8  # as in SB3's VecNormalize


@dataclass
class RunningMoments:
    """Count, mean and variance of all rows seen, updated batch by batch (Chan et al.)."""

    mean: Floats
    variance: Floats
    count: float = 0.0

    @classmethod
    def of_size(cls, size: int) -> "RunningMoments":
        """Moments of nothing yet: mean 0 and variance 1."""
        return cls(np.zeros(size), np.ones(size))

    def fold(self, row_rd: Floats) -> None:
        """Take the rows of a batch into account."""
        rows = len(row_rd)
        if rows == 0:
            return
        mean, variance = row_rd.mean(0), row_rd.var(0)
        if self.count == 0:
            self.mean, self.variance, self.count = mean, variance, float(rows)
            return
        total = self.count + rows
        shift = mean - self.mean
        self.variance = (
            self.variance * self.count + variance * rows + shift**2 * self.count * rows / total
        ) / total
        self.mean = self.mean + shift * rows / total
        self.count = total


@dataclass
class ObservationNormaliser:
    """(observation - mean) * scale, clipped; entries that are codes, not measurements, untouched.

    ``mean`` and ``scale`` are what the policy acts with. They are part of the policy: a step that
    leaves the trust region takes them back together with the weights.
    """

    moments: RunningMoments
    measured: NDArray[np.bool_]
    clip: float
    enabled: bool = True
    mean: NDArray[np.float32] = field(init=False)
    scale: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        size = len(self.measured)
        self.mean = np.zeros(size, dtype=np.float32)
        self.scale = np.ones(size, dtype=np.float32)

    def __call__(self, flat: NDArray[Any]) -> NDArray[np.float32]:
        """Normalised float32 features."""
        if not self.enabled:
            return flat.astype(np.float32)
        scaled: Any = (flat - self.mean) * self.scale
        clipped: NDArray[np.float32] = np.clip(scaled, -self.clip, self.clip).astype(np.float32)
        return clipped

    def fold(self, flat: NDArray[Any]) -> None:
        """Take a rollout's observations [rows, features] into account, and use the result."""
        if not self.enabled:
            return
        self.moments.fold(np.asarray(flat, dtype=np.float64))
        scale = 1.0 / np.sqrt(self.moments.variance + VARIANCE_FLOOR)
        self.mean = np.where(self.measured, self.moments.mean, 0.0).astype(np.float32)
        self.scale = np.where(self.measured, scale, 1.0).astype(np.float32)


@dataclass
class RewardNormaliser:
    """Rewards divided by the running standard deviation of the discounted return, clipped."""

    discount: float
    clip: float
    return_n: Floats  # discounted return of the running episodes, once more discounted
    enabled: bool = True
    moments: RunningMoments = field(default_factory=lambda: RunningMoments.of_size(1))

    def __call__(self, reward_tn: Floats, done_tn: NDArray[np.bool_]) -> Floats:
        """Fold a rollout's rewards [steps, environments] in and return them normalised."""
        if not self.enabled:
            return reward_tn
        running_tn = self._discounted(reward_tn, done_tn)
        self.moments.fold(running_tn.reshape(-1, 1))
        deviation = np.sqrt(self.moments.variance[0] + VARIANCE_FLOOR)
        scaled: Floats = reward_tn / deviation
        return np.clip(scaled, -self.clip, self.clip)

    def _discounted(self, reward_tn: Floats, done_tn: NDArray[np.bool_]) -> Floats:
        """The return so far at each step, discounted, started anew with each episode."""
        keep_tn = np.where(done_tn, 0.0, self.discount)
        running_tn = np.empty_like(reward_tn)
        self.return_n = self.return_n.copy()  # an update that fails is taken back
        kernels.sums_so_far(reward_tn, keep_tn, self.return_n, running_tn)
        return running_tn
