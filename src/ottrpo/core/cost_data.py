"""Costs as plain data: what a TOML or JSON file says, and what a saved agent remembers.

A cost is written as its name (``"binary"``), as a mapping with a ``kind`` and the cost's own
fields (``{"kind": "p-norm", "p": 1}``), or as a bare matrix, which is a `TableCost`. Names come
from a closed list, which `register_cost` extends, and nothing is ever evaluated.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ottrpo.names import in_short

from .checks import require, require_one_of
from .costs import (
    Binary,
    Cost,
    Mahalanobis,
    Ordinal,
    PNorm,
    Scaled,
    SquaredEuclidean,
    Summed,
    TableCost,
)
from .nearby import Nearby

COST_KINDS: dict[str, type[Cost]] = {
    "binary": Binary,
    "ordinal": Ordinal,
    "squared-euclidean": SquaredEuclidean,
    "p-norm": PNorm,
    "mahalanobis": Mahalanobis,
    "table": TableCost,
    "scaled": Scaled,
    "summed": Summed,
    "nearby": Nearby,
}


def register_cost(name: str, kind: type[Cost]) -> None:
    """Let files, ``--set`` and saved agents speak of a cost of one's own by ``name``.

    Whoever loads such a file registers the cost first: a file never brings code.

    Raises:
        ValueError: if ``kind`` is no dataclass that derives from `Cost`, or the name is another's.
    """
    require(
        isinstance(kind, type) and issubclass(kind, Cost) and is_dataclass(kind),
        f"a cost to register must be a dataclass that derives from Cost, got {kind!r}",
    )
    known = COST_KINDS.setdefault(name, kind)
    require(known is kind, f"the name {name!r} is taken by {known.__name__}")


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
            isinstance(kind, str), f"a cost needs a 'kind', one of {_known()}; got {in_short(data)}"
        )
        return _build(kind, settings)
    return TableCost(data)


def cost_to_data(cost: Cost) -> dict[str, Any]:
    """Plain data from which `cost_from_data` makes an equal cost.

    >>> cost_to_data(PNorm(math.inf))
    {'kind': 'p-norm', 'p': 'inf', 'power': 1.0}
    """
    name = next((name for name, kind in COST_KINDS.items() if kind is type(cost)), None)
    if name is None:
        raise ValueError(
            f"{cost!r} can't be written to a file, which knows costs by name ({_known()}): "
            "register_cost of ottrpo.core names one of your own; a function has none, use a table"
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
    if name in ("p", "power", "factor", "place", "width"):
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
