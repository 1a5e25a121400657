"""One directory per run: what was asked, what was measured, and the trained agent.

``manifest.json`` is written once, before training. ``metrics.jsonl`` and ``evaluations.jsonl``
only ever grow, one whole line at a time, so that a run that is killed loses at most the line it
was writing. ``checkpoints`` is there while the run lasts: from them an interrupted one goes on,
after the logs have been cut back to what they were. ``agent.*`` is the trained agent.
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottrpo.core.checks import require
from ottrpo.persistence import strict_json
from ottrpo.persistence.files import read_plain

MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
AGENT = "agent"
LOGS = (METRICS, EVALUATIONS)
CHECKPOINTS = "checkpoints"
MAX_LOG = 2**30


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any]) -> "RunDirectory":
        """A new run; a directory that already holds one is refused, also in a race."""
        path.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_plain(manifest), indent=2, sort_keys=False) + "\n"
        handle, temporary = tempfile.mkstemp(dir=path, prefix=".manifest-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            # a link, not a rename: it fails if another process was first
            os.link(temporary, path / MANIFEST)
        except FileExistsError as error:
            raise ValueError(
                f"{path} already holds a run; choose another --out, or remove it first"
            ) from error
        finally:
            os.unlink(temporary)
        os.chmod(path / MANIFEST, 0o644)
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
        try:
            manifest = strict_json.loads(read_plain(file, strict_json.MAX_BYTES))
        except ValueError as error:
            raise ValueError(f"{file} is not valid JSON: {error}") from error
        if not isinstance(manifest, dict):
            raise ValueError(f"{file} must hold one JSON object")
        return cls(path, manifest)

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
            content = file.read_bytes() if file.exists() else b""
            if content and not content.endswith(b"\n"):
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
        with open(self.path / name, "ab", buffering=0) as file:
            file.write(line.encode())

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
        return records


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
