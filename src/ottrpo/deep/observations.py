"""Observations of any supported space as one flat vector and a tuple of images."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = Any


@dataclass(slots=True)  # not frozen: one is made per step, and that is four times slower
class Encoded:
    """Observations of n environments: flat features [n, f] and images [n, channels, h, w]."""

    flat: Array
    images: tuple[Array, ...] = ()


@dataclass(frozen=True)
class _Part:
    """One leaf of the observation space."""

    key: str | None
    space: spaces.Space[Any]
    image: bool

    @property
    def size(self) -> int:
        """Flat features it becomes."""
        return 0 if self.image else spaces.flatdim(self.space)

    @property
    def measured(self) -> bool:
        """Whether its entries are measurements, to be normalised, rather than codes."""
        return isinstance(self.space, spaces.Box)


@dataclass(frozen=True)
class ObservationLayout:
    """Where each leaf of an observation space goes.

    Box: its entries. Discrete and MultiDiscrete: one-hot codes. MultiBinary: zeros and ones.
    Dict: its leaves side by side. Images go to convolutional encoders if ``convolve`` is set, and
    are flattened like any Box otherwise.
    """

    parts: tuple[_Part, ...]

    @property
    def features(self) -> int:
        """Number of flat features."""
        return sum(part.size for part in self.parts)

    @property
    def images(self) -> tuple[tuple[int, int, int], ...]:
        """Shapes of the images."""
        shapes = (part.space.shape for part in self.parts if part.image)
        return tuple((shape[0], shape[1], shape[2]) for shape in shapes if shape is not None)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which flat features are measurements."""
        flags = [np.full(part.size, part.measured) for part in self.parts]
        return np.concatenate(flags) if flags else np.zeros(0, np.bool_)

    @property
    def is_plain(self) -> bool:
        """Whether observations already are flat vectors."""
        part = self.parts[0]
        return len(self.parts) == 1 and part.measured and len(part.space.shape or ()) == 1

    def encode(self, observation: Any, rows: int) -> Encoded:
        """Observations of ``rows`` environments, as a VecEnv returns them."""
        if self.is_plain:
            return Encoded(np.asarray(observation).reshape(rows, -1))
        flat, images = [], []
        for part in self.parts:
            leaf = observation if part.key is None else observation[part.key]
            if part.image:
                images.append(np.asarray(leaf).reshape(rows, *(part.space.shape or ())))
            else:
                flat.append(_flatten(part.space, np.asarray(leaf), rows))
        features = np.concatenate(flat, axis=1) if flat else np.zeros((rows, 0))
        return Encoded(features, tuple(images))


def observation_layout(space: spaces.Space[Any], *, convolve: bool) -> ObservationLayout:
    """The layout of ``space``; an unsupported space is refused by name."""
    if isinstance(space, spaces.Dict):
        return ObservationLayout(
            tuple(_part(key, leaf, convolve=convolve) for key, leaf in space.spaces.items())
        )
    return ObservationLayout((_part(None, space, convolve=convolve),))


def _part(key: str | None, space: spaces.Space[Any], *, convolve: bool) -> _Part:
    supported = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if not isinstance(space, supported):
        where = "" if key is None else f" (under {key!r})"
        raise ValueError(
            f"observation space {space}{where} is not supported; allowed: Box, Discrete, "
            "MultiDiscrete, MultiBinary, and a Dict of these (not nested)"
        )
    return _Part(key, space, convolve and is_image(space))


def is_image(space: spaces.Space[Any]) -> bool:
    """A Box of bytes with three axes, values 0 to 255."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.dtype == np.uint8
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def _flatten(space: spaces.Space[Any], leaf: Array, rows: int) -> Array:
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[leaf.reshape(rows) - int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        labels = leaf.reshape(rows, -1) - space.start.reshape(-1)
        codes = [
            np.eye(int(count), dtype=np.float32)[labels[:, i]]
            for i, count in enumerate(space.nvec.reshape(-1))
        ]
        return np.concatenate(codes, axis=1)
    return leaf.reshape(rows, -1).astype(np.float64)
