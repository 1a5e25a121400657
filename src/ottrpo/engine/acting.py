"""Acting, twice: as a pure function, and as the host does it, many times faster.

One JAX call per environment step costs twenty times the arithmetic of a small network. On the host
the weights are copied once per rollout, and compiled loops act. Networks with image encoders are
the exception: there the convolutions dominate, and JAX evaluates them. The noise of a whole rollout
is drawn in advance, by the same function for both.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from . import arrays
from .arrays import Generator, namespace, put
from .densities import RichActions
from .networks import (
    ACTIVATIONS,
    SDE_VARIANCE_FLOOR,
    Body,
    Linear,
    Policy,
    sde_deviation,
    sde_variance,
)
from .runtime import require_threads
from .spaces import FORBIDDEN, BoxActions, FiniteActions
from .state import Normaliser, Observations

Array = Any
IMAGE_CHUNK = 256  # rows per call when a whole rollout of images is evaluated


@dataclass(frozen=True, eq=False)
class Eyes:
    """Normalisation as it is while the policy acts."""

    normaliser: Normaliser
    seen: Observations

    def __call__(self, flat: Array) -> Array:
        """Normalised features."""
        return self.normaliser(self.seen, flat)


class CompiledForward:
    """A perceptron on raw features, for a fixed number of rows, without allocation.

    The latent features handed out are overwritten by the next call. ``arguments`` are those that
    `arrays.forward` takes between the raw features and the outputs.
    """

    def __init__(self, body: Body, head: Linear, eyes: Eyes, rows: int) -> None:
        layers = (*body.layers, head)
        sizes = np.array([layers[0].weight.shape[0], *(len(layer.bias) for layer in layers)])
        weights = [
            _copy(part).reshape(-1) for layer in layers for part in (layer.weight, layer.bias)
        ]
        work = np.zeros((len(layers), rows, sizes[:-1].max()), np.float32)
        mean, scale, clip = eyes.seen.mean, eyes.seen.scale, eyes.normaliser.clip_obs
        if not eyes.normaliser.observations:
            mean, scale, clip = np.zeros(sizes[0]), np.ones(sizes[0]), np.inf
        self.arguments = (
            np.stack([mean, scale]).astype(np.float64),
            float(clip),
            np.concatenate(weights),
            sizes,
            ACTIVATIONS[body.activation][1],
            work,
        )
        self._latent = work[-1, :, : sizes[-2]]

    def __call__(self, flat: Array, images: tuple[Array, ...], out: Array) -> Array:
        """Write the head's outputs to ``out`` and return the last hidden layer."""
        # other types would work too, but each would be compiled anew
        flat = np.ascontiguousarray(flat, np.float64)
        arrays.forward(flat, *self.arguments, out)
        return self._latent


class JaxForward:
    """The same interface for networks with image encoders."""

    def __init__(self, body: Body, head: Linear, eyes: Eyes) -> None:
        require_threads()
        self._body, self._eyes = body, eyes
        self._head = (_copy(head.weight), _copy(head.bias))

    def __call__(self, flat: Array, images: tuple[Array, ...], out: Array) -> Array:
        """Write the head's outputs to ``out`` and return the last hidden layer."""
        latent = np.asarray(_latent(self._body, self._eyes(flat), images))
        np.dot(latent, self._head[0], out=out)
        out += self._head[1]
        return latent


def forward_for(body: Body, head: Linear, eyes: Eyes, rows: int) -> CompiledForward | JaxForward:
    """The fast evaluator for this network."""
    if body.encoders:
        return JaxForward(body, head, eyes)
    return CompiledForward(body, head, eyes, rows)


