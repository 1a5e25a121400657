"""Observations and actions of any supported space, as the engine sees them, and as JSON."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ottrpo.core.checks import Refused
from ottrpo.names import in_short, plainly

Array = Any
MAX_ENTRIES = 2**24  # of a space in a file: an image of 4096 by 4096
LABELS = spaces.Discrete, spaces.MultiDiscrete
FORBIDDEN = np.float32(-1e9)  # logit of an action that a mask rules out


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

    @cached_property
    def labels(self) -> tuple[Array, Array, Array]:
        """Of labels: the first, how many, where their features begin."""
        space: Any = self.space
        counts = np.reshape(getattr(space, "nvec", getattr(space, "n", 0)), -1).astype(np.int64)
        return np.reshape(space.start, -1).astype(np.int64), counts, counts.cumsum() - counts

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
        alone = len(self.parts) == 1 and part.key is None
        return alone and part.measured and len(part.space.shape or ()) == 1

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
                flat.append(_flatten(part, np.asarray(leaf), rows))
        features = np.concatenate(flat, axis=1) if flat else np.zeros((rows, 0))
        return Encoded(features, tuple(images))

    def decode(self, encoded: Encoded) -> Any:
        """Observations as a VecEnv returns them: what `encode` was given."""
        images, start = iter(encoded.images), 0
        leaves: dict[str | None, Array] = {}
        for part in self.parts:
            if part.image:
                leaves[part.key] = next(images)
            else:
                leaves[part.key] = _unflatten(part, encoded.flat[:, start : start + part.size])
            start += part.size
        return leaves.get(None, leaves)


def observation_layout(
    space: spaces.Space[Any], *, convolve: bool, pixels: bool = True
) -> ObservationLayout:
    """The layout of ``space``; an unsupported space is refused by name.

    Args:
        space: of the environment.
        convolve: send images to encoders.
        pixels: images are made of bytes; else any Box with three axes is one.
    """
    leaves = space.spaces.items() if isinstance(space, spaces.Dict) else [(None, space)]
    return ObservationLayout(
        tuple(_part(key, leaf, convolve=convolve, pixels=pixels) for key, leaf in leaves)
    )


def _part(key: str | None, space: spaces.Space[Any], *, convolve: bool, pixels: bool) -> _Part:
    supported = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if not isinstance(space, supported):
        where = "" if key is None else f" (under {key!r})"
        raise Refused(
            f"observation space {plainly(space)}{where} is not supported; allowed: Box, Discrete, "
            "MultiDiscrete, MultiBinary, and a Dict of these (not nested)"
        )
    return _Part(key, space, convolve and is_image(space, pixels=pixels))


def is_image(space: spaces.Space[Any], *, pixels: bool = True) -> bool:
    """A Box with three axes; of ``pixels``, of bytes, values 0 to 255."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return False
    bytes_only = space.dtype == np.uint8 and (space.low == 0).all() and (space.high == 255).all()
    return bool(bytes_only) or not pixels


def _flatten(part: _Part, leaf: Array, rows: int) -> Array:
    if not isinstance(part.space, LABELS):
        return leaf.reshape(rows, -1).astype(np.float64)
    first, counts, begin = part.labels
    given = leaf.reshape(rows, -1) - first
    labels = given.astype(np.int64, copy=False)
    outside = ((labels | (counts - 1 - labels)) < 0).any()  # -1 is no last label
    if outside or (labels is not given and (labels != given).any()):
        told = in_short(leaf.tolist())
        raise ValueError(f"observations must be in {plainly(part.space)}, got {told}")
    flat = np.zeros((rows, begin[-1] + counts[-1]), np.float32)
    flat[np.arange(rows)[:, None], labels + begin] = 1.0
    return flat


def _unflatten(part: _Part, flat: Array) -> Array:
    space: Any = part.space
    if isinstance(space, LABELS):
        first, _, begin = part.labels
        codes = np.split(flat, begin[1:], axis=1)
        flat = first + np.stack([one_hot.argmax(1) for one_hot in codes], axis=1)
    return flat.reshape(len(flat), *(space.shape or ())).astype(space.dtype)


