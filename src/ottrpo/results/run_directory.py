"""One directory per run: what was asked, what was measured, and the trained agent.

``manifest.json`` is written once, before training. ``metrics.jsonl`` and ``evaluations.jsonl``
only ever grow, one whole line at a time, so that a run that is killed loses at most the line it
was writing. ``checkpoints`` is there while the run lasts: from them an interrupted one goes on,
after the logs have been cut back to what they were. ``agent.*`` is the trained agent.
"""

import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottrpo.core.checks import require
from ottrpo.names import in_short
from ottrpo.persistence.bundle import read_plain, sync_directory, write_all, write_atomically

from .layout import AGENT, CHECKPOINTS, EVALUATIONS, LOGS, MANIFEST, METRICS, read_object

MAX_LOG = 2**30
# The last records of a log are looked for in its last bytes; a record is a few hundred long.
TAIL = 16_384


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any]) -> "RunDirectory":
        """A new run; a directory that already holds one is refused, also in a race."""
        text = json.dumps(_plain(manifest), indent=2, sort_keys=False) + "\n"
        draft = path / f".manifest-{secrets.token_hex(8)}"
        try:
            write_atomically(draft, text.encode())
            # a link, not a rename: it fails if another process was first
            os.link(draft, path / MANIFEST)
            sync_directory(path)
        except FileExistsError as error:
            raise ValueError(
                f"{path} already holds a run; choose another --out, or remove it first"
            ) from error
        except OSError as error:
            error.filename, error.filename2 = str(path), None  # and not the draft
            raise
        finally:
            with suppress(OSError):
                draft.unlink()
        return cls(path, json.loads(text))

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """The run in ``path``."""
        require(path.exists(), f"there is no directory {path}")
        file = path / MANIFEST
        require(
            file.is_file(),
            f"{path} is not a run: it has no {MANIFEST}; `ottrpo train` makes such directories",
        )
        return cls(path, read_object(file))

    def require_own_files(self) -> None:
        """Refuse to go on where writing could reach files outside of this directory.

        Raises:
            ValueError: if something in it is a symbolic link, a pipe or a device.
        """
        for file in sorted(self.path.iterdir()):
            require(
                not file.is_symlink(),
                f"{file} is a symbolic link, and going on with the run would write to where it "
                "leads; put a copy in its place",
            )
            wanted = file.is_file() or (file.is_dir() and file.name not in (MANIFEST, *LOGS))
            require(wanted, f"{file} is no regular file; remove it")

    @property
    def agent_path(self) -> Path:
        """Where the agent is saved; the agent adds its own suffix."""
        return self.path / AGENT

    @property
    def finished(self) -> bool:
        """Whether the trained agent has been saved, which is the last thing a run does."""
        return any(self.path.glob(f"{AGENT}.*"))

    @property
    def checkpoint_folder(self) -> Path:
        """Where checkpoints are kept while the run lasts."""
        return self.path / CHECKPOINTS

    def forget_checkpoints(self) -> None:
        """Remove the checkpoints of a run that is finished."""
        shutil.rmtree(self.checkpoint_folder, ignore_errors=True)

    def log_metrics(self, record: Mapping[str, Any]) -> None:
        """Append one update."""
        self._append(METRICS, record)

    def log_evaluation(self, record: Mapping[str, Any]) -> None:
        """Append one evaluation."""
        self._append(EVALUATIONS, record)

    def metrics(self) -> list[dict[str, Any]]:
        """All logged updates."""
        return self._read(METRICS)

    def evaluations(self) -> list[dict[str, Any]]:
        """All evaluations."""
        return self._read(EVALUATIONS)

    def log_sizes(self) -> dict[str, int]:
        """How long the logs are, in bytes."""
        files = {name: self.path / name for name in LOGS}
        return {name: file.stat().st_size if file.exists() else 0 for name, file in files.items()}

    def sync_logs(self) -> None:
        """Bring the logs onto the disk: a checkpoint must not outlive what it speaks of."""
        for name in LOGS:
            if (self.path / name).exists():
                handle = os.open(self.path / name, os.O_RDWR)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def torn_lines(self) -> list[str]:
        """A sentence about each log whose last line was never finished."""
        torn = []
        for name in LOGS:
            file = self.path / name
            if file.exists() and read_tail(file, 1) not in (b"", b"\n"):
                torn.append(f"{name} ends in the middle of a line, which is dropped")
        return torn

    def cut_logs(self, sizes: Mapping[str, int]) -> None:
        """Take out of the logs what was written after they had the given sizes; by default all.

        Raises:
            ValueError: if a log is shorter than that; nothing is changed then.
        """
        found = self.log_sizes()
        wanted = {name: sizes.get(name, 0) for name in LOGS}
        for name, size in wanted.items():
            require(
                found[name] >= size,
                f"{self.path / name} has {found[name]:,} bytes, and had {size:,} when the "
                "checkpoint was written: somebody has changed it",
            )
        for name, size in wanted.items():
            if found[name] > size:
                os.truncate(self.path / name, size)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        line = json.dumps(_plain(record), allow_nan=False) + "\n"
        handle = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            before = os.fstat(handle).st_size
            try:
                write_all(handle, line.encode())
            except OSError:  # the disk is full: half a line must not stand before the next one
                with suppress(OSError):
                    os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return []
        # what follows the last line break was never finished
        lines = read_plain(path, MAX_LOG).decode("utf-8").split("\n")[:-1]
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is not valid JSON: {error}") from error
            require(isinstance(records[-1], dict), f"{path}, line {number} is no JSON object")
        return records


def read_tail(path: Path, count: int) -> bytes:
    """The last ``count`` bytes of a file, however long it is."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - count))
        return file.read(count)


def last_records(path: Path) -> list[dict[str, Any]]:
    """The last whole records of a log, few or none; also while somebody writes it."""
    if not path.is_file():  # a pipe would be waited for
        return []
    try:
        content = read_tail(path, TAIL)
    except OSError:
        return []
    lines = content.split(b"\n")
    # what follows the last break is not finished; what comes first may have lost its beginning
    whole = lines[1:-1] if len(content) == TAIL else lines[:-1]
    records = []
    for line in whole:
        with suppress(ValueError, RecursionError):
            records.append(json.loads(line))
    return [record for record in records if isinstance(record, dict)]


def is_mark(value: Any) -> bool:
    """Whether it is a number of steps, and an array can hold it."""
    return type(value) is int and 0 <= value < 2**63


def returns_of(record: Any, episodes: int | None = None) -> list[float]:
    """The returns of an evaluation, which must be one that a run writes.

    Raises:
        ValueError: if it is not, or has not this many episodes.
    """
    told = record if isinstance(record, Mapping) else {}
    way, mark, returns = (told.get(key) for key in ("deterministic", "mark", "returns"))
    if not (isinstance(way, bool) and is_mark(mark) and isinstance(returns, list)):
        raise ValueError(f"an evaluation can't be {in_short(record)}")
    finite = [isinstance(value, int | float) and math.isfinite(value) for value in returns]
    require(
        len(returns) == (episodes or len(returns) or 1) and all(finite),
        f"the evaluation at {mark} must have {episodes or 'some'} finite returns, "
        f"got {in_short(returns)}",
    )
    return returns


def same_settings(held: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two resolved runs agree in all settings that both know, and that change a result."""
    return all(now[key] == value for key, value in held.items() if key in now and key != "threads")


def _plain(value: Any) -> Any:
    """``value`` as JSON knows it; NaN and infinities, which it does not know, become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