def evaluate_rows(body: Body, head: Linear, flat: Array, images: tuple[Array, ...]) -> Array:
    """Outputs for any number of normalised rows: the values of a whole rollout in one batch."""
    if not body.encoders:
        x = flat
        for layer in body.layers:
            x = x @ _copy(layer.weight)
            x += _copy(layer.bias)
            arrays.activate(ACTIVATIONS[body.activation][1], x.reshape(-1))
        return x @ _copy(head.weight) + _copy(head.bias)
    out = np.empty((len(flat), head.bias.shape[0]), np.float32)
    for start in range(0, len(flat), IMAGE_CHUNK):  # equal chunks, so that one program serves all
        stop = min(start + IMAGE_CHUNK, len(flat))
        chunk = [_padded(array[start:stop], IMAGE_CHUNK) for array in (flat, *images)]
        latent = np.asarray(_latent(body, chunk[0], tuple(chunk[1:])))[: stop - start]
        out[start:stop] = latent @ _copy(head.weight) + _copy(head.bias)
    return out


def _padded(array: Array, rows: int) -> Array:
    missing = rows - len(array)
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)]) if missing else array


def _copy(array: Array) -> Array:
    return np.ascontiguousarray(np.asarray(array), dtype=np.float32)


@eqx.filter_jit
def _latent(body: Body, flat: Array, images: tuple[Array, ...]) -> Array:
    return body(flat, images)


class Actor(Protocol):
    """What a rollout needs: an action for each environment at each step, and a record of it."""

    def act(self, t: int, flat: Array, images: tuple[Array, ...], mask: Array | None) -> Array:
        """Actions for the environments at step t of the rollout."""

    def record(self) -> dict[str, Array]:
        """What was drawn, and the distributions it was drawn from, [steps, environments, ...]."""


class InBox:
    """An actor in a box."""

    def __init__(self, actions: BoxActions, rows: int) -> None:
        self._to_world = None if actions.is_unit else actions.to_world
        self._shape, self._typed = (rows, *actions.shape), actions.typed

    def _taken(self, bounded: Array) -> Array:
        """Actions in [-1, 1] as the environment wants them."""
        if self._to_world is not None:
            bounded = self._to_world(bounded)
        return self._typed(bounded).reshape(self._shape)


