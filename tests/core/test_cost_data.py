import json
import math
from dataclasses import dataclass

import numpy as np
import pytest

from ottrpo.core import (
    Binary,
    Cost,
    Mahalanobis,
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
    SquaredEuclidean(),
    PNorm(1),
    PNorm(math.inf, power=2),
    Mahalanobis([[2.0]]),
    TableCost([[0, 1, 2], [3, 0, 4], [5, 6, 0]]),
    0.5 * Binary(),
    SquaredEuclidean() + 2.0 * PNorm(1),
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_a_cost_survives_a_file(cost):
    data = json.loads(json.dumps(cost_to_data(cost), allow_nan=False))
    again = cost_from_data(data)
    assert type(again) is type(cost)
    assert np.array_equal(again.matrix(3), cost.matrix(3))
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


@pytest.fixture
def _registry():
    """The names of costs, put back afterwards."""
    kept = dict(cost_data.COST_KINDS), dict(cost_data._NAME)
    yield
    for held, before in zip((cost_data.COST_KINDS, cost_data._NAME), kept, strict=True):
        held.clear()
        held.update(before)


@dataclass(frozen=True)
class Huber(Cost):
    """Quadratic for short ways, linear for long ones."""

    knee: float = 1.0
    takes_labels = False

    def __call__(self, source, target, state=None):
        way = abs(source - target)
        short = way.clip(0.0, self.knee)
        return (short * (way - 0.5 * short)).sum(-1)


@pytest.mark.usefixtures("_registry")
def test_a_cost_of_one_s_own_survives_a_file_once_it_has_a_name():
    with pytest.raises(ValueError, match=r"Huber has no name .*register_cost\('name'\)"):
        cost_to_data(Huber(2.0))
    assert register_cost("huber")(Huber) is Huber
    written = json.loads(json.dumps(cost_to_data(0.5 * Huber(2.0))))
    assert cost_from_data(written) == 0.5 * Huber(2.0)
    assert cost_from_data("huber") == Huber()
    with pytest.raises(ValueError, match="'nee' is not a field of the cost 'huber'"):
        cost_from_data({"kind": "huber", "nee": 1.0})


@pytest.mark.usefixtures("_registry")
def test_names_and_kinds_of_costs_are_checked():
    with pytest.raises(ValueError, match="the name 'binary' of a cost is taken"):
        register_cost("binary")(Huber)
    with pytest.raises(ValueError, match="is a frozen dataclass that derives from Cost, int is"):
        register_cost("number")(int)
    register_cost("huber")(Huber)
    register_cost("huber")(Huber)  # a module that is loaded again


@pytest.mark.usefixtures("_registry")
def test_an_agent_with_a_cost_of_one_s_own_is_saved_and_loaded(tmp_path):
    ottrpo = pytest.importorskip("ottrpo.agents.ottrpo")
    register_cost("huber")(Huber)
    settings = {"n_steps": 64, "batch_size": 32, "seed": 0, "model": "sample"}
    agent = ottrpo.OTTRPO("MlpPolicy", "Pendulum-v1", cost=Huber(0.3), **settings).learn(64)
    agent.save(tmp_path / "agent")
    loaded = ottrpo.OTTRPO.load(tmp_path / "agent")
    assert loaded.settings()["cost"] == {"kind": "huber", "knee": 0.3}
    cost_data.COST_KINDS.pop("huber")
    with pytest.raises(ValueError, match="'huber' is not a cost"):
        ottrpo.OTTRPO.load(tmp_path / "agent")
