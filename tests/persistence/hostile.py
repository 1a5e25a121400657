"""Files that a stranger may send: each must be refused in one line, and nothing may run."""

import hashlib
import io
import json
import pickle
import stat
import struct
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from ottrpo.persistence import bundle, strict_json

KIND = "Thing"
ARRAYS = {"weights": np.arange(6.0).reshape(2, 3), "count": np.array(7), "mask": np.ones(3, bool)}
DATA = {"settings": {"radius": 0.1}, "state": [1, 2.5, None, True, "text"], "rng": 2**127 + 1}


class Payload:
    """Whoever unpickles this makes a file."""

    def __init__(self, marker):
        self.marker = Path(marker)

    def __reduce__(self):
        return Path.touch, (self.marker,)


def honest(kind=KIND, arrays=ARRAYS, data=DATA):
    buffer = io.BytesIO()
    bundle.write(buffer, kind, arrays, data)
    return buffer.getvalue()


def forged(kind, arrays, data):
    """A bundle of arrays that `bundle.write` would refuse, with checksums that match."""
    tensors = save({name: np.array(array, order="C") for name, array in arrays.items()})
    inside = {"data.json": strict_json.dumps(data), "arrays.safetensors": tensors}
    return bundle.pack({"bundle.json": strict_json.dumps(bundle._about(kind, inside)), **inside})


