"""The folder of a study: small tables that are kept, and that tell if they change.

It holds a table of evaluations per cell, one line per run in ``runs.csv``, the audits where there
are any, and ``manifest.json``: settings, versions, hardware, commit, and the checksum of every
table. Everything that is reported is computed from these files alone. A folder is replaced as a
whole or not at all.
"""

import csv
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from ottrpo.core.checks import require, require_words
from ottrpo.persistence.bundle import read_plain, sync_directory, write_atomically

from .layout import MANIFEST, read_object

Rows = list[dict[str, Any]]
SUMS = "sha256"
MAX_TABLE = 2**28
_CELL_KEYS = ("environment", "agent", "config", "label", "trained_steps")


@final
@dataclass(frozen=True)
class StoredTable:
    """A table as it stands in its file.

    Attributes:
        path: of the file.
        head: the names of its columns.
        rows: all others, each as long as the head.
    """

    path: Path
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def parse(cls, path: Path, content: bytes) -> "StoredTable":
        """The table that the file ``path`` holds."""
        try:
            lines = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path} is not a table: {error}; {remedy(path)}") from error
        head, *rows = lines or [[]]
        for line, row in enumerate(rows, start=2):
            require(len(row) == len(head), f"{path}, line {line} is torn; {remedy(path)}")
        return cls(path, head, rows)

    def columns(self, **kinds: Callable[[str], Any]) -> Iterator[tuple[str, list[Any]]]:
        """Some columns, made what they should be, row by row, each with its place in words."""
        missing = [name for name in kinds if name not in self.head]
        path = self.path
        require(not missing, f"{path} lacks the columns {', '.join(missing)}; {remedy(path)}")
        read = [(self.head.index(name), kind) for name, kind in kinds.items()]
        for line, row in enumerate(self.rows, start=2):
            require(all(row[i] for i, _ in read), f"{path}, line {line} is torn; {remedy(path)}")
            try:
                yield f"{path}, line {line}", [kind(row[i]) for i, kind in read]
            except ValueError as error:
                raise ValueError(f"{path}, line {line}: {error}; {remedy(path)}") from error

    def records(self) -> Rows:
        """Every row by the names of its columns."""
        return [dict(zip(self.head, row, strict=True)) for row in self.rows]


@final
@dataclass(frozen=True)
class StudyFolder:
    """What a folder holds.

    Attributes:
        path: of the folder.
        manifest: what is known of the study and its cells.
        tables: that were collected, by the names of their files.
    """

    path: Path
    manifest: Mapping[str, Any] = field(default_factory=lambda: {"cells": {}, SUMS: {}})
    tables: Mapping[str, StoredTable] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "StudyFolder":
        """All of it, if it is what was collected.

        Raises:
            ValueError: if a file is damaged or missing, or was edited.
        """
        manifest = _read_manifest(path / MANIFEST)
        tables = {
            name: StoredTable.parse(path / name, _read_table(path / name, expected))
            for name, expected in manifest[SUMS].items()
        }
        return cls(path, manifest, tables)

    def require_no_others(self) -> None:
        """Refuse a folder with tables that were not collected.

        Raises:
            ValueError: if there are some.
        """
        others = sorted(file for file in self.path.glob("*.csv") if file.name not in self.tables)
        told = ", ".join(map(str, others))
        require(not others, f"{told} was not collected; move it out of {self.path}")

    @property
    def cells(self) -> Mapping[str, Any]:
        """What the manifest knows of every cell."""
        cells: Mapping[str, Any] = self.manifest["cells"]
        return cells

    def replace(self, manifest: Mapping[str, Any], tables: Mapping[str, Rows]) -> None:
        """Put the tables, and the manifest with their checksums, in the place of what is there.

        Other files stay. If all cells and tables are those that are held, nothing is written.

        Raises:
            OSError: if they can't be written; what was there is left as it was.
        """
        contents = {name: _csv_bytes(tables[name]) for name in sorted(tables)}
        sums = {name: checksum(content) for name, content in contents.items()}
        if (manifest["cells"], sums) == (self.cells, self.manifest[SUMS]):
            return
        text = json.dumps({**manifest, SUMS: sums}, indent=2) + "\n"
        with _replacement(self.path) as temporary:
            for name, content in {**contents, MANIFEST: text.encode()}.items():
                write_atomically(temporary / name, content)


