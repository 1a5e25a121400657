"""Files that appear whole or not at all, and that are read only if they are plain and small."""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

DRAFT_ENDING = ".draft"
# some network file systems can't do it for a directory, and say so
_NOT_FOR_DIRECTORIES = (errno.EINVAL, errno.ENOTSUP)


def write_atomically(path: Path, content: bytes) -> None:
    """Make ``path`` hold ``content``; whatever happens, it holds all of the old or of the new.

    The draft lies in the same directory, because a rename is atomic inside one file system only.
    It is on the disk before it takes the name, and the name before this returns: a power cut
    cannot leave a name without content.

    Raises:
        OSError: if the disk is full or refuses; what ``path`` held before is untouched.
    """
    _make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{DRAFT_ENDING}")
    # exclusive and without following links: nobody can have laid something in its place
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            write_all(file.fileno(), content)
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Bring the names in ``folder`` onto the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_FOR_DIRECTORIES:
            raise
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    """Make ``folder`` and those above it, each on the disk before the next."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)


def remove_drafts(folder: Path) -> None:
    """Remove what writers that were killed left behind; only for who holds the folder's lock."""
    for draft in folder.glob(f".*{DRAFT_ENDING}"):
        draft.unlink(missing_ok=True)


def read_plain(path: Path, limit: int, *, follow: bool = True) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Args:
        path: the file.
        limit: more bytes than this are refused before they are read.
        follow: whether ``path`` may be a symbolic link.

    Raises:
        ValueError: if it is a link, a directory, a pipe or a device, or too large.
        OSError: if there is none, or it can't be read.
    """
    if not follow and path.is_symlink():
        raise ValueError("it is a symbolic link")
    # without waiting: opening a pipe would else hang until somebody writes to it
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > limit:
            raise ValueError(f"it has {status.st_size:,} bytes, more than {limit:,}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(handle)


def write_all(handle: int, content: bytes) -> None:
    """Write ``content``, however little the system takes at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
