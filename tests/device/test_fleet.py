"""Trainings in stretches, and on several devices."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from ottrpo.device import make_train
from ottrpo.device.fleet import Fleet

from .pendulum import Pendulum

SMALL = {
    **{"n_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 2},
    "policy_kwargs": {"net_arch": [8]},
}


@pytest.fixture(scope="module")
def training():
    return make_train(Pendulum(), SMALL, total_timesteps=6 * 32)


@pytest.mark.parametrize("seeds", [[3], [3, 4]])
def test_stretches_of_any_length_and_a_restart_change_no_bit(training, seeds):
    whole, parts = (Fleet(training, seeds, chunk=4) for _ in range(2))
    whole.begin()
    told = [whole.advance(4), whole.advance(2)]
    parts.begin()
    parts.advance(1)
    again = Fleet(training, seeds, chunk=4)
    again.restore(parts.arrays())
    last = again.advance(3), again.advance(2)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name])
    np.testing.assert_array_equal(told[1]["ot/spent"], last[1]["ot/spent"])
    with pytest.raises(ValueError, match="no array"):
        again.restore({})


def test_a_fleet_of_one_is_the_training_itself(training):
    alone = Fleet(training, [5], chunk=6)
    alone.begin()
    alone.advance(6)
    state, _ = jax.jit(training)(jax.random.key(5))
    one, other = (jax.tree.leaves(x.networks) for x in (state, alone.state(0)))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


FOUR = """
import jax, numpy as np
from ottrpo.device import make_train
from ottrpo.device.fleet import Fleet
from tests.device.pendulum import Pendulum
from tests.device.test_fleet import SMALL

assert len(jax.devices()) == 4
training = make_train(Pendulum(), SMALL, total_timesteps=64)
spread, one = (Fleet(training, [0, 1], chunk=2, devices=jax.devices()[:n]) for n in (4, 1))
for fleet in (spread, one):
    fleet.begin()
    fleet.advance(2)
where = spread.loops.obs.sharding
assert len(where.device_set) == 4 and not where.is_fully_replicated
assert spread.loops.obs.addressable_shards[0].data.shape == (1, 2, 3)  # of 2 seeds, 4 environments
for a, b in zip(spread.arrays().values(), one.arrays().values(), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
returns = [fleet.evaluate([[7]] * 2, [0.0], 2) for fleet in (spread, one)]
np.testing.assert_allclose(*returns, rtol=1e-3)
try:
    Fleet(make_train(Pendulum(), SMALL | {"n_envs": 6}, total_timesteps=64), [0])
except ValueError as error:
    assert "n_envs must be a multiple of 4, got 6" in str(error)
else:
    raise AssertionError("six environments on four devices")
print("as on one")
"""


def test_seeds_and_environments_are_spread_over_all_devices():
    # unoptimised: it is compiled twice, and run for a moment
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    four = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FOUR], capture_output=True, text=True, env=os.environ | four | path
    )
    assert done.stdout == "as on one\n", done.stderr
