"""Costs as plain data: what a TOML or JSON file says, and what a saved agent remembers.

A cost is written as its name (``"binary"``), as a mapping with a ``kind`` and the cost's own
fields (``{"kind": "p-norm", "p": 1}``), or as a bare matrix, which is a `TableCost`. Names come
from a closed list, to which `register_cost` adds, and nothing is ever evaluated.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from .checks import require, require_one_of
from .costs import (
    Binary,
    Cost,
    Mahalanobis,
    PNorm,
    Scaled,
    SquaredEuclidean,
    StateCost,
    Summed,
    TableCost,
)

COST_KINDS: dict[str, type[Cost]] = {
    "binary": Binary,
    "squared-euclidean": SquaredEuclidean,
    "p-norm": PNorm,
    "mahalanobis": Mahalanobis,
    "table": TableCost,
    "scaled": Scaled,
    "summed": Summed,
}
_NAME = {kind: name for name, kind in COST_KINDS.items()}
CostType = TypeVar("CostType", bound=type[Cost])


def register_cost(name: str) -> Callable[[CostType], CostType]:
    """Give a cost of one's own a name, by which files, settings and saved agents know it.

    It must be registered again, by importing the module that does it, before such a file is read.

    >>> from dataclasses import dataclass
    >>> @register_cost("doc-capped")
    ... @dataclass(frozen=True)
    ... class Capped(Cost):
    ...     most: float = 1.0
    ...     takes_labels = False
    ...     def __call__(self, source, target, state=None):
    ...         return (((source - target) ** 2).sum(-1)).clip(0.0, self.most)
    >>> cost_from_data({"kind": "doc-capped", "most": 2.0})
    Capped(most=2.0)
    >>> del COST_KINDS["doc-capped"]

    Raises:
        ValueError: if the name is taken, or the class is no frozen dataclass derived from `Cost`.
    """

    def register(kind: CostType) -> CostType:
        frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen
        require(
            issubclass(kind, Cost) and frozen,
            f"a cost is a frozen dataclass that derives from Cost, {kind.__name__} is not",
        )
        held = COST_KINDS.get(name)
        # a module that is loaded again, as notebooks do, brings the same class anew
        same = held is None or held.__qualname__ == kind.__qualname__
        require(same, f"the name {name!r} of a cost is taken; known: {_known()}")
        COST_KINDS[name], _NAME[kind] = kind, name
        return kind

    return register


def cost_from_data(data: Any) -> Cost:
    """The cost that plain data describe; a cost is returned as it is.

    >>> cost_from_data("binary")
    Binary()
    >>> cost_from_data({"kind": "scaled", "factor": 0.5, "cost": {"kind": "p-norm", "p": 1}})
    Scaled(cost=PNorm(p=1.0, power=1.0), factor=0.5)
    """
    if isinstance(data, Cost):
        return data
    if isinstance(data, str):
        return _build(data, {})
    if isinstance(data, Mapping):
        settings = dict(data)
        kind = settings.pop("kind", None)
        require(
            isinstance(kind, str), f"a cost needs a 'kind', one of {_known()}; got {_show(data)}"
        )
        return _build(kind, settings)
    return TableCost(data)


def cost_to_data(cost: Cost) -> dict[str, Any]:
    """Plain data from which `cost_from_data` makes an equal cost.

    >>> cost_to_data(PNorm(math.inf))
    {'kind': 'p-norm', 'p': 'inf', 'power': 1.0}
    """
    name = _NAME.get(type(cost))
    if name is None:
        if isinstance(cost, StateCost):
            raise ValueError(
                f"{cost!r} holds a function and can't be written to a file; use a table"
            )
        raise ValueError(
            f"{type(cost).__name__} has no name by which a file could speak of it; give it one: "
            "@ottrpo.core.register_cost('name') above the class"
        )
    return {"kind": name, **{f.name: _plain(getattr(cost, f.name)) for f in fields(cost)}}  # type: ignore[arg-type]  # every kind above is a dataclass


def _build(kind: str, settings: dict[str, Any]) -> Cost:
    require_one_of(kind, COST_KINDS, "a cost")
    cost_type = COST_KINDS[kind]
    names = [f.name for f in fields(cost_type)]  # type: ignore[arg-type]
    unknown = sorted(set(settings) - set(names))
    require(
        not unknown,
        f"{', '.join(map(repr, unknown))} is not a field of the cost {kind!r}; "
        f"it has {', '.join(names) or 'none'}",
    )
    try:
        return cost_type(**{name: _parsed(name, value) for name, value in settings.items()})
    except TypeError as error:
        raise ValueError(f"the cost {kind!r} needs the fields {', '.join(names)}") from error


def _parsed(name: str, value: Any) -> Any:
    if name in ("cost", "first", "second"):
        return cost_from_data(value)
    if name in ("p", "power", "factor"):
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name!r} of a cost must be a number, got {value!r}") from error
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Cost):
        return cost_to_data(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, float) and math.isinf(value):
        return "inf"  # JSON has no infinity
    return value


def _known() -> str:
    return ", ".join(COST_KINDS)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
