"""How many threads the libraries below are asked for."""

import json
import os
import subprocess
import sys

import pytest

from ottrpo.threads import THREAD_VARIABLES, default_to_one_thread

SEVERAL = "--xla_force_host_platform_device_count=2"


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in (*THREAD_VARIABLES, "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)


def test_one_thread_each():
    default_to_one_thread()
    assert {os.environ[name] for name in THREAD_VARIABLES} == {"1"}


def test_devices_that_wait_for_each_other_leave_threads_for_the_work(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=false {SEVERAL}")
    default_to_one_thread()
    assert int(os.environ["NPROC"]) > 2
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_what_the_user_says_stays(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", SEVERAL)
    monkeypatch.setenv("NPROC", "3")
    default_to_one_thread()
    assert os.environ["NPROC"] == "3"


@pytest.mark.parametrize("named", ["OTTRPO", "TabularOTTRPO"])
@pytest.mark.parametrize(("said", "threads"), [({}, {1}), ({"OPENBLAS_NUM_THREADS": "2"}, {2})])
def test_whoever_loads_numpy_first_gets_the_same_numbers(named, said, threads):
    """With another number of threads sums come in another order."""
    program = f"""
import json, numpy, threadpoolctl
threadpoolctl.threadpool_limits(2)
from ottrpo import {named}
pools = threadpoolctl.threadpool_info()
print(json.dumps([pool["num_threads"] for pool in pools if pool["user_api"] == "blas"]))
"""
    bare = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=bare | said, check=True)
    assert set(json.loads(done.stdout)) == threads