class GaussianActor(InBox):
    """Draws a = m(s) + σ(s) z; with gSDE the noise is a linear function of the features."""

    def __init__(
        self, policy: Policy, eyes: Eyes, actions: BoxActions, rows: int, noise: "Noise | None"
    ) -> None:
        super().__init__(actions, rows)
        self._forward = forward_for(policy.body, policy.head, eyes, rows)
        self._squash = actions.squash
        log_std = np.asarray(policy.log_std)
        steps = 1 if noise is None else noise.steps
        self._mean = np.empty((steps, rows, actions.size), np.float32)
        self._action = np.empty_like(self._mean)
        self._variance = None
        if noise is None:
            self._noise = np.zeros_like(self._mean)
            return
        deviation = sde_deviation(log_std, expln=policy.expln)
        self._noise, self._every = noise.values * deviation, noise.every
        if log_std.ndim == 2:
            self._variance = sde_variance(log_std, expln=policy.expln)
            self._std = np.empty_like(self._mean)
        else:
            self._std = np.broadcast_to(deviation, self._mean.shape)

    def act(
        self, t: int, flat: Array, images: tuple[Array, ...] = (), mask: Array | None = None
    ) -> Array:
        """Sampled actions, kept inside the box (the mean's, when there is no noise)."""
        clipped = np.empty(self._mean.shape[1:], np.float32)  # new: environments may keep it
        if self._variance is None and isinstance(self._forward, CompiledForward):
            flat = np.ascontiguousarray(flat, np.float64)
            drawn = (self._mean, self._noise, self._action, clipped)
            arrays.act(t, flat, *self._forward.arguments, *drawn)
        else:
            self._draw(t, self._forward(flat, images, self._mean[t]), clipped)
        if self._squash:
            clipped = np.tanh(self._action[t])
        return self._taken(clipped)

    def _draw(self, t: int, latent: Array, clipped: Array) -> None:
        if self._variance is None:
            noise = self._noise[t]
        else:
            noise = np.einsum("nl,nld->nd", latent, self._noise[t // self._every])
            self._std[t] = np.sqrt(latent**2 @ self._variance + SDE_VARIANCE_FLOOR)
        arrays.draw(self._mean[t], noise, self._action[t], clipped)

    def record(self) -> dict[str, Array]:
        """Actions before clipping, means and standard deviations [t, n, d]."""
        return {"action": self._action, "mean": self._mean, "std": self._std}


class RichActor(InBox):
    """Draws what a density makes of noise; without any, what it makes of zeros."""

    def __init__(self, policy: Policy, eyes: Eyes, actions: RichActions, rows: int, noise: Any):
        super().__init__(actions, rows)
        self._forward = forward_for(policy.body, policy.head, eyes, rows)
        density = self._density = actions.density
        self._noise = np.zeros((1, rows, density.noises)) if noise is None else noise.values
        self._head = np.empty((len(self._noise), rows, len(density.first)), np.float32)
        self._action = np.empty((*self._head.shape[:2], actions.size), np.float32)

    def act(
        self, t: int, flat: Array, images: tuple[Array, ...] = (), mask: Array | None = None
    ) -> Array:
        """Sampled actions, kept inside the box."""
        self._forward(flat, images, self._head[t])
        self._action[t] = self._density.push(self._head[t], self._noise[t])
        return self._taken(np.clip(self._action[t], -1.0, 1.0))

    def record(self) -> dict[str, Array]:
        """Actions before clipping [t, n, d], and the head's numbers [t, n, o]."""
        return {"action": self._action, "head": self._head}


class FiniteActor:
    """Draws labels by the Gumbel trick: the largest of logits plus noise drawn in advance."""

    def __init__(
        self,
        policy: Policy,
        eyes: Eyes,
        actions: FiniteActions,
        rows: int,
        noise: "Noise | None",
        *,
        masked: bool = False,
    ) -> None:
        self._forward = forward_for(policy.body, policy.head, eyes, rows)
        self._actions = actions
        self._noise = None if noise is None else noise.values
        shape = (1 if noise is None else noise.steps, rows, actions.factors, actions.choices)
        self._logits = np.empty(shape, np.float32)
        self._label = np.empty(shape[:3], np.int64)
        self._padding = ~actions.allowed_fk
        self._ragged = bool(self._padding.any())
        self._mask = np.empty(shape, np.bool_) if masked else None

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
        return self._actions.to_world(label)

    def record(self) -> dict[str, Array]:
        """Labels [t, n, f], logits and, where there were any, masks [t, n, f, k]."""
        record = {"label": self._label, "logits": self._logits}
        return record if self._mask is None else record | {"mask": self._mask}


def actor_for(
    policy: Policy,
    eyes: Eyes,
    actions: BoxActions | FiniteActions,
    rows: int,
    noise: "Noise | None",
    *,
    masked: bool = False,
) -> GaussianActor | RichActor | FiniteActor:
    """The host's actor for ``rows`` environments; the policy's mode, a step, without noise."""
    if isinstance(actions, RichActions):
        return RichActor(policy, eyes, actions, rows, noise)
    if isinstance(actions, BoxActions):
        return GaussianActor(policy, eyes, actions, rows, noise)
    return FiniteActor(policy, eyes, actions, rows, noise, masked=masked)


def act(
    policy: Policy,
    actions: BoxActions | FiniteActions,
    flat: Array,
    images: tuple[Array, ...],
    noise: Array,
    mask: Array | None = None,
) -> tuple[Array, dict[str, Array]]:
    """One step as a pure function: actions for normalised features, and the record of them.

    ``noise`` is that of the step: `Noise.at`.
    """
    if isinstance(actions, FiniteActions):
        logits = policy.logits(flat, images, actions.choices)
        allowed = actions.allowed_fk if mask is None else actions.allowed_fk & mask
        logits = jnp.where(allowed, logits, FORBIDDEN)
        label = (logits + noise).argmax(-1)
        record = {"label": label, "logits": logits} | ({} if mask is None else {"mask": mask})
        return actions.to_world(label), record
    if isinstance(actions, RichActions):
        record = {"head": policy.raw(flat, images)}
        action = actions.density.push(record["head"], noise)
    else:
        record = dict(zip(("mean", "std"), policy.gaussian(flat, images), strict=True))
        if noise.ndim == 3:
            noise = noise * sde_deviation(jnp.asarray(policy.log_std), expln=policy.expln)
            action = record["mean"] + jnp.einsum("nl,nld->nd", policy.body(flat, images), noise)
        else:
            action = record["mean"] + record["std"] * noise
    bounded = jnp.tanh(action) if actions.squash else jnp.clip(action, -1.0, 1.0)
    world = actions.to_world(bounded).reshape(len(flat), *actions.shape)
    return world, record | {"action": action}


class Noise(NamedTuple):
    """The noise of a rollout, before it is scaled.

    Attributes:
        values: [steps, n, ...]; of gSDE one for every stretch of ``every`` steps.
        steps: how many.
        every: steps that share a draw.
    """

    values: Array
    steps: int
    every: int = 1

    def at(self, t: Array) -> Array:
        """That of step t."""
        return self.values[t // self.every]


def draw_noise(
    policy: Policy,
    actions: BoxActions | FiniteActions,
    rng: Generator,
    *,
    steps: int,
    rows: int,
    sde_sample_freq: int = -1,
    noise_color: Array = 0.0,
) -> Noise:
    """The noise of a rollout: Gumbel's for labels, coloured for Gaussians, matrices for gSDE."""
    if isinstance(actions, FiniteActions):
        shape = (steps, rows, actions.factors, actions.choices)
        return Noise(rng.gumbel(size=shape).astype(np.float32), steps)
    if policy.log_std is not None and policy.log_std.ndim == 2:
        every = sde_sample_freq if sde_sample_freq > 0 else steps
        shape = (-(-steps // every), rows, *policy.log_std.shape)
        return Noise(rng.standard_normal(shape, dtype=np.float32), steps, every)
    noise = coloured_noise((steps, rows, actions.size), noise_color, rng)
    if isinstance(actions, RichActions):
        noise = actions.density.noise(noise, rng)
    return Noise(noise, steps)


def coloured_noise(shape: tuple[int, ...], color: Array, rng: Generator) -> Array:
    """Standard normal noise along the first axis with power spectrum f^(-color), in float32.

    0 is white noise; with 1 (pink) neighbouring steps agree, so the agent gets somewhere before
    the noise averages out. Each single draw remains standard normal.
    """
    steps = shape[0]
    if steps == 1 or (isinstance(color, float | int) and color == 0):
        return rng.standard_normal(shape, dtype=np.float32)
    frequency = np.fft.rfftfreq(steps)
    frequency[0] = frequency[1]  # no power beyond the rollout's own length
    amplitude = frequency ** (-color / 2)
    bins = (len(amplitude), *shape[1:])
    spectrum = rng.standard_normal(bins) + 1j * rng.standard_normal(bins)
    spectrum = spectrum * amplitude.reshape(-1, *(1,) * (len(shape) - 1))
    spectrum = put(spectrum, (0,), spectrum[0].real * 2**0.5)
    if steps % 2 == 0:
        spectrum = put(spectrum, (-1,), spectrum[-1].real * 2**0.5)
        power = (amplitude[0] ** 2 + amplitude[-1] ** 2) + 2 * (amplitude[1:-1] ** 2).sum()
    else:
        power = amplitude[0] ** 2 + 2 * (amplitude[1:] ** 2).sum()
    xp = namespace(spectrum)
    noise = xp.fft.irfft(spectrum, n=steps, axis=0)
    return (noise * (steps / xp.sqrt(2 * power))).astype(np.float32)
