"""One process at a time, and the dead don't count."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from ottrpo.persistence.lock import NAME, DirectoryLock

HOLD = """
import sys, time
from pathlib import Path
from ottrpo.persistence.lock import DirectoryLock
with DirectoryLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def edited(folder, **changes):
    path = folder / NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_held_directory_is_refused_with_who_holds_it(tmp_path, holder):
    with pytest.raises(ValueError, match=rf"in use by process {holder.pid} on '.+'; wait"):
        DirectoryLock(tmp_path).__enter__()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == holder.pid


@pytest.mark.parametrize("buried", [True, False])
def test_a_killed_owner_is_succeeded(tmp_path, holder, buried):
    holder.send_signal(signal.SIGKILL)
    # nobody asks after it in the second case: the system still lists it
    os.waitid(os.P_PID, holder.pid, os.WEXITED | (0 if buried else os.WNOWAIT))
    assert (tmp_path / NAME).exists()
    with DirectoryLock(tmp_path):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    assert not (tmp_path / NAME).exists()


def test_a_number_that_belongs_to_another_process_by_now_is_recognised(tmp_path, holder):
    edited(tmp_path, started="another boot 123")
    with DirectoryLock(tmp_path):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"machine": "pid:[1]"}])
def test_an_owner_elsewhere_is_respected_dead_or_alive(tmp_path, changes):
    lock = DirectoryLock(tmp_path).__enter__()
    edited(tmp_path, pid=2**22 + 1, **changes)
    with pytest.raises(ValueError, match="in use by process 4194305 on"):
        DirectoryLock(tmp_path).__enter__()
    lock.__exit__(None, None, None)
    assert (tmp_path / NAME).exists(), "it removed a lock that was no longer its own"


def test_the_same_process_can_t_enter_twice(tmp_path):
    with DirectoryLock(tmp_path), pytest.raises(ValueError, match="in use"):
        DirectoryLock(tmp_path).__enter__()
    with DirectoryLock(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"x" * 10_000, b"\xff"])
def test_a_lock_whose_writer_died_while_writing_does_not_count(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with DirectoryLock(tmp_path):
        pass


@pytest.mark.parametrize("pid", [-1, 0, 2**40, "1", None, 1.5])
def test_an_absurd_owner_does_not_count(tmp_path, pid):
    with DirectoryLock(tmp_path):
        text = (tmp_path / NAME).read_text()
    (tmp_path / NAME).write_text(json.dumps(json.loads(text) | {"pid": pid}))
    with DirectoryLock(tmp_path):
        pass


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder", "nowhere"])
def test_a_lock_that_is_no_file_of_its_own_is_refused(tmp_path, kind):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    lock = tmp_path / "run" / NAME
    if kind != "nowhere":
        lock.parent.mkdir()
    if kind == "link":
        lock.symlink_to(precious)
    elif kind == "second name":
        os.link(precious, lock)
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    with pytest.raises(ValueError, match=r"can't be locked|no file of its own"):
        DirectoryLock(tmp_path / "run").__enter__()
    assert precious.read_text() == "precious"


def test_an_error_inside_gives_the_directory_back(tmp_path):
    with pytest.raises(KeyError), DirectoryLock(tmp_path):
        raise KeyError
    assert not list(tmp_path.iterdir())


def _contend(folder, rounds, results):
    """Enter as often as possible; whoever is inside must be alone."""
    entered = 0
    end = time.monotonic() + 1.5
    while time.monotonic() < end and entered < rounds:
        try:
            with DirectoryLock(folder):
                inside = folder / "inside"
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                time.sleep(0.001)
                inside.unlink()
                entered += 1
        except ValueError:
            time.sleep(0.0005)
    results.put(entered)


def test_of_many_that_want_it_one_has_it(tmp_path):
    """From a lock of a dead process, so that taking over is contended too."""
    (tmp_path / NAME).write_bytes(b"")
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    workers = [spawn.Process(target=_contend, args=(tmp_path, 200, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    entered = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert sum(entered) > 20
    assert not list(tmp_path.iterdir())
