"""The one file format of every agent and checkpoint: arrays as safetensors, all else as JSON.

Files appear whole or not at all, and are read only if they are plain and small; that holds for any
file that is written by `write_atomically` and read by `read_plain`.

A bundle is a zip archive without compression of three members: ``bundle.json`` (the format's
version, the kind of thing saved, a checksum for each of the others), ``data.json`` and
``arrays.safetensors``. None of them can run code, so opening a stranger's bundle is safe.

Any unzip program opens it. Our reader accepts what `pack` writes and nothing else, byte for byte:
there is no room for compressed, encrypted, hidden, doubled or renamed members, and none for a
second directory that another program would believe instead.
"""

import errno
import hashlib
import io
import os
import secrets
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ottrpo.names import in_short, one_line

from . import strict_json

FORMAT = "ottrpo-bundle-1"
ENDING = ".zip"
RUN_AGENT = "agent.zip"  # the trained agent in the directory of a run
ABOUT, DATA, ARRAYS = "bundle.json", "data.json", "arrays.safetensors"
MAX_ARRAYS = 2**30
MAX_ARRAYS_HEADER = 4 * 2**20  # names, types and shapes of some 40,000 arrays
MAX_AXES = 16
LIMITS = {ABOUT: 4096, DATA: strict_json.MAX_BYTES, ARRAYS: MAX_ARRAYS}
MAX_BYTES = sum(LIMITS.values()) + 4096
_SB3_FIRST = b"data{"  # the name of the first member of SB3's files, and how it begins
_HEADER, _METHOD, _SIZE = 30, 8, 18  # what stands in front of a member: its length, and where
_MODE = 0o100644 << 16
DTYPES = ("BOOL", "U8", "I8", "U16", "I16", "F16", "U32", "I32", "F32", "U64", "I64", "F64")
DRAFT_ENDING = ".draft"
# some network file systems can't do it for a directory, and say so
_NOT_FOR_DIRECTORIES = (errno.EINVAL, errno.ENOTSUP)
Place = str | Path | io.BufferedIOBase


class BundleError(ValueError):
    """A file that is not the bundle that was asked for; the message is one line."""


class NoBundleError(BundleError, FileNotFoundError):
    """There is no such file: who looks first whether there is an agent to go on with expects that.

    SB3's ``load`` raises a ``FileNotFoundError`` for it.
    """


def write(path: Place, kind: str, arrays: Mapping[str, ArrayLike], data: Mapping[str, Any]) -> None:
    """Write a bundle; it appears whole or not at all, and what was there before stays until then.

    Args:
        path: where; like SB3, ``.zip`` is added to a path without an ending.
        kind: what is saved; `read` must ask for the same.
        arrays: finite numbers and booleans of any shape.
        data: everything else, as JSON knows it; infinities and NaN are allowed.

    Raises:
        ValueError: if something can't be saved; nothing is written then.
        OSError: if the disk is full or refuses; the file that was there is untouched.
    """
    content = _content(kind, arrays, data)
    if isinstance(path, io.BufferedIOBase):
        path.write(content)
    else:
        write_atomically(_with_ending(Path(path)), content)


