"""A copy of this process: when that is safe, and what becomes of it."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from ottrpo.experiments.forked import may_fork
from ottrpo.threads import THREAD_VARIABLES

SCRIPT = """
import subprocess, sys, time
from ottrpo.experiments.forked import Forked

def echo():
    for line in sys.stdin:
        if line == "fail\\n":
            raise RuntimeError("on request")
        if line == "end\\n":
            break
        print("heard", line, end="", flush=True)

sys.stdout.write("said once")  # and still in the buffer when the copy is made
with open(sys.argv[1], "ab") as log:
    copies = [Forked(echo, log) for _ in range(3)]
for copy, word in zip(copies, (b"end", b"fail", b"wait"), strict=True):
    copy.stdin.write(b"hello\\n" + word + b"\\n")
    copy.stdin.flush()
    assert copy.stdout.readline() == b"heard hello\\n"
assert [copy.wait(30) for copy in copies[:2]] == [0, 1]
try:
    copies[2].wait(0.05)
except subprocess.TimeoutExpired:
    copies[2].terminate()
print(copies[2].wait(30))
"""


def test_copies_do_as_told_and_end_as_told(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", SCRIPT, str(log)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == (f"said once{-signal.SIGTERM}\n", "")
    assert log.read_text().endswith("RuntimeError: on request\n")


@pytest.fixture
def settled(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")


@pytest.mark.usefixtures("settled")
def test_a_process_with_threads_is_not_copied():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert not may_fork()
    stop.set()
    thread.join()


@pytest.mark.usefixtures("settled")
def test_nor_one_whose_libraries_may_use_more_threads_than_those_of_a_new_one(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda path: ["1"])
    assert may_fork()
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert not may_fork()