@dataclass(frozen=True)
class BoxActions:
    """Actions in a box, measured from its centre in units of half its width.

    So every box is [-1, 1] to the policy, and one initial standard deviation suits all. Samples
    of a Gaussian are clipped to the box before they reach the world, or squashed into it by a
    hyperbolic tangent; then all that is learnt is learnt of what was drawn, before that.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    shape: tuple[int, ...]
    dtype: str = "float32"  # the environment's
    squash: bool = False

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

    def typed(self, action: NDArray[Any]) -> NDArray[Any]:
        """Actions in the environment's type: in a box of whole numbers, the nearest ones."""
        nearest = np.rint(action) if "int" in self.dtype else action
        return nearest.astype(self.dtype, copy=False)


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

    def to_world(self, label: Array) -> Array:
        """Labels [n, f], counted from 0, as the environment names them."""
        action = label + self.start
        return action[:, 0] if self.scalar else action

    def labels_of(self, action: Array) -> Array:
        """What `to_world` named, one row for each of n actions."""
        return np.asarray(action).astype(np.int64).reshape(-1, self.factors) - self.start

    def pad_mask(self, mask_n: Array) -> NDArray[np.bool_]:
        """Action masks as environments state them [n, sum of counts], as [n, f, k]."""
        mask_n = np.asarray(mask_n)
        if mask_n.dtype != np.bool_ and not np.isfinite(mask_n).all():  # NaN would count as allowed
            raise ValueError("action masks are made of True and False, or 1 and 0; got NaN")
        mask_n = mask_n.astype(np.bool_).reshape(len(mask_n), -1)
        if mask_n.shape[1] != sum(self.counts):
            raise ValueError(
                f"action masks must have {sum(self.counts)} entries, got {mask_n.shape[1]}"
            )
        padded = np.zeros((len(mask_n), self.factors, self.choices), dtype=np.bool_)
        padded[:, self.allowed_fk] = mask_n
        return padded


@dataclass(frozen=True)
class BinnedActions(FiniteActions):
    """A box whose coordinates are labels: points at equal distances, from one bound to the other.

    A policy over them may have several modes, and mass may be split; neighbours remain neighbours
    under a cost of the labels' distance (`ottrpo.core.Ordinal`).
    """

    box: BoxActions

    @cached_property
    def points_fk(self) -> NDArray[Any]:
        """Where in the box each label is."""
        share_k = np.linspace(0.0, 1.0, self.choices)
        low_f, high_f = (np.asarray(b, np.float64)[:, None] for b in (self.box.low, self.box.high))
        points_fk = low_f * (1.0 - share_k) + high_f * share_k
        return self.box.typed(points_fk)

    def to_world(self, label: Array) -> Array:
        """The points of the labels [n, f], in the shape of the box."""
        coordinate_f = np.arange(self.factors)
        points_fk = label.__array_namespace__().asarray(self.points_fk)
        return points_fk[coordinate_f, label].reshape(-1, *self.box.shape)

    def labels_of(self, action: Array) -> Array:
        """The labels whose points are nearest."""
        away = np.asarray(action, np.float64).reshape(-1, self.factors, 1) - self.points_fk
        return np.abs(away).argmin(-1)


