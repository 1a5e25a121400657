"""Acting: policies outside JAX, with the noise of a whole rollout drawn in advance."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import kernels
from .forward import CompiledForward, forward_for
from .networks import SDE_VARIANCE_FLOOR, Policy
from .normaliser import ObservationNormaliser

Array = Any
FORBIDDEN = np.float32(-1e9)  # logit of an action that a mask rules out


@dataclass(frozen=True)
class BoxActions:
    """Actions in a box, measured from its centre in units of half its width.

    So every box is [-1, 1] to the policy, and one initial standard deviation suits all. Samples
    of a Gaussian are clipped to the box before they reach the world.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of coordinates d."""
        return len(self.low)

    @property
    def is_unit(self) -> bool:
        """Whether the box is [-1, 1] already."""
        return bool((self.low == -1).all() and (self.high == 1).all())

    def to_world(self, action: Array) -> Array:
        """Actions in [-1, 1] as the environment wants them; never outside its bounds."""
        share = 0.5 * (action + 1.0)
        return self.low * (1.0 - share) + self.high * share


@dataclass(frozen=True)
class FiniteActions:
    """Independent factors, each a choice among finitely many labels.

    Discrete is one factor, MultiDiscrete several, MultiBinary several with two labels. Factors
    with fewer labels than the largest are padded; the padding is never allowed.
    """

    counts: tuple[int, ...]
    start: NDArray[np.int64]
    scalar: bool

    @property
    def factors(self) -> int:
        """Number of factors f."""
        return len(self.counts)

    @property
    def choices(self) -> int:
        """Labels per factor k, padding included."""
        return max(self.counts)

    @property
    def allowed_fk(self) -> NDArray[np.bool_]:
        """Which labels exist."""
        return np.arange(self.choices)[None] < np.array(self.counts)[:, None]

    def pad_mask(self, mask_n: Array) -> NDArray[np.bool_]:
        """Action masks as environments state them [n, sum of counts], as [n, f, k]."""
        mask_n = np.asarray(mask_n, dtype=np.bool_).reshape(len(mask_n), -1)
        if mask_n.shape[1] != sum(self.counts):
            raise ValueError(
                f"action masks must have {sum(self.counts)} entries, got {mask_n.shape[1]}"
            )
        padded = np.zeros((len(mask_n), self.factors, self.choices), dtype=np.bool_)
        padded[:, self.allowed_fk] = mask_n
        return padded


class Actor(Protocol):
    """What a rollout needs: an action for each environment at each step, and a record of it."""

    def act(self, t: int, flat: Array, images: tuple[Array, ...], mask: Array | None) -> Array:
        """Actions for the environments at step t of the rollout."""

    def record(self) -> dict[str, Array]:
        """What was drawn, and the distributions it was drawn from, [steps, environments, ...]."""


class GaussianActor:
    """Draws a = m(s) + σ(s) z; with gSDE the noise is a linear function of the features."""

    def __init__(
        self,
        policy: Policy,
        normaliser: ObservationNormaliser,
        actions: BoxActions,
        *,
        steps: int,
        rows: int,
        rng: np.random.Generator | None,
        sde_sample_freq: int = -1,
        noise_color: float = 0.0,
    ) -> None:
        self._forward = forward_for(policy.body, policy.head, normaliser, rows)
        self._to_world = None if actions.is_unit else actions.to_world
        self._shape = (rows, *actions.shape)
        log_std = np.asarray(policy.log_std)
        self._mean = np.empty((steps, rows, actions.size), np.float32)
        self._action = np.empty_like(self._mean)
        self._variance = np.exp(2.0 * log_std) if log_std.ndim == 2 else None
        if rng is None:
            self._variance, self._noise = None, np.zeros_like(self._mean)
        elif self._variance is None:
            self._std = np.broadcast_to(np.exp(log_std), self._mean.shape)
            noise = coloured_noise(self._mean.shape, noise_color, rng)
            self._noise = noise * np.exp(log_std)
        else:
            self._std = np.empty_like(self._mean)
            self._every = sde_sample_freq if sde_sample_freq > 0 else steps
            draws = -(-steps // self._every)
            shape = (draws, rows, *log_std.shape)
            self._noise = rng.standard_normal(shape, dtype=np.float32) * np.exp(log_std)

    def act(
        self, t: int, flat: Array, images: tuple[Array, ...] = (), mask: Array | None = None
    ) -> Array:
        """Sampled actions, clipped to the box (the mean's, when there is no noise)."""
        clipped = np.empty(self._mean.shape[1:], np.float32)  # new: environments may keep it
        if self._variance is None and isinstance(self._forward, CompiledForward):
            flat = np.ascontiguousarray(flat, np.float64)
            drawn = (self._mean, self._noise, self._action, clipped)
            kernels.act(t, flat, *self._forward.arguments, *drawn)
        else:
            self._draw(t, self._forward(flat, images, self._mean[t]), clipped)
        if self._to_world is not None:
            clipped = self._to_world(clipped)
        return clipped.reshape(self._shape)

    def _draw(self, t: int, latent: Array, clipped: Array) -> None:
        if self._variance is None:
            noise = self._noise[t]
        else:
            noise = np.einsum("nl,nld->nd", latent, self._noise[t // self._every])
            self._std[t] = np.sqrt(latent**2 @ self._variance + SDE_VARIANCE_FLOOR)
        kernels.draw(self._mean[t], noise, self._action[t], clipped)

    def record(self) -> dict[str, Array]:
        """Actions before clipping, means and standard deviations [t, n, d]."""
        return {"action": self._action, "mean": self._mean, "std": self._std}


class FiniteActor:
    """Draws labels by the Gumbel trick: the largest of logits plus noise drawn in advance."""

    def __init__(
        self,
        policy: Policy,
        normaliser: ObservationNormaliser,
        actions: FiniteActions,
        *,
        steps: int,
        rows: int,
        rng: np.random.Generator | None,
        masked: bool = False,
    ) -> None:
        self._forward = forward_for(policy.body, policy.head, normaliser, rows)
        self._actions = actions
        shape = (steps, rows, actions.factors, actions.choices)
        self._logits = np.empty(shape, np.float32)
        self._label = np.empty(shape[:3], np.int64)
        self._padding = ~actions.allowed_fk
        self._ragged = bool(self._padding.any())
        self._mask = np.empty(shape, np.bool_) if masked else None
        self._noise = None if rng is None else rng.gumbel(size=shape).astype(np.float32)

    def act(
        self, t: int, flat: Array, images: tuple[Array, ...] = (), mask: Array | None = None
    ) -> Array:
        """Sampled labels (the likeliest, when there is no noise)."""
        logits = self._logits[t]
        self._forward(flat, images, logits.reshape(len(logits), -1))
        if self._ragged:
            logits[:, self._padding] = FORBIDDEN
        if mask is not None:
            logits[~mask] = FORBIDDEN
            if self._mask is not None:
                self._mask[t] = mask
        scores = logits if self._noise is None else logits + self._noise[t]
        label = scores.argmax(-1, out=self._label[t])
        action = label + self._actions.start
        return action[:, 0] if self._actions.scalar else action

    def record(self) -> dict[str, Array]:
        """Labels [t, n, f], logits and, where there were any, masks [t, n, f, k]."""
        record = {"label": self._label, "logits": self._logits}
        return record if self._mask is None else record | {"mask": self._mask}


def coloured_noise(
    shape: tuple[int, ...], color: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Standard normal noise along the first axis with power spectrum f^(-color).

    0 is white noise; with 1 (pink) neighbouring steps agree, so the agent gets somewhere before
    the noise averages out. Each single draw remains standard normal.
    """
    steps = shape[0]
    if color == 0 or steps == 1:
        return rng.standard_normal(shape, dtype=np.float32)
    frequency = np.fft.rfftfreq(steps)
    frequency[0] = frequency[1]  # no power beyond the rollout's own length
    amplitude = frequency ** (-color / 2)
    bins = (len(amplitude), *shape[1:])
    spectrum = rng.standard_normal(bins) + 1j * rng.standard_normal(bins)
    spectrum *= amplitude.reshape(-1, *(1,) * (len(shape) - 1))
    spectrum[0] = spectrum[0].real * 2**0.5
    if steps % 2 == 0:
        spectrum[-1] = spectrum[-1].real * 2**0.5
        power = (amplitude[0] ** 2 + amplitude[-1] ** 2) + 2 * (amplitude[1:-1] ** 2).sum()
    else:
        power = amplitude[0] ** 2 + 2 * (amplitude[1:] ** 2).sum()
    noise: NDArray[np.float64] = np.fft.irfft(spectrum, n=steps, axis=0)
    noise *= steps / np.sqrt(2 * power)
    return noise.astype(np.float32)


def actor_for(
    policy: Policy,
    normaliser: ObservationNormaliser,
    actions: BoxActions | FiniteActions,
    *,
    steps: int,
    rows: int,
    rng: np.random.Generator | None,
    sde_sample_freq: int = -1,
    noise_color: float = 0.0,
    masked: bool = False,
) -> GaussianActor | FiniteActor:
    """An actor for ``rows`` environments and ``steps`` steps; deterministic without ``rng``."""
    if isinstance(actions, BoxActions):
        return GaussianActor(
            policy,
            normaliser,
            actions,
            steps=steps,
            rows=rows,
            rng=rng,
            sde_sample_freq=sde_sample_freq,
            noise_color=noise_color,
        )
    return FiniteActor(policy, normaliser, actions, steps=steps, rows=rows, rng=rng, masked=masked)
