"""Whatever fails while a checkpoint is written, the one before it stays and can be read."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Checkpoints

ARRAYS = {"weights": np.random.default_rng(0).normal(size=(50, 40))}
STEPS = ("open", "write", "fsync", "replace")


class Killed(BaseException):
    """The process is gone: nothing after this happens, no cleaning up either."""


class FaultyDisk:
    """Counts the steps of a write, and makes one of them fail."""

    def __init__(self, monkeypatch, fail_at=None, dead=False):
        self.done, self.fail_at, self.dead = [], fail_at, dead
        for name in (*STEPS, "unlink"):
            monkeypatch.setattr(bundle.os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name, call):
        def watched(*args, **kwargs):
            number = sum(step in STEPS for step in self.done)
            if self.dead and self.fail_at is not None and number > self.fail_at:
                raise Killed
            self.done.append(name)
            if name in STEPS and number == self.fail_at:
                if name == "write":  # half of it arrives
                    call(args[0], bytes(args[1][: len(args[1]) // 2]))
                raise Killed if self.dead else OSError(errno.ENOSPC, "No space left on device")
            return call(*args, **kwargs)

        return watched


def written(folder, steps=(10, 20)):
    checkpoints = Checkpoints(folder / "checkpoints", "run")
    for step in steps:
        checkpoints.write(step, ARRAYS, {"step was": step})
    return checkpoints


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def steps_of_a_write(tmp_path):
    """The calls of an undisturbed write."""
    checkpoints = written(tmp_path / "undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        disk = FaultyDisk(patch)
        bundle.write(checkpoints.folder / "agent.zip", "run", ARRAYS, {})
    return disk.done


def test_content_is_on_the_disk_before_it_has_a_name_and_the_name_before_we_return(tmp_path):
    assert steps_of_a_write(tmp_path) == [
        *("open", "write", "fsync"),  # the draft
        "replace",
        *("open", "fsync"),  # the directory
    ]


@pytest.mark.parametrize("dead", [False, True], ids=["fails", "killed"])
@pytest.mark.parametrize("fail_at", range(6))
def test_every_step_of_a_write_may_fail(fail_at, dead, tmp_path, monkeypatch):
    checkpoints = written(tmp_path)
    before = {path.name: path.read_bytes() for path in checkpoints.folder.iterdir()}
    with monkeypatch.context() as patch:
        disk = FaultyDisk(patch, fail_at, dead)
        with pytest.raises(Killed if dead else OSError):
            checkpoints.write(30, ARRAYS, {"step was": 30})
    assert sum(step in STEPS for step in disk.done) == fail_at + 1
    for name, content in before.items():
        assert (checkpoints.folder / name).read_bytes() == content
    # only the directory's own fsync comes after the rename
    assert checkpoints.newest(lambda saved: saved).step == (30 if fail_at > 3 else 20)
    drafts = [name for name in names(checkpoints) if name.endswith(bundle.DRAFT_ENDING)]
    assert len(drafts) == (dead and 0 < fail_at <= 3)
    checkpoints.write(40, ARRAYS, {})
    assert len(names(checkpoints)) == 2, "what was left behind is removed by the next write"
    assert checkpoints.newest(lambda saved: saved).step == 40


def test_there_are_six_steps_to_fail(tmp_path):
    assert len(steps_of_a_write(tmp_path)) == 6  # the range above covers all


def test_a_place_that_takes_no_files_is_told_by_the_name_that_was_asked_for(tmp_path, monkeypatch):
    def refuse(path, *rest):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError) as told:
        bundle.write_atomically(tmp_path / "agent.zip", b"content")
    assert told.value.filename == str(tmp_path / "agent.zip")


def test_a_path_may_be_a_text(tmp_path):
    bundle.write_atomically(str(tmp_path / "new" / "policy.onnx"), b"content")
    assert (tmp_path / "new" / "policy.onnx").read_bytes() == b"content"


def test_new_folders_are_on_the_disk_too(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(bundle, "sync_directory", synced.append)
    bundle.write(tmp_path / "a" / "b" / "c.zip", "run", ARRAYS, {})
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


@pytest.mark.parametrize(("number", "refused"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_can_t_sync_directories_is_good_enough(
    number, refused, tmp_path, monkeypatch
):
    fsync = os.fsync

    def picky(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(number, "no")
        fsync(handle)

    monkeypatch.setattr(bundle.os, "fsync", picky)
    with pytest.raises(OSError, match="no") if refused else contextlib.nullcontext():
        bundle.write(tmp_path / "a.zip", "run", ARRAYS, {})
    bundle.read(tmp_path / "a.zip", "run")


def test_a_system_that_takes_little_at_a_time_still_gets_all(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(bundle.os, "write", lambda handle, rest: write(handle, rest[:1000]))
    bundle.write(tmp_path / "a.zip", "run", ARRAYS, {})
    arrays, _ = bundle.read(tmp_path / "a.zip", "run")
    np.testing.assert_array_equal(arrays["weights"], ARRAYS["weights"])


def test_failing_to_remove_old_ones_loses_nothing(tmp_path, monkeypatch):
    checkpoints = written(tmp_path)

    def refuse(*_, **__):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "unlink", refuse)
        checkpoints.write(30, ARRAYS, {})
    assert len(names(checkpoints)) == 3
    checkpoints.write(40, ARRAYS, {})
    assert len(names(checkpoints)) == 2


def test_a_size_limit_stops_the_write_and_nothing_else(tmp_path):
    """RLIMIT_FSIZE, as the shell's ulimit -f sets it."""
    checkpoints = written(tmp_path)
    program = textwrap.dedent("""
        import resource, signal, sys
        import numpy as np
        from pathlib import Path
        from ottrpo.persistence.checkpoints import Checkpoints
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Python's own setting
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            Checkpoints(Path(sys.argv[1]), "run").write(30, {"w": np.zeros(200_000)}, {})
        except OSError as error:
            print(error.strerror)
    """)
    told = subprocess.run(
        [sys.executable, "-c", program, str(checkpoints.folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "File too large\n"
    assert names(checkpoints) == ["step-000000000000010.zip", "step-000000000000020.zip"]
    assert checkpoints.newest(lambda saved: saved).data == {"step was": 20}


def test_a_full_disk_stops_the_write_and_nothing_else(tmp_path):
    """A file system of one megabyte, where the system lets us make one."""
    unshare = shutil.which("unshare")
    mount = f"mount -t tmpfs -o size=1m none {tmp_path}"
    trial = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    if unshare is None or subprocess.run(trial, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    program = textwrap.dedent("""
        import sys
        import numpy as np
        from pathlib import Path
        from ottrpo.persistence.checkpoints import Checkpoints
        checkpoints = Checkpoints(Path(sys.argv[1]) / "checkpoints", "run")
        checkpoints.write(10, {"w": np.zeros(100)}, {})
        try:
            checkpoints.write(20, {"w": np.zeros(200_000)}, {})
        except OSError as error:
            print(error.strerror)
        print(checkpoints.newest(lambda saved: saved).step, len(list(checkpoints.folder.iterdir())))
        checkpoints.write(30, {"w": np.zeros(1000)}, {})
        print(checkpoints.newest(lambda saved: saved).step)
    """)
    inside = f"{mount} && exec {sys.executable} - {tmp_path}"
    told = subprocess.run(
        [*trial[:-1], inside], input=program, capture_output=True, text=True, check=True
    )
    assert told.stdout == "No space left on device\n10 1\n30\n"


def test_a_kill_at_any_moment_leaves_a_good_checkpoint(tmp_path):
    """A process that does nothing but write checkpoints is killed a dozen times."""
    program = textwrap.dedent("""
        import sys
        import numpy as np
        from pathlib import Path
        from ottrpo.persistence.checkpoints import Checkpoints
        checkpoints = Checkpoints(Path(sys.argv[1]), "run")
        last = checkpoints.newest(lambda saved: saved)
        step = 0 if last is None else last.step
        if last is not None and (last.arrays["w"] != last.step).any():
            sys.exit("a checkpoint with another's arrays")
        while True:
            step += 1
            checkpoints.write(step, {"w": np.full(20_000, float(step))}, {})
            print(step, flush=True)
    """)
    folder = tmp_path / "checkpoints"
    reached = 0
    for number in range(12):
        worker = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        told = [int(worker.stdout.readline()) for _ in range(1 + number % 3)]
        worker.send_signal(signal.SIGKILL)
        rest = [int(line) for line in worker.stdout.read().split("\n") if line]
        assert worker.wait() == -signal.SIGKILL
        worker.stdout.close()
        latest = Checkpoints(folder, "run").newest(lambda saved: saved)
        assert told[0] == reached + 1
        assert latest.step >= max([*told, *rest])
        reached = latest.step


def test_a_file_that_lets_one_wait_is_refused(tmp_path, monkeypatch):
    """As /proc/kmsg does, which calls itself a regular file."""
    (tmp_path / "f").write_bytes(b"x")
    waits = contextlib.nullcontext(SimpleNamespace(read=lambda limit: None))
    monkeypatch.setattr(os, "fdopen", lambda *_, **__: waits)
    with pytest.raises(ValueError, match="not a regular file"):
        bundle.read_plain(tmp_path / "f", 10)
