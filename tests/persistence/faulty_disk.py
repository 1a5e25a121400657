"""A disk that fails, takes half, dies or loses its power at one chosen call.

Every call by which the store changes a file is a point. `FaultyDisk` counts and names them, and at
the one that is chosen does what its fault says. A process that was killed does nothing any more,
not even clean up. When the power goes, what was not brought onto the disk (``fsync``) is gone as
well: the ends of files, and new names in directories.
"""

import errno
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

FAULTS = ("fails", "cut short", "killed before", "killed after", "power cut")
# open counts where it makes a file
CALLS = ("open", "write", "sendfile", "fsync", "replace", "rename", "link", "unlink", "truncate")
CALLS += ("ftruncate", "mkdir", "rmdir")
_RANDOM = re.compile(r"[0-9a-f]{16}")


class Killed(BaseException):
    """The process is gone: nothing after this happens."""


class FaultyDisk:
    """While it is entered, the calls of `os` under ``root`` are points."""

    def __init__(self, monkeypatch, root, fault=None, at=None):
        self.root, self.fault, self.at = Path(root), fault, at
        self.points, self.dead, self._forgetting = [], False, False
        self._synced, self._undo = {}, []
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    @property
    def reached(self):
        return self.at is not None and len(self.points) > self.at

    def _watched(self, name, call):
        def watched(*args, **kwargs):
            path = _path_of(args[0], kwargs.get("dir_fd"))
            makes = name != "open" or args[1] & os.O_CREAT
            if self._forgetting or not makes or not path.is_relative_to(self.root):
                return call(*args, **kwargs)
            if self.dead:
                raise Killed
            self.points.append(f"{name} {_plain(path, self.root)}")
            if len(self.points) - 1 == self.at:
                return self._strike(name, call, args, kwargs, path)
            return self._done(name, call, args, kwargs, path)

        return watched

    def _strike(self, name, call, args, kwargs, path):
        if self.fault == "fails":
            raise OSError(errno.EIO, "Input/output error")
        if self.fault == "cut short":
            if name != "write":
                raise OSError(errno.ENOSPC, "No space left on device")
            self.at = len(self.points)  # half of it arrives, and of the rest nothing
            self.fault = "fails"
            return self._done(name, call, (args[0], bytes(args[1][: len(args[1]) // 2])), {}, path)
        if self.fault == "killed after":
            self._done(name, call, args, kwargs, path)
        elif name == "write":  # in the middle of it
            call(args[0], bytes(args[1][: len(args[1]) // 2]))
        self.dead = True
        if self.fault == "power cut":
            self._forget()
        raise Killed

    def _done(self, name, call, args, kwargs, path):
        """The call, and how to undo it until it is on the disk."""
        if name == "fsync":
            self._sync(path)
        elif name in ("write", "sendfile", "truncate", "ftruncate"):
            self._synced.setdefault(path, path.stat().st_size)
        elif name == "open" and not path.exists():
            self._synced[path] = 0
        elif name in ("replace", "rename", "link"):
            self._remember(Path(os.fspath(args[0])), Path(os.fspath(args[1])), name)
        elif name == "unlink" and path.exists():
            content = path.read_bytes()
            self._undo.append(({path.parent}, lambda: path.write_bytes(content)))
        return call(*args, **kwargs)

    def _remember(self, source, target, name):
        held = target.read_bytes() if target.is_file() else None
        if source in self._synced:
            self._synced[target] = self._synced.pop(source)

        def undo():
            if name != "link":
                with suppress(FileNotFoundError):
                    shutil.move(target, source)
            elif target.exists():
                target.unlink()
            if held is not None:
                target.write_bytes(held)

        self._undo.append(({source.parent, target.parent}, undo))

    def _sync(self, path):
        self._synced.pop(path, None)
        if path.is_dir():
            self._undo = [(where - {path}, undo) for where, undo in self._undo]
            self._undo = [(where, undo) for where, undo in self._undo if where]

    def _forget(self):
        self._forgetting = True  # these calls are ours
        for path, size in self._synced.items():
            if path.is_file():
                with open(path, "r+b") as file:
                    file.truncate(min(size, path.stat().st_size))
        while self._undo:
            self._undo.pop()[1]()
        self._forgetting = False


def _path_of(place, folder=None):
    if isinstance(place, int):
        return Path(os.readlink(f"/proc/self/fd/{place}"))
    return (Path() if folder is None else _path_of(folder)) / os.fspath(place)


def _plain(path, root):
    return _RANDOM.sub("*", str(path.relative_to(root)))
