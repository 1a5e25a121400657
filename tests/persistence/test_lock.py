"""One process at a time, and the dead don't count."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import pytest

from ottrpo.persistence import lock as persistence_lock
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


def owner(folder):
    return int((folder / NAME).read_text().split()[0])


def test_a_held_directory_is_refused_with_who_holds_it(tmp_path, holder):
    with pytest.raises(ValueError, match=rf"in use by process {holder.pid} on .+; wait"):
        DirectoryLock(tmp_path).__enter__()
    assert owner(tmp_path) == holder.pid


@pytest.mark.parametrize("buried", [True, False])
def test_a_killed_owner_is_succeeded(tmp_path, holder, buried):
    holder.send_signal(signal.SIGKILL)
    # nobody asks after it in the second case: the system still lists it
    os.waitid(os.P_PID, holder.pid, os.WEXITED | (0 if buried else os.WNOWAIT))
    assert (tmp_path / NAME).exists()
    with DirectoryLock(tmp_path):
        assert owner(tmp_path) == os.getpid()
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("text", ["", "1 on elsewhere", "x" * 10_000, "\x1b[31m"])
def test_whatever_the_file_says_the_system_knows_who_holds_it(tmp_path, holder, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ValueError, match="in use by process") as told:
        DirectoryLock(tmp_path).__enter__()
    assert str(told.value).isprintable()
    holder.kill()
    holder.wait()
    with DirectoryLock(tmp_path):
        assert owner(tmp_path) == os.getpid()


def test_a_process_in_another_time_namespace_is_kept_out(tmp_path, holder):
    apart = ["unshare", "--user", "--map-root-user", "--time", "--boottime", "1000", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("no time namespace can be made here")
    program = [sys.executable, "-c", HOLD, str(tmp_path)]
    told = subprocess.run([*apart, *program], capture_output=True, text=True)
    assert told.returncode
    assert f"in use by process {holder.pid}" in told.stderr


def test_a_child_does_not_hold_what_its_parent_does(tmp_path):
    """Else a directory would stay locked while some worker of a killed run still breathes."""
    lock = DirectoryLock(tmp_path).__enter__()
    (read, write), (born, here) = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads; the child does nothing but wait
        child = os.fork()
    if not child:
        lock.__exit__(None, None, None)
        os.close(write)
        os.write(here, b"!")
        os.read(read, 1)
        os._exit(0)
    assert os.read(born, 1) == b"!"
    with pytest.raises(ValueError, match="in use"):
        DirectoryLock(tmp_path).__enter__()
    persistence_lock._let_go_in_child()  # as if the parent were gone
    with DirectoryLock(tmp_path):
        assert owner(tmp_path) == os.getpid()
    for handle in (read, write, born, here):
        os.close(handle)
    os.waitpid(child, 0)


def test_a_file_system_without_locks_is_told_of(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="without locks"), DirectoryLock(tmp_path):
        pass


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