def read(
    path: Place, kind: str, *, follow: bool = True
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The arrays and the data of a bundle; the directory of a run stands for the agent in it.

    Args:
        path: which; a name without an ending may stand for one with ``.zip``.
        kind: what it must hold.
        follow: whether ``path`` may be a symbolic link or a directory.

    Raises:
        BundleError: if there is none, it is of another kind or version, or it is not exactly
            what `write` makes.
    """
    found, arrays, data = read_any(path, follow=follow)
    if found != kind:
        raise BundleError(f"{_name(path)} holds a {_printable(found)}, not a {kind}")
    return arrays, data


def read_any(
    path: Place, *, follow: bool = True
) -> tuple[str, dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The kind, the arrays and the data of a bundle that may hold anything; else as `read`."""
    name = _name(path)
    try:
        members = _unpack(_bytes(path, follow))
        found = _kind_of(members)
        arrays, data = _arrays(members[ARRAYS]), strict_json.loads(members[DATA])
        if not isinstance(data, dict):
            raise ValueError(f"{DATA} is no object")
    except FileNotFoundError as error:
        raise NoBundleError(f"there is no saved agent at {name}") from error
    except OSError as error:
        raise BundleError(f"{name} can't be read: {error.strerror or error}") from error
    except (ValueError, SafetensorError) as error:
        raise BundleError(f"{name} is no bundle of ours, or it is damaged: {error}") from error
    return found, arrays, data


@contextmanager
def interpreting(path: Place) -> Iterator[None]:
    """Tell whatever goes wrong while the contents of a bundle are put to use in one line.

    A bundle with sound checksums may still have been made to deceive: entries that are missing, of
    the wrong type, or absurd.
    """
    try:
        yield
    except ValueError:
        raise
    except Exception as error:  # what nonsense raises can't be known
        told = one_line(error)
        raise BundleError(f"{_name(path)} does not hold what it should: {told}") from error


def require_room(entries: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Refuse a bundle whose data describes far more than its arrays hold.

    Data of a few bytes may ask for networks larger than the machine; who builds them to compare
    shapes has lost already.
    """
    held = sum(array.size for array in arrays.values())
    if entries > held:
        raise BundleError(
            f"the bundle describes {entries:,} parameters, but holds {held:,} numbers"
        )


def pack(members: Mapping[str, bytes]) -> bytes:
    """A zip archive of the members as they are; the same ones give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            about = zipfile.ZipInfo(name)  # of 1 January 1980
            about.create_system, about.external_attr = 3, _MODE  # whatever the system
            archive.writestr(about, content)
    return buffer.getvalue()


def _unpack(content: bytes) -> dict[str, bytes]:
    """The members of what `pack` wrote, found by the sizes in front of them."""
    if not content.startswith(b"PK"):
        raise ValueError("it is no zip archive" if content else "it is empty")
    if content[_HEADER : _HEADER + len(_SB3_FIRST)] == _SB3_FIRST:
        raise ValueError(
            "it looks like a model that Stable-Baselines3 saved, as pickles; if you trust it, "
            "load_sb3 of ottrpo.persistence.foreign opens it"
        )
    members, at = {}, 0
    for name, limit in LIMITS.items():
        size = int.from_bytes(content[at + _SIZE : at + _SIZE + 4], "little")
        if any(content[at + _METHOD : at + _METHOD + 2]):
            raise ValueError(f"{name} is compressed")
        if size > limit:
            raise ValueError(f"{name} has {size:,} bytes, more than {limit:,}")
        start = at + _HEADER + len(name)
        at = start + size
        if at > len(content):
            raise ValueError("it ends too early")
        members[name] = content[start:at]
    if pack(members) != content:
        raise ValueError(f"it is not made of {', '.join(LIMITS)} as they are written")
    return members


def _content(kind: str, arrays: Mapping[str, ArrayLike], data: Mapping[str, Any]) -> bytes:
    tensors = {name: np.array(array, order="C") for name, array in arrays.items()}
    for name, tensor in tensors.items():
        if tensor.dtype.kind not in "biuf" or tensor.dtype.itemsize > 8:
            raise ValueError(f"the array {name!r} can't be saved: it holds {tensor.dtype}")
        if not _is_finite(tensor):
            raise ValueError(f"the array {name!r} can't be saved: it holds NaN or infinity")
    members = {DATA: strict_json.dumps(dict(data)), ARRAYS: save(tensors)}
    _require_usual_header(members[ARRAYS])  # what could not be read must not be written
    if len(members[ARRAYS]) > MAX_ARRAYS:
        raise ValueError(f"{len(members[ARRAYS]):,} bytes of arrays are more than {MAX_ARRAYS:,}")
    return pack({ABOUT: strict_json.dumps(_about(kind, members)), **members})


def _about(kind: str, members: Mapping[str, bytes]) -> dict[str, Any]:
    sums = {name: hashlib.sha256(members[name]).hexdigest() for name in (DATA, ARRAYS)}
    return {"format": FORMAT, "kind": kind, "sha256": sums}


def _kind_of(members: Mapping[str, bytes]) -> str:
    """The kind that a bundle says it is of, once all it says about itself is true."""
    said = strict_json.loads(members[ABOUT])
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        found = said.get("format") if isinstance(said, dict) else said
        raise ValueError(f"its format is {in_short(found)}, and this version reads {FORMAT!r}")
    kind = said.get("kind")
    if not isinstance(kind, str):
        raise ValueError(f"{ABOUT} says no kind")
    if said != _about(kind, members):
        raise ValueError(f"the checksums in {ABOUT} are not those of {DATA} and {ARRAYS}")
    return kind


def _arrays(content: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a safetensors file that has nothing unusual about it."""
    _require_usual_header(content)
    # copies, because those of the library can't be written to
    arrays = {name: array.copy() for name, array in load(content).items()}
    for name, array in arrays.items():
        if not _is_finite(array):
            raise ValueError(f"the array {in_short(name)} holds NaN or infinity")
    return arrays


def _is_finite(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _require_usual_header(content: bytes) -> None:
    if len(content) < 8:
        raise ValueError(f"{ARRAYS} ends too early")
    (size,) = struct.unpack_from("<Q", content)
    if size > min(MAX_ARRAYS_HEADER, len(content) - 8):
        raise ValueError(f"{ARRAYS} claims a header of {size:,} bytes")
    header = strict_json.loads(content[8 : 8 + size])
    if not isinstance(header, dict):
        raise ValueError(f"the header of {ARRAYS} is no object")
    for name, entry in header.items():
        _require_usual(name, entry)


def _require_usual(name: str, entry: Any) -> None:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{ARRAYS} describes {in_short(name)} by {in_short(entry)}")
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"the array {in_short(name)} has the type {in_short(entry['dtype'])}")
    shape = entry["shape"]
    plain = isinstance(shape, list) and len(shape) <= MAX_AXES
    if not plain or not all(type(n) is int and 0 <= n <= MAX_ARRAYS for n in shape):
        raise ValueError(f"the array {in_short(name)} has the shape {in_short(shape)}")


def _bytes(path: Place, follow: bool) -> bytes:
    if isinstance(path, io.BufferedIOBase):
        content = path.read(MAX_BYTES + 1)
        if not content and path.seekable():  # it was just written to
            path.seek(0)
            content = path.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        return content
    place = Path(path)
    if follow and place.is_dir():
        # whoever names a file may name a link; what lies in a directory must be the file itself
        return read_plain(place / RUN_AGENT, MAX_BYTES, follow=False)
    return read_plain(place if place.exists() else _with_ending(place), MAX_BYTES, follow=follow)


def _with_ending(path: Path) -> Path:
    return path if path.suffix else path.with_name(path.name + ENDING)


def _name(path: Place) -> str:
    return "the given file" if isinstance(path, io.BufferedIOBase) else _printable(path)


def _printable(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)


def write_atomically(path: Path | str, content: bytes) -> None:
    """Make ``path`` hold ``content``; whatever happens, it holds all of the old or of the new.

    The draft lies in the same directory, because a rename is atomic inside one file system only.
    It is on the disk before it takes the name, and the name before this returns: a power cut
    cannot leave a name without content.

    Raises:
        OSError: if the disk is full or refuses; what ``path`` held before is untouched.
    """
    path = Path(path)
    _make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{DRAFT_ENDING}")
    # exclusive and without following links: nobody can have laid something in its place
    with _told_of(path):
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            write_all(file.fileno(), content)
            os.fsync(file.fileno())
        with _told_of(path):
            os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    sync_directory(path.parent)


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Errors name the file that was asked for, and not its draft."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


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
            content = file.read(limit)
        if content is None:  # as of /proc/kmsg, which calls itself regular and lets one wait
            raise ValueError("it is not a regular file")
        return content
    finally:
        os.close(handle)


def write_all(handle: int, content: bytes) -> None:
    """Write ``content``, however little the system takes at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
