"""One process at a time in a run's directory; a lock whose owner is dead is none."""

import fcntl
import os
import socket
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Self, final

NAME = ".lock"
_MOST_BYTES = 256
_held: set[int] = set()  # open files; a child that is forked must not hold what its parent does


@final
class DirectoryLock:
    """Hold a directory while working in it.

    The system holds the lock (``flock``) for as long as the process lives, and lets it go however
    that ends; nothing has to be guessed about processes that may be dead, or have another number
    elsewhere. The file also says who holds it, for whoever is refused.

    Args:
        directory: what to hold; it must exist.

    Raises:
        ValueError: on entering, if another process holds it.
    """

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / NAME
        self._handle: int | None = None
        self._owner = 0

    def __enter__(self) -> Self:
        while self._handle is None:
            handle = self._opened()
            try:
                self._take(handle)
                if _still_at(self.path, handle):  # else its owner has removed it since
                    self._handle, self._owner = handle, os.getpid()
            finally:
                if self._handle is None:
                    os.close(handle)
        _held.add(self._handle)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{self._owner} on {socket.gethostname()}\n".encode(), 0)
        return self

    def __exit__(self, *error: object) -> None:
        handle, self._handle = self._handle, None
        if handle is None or self._owner != os.getpid():
            return
        with suppress(OSError):
            self.path.unlink()
        _held.discard(handle)
        os.close(handle)

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            handle = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise ValueError(f"{self.path.parent} can't be locked: {error.strerror}") from error
        status = os.fstat(handle)
        # a pipe would block, and a second name could be that of a file worth keeping
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(handle)
            raise ValueError(f"{self.path} is no file of its own; remove it")
        return handle

    def _take(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"{self.path.parent} is in use by process {_holder(handle)}; wait for it"
            ) from error
        except OSError as error:
            warnings.warn(
                f"{self.path.parent} lies on a file system without locks ({error.strerror}): see "
                "to it that nobody else works in it",
                stacklevel=3,
            )


def _holder(handle: int) -> str:
    said = os.pread(handle, _MOST_BYTES, 0).decode("utf-8", "replace").strip()
    return said if said.isprintable() else repr(said)


def _let_go_in_child() -> None:
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


def _still_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False
