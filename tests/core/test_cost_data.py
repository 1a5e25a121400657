import json
import math
from dataclasses import dataclass

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    Cost,
    Mahalanobis,
    Nearby,
    Ordinal,
    PNorm,
    SquaredEuclidean,
    StateCost,
    TableCost,
    cost_data,
    register_cost,
)
from ottrpo.core.cost_data import COST_KINDS, cost_from_data, cost_to_data

COSTS = [
    Binary(),
    Ordinal(1.5),
    SquaredEuclidean(),
    PNorm(1),
    PNorm(math.inf, power=2),
    Mahalanobis([[2.0]]),
    TableCost([[0, 1, 2], [3, 0, 4], [5, 6, 0]]),
    Nearby(SquaredEuclidean(), feature=1, place=0.5, width=2.0, factor=9.0),
    0.5 * Binary(),
    SquaredEuclidean() + 2.0 * PNorm(1),
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_a_cost_survives_a_file(cost):
    data = json.loads(json.dumps(cost_to_data(cost), allow_nan=False))
    again = cost_from_data(data)
    assert type(again) is type(cost)
    states = np.array([[0.0, 0.5], [0.0, 3.0]]) if cost.depends_on_state else None
    assert np.array_equal(again.matrix(3, states), cost.matrix(3, states))
    assert cost_to_data(again) == cost_to_data(cost)


def test_every_kind_is_covered_above():
    assert {type(cost) for cost in COSTS} == set(COST_KINDS.values())


def test_short_forms():
    assert cost_from_data("binary") == Binary()
    assert cost_from_data(Binary()) == Binary()
    assert cost_from_data([[0, 2], [1, 0]]).matrix(2).tolist() == [[0, 2], [1, 0]]
    assert cost_from_data({"kind": "p-norm", "p": "inf"}) == PNorm(math.inf)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("binry", "did you mean 'binary'"),
        ("__import__('os')", "is not a cost"),
        ({}, "needs a 'kind'"),
        ({"kind": 3}, "needs a 'kind'"),
        ({"kind": "binary", "x": 1}, "'x' is not a field"),
        ({"kind": "p-norm"}, "needs the fields"),
        ({"kind": "ordinal", "p": 0.5}, "p of an ordinal cost must be at least 1"),
        ({"kind": "p-norm", "p": [1]}, "must be a number"),
        ({"kind": "p-norm", "p": 0.5}, "p must be at least 1"),
        ({"kind": "scaled", "factor": 1}, "needs the fields"),
        ({"kind": "scaled", "factor": 1, "cost": "nothing"}, "is not a cost"),
        ({"kind": "summed", "first": "binary", "second": "squared-euclidean"}, "can't be summed"),
        ([[0, 1]], "shape"),
        (3, "shape"),
        (None, "array of numbers|finite"),
    ],
)
def test_what_is_no_cost_is_refused(data, complaint):
    with pytest.raises(ValueError, match=complaint):
        cost_from_data(data)


def test_a_function_can_t_be_written_down():
    with pytest.raises(ValueError, match="use a table"):
        cost_to_data(StateCost(lambda a, b, s: a != b, takes_labels=True))
    with pytest.raises(ValueError, match="use a table"):
        cost_to_data(2.0 * StateCost(lambda a, b, s: a != b, takes_labels=True))


@dataclass(frozen=True)
class Hinge(Cost):
    """Short moves are free."""

    free: float = 0.1
    takes_labels = False

    def __call__(self, source, target, state=None):
        apart = ((source - target) ** 2).sum(-1)
        return apart * (apart > self.free)


def test_a_cost_of_one_s_own_has_a_name_once_it_is_registered(monkeypatch):
    monkeypatch.setattr(cost_data, "COST_KINDS", dict(COST_KINDS))
    with pytest.raises(ValueError, match="register_cost"):
        cost_to_data(Hinge(0.2))
    register_cost("hinge", Hinge)
    register_cost("hinge", Hinge)  # a module may be read twice
    assert cost_from_data(cost_to_data(Hinge(0.2) * 3.0)) == Hinge(0.2) * 3.0
    assert cost_from_data({"kind": "hinge", "free": 0.5}) == Hinge(0.5)


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [("binary", Hinge, "taken by Binary"), ("own", dict, "derives from Cost"), ("own", 3, "Cost")],
)
def test_what_can_t_be_registered_is_refused(name, kind, complaint):
    with pytest.raises(ValueError, match=complaint):
        register_cost(name, kind)
