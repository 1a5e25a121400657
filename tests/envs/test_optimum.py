"""The optima that the catalogue states are what exact planning finds."""

import pytest

from ottrpo.envs.catalogue import CATALOGUE, optimum
from ottrpo.tabular import as_problem, planning

STATED = [entry for entry in CATALOGUE if entry.optimum is not None]


@pytest.mark.parametrize("entry", STATED, ids=[entry.env_id for entry in STATED])
def test_stated_optimum_is_the_planned_one(entry):
    planned = planning.best_capped_return(as_problem(entry.env_id))
    assert entry.optimum == pytest.approx(planned, abs=5e-5)


def test_every_finite_environment_has_one():
    assert {entry.env_id for entry in STATED} == {
        entry.env_id for entry in CATALOGUE if entry.env_id.startswith(("Cliff", "Taxi", "Frozen"))
    }
    assert optimum("Hopper-v5") is None
    assert optimum("SomethingElse-v0") is None
