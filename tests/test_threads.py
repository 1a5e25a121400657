"""How many threads the libraries below are asked for."""

import os

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
