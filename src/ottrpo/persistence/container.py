"""Several files in one: a zip archive of one exact form.

Any unzip program opens it. Our reader accepts what `pack` writes and nothing else: members are
found by the lengths in front of them, and every other byte must be the one that `pack` would have
put there. So there is no room for compressed, encrypted, hidden, doubled or renamed members, and
none for a second directory that another program would believe instead.
"""

import struct
import zlib
from collections.abc import Mapping

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_LOCAL_SIGNATURE, _CENTRAL_SIGNATURE, _END_SIGNATURE = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_VERSION = 20
_UNIX = 3 << 8
_STORED = 0
_TIME, _DATE = 0, 0x0021  # 1 January 1980: the same content gives the same bytes
_MODE = 0o100644 << 16
MAX_MEMBER = 2**31  # well inside what a zip without extensions can say


def pack(members: Mapping[str, bytes]) -> bytes:
    """The members, one after the other, and the directory that zip wants at the end.

    Raises:
        ValueError: if a member is too large.
    """
    for name, content in members.items():
        if len(content) > MAX_MEMBER:
            raise ValueError(f"{name} has {len(content):,} bytes, more than {MAX_MEMBER:,}")
    parts = [part for name, body in members.items() for part in (_header(name, body), body)]
    return b"".join([*parts, _directory(members)])


def unpack(content: bytes, limits: Mapping[str, int]) -> dict[str, bytes]:
    """The members of what `pack` wrote.

    Args:
        content: the archive.
        limits: the members that it must have, in their order, with the most bytes of each.

    Raises:
        ValueError: if it is anything else.
    """
    members: dict[str, bytes] = {}
    at = 0
    for name, limit in limits.items():
        start, size = _located(content, at, name)
        if size > limit:
            raise ValueError(f"{name} has {size:,} bytes, more than {limit:,}")
        body = content[start : start + size]
        if len(body) < size:
            raise ValueError("it ends too early")
        if content[at:start] != _header(name, body):
            raise ValueError(f"{name} does not match what is said in front of it")
        members[name], at = body, start + size
    if content[at:] != _directory(members):
        raise ValueError(f"something else than a directory of {', '.join(limits)} follows them")
    return members


def _located(content: bytes, at: int, name: str) -> tuple[int, int]:
    """Where the body of the member at ``at`` starts, and its size."""
    if len(content) < at + _LOCAL.size:
        raise ValueError("it is empty" if not content else "it ends too early")
    header = _LOCAL.unpack_from(content, at)
    signature, _, _, method, _, _, _, _, size, name_size, extra_size = header
    if signature != _LOCAL_SIGNATURE:
        raise ValueError("it is no zip archive" if at == 0 else f"{name} is missing")
    start = at + _LOCAL.size + name_size + extra_size
    found = content[at + _LOCAL.size : at + _LOCAL.size + name_size]
    if found != name.encode():
        shown = found[:60].decode("ascii", "backslashreplace")
        raise ValueError(f"it holds {shown!r} where {name} belongs")
    if method != _STORED:
        raise ValueError(f"{name} is compressed")
    return start, size


def _header(name: str, body: bytes) -> bytes:
    encoded = name.encode()
    return _LOCAL.pack(_LOCAL_SIGNATURE, _VERSION, *_description(body), len(encoded), 0) + encoded


def _description(body: bytes) -> tuple[int, ...]:
    return (0, _STORED, _TIME, _DATE, zlib.crc32(body), len(body), len(body))


def _directory(members: Mapping[str, bytes]) -> bytes:
    entries, at = b"", 0
    for name, body in members.items():
        encoded = name.encode()
        entries += (
            _CENTRAL.pack(
                *(_CENTRAL_SIGNATURE, _UNIX | _VERSION, _VERSION, *_description(body)),
                *(len(encoded), 0, 0, 0, 0, _MODE, at),
            )
            + encoded
        )
        at += _LOCAL.size + len(encoded) + len(body)
    count = len(members)
    return entries + _END.pack(_END_SIGNATURE, 0, 0, count, count, len(entries), at, 0)
