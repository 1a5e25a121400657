"""Policies in a box that are richer than a Gaussian: a mixture of Gaussians, and a flow.

A *density* reads the numbers of the policy's head as a way to make actions of noise, a = f(s, z).
Noise that is 0 makes the action to be played when none is to be drawn. Everything is written once,
for NumPy's arrays and for JAX's, with any axes in front of the last.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any, final

import jax
import numpy as np

from .arrays import Generator, namespace, on_host
from .spaces import BoxActions

Array = Any
SMALLEST_SCALE = 0.02  # of σ and of a flow's slope, in units of half the box
BISECTIONS = 24


@dataclass(frozen=True)
class Density(ABC):
    """How the numbers of a policy's head make actions.

    Attributes:
        size: coordinates of an action.
        count: components of a mixture, steps of a flow.
        scale: standard deviation at first, about.
    """

    size: int
    count: int
    scale: float

    @property
    @abstractmethod
    def first(self) -> tuple[float, ...]:
        """The head's numbers before anything was learnt."""

    @property
    def choices(self) -> int:
        """Numbers of Gumbel's distribution that an action takes, before the normal ones."""
        return 0

    @property
    def noises(self) -> int:
        """Numbers of noise that an action takes."""
        return self.choices + self.size

    def noise(self, normal: Array, rng: Generator) -> Array:
        """What an action is made of: choices, and the normal numbers [..., d] that are given."""
        if not self.choices:
            return normal
        gumbel = rng.gumbel(size=(*normal.shape[:-1], self.choices)).astype(normal.dtype)
        return namespace(normal).concatenate([gumbel, normal], axis=-1)

    @abstractmethod
    def push(self, head: Array, noise: Array) -> Array:
        """The action f(s, z) [..., d]."""

    @abstractmethod
    def log_density(self, head: Array, action: Array) -> Array:
        """Logarithm of the density at an action [...]."""

    def _quantiles(self) -> Array:
        """Places [count, d] as a normal distribution has them, in another order per coordinate."""
        normal = NormalDist()
        place = np.array([normal.inv_cdf((k + 0.5) / self.count) for k in range(self.count)])
        order = np.random.default_rng(0).permuted(np.tile(place[:, None], self.size), axis=0)
        order[:, 0] = place
        return order


@final
class Mixture(Density):
    """Gaussians of diagonal covariance with weights: Σ_k w_k(s) N(m_k(s), σ_k(s)²).

    Without noise the mean of the likeliest component is played.
    """

    @property
    def choices(self) -> int:
        """One per component: the largest of log w + Gumbel's number is drawn with chance w."""
        return self.count

    @property
    def first(self) -> tuple[float, ...]:
        """Equal weights, means apart from each other."""
        mean = self.scale * self._quantiles()
        log_std = np.full(mean.shape, math.log(self.scale))
        return tuple(np.concatenate([np.zeros(self.count), mean.ravel(), log_std.ravel()]).tolist())

    def parts(self, head: Array) -> tuple[Array, Array, Array]:
        """Logarithms of the weights [..., k], means and standard deviations [..., k, d]."""
        xp, k, d = namespace(head), self.count, self.size
        logit, shape = head[..., :k], (*head.shape[:-1], k, d)
        top = logit.max(-1, keepdims=True)
        log_weight = logit - top - xp.log(xp.exp(logit - top).sum(-1, keepdims=True))
        mean, log_std = (head[..., k + i * k * d :][..., : k * d].reshape(shape) for i in (0, 1))
        return log_weight, mean, SMALLEST_SCALE + xp.exp(log_std)

    def push(self, head: Array, noise: Array) -> Array:
        """Choose a component, draw from it."""
        log_weight, mean, std = self.parts(head)
        chosen = (log_weight + noise[..., : self.count]).argmax(-1)[..., None]
        chosen = (namespace(head).arange(self.count) == chosen)[..., None]
        return (chosen * (mean + std * noise[..., None, self.count :])).sum(-2)

    def log_density(self, head: Array, action: Array) -> Array:
        """The logarithm of Σ_k w_k N(a; m_k, σ_k²)."""
        log_weight, mean, std = self.parts(head)
        xp = namespace(mean)
        z = (action[..., None, :] - mean) / std
        each = log_weight - (0.5 * z**2 + xp.log(std) + 0.5 * math.log(2 * math.pi)).sum(-1)
        top = each.max(-1)
        return top + xp.log(xp.exp(each - top[..., None]).sum(-1))


