"""One process at a time in a run's directory; a lock whose owner is dead does not count."""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from . import strict_json

NAME = ".lock"
_MOST_BYTES = 4096


@final
class DirectoryLock:
    """Hold a directory while working in it.

    The lock is a file that names its owner: host, process, and when that process started, so that
    a number that was given to another process since is not mistaken for it. An owner on this
    machine that no longer runs is succeeded; of one elsewhere nothing can be known, and it is
    respected.

    Args:
        directory: what to hold; it must exist.

    Raises:
        ValueError: on entering, if another process holds it.
    """

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / NAME
        self._owner: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        owner = _identity()
        with self._opened() as handle:
            holder = _read(handle)
            if holder is not None and _may_live(holder):
                raise ValueError(
                    f"{self.path.parent} is in use by process {strict_json.shown(holder['pid'])} "
                    f"on {strict_json.shown(holder['host'])}; wait for it, or remove {self.path} "
                    "if you know that it is dead"
                )
            os.ftruncate(handle, 0)
            os.pwrite(handle, strict_json.dumps(owner), 0)
            os.fsync(handle)
        self._owner = owner
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        owner, self._owner = self._owner, None
        if owner is None or owner["pid"] != os.getpid():  # a fork does not own what it inherits
            return
        with contextlib.suppress(OSError, ValueError), self._opened() as handle:
            if _read(handle) == owner:
                self.path.unlink()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The lock's file, and nobody else in it for the moment."""
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            try:
                handle = os.open(self.path, flags, 0o666)
            except OSError as error:
                raise ValueError(f"{self.path.parent} can't be locked: {error.strerror}") from error
            try:
                with contextlib.suppress(OSError):  # some network disks have no such locks
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if _still_at(self.path, handle):
                    self._require_own(os.fstat(handle))
                    yield handle
                    return
            finally:
                os.close(handle)

    def _require_own(self, status: os.stat_result) -> None:
        # a pipe would block, and a second name could be that of a file worth keeping
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise ValueError(f"{self.path} is no file of its own; remove it")


def _still_at(path: Path, handle: int) -> bool:
    """Whether the file was not removed between opening it and having it to ourselves."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _read(handle: int) -> dict[str, Any] | None:
    """The owner that is named; None if the file is new, or its writer died while writing."""
    try:
        holder = strict_json.loads(os.pread(handle, _MOST_BYTES, 0))
    except ValueError:
        return None
    if not isinstance(holder, dict) or not {"pid", "host", "machine", "started"} <= set(holder):
        return None
    return holder


def _identity() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "machine": _machine(),
        "started": _started(os.getpid()),
    }


def _may_live(holder: dict[str, Any]) -> bool:
    ours = _identity()
    if (holder["host"], holder["machine"]) != (ours["host"], ours["machine"]):
        return True
    pid = holder["pid"]
    if type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, for somebody else
    return bool(holder["started"] == _started(pid))


def _machine() -> str:
    """What tells processes with the same number apart: a container has its own numbers."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux
        return ""


def _started(pid: int) -> str:
    """When a process started, as the system counts; empty where it does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # the second field, a name in brackets, may hold anything; the twentieth after it is ours
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # dead, but nobody has asked after it yet: as in a container whose first process never does
        return "" if fields[0] in "ZX" else f"{boot} {fields[19]}"
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
