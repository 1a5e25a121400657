"""Agents that are gone leave nothing behind."""

import subprocess
import sys

import pytest

# in a process of its own, where nobody else allocates
BUILDING = """
import ctypes
import gc
import ottrpo.envs.toys
from ottrpo import OTTRPO

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for the next is no agent's
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

def build(count):
    for seed in range(count):
        OTTRPO("MlpPolicy", "ottrpo/Reach-v0", seed=seed)
    return resident()

before = build(10)
print(build(200) - before)
"""


def test_two_hundred_agents_built_one_after_another():
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILDING], capture_output=True, text=True, check=True
    )
    assert float(told.stdout) < 10.0  # megabytes


TRAINING = """
import gc
import sys
import ottrpo.envs.toys
import ottrpo
from ottrpo.engine.update import PROGRAMS

kind, settings, kept = getattr(ottrpo, sys.argv[1]), eval(sys.argv[2]), int(sys.argv[3])

def mapped():
    gc.collect()
    with open("/proc/self/maps") as file:
        return sum(1 for line in file)

def train(count):
    for _ in range(count):
        agent = kind("MlpPolicy", "ottrpo/Reach-v0", n_steps=16, batch_size=16, **settings)
        agent.learn(16)
    del agent
    return mapped()

before = train(2 + kept * PROGRAMS)
print(train(5) - before)
"""


@pytest.mark.parametrize(
    ("kind", "settings", "kept"),
    [
        ("OTTRPO", {"advantage": "gae"}, 0),
        ("OTTRPO", {"advantage": "mixed", "buffer_size": 64}, 1),
        ("BGPG", {"n_actions": 2, "n_features": 4, "dual_steps": 2}, 0),
    ],
)
def test_what_was_compiled_for_an_agent_is_gone_with_it(kind, settings, kept):
    """Linux lets a process have 65,530 mappings; every program took some hundred."""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRAINING, kind, repr(settings), str(kept)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(told.stdout) < 50