@final
class Flow(Density):
    """Correlated normal numbers, each through an increasing map of its own: a_j = h_j((C z)_j).

    h(u) = m + b u + Σ_l w_l tanh(k_l (u − c_l)) with b, w, k > 0: where it is steep, actions are
    rare, and where it is flat, there is a mode. C is lower triangular with ones on its diagonal.
    All of these are functions of the state. Without noise the middle is played, h(0): half of each
    coordinate's mass lies on either side.
    """

    @property
    def first(self) -> tuple[float, ...]:
        """Nearly a Gaussian: half of its width from the slope, half from the steps."""
        centre = self._quantiles().T
        slope = np.full(self.size, math.log(0.5 * self.scale))
        height = np.full(centre.shape, math.log(0.5 * self.scale / self.count))
        parts = (np.zeros(self.size), slope, height, np.zeros(centre.shape), centre)
        mixed = self.size * (self.size - 1) // 2
        return tuple(np.concatenate([*(part.ravel() for part in parts), np.zeros(mixed)]).tolist())

    @cached_property
    def _below(self) -> Array:
        """Which entry of C each of the last numbers is [p, d, d]."""
        rows, columns = np.tril_indices(self.size, -1)
        below = np.zeros((len(rows), self.size, self.size), np.float32)
        below[np.arange(len(rows)), rows, columns] = 1.0
        return below

    def parts(self, head: Array) -> tuple[Array, ...]:
        """Of the map: m and b [..., d]; w, k and c [..., d, l]; C [..., d, d]."""
        xp, d, steps = namespace(head), self.size, self.size * self.count
        shape = (*head.shape[:-1], d, self.count)
        height, steep, centre = (
            head[..., 2 * d + i * steps :][..., :steps].reshape(shape) for i in range(3)
        )
        mixed = xp.einsum("...p,pij->...ij", head[..., 2 * d + 3 * steps :], self._below)
        slope = SMALLEST_SCALE + xp.exp(head[..., d : 2 * d])
        mixing = mixed + np.eye(d, dtype=np.float32)
        return head[..., :d], slope, xp.exp(height), xp.exp(steep), centre, mixing

    def push(self, head: Array, noise: Array) -> Array:
        """h(C z)."""
        *map_of, mixing = self.parts(head)
        return _risen(map_of, (mixing * noise[..., None, :]).sum(-1))[0]

    def inverse(self, head: Array, action: Array) -> tuple[Array, Array]:
        """The noise of an action [..., d], and the logarithm of |∂a/∂z| there [...].

        h differs from m + b u by no more than the sum of w: a bracket, which is halved.
        """
        xp = namespace(head)
        *map_of, _ = self.parts(head if on_host(head) else jax.lax.stop_gradient(head))
        shift, slope, height, *_ = map_of
        middle, reach = (action - shift) / slope, height.sum(-1) / slope
        low, high = middle - reach, middle + reach
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            above = _risen(map_of, middle)[0] > action
            low, high = xp.where(above, low, middle), xp.where(above, middle, high)
        # a last step by Newton, which also knows how the inverse changes with the head
        *map_of, mixing = self.parts(head)
        risen, slope = _risen(map_of, middle)
        middle = middle - (risen - action) / slope
        mixing = xp.broadcast_to(mixing, (*middle.shape, self.size))
        normal = xp.linalg.solve(mixing, middle[..., None])[..., 0]
        return normal, xp.log(_risen(map_of, middle)[1]).sum(-1)

    def log_density(self, head: Array, action: Array) -> Array:
        """That of the noise, less log |∂a/∂z|."""
        normal, stretch = self.inverse(head, action)
        return -0.5 * (normal**2 + math.log(2 * math.pi)).sum(-1) - stretch


def _risen(map_of: Any, middle: Array) -> tuple[Array, Array]:
    """h(u) and its slope."""
    shift, slope, height, steep, centre = map_of
    step = namespace(middle).tanh(steep * (middle[..., None] - centre))
    risen = shift + slope * middle + (height * step).sum(-1)
    return risen, slope + (height * steep * (1.0 - step**2)).sum(-1)


KINDS: dict[str, type[Density]] = {"mixture": Mixture, "flow": Flow}


@dataclass(frozen=True)
class RichActions(BoxActions):
    """Actions in a box whose policy is no Gaussian, but of a density."""

    density: Density = field(kw_only=True)