def actions_of(
    space: spaces.Space[Any], bins: int | None = None, *, squash: bool = False
) -> BoxActions | FiniteActions:
    """How the policy sees the action space; an unsupported one is refused by name.

    Args:
        space: of the environment.
        bins: of each coordinate of a box; ``None`` leaves it a box.
        squash: actions into the box, rather than clip them.
    """
    if bins is not None:
        if not isinstance(space, spaces.Box):
            raise ValueError(f"bins need actions in a Box, got {plainly(space)}")
        box = _box(space)
        return BinnedActions((bins,) * box.size, np.zeros(box.size, np.int64), False, box)
    if isinstance(space, spaces.Box):
        return replace(_box(space), squash=squash)
    if isinstance(space, spaces.Discrete):
        return FiniteActions((int(space.n),), np.array([int(space.start)]), scalar=True)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        counts = tuple(int(count) for count in space.nvec)
        return FiniteActions(counts, np.asarray(space.start, np.int64), scalar=False)
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        n = int(space.shape[0])
        return FiniteActions((2,) * n, np.zeros(n, np.int64), scalar=False)
    several = "Multi-dimensional " if len(space.shape or ()) > 1 else ""
    raise Refused(
        f"{several}{plainly(space)} action space is not supported; allowed: a bounded Box, "
        "Discrete, and MultiDiscrete or MultiBinary with one axis"
    )


def _box(space: spaces.Box) -> BoxActions:
    low, high = _inside(space.low, np.inf), _inside(space.high, -np.inf)
    if low.size == 0:
        raise ValueError(f"the action box must have at least one entry, got {plainly(space)}")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise Refused(
            f"the action box must be bounded, got {plainly(space)}; say which actions are worth "
            "trying: gymnasium.wrappers.TransformAction(env, lambda action: action, Box(low, high))"
        )
    return BoxActions(low, high, space.shape, str(space.dtype))


def _inside(bound: Any, towards: float) -> NDArray[np.float32]:
    """A bound in float32, the precision of actions; never beyond the one that was given."""
    given = np.asarray(bound).reshape(-1)
    with np.errstate(over="ignore"):  # a bound beyond float32 is told in our own words
        single = given.astype(np.float32)
    beyond = single < given if towards > 0 else single > given
    return np.where(beyond, np.nextafter(single, np.float32(towards)), single)


def space_to_data(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as JSON."""
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "spaces": {k: space_to_data(s) for k, s in space.spaces.items()}}
    if isinstance(space, spaces.Box):
        told = {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype)}
        return told | {"low": _bound_to_data(space.low), "high": _bound_to_data(space.high)}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        counts, start = space.nvec.tolist(), space.start.tolist()
        return {"kind": "multi-discrete", "counts": counts, "start": start}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi-binary", "shape": list(space.shape)}
    raise ValueError(f"the space {plainly(space)} can't be saved")


def space_from_data(data: dict[str, Any]) -> spaces.Space[Any]:
    """The space that `space_to_data` wrote."""
    kind = data.get("kind")
    if _entries(data) > MAX_ENTRIES:
        raise ValueError(f"a space of {_entries(data):.3g} numbers is too large")
    if kind == "dict":
        return spaces.Dict({k: space_from_data(s) for k, s in data["spaces"].items()})
    if kind == "box":
        shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
        if dtype.kind not in "biuf":
            raise ValueError(f"a box of {dtype} is not supported")
        low, high = (_bound_from_data(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "multi-discrete":
        return spaces.MultiDiscrete(data["counts"], start=data["start"])
    if kind == "multi-binary":
        shape = tuple(data["shape"])
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else list(shape))
    raise ValueError(f"{kind!r} is not a kind of space")


def _entries(data: dict[str, Any]) -> float:
    inside = sum(_entries(leaf) for leaf in data.get("spaces", {}).values())
    return inside + float(np.prod(data.get("shape", ()), dtype=np.float64))


def _bound_to_data(bound: Any) -> Any:
    """Infinity has no JSON; a bound that is the same everywhere is one entry."""
    entries = [str(x) if np.isinf(x) else x.item() for x in np.asarray(bound).reshape(-1)]
    return entries[0] if entries and len(set(entries)) == 1 else entries


def _bound_from_data(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    entries = data if isinstance(data, list) else [data]
    flat = np.array([float(x) if isinstance(x, str) else x for x in entries], dtype=dtype)
    return np.full(shape, flat[0], dtype) if len(flat) == 1 else flat.reshape(shape)
