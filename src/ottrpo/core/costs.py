r"""Transport costs c(a, a') ≥ 0 with c(a, a) = 0, as values.

A cost is called on arrays of source and target actions and broadcasts like any operator. It is
written with operators and with the array's own namespace (``__array_namespace__``), so that one
definition serves NumPy and JAX arrays, traced ones included.

*Label* costs (`Binary`, `TableCost`) take integer action labels, one array entry per action.
*Point* costs (`SquaredEuclidean`, `PNorm`, `Mahalanobis`) take actions with their coordinates
along the last axis and reduce that axis.

A cost may depend on the state (remark on c_{s,π} at the end of the paper's appendix): it is then
called as ``cost(source, target, state)``. A dependence on the policy needs nothing more: the
caller, who knows the policy, builds the cost for each update.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from .checks import Floats, floats, non_negative, require

Array = Any  # a NumPy or a JAX array; a static type for "either" does not exist


class Cost(ABC):
    """The interface of every transport cost."""

    @abstractmethod
    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """c(source, target), or c_state(source, target), broadcast over the leading axes."""

    @property
    @abstractmethod
    def takes_labels(self) -> bool:
        """Whether actions are integer labels (True) or points with a coordinate axis (False)."""

    @property
    def depends_on_state(self) -> bool:
        """Whether the cost must be called with a state."""
        return False

    def matrix(self, actions: int | ArrayLike, states: int | ArrayLike | None = None) -> Floats:
        """The cost between finitely many actions: [A, A], or [S, A, A] when states are given.

        Args:
            actions: their number, or the actions themselves. A number n stands for the labels
                0..n-1, which a point cost reads as the points 0..n-1 of the line.
            states: their number or the states themselves, for a cost that depends on the state.
        """
        action_a = np.arange(actions) if isinstance(actions, int) else np.asarray(actions)
        if not self.takes_labels and action_a.ndim == 1:
            action_a = action_a[:, None].astype(np.float64)
        source, target = action_a[:, None], action_a[None, :]
        shape: tuple[int, ...] = (len(action_a), len(action_a))
        if states is None:
            cost = self(source, target)
        else:
            state_s = np.arange(states) if isinstance(states, int) else np.asarray(states)
            shape = (len(state_s), *shape)
            state_s = state_s.reshape(len(state_s), 1, 1, *state_s.shape[1:])
            cost = self(source[None], target[None], state_s)
        return np.array(np.broadcast_to(np.asarray(cost, dtype=np.float64), shape))

    def __add__(self, other: "Cost") -> "Summed":
        return Summed(self, other)

    def __mul__(self, factor: float) -> "Scaled":
        return Scaled(self, factor)

    __rmul__ = __mul__


@final
@dataclass(frozen=True)
class Binary(Cost):
    """c(a, a') = 1 where the labels differ, else 0: the discrepancy is the total variation.

    >>> Binary().matrix(2)
    array([[0., 1.],
           [1., 0.]])
    """

    takes_labels = True

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """1 where the labels differ."""
        return (source != target) * 1.0


@final
@dataclass(frozen=True)
class Ordinal(Cost):
    """c(i, j) = |i − j|ᵖ with p ≥ 1, for labels in an order: neighbours are cheap to reach.

    >>> Ordinal(2.0).matrix(3)
    array([[0., 1., 4.],
           [1., 0., 1.],
           [4., 1., 0.]])
    """

    p: float = 2.0
    takes_labels = True

    def __post_init__(self) -> None:
        require(1 <= self.p < np.inf, f"p of an ordinal cost must be at least 1, got {self.p}")

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """|i − j|ᵖ."""
        return (abs(source - target) * 1.0) ** self.p


@final
@dataclass(frozen=True, eq=False)
class TableCost(Cost):
    """c(a, a') read from a table [A, A], or c_s(a, a') from a table [S, A, A].

    The table need not be symmetric. Its diagonal must be zero: staying is free.

    >>> float(TableCost([[0, 2], [1, 0]])(0, 1))
    2.0
    """

    table: Floats
    takes_labels = True

    def __init__(self, table: ArrayLike) -> None:
        array = non_negative("the cost table", table).copy()
        require(
            array.ndim in (2, 3) and array.shape[-1] == array.shape[-2] and array.size > 0,
            f"the cost table must have shape [A, A] or [S, A, A], got {array.shape}",
        )
        diagonal = np.diagonal(array, axis1=-2, axis2=-1)
        require(
            not diagonal.any(),
            f"the cost of staying, c(a, a), must be 0; the table has {diagonal.max()} on its "
            "diagonal",
        )
        array.flags.writeable = False
        object.__setattr__(self, "table", array)

    @property
    def depends_on_state(self) -> bool:
        """True for a table [S, A, A]."""
        return self.table.ndim == 3

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The table's entry."""
        table = _namespace(source, target).asarray(self.table)
        if self.table.ndim == 2:
            return table[source, target]
        require(state is not None, "this cost table has one matrix per state: give the state")
        return table[state, source, target]

    def matrix(self, actions: int | ArrayLike, states: int | ArrayLike | None = None) -> Floats:
        """The table itself; checked against the number of actions and states."""
        n_actions = actions if isinstance(actions, int) else len(np.asarray(actions))
        require(
            self.table.shape[-1] == n_actions,
            f"the cost table is for {self.table.shape[-1]} actions, the problem has {n_actions}",
        )
        if self.table.ndim == 2:
            return super().matrix(actions, states)
        require(states is not None, "this cost table has one matrix per state: give the states")
        n_states = states if isinstance(states, int) else None
        require(
            n_states is None or self.table.shape[0] == n_states,
            f"the cost table is for {self.table.shape[0]} states, the problem has {n_states}",
        )
        return super().matrix(actions, states)

    def __repr__(self) -> str:
        return f"TableCost(shape={self.table.shape})"


@final
@dataclass(frozen=True)
class SquaredEuclidean(Cost):
    """c(a, a') = ‖a − a'‖², summed over the last axis.

    >>> float(SquaredEuclidean()(np.array([0.0, 0.0]), np.array([3.0, 4.0])))
    25.0
    """

    takes_labels = False

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The squared distance."""
        return ((source - target) ** 2).sum(-1)


@final
@dataclass(frozen=True)
class PNorm(Cost):
    """c(a, a') = ‖a − a'‖ₚ^power; p ≥ 1 or infinity.

    >>> float(PNorm(1)(np.array([0.0, 0.0]), np.array([3.0, -4.0])))
    7.0
    >>> float(PNorm(2, power=2)(np.array([0.0, 0.0]), np.array([3.0, -4.0])))
    25.0
    """

    p: float
    power: float = 1.0
    takes_labels = False

    def __post_init__(self) -> None:
        require(self.p >= 1, f"p must be at least 1 (or math.inf), got {self.p}")
        require(0 < self.power < np.inf, f"power must be positive and finite, got {self.power}")

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The p-norm of the difference, raised to ``power``."""
        distance = abs(source - target)
        if np.isinf(self.p):
            return distance.max(-1) ** self.power
        return (distance**self.p).sum(-1) ** (self.power / self.p)


@final
@dataclass(frozen=True, eq=False)
class Mahalanobis(Cost):
    """c(a, a') = (a − a')ᵀ M (a − a') for a symmetric positive definite M.

    >>> float(Mahalanobis([[2.0, 0.0], [0.0, 1.0]])(np.array([1.0, 1.0]), np.zeros(2)))
    3.0
    """

    metric: Floats
    takes_labels = False

    def __init__(self, metric: ArrayLike) -> None:
        array = positive_definite("the Mahalanobis matrix", metric)
        array.flags.writeable = False
        object.__setattr__(self, "metric", array)

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The quadratic form of the difference."""
        difference = source - target
        return ((difference @ self.metric) * difference).sum(-1)

    def __repr__(self) -> str:
        return f"Mahalanobis({self.metric.tolist()})"


@final
@dataclass(frozen=True, eq=False)
class StateCost(Cost):
    """c_s(a, a') from a function of (source, target, state) written with array operators.

    >>> slippery = StateCost(lambda a, b, s: (1.0 + s) * (a != b), takes_labels=True)
    >>> slippery.matrix(2, states=2)[1]
    array([[0., 2.],
           [2., 0.]])
    """

    function: Callable[[Array, Array, Array], Array]
    takes_labels: bool = False  # a field that fills the abstract property

    @property
    def depends_on_state(self) -> bool:
        """Always."""
        return True

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The function's value; the state is required."""
        require(state is not None, "this cost depends on the state: give the state")
        return self.function(source, target, state)


@final
@dataclass(frozen=True)
class Scaled(Cost):
    """factor · c(a, a'), written ``factor * cost``.

    >>> (0.5 * Binary()).matrix(2)[0, 1].item()
    0.5
    """

    cost: Cost
    factor: float

    def __post_init__(self) -> None:
        require(
            np.isfinite(self.factor) and self.factor > 0,
            f"a cost can be scaled by a positive finite number only, got {self.factor}",
        )

    @property
    def takes_labels(self) -> bool:
        """As the scaled cost does."""
        return self.cost.takes_labels

    @property
    def depends_on_state(self) -> bool:
        """As the scaled cost does."""
        return self.cost.depends_on_state

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The scaled cost."""
        return self.factor * self.cost(source, target, state)


@final
@dataclass(frozen=True)
class Summed(Cost):
    """c₁(a, a') + c₂(a, a'), written ``first + second``.

    >>> (Binary() + Binary()).matrix(2)[0, 1].item()
    2.0
    """

    first: Cost
    second: Cost

    def __post_init__(self) -> None:
        require(
            isinstance(self.first, Cost) and isinstance(self.second, Cost),
            f"only costs can be summed, got {self.first!r} + {self.second!r}",
        )
        require(
            self.first.takes_labels == self.second.takes_labels,
            f"{self.first!r} and {self.second!r} can't be summed: one takes labels, the other "
            "points",
        )

    @property
    def takes_labels(self) -> bool:
        """As both summands do."""
        return self.first.takes_labels

    @property
    def depends_on_state(self) -> bool:
        """If either summand does."""
        return self.first.depends_on_state or self.second.depends_on_state

    def __call__(self, source: Array, target: Array, state: Array | None = None) -> Array:
        """The sum of both costs."""
        return self.first(source, target, state) + self.second(source, target, state)


def positive_definite(name: str, value: ArrayLike) -> Floats:
    """``value`` as a symmetric positive definite float64 matrix."""
    array = floats(name, value, ndim=2).copy()
    require(
        array.shape[0] == array.shape[1] and array.size > 0,
        f"{name} must be square, got shape {array.shape}",
    )
    require(np.allclose(array, array.T, rtol=1e-12, atol=0), f"{name} must be symmetric")
    smallest = float(np.linalg.eigvalsh(array)[0])
    require(
        smallest > 0, f"{name} must be positive definite; its smallest eigenvalue is {smallest}"
    )
    return array


def _namespace(*arrays: Array) -> Any:
    for array in arrays:
        if hasattr(array, "__array_namespace__"):
            return array.__array_namespace__()
    return np