@cache
def members(content=None):
    """The members of an honest bundle by the standard library's reader."""
    with zipfile.ZipFile(io.BytesIO(content or honest())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def assembled(data=None, arrays=None, **about):
    """A bundle in the right form, with checksums that match, of whatever it is given."""
    inside = members()
    data = inside["data.json"] if data is None else data
    arrays = inside["arrays.safetensors"] if arrays is None else arrays
    told = {
        "format": bundle.FORMAT,
        "kind": KIND,
        "sha256": {
            "data.json": hashlib.sha256(data).hexdigest(),
            "arrays.safetensors": hashlib.sha256(arrays).hexdigest(),
        },
    } | about
    text = json.dumps({key: value for key, value in told.items() if value is not ...}).encode()
    return bundle.pack({"bundle.json": text, "data.json": data, "arrays.safetensors": arrays})


def tensors(header, body=b"", claimed=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if claimed is None else claimed) + text + body


def zipped(entries, method=zipfile.ZIP_STORED):
    """An archive by the standard library: (name or ZipInfo, content) in this order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries:
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            archive.writestr(info, content, compress_type=method)
    return buffer.getvalue()


def corpus(marker):
    """Name of the trick -> content of the file."""
    return {
        **_whole_files(marker),
        **_archives(marker),
        **{f"JSON: {name}": assembled(data=text) for name, text in _json(marker).items()},
        **{f"arrays: {name}": assembled(arrays=t) for name, t in _safetensors(marker).items()},
        **_descriptions(marker),
    }


def _whole_files(marker):
    good = honest()
    return {
        "empty": b"",
        "one byte": b"P",
        "pickle": pickle.dumps(Payload(marker)),
        "text": b"hello\n" * 100,
        "HTML": b"<script>alert(1)</script>",
        "zeros": bytes(100_000),
        "an end of an archive only": good[good.rindex(b"PK\x05\x06") :],
        "safetensors alone": save(ARRAYS),
        "junk before": b"#!/bin/sh\ntouch x\n" + good,
        "junk after": good + b"\0",
        "twice": good + good,
        "a comment": good[:-2] + struct.pack("<H", 4) + b"evil",
        "half": good[: len(good) // 2],
        "without its end": good[:-1],
    }


def _archives(marker):
    inside = members()
    ordered = list(inside.items())
    link = zipfile.ZipInfo("bundle.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    slips = [
        "../../evil",
        "/tmp/evil",
        "..\\evil",
        "C:\\evil",
        "a/../../evil",
        "<script>",
        "\x1b[31m",
    ]
    good = honest()
    lying = bytearray(good)
    struct.pack_into("<II", lying, 18, 2**32 - 1, 2**32 - 1)
    encrypted = bytearray(good)
    struct.pack_into("<H", encrypted, 6, 1)
    second = good.index(b"PK\x01\x02")
    overlapping = bytearray(good)
    struct.pack_into("<I", overlapping, good.index(b"PK\x01\x02", second + 4) + 42, 0)
    renamed = bytearray(good)
    at = good.rindex(b"data.json")  # in the directory at the end, not in front of the member
    renamed[at : at + 9] = b"evil.json"
    return {
        "a model of SB3": zipped(
            [("data", b"{}"), ("policy.pth", pickle.dumps(Payload(marker)))], zipfile.ZIP_DEFLATED
        ),
        **{f"slip first {name!r}": zipped([(name, b"x"), *ordered]) for name in slips},
        **{f"slip last {name!r}": zipped([*ordered, (name, b"x")]) for name in slips},
        **{f"slip instead {name!r}": zipped([*ordered[:1], (name, b"x")]) for name in slips},
        "compressed": zipped(ordered, zipfile.ZIP_DEFLATED),
        "bzip2": zipped(ordered, zipfile.ZIP_BZIP2),
        "bomb": zipped([("bundle.json", bytes(30_000_000)), *ordered[1:]], zipfile.ZIP_DEFLATED),
        "another order": zipped(ordered[::-1]),
        "one missing": zipped(ordered[:2]),
        "none": zipped([]),
        "a fourth": zipped([*ordered, ("extra", b"")]),
        "a link": zipped([(link, b"/etc/passwd"), *ordered[1:]]),
        "another date": zipped(ordered),
        "a size that is not there": bytes(lying),
        "encrypted": bytes(encrypted),
        "overlapping members": bytes(overlapping),
        "renamed in the directory": bytes(renamed),
        "pickle for bundle.json": bundle.pack(
            inside | {"bundle.json": pickle.dumps(Payload(marker))}
        ),
    }


def _json(marker):
    return {
        "pickle": pickle.dumps(Payload(marker)),
        "empty": b"",
        "no object": b"[1]",
        "text": b'"x"',
        "null": b"null",
        "cut off": b'{"a": [1, 2',
        "two values": b"{} {}",
        "NaN": b'{"a": NaN}',
        "Infinity": b'{"a": -Infinity}',
        "an overflow": b'{"a": 1e999}',
        "a giant integer": b'{"a": 1' + b"0" * 1_000_000 + b"}",
        "a giant fraction": b'{"a": 0.' + b"1" * 1_000_000 + b"}",
        "a giant exponent": b'{"a": 1e' + b"9" * 1_000_000 + b"}",
        "doubled keys": b'{"a": 1, "a": 2}',
        "doubled keys, escaped": b'{"a": 1, "\\u0061": 2}',
        "deep lists": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep objects": b'{"a": ' * 100_000 + b"1" + b"}" * 100_000,
        "somewhat deep": b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}",
        "open brackets": b"[" * 1_000_000,
        "too long": b'{"a": "' + b"x" * (8 * 2**20) + b'"}',
        "not UTF-8": b'{"a": "\xff"}',
        "UTF-16": '{"a": 1}'.encode("utf-16"),
        "a mark before": b'\xef\xbb\xbf{"a": 1}',
        "a false float": b'{"a": {"__float__": "1e5"}}',
        "a float and more": b'{"a": {"__float__": "inf", "b": 1}}',
        "a float of lists": b'{"a": {"__float__": []}}',
        "comments": b'{"a": 1} // x',
        "single quotes": b"{'a': 1}",
        "a YAML tag": b"!!python/object/apply:os.system ['true']",
    }


def _safetensors(marker):
    def one(**changes):
        return {"a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]} | changes}

    plain = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}
    doubled = f'{{"a": {json.dumps(plain)}, "a": {json.dumps(plain)}}}'.encode()
    return {
        "pickle": pickle.dumps(Payload(marker)),
        "empty": b"",
        "seven bytes": bytes(7),
        "no header": bytes(8),
        "a pickled object of NumPy": _pickled_npy(marker),
        "a giant header": tensors(one(), bytes(16), claimed=2**63),
        "a header beyond the end": tensors(one(), bytes(16), claimed=10_000),
        "a long header": tensors(b'{"a": "' + b"x" * (5 * 2**20) + b'"}'),
        "a list": tensors([1]),
        "no JSON": tensors(b"{"),
        "doubled names": tensors(doubled, bytes(16)),
        "NaN": tensors(b'{"a": NaN}'),
        "metadata": tensors({"__metadata__": {"evil": "<script>"}} | one(), bytes(16)),
        "a number": tensors({"a": 1}),
        "a missing entry": tensors({"a": {"dtype": "F64", "shape": [2]}}, bytes(16)),
        "one entry more": tensors(one(evil=1), bytes(16)),
        "another type": tensors(one(dtype="BF16", shape=[8]), bytes(16)),
        "a tiny type": tensors(one(dtype="F8_E4M3", shape=[16]), bytes(16)),
        "objects": tensors(one(dtype="O"), bytes(16)),
        "a type that is a list": tensors(one(dtype=["F64"]), bytes(16)),
        "a negative size": tensors(one(shape=[-2]), bytes(16)),
        "a giant size": tensors(one(shape=[2**62]), bytes(16)),
        "a giant empty size": tensors(one(shape=[0, 2**62], data_offsets=[0, 0])),
        "an overflowing size": tensors(one(shape=[2**32, 2**32]), bytes(16)),
        "a fraction": tensors(one(shape=[2.0]), bytes(16)),
        "true": tensors(one(shape=[True, 2]), bytes(16)),
        "no shape": tensors(one(shape=None), bytes(16)),
        "many axes": tensors(one(shape=[2] + [1] * 100), bytes(16)),
        "another size": tensors(one(shape=[3]), bytes(16)),
        "beyond the end": tensors(one(data_offsets=[0, 32], shape=[4]), bytes(16)),
        "backwards": tensors(one(data_offsets=[16, 0]), bytes(16)),
        "negative": tensors(one(data_offsets=[-16, 0]), bytes(16)),
        "a gap": tensors(one(data_offsets=[8, 24]), bytes(24)),
        "overlapping": tensors(one() | {"b": plain}, bytes(16)),
        "more bytes": tensors(one(), bytes(17)),
    }


def _descriptions(marker):
    return {
        "version 2": assembled(format="ottrpo-bundle-2"),
        "no version": assembled(format=...),
        "a version that is a number": assembled(format=1),
        "the format before": assembled(format="ottrpo-agent-1"),
        "no kind": assembled(kind=...),
        "a kind that is a list": assembled(kind=["Thing"]),
        "another kind": assembled(kind="Other"),
        "HTML for a kind": assembled(kind="<script>alert(1)</script>"),
        "colours for a kind": assembled(kind="\x1b[31mred\nline"),
        "no checksums": assembled(sha256=...),
        "checksums that are a list": assembled(sha256=[]),
        "empty checksums": assembled(sha256={}),
        "wrong checksums": assembled(
            sha256={"data.json": "0" * 64, "arrays.safetensors": "0" * 64}
        ),
        "something more": assembled(evil=1),
    }


def _pickled_npy(marker):
    buffer = io.BytesIO()
    np.save(buffer, np.array([Payload(marker)], dtype=object), allow_pickle=True)
    return buffer.getvalue()
