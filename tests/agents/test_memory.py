"""Agents that are gone leave nothing behind."""

import subprocess
import sys

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