def heal(folder: Path) -> None:
    """Put back what a process that was killed while it replaced ``folder`` had moved aside."""
    aside = _aside(folder)
    if aside.is_dir():
        if folder.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(folder)


def checksum(content: bytes) -> str:
    """What tells whether a table is the one that was collected."""
    return hashlib.sha256(content).hexdigest()


def remedy(path: Path) -> str:
    """What to do about a file of a study that is not as it should be."""
    folder = path.parent
    return f"restore it, or move {folder} away and make it anew: ottrpo reproduce {folder.name}"


def _read_manifest(path: Path) -> dict[str, Any]:
    require(path.is_file(), f"there is no {path}; `ottrpo reproduce STUDY` makes it")
    try:
        manifest = read_object(path)
    except ValueError as error:
        raise ValueError(f"{error}; {remedy(path)}") from error
    for key in ("cells", SUMS):
        right = isinstance(manifest.get(key), dict)
        require(right, f"{path} must hold an object {key}; {remedy(path)}")
        for name in manifest[key]:
            safe = name.isprintable() and Path(name).name == name and name not in (".", "..")
            require(safe, f"{path}: {name!r} in {key} is no name of a file")
    for key in ("study", "description"):
        require_words(f"{path}: {key}", manifest.get(key, ""))
    for name, cell in manifest["cells"].items():
        absent = [key for key in _CELL_KEYS if not isinstance(cell, dict) or key not in cell]
        require(not absent, f"{path}: the cell {name!r} lacks {', '.join(absent)}")
        for key in ("environment", "agent", "config", "label"):
            require_words(f"{path}: {key} of {name!r}", cell[key] or "")
        _require_types(path, name, cell)
    return manifest


def _require_types(path: Path, name: str, cell: Mapping[str, Any]) -> None:
    """Refuse a manifest that says something other than `ottrpo reproduce` writes."""
    seeds, steps = cell.get("seeds", []), cell["trained_steps"]
    for key, right in (
        ("seeds", isinstance(seeds, list) and all(type(seed) is int for seed in seeds)),
        ("trained_steps", steps is None or (type(steps) is int and steps > 0)),
        ("planned_seeds", isinstance(cell.get("planned_seeds"), int | None)),
        ("resolved", isinstance(cell.get("resolved"), dict | None)),
    ):
        require(right, f"{path}: {key} of {name} can't be {cell.get(key)!r}; {remedy(path)}")


def _read_table(path: Path, expected: Any) -> bytes:
    """The content of a table, which must be the one that was collected."""
    require(path.is_file(), f"{path} is missing; {remedy(path)}")
    content = read_plain(path, MAX_TABLE)
    same = checksum(content) == expected
    require(same, f"{path} has been changed since it was collected; {remedy(path)}")
    return content


def _csv_bytes(rows: Rows) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


@contextmanager
def _replacement(folder: Path) -> Iterator[Path]:
    """A copy of ``folder`` that takes its place at the end; if anything fails, nothing happens."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    temporary.mkdir()
    try:
        if folder.is_dir():
            # links, not copies: what stays is on the disk already
            shutil.copytree(
                folder, temporary, dirs_exist_ok=True, symlinks=True, copy_function=os.link
            )
        yield temporary
        if folder.is_dir():
            folder.rename(_aside(folder))  # `heal` puts it back if we die right here
        temporary.rename(folder)
        sync_directory(folder.parent)
        shutil.rmtree(_aside(folder), ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        heal(folder)
        raise
