"""The checkpoints of a run: when they are written, and which are kept.

They are written at every so many steps, after an update, and before training stops. The last two
are kept, and a damaged one falls back to the other.
"""

import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from . import bundle
from .bundle import BundleError, remove_drafts

KEPT = 2
FOLDER = "checkpoints"  # in the directory of a run
ASKED_BY = (signal.SIGTERM, signal.SIGINT)
T = TypeVar("T")
_NAME = re.compile(r"step-(\d{15})\.zip")


@final
@dataclass(frozen=True, eq=False, slots=True)
class Saved:
    """What was saved, and where; of a checkpoint also at which step."""

    arrays: dict[str, np.ndarray[Any, Any]]
    data: dict[str, Any]
    path: Any
    step: int = 0


@final
class Checkpoints:
    """A folder of checkpoints; whoever writes into it holds the lock of the run.

    Args:
        folder: where; it is made when the first checkpoint is written.
        kind: what is saved in them, as `bundle.write` wants it.

    Raises:
        ValueError: if ``folder`` is a symbolic link, which could lead anywhere, or no folder.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = Path(folder), kind
        self._require_folder()

    def write(self, step: int, arrays: Mapping[str, ArrayLike], data: Mapping[str, Any]) -> Path:
        """Save a checkpoint, then forget all but the newest good one before it.

        Raises:
            ValueError: if something can't be saved.
            OSError: if the disk is full or refuses; earlier checkpoints are untouched.
        """
        self._require_folder()
        path = self.folder / f"step-{step:015d}.zip"
        bundle.write(path, self.kind, arrays, {"step": step, "state": data})
        self._tidy(step)
        return path

    def newest(self, use: Callable[[Saved], T]) -> T | None:
        """What ``use`` makes of the newest checkpoint that it can use; None if there is none.

        One that is damaged, or that can't be put to use, is warned about, and the one before it
        is taken.

        Raises:
            ValueError: if there are checkpoints and none can be used.
        """
        complaint = ""
        for step, path in self._found():
            try:
                with bundle.interpreting(path):
                    used = use(self._read(step, path))
            except (ValueError, OSError) as error:
                complaint = complaint or str(error)
                continue
            if complaint:
                warnings.warn(
                    f"{complaint}; using the one of step {step:,} before it", stacklevel=2
                )
            return used
        if complaint:
            raise ValueError(f"no checkpoint in {self.folder} can be used: {complaint}")
        return None

    def _read(self, step: int, path: Path) -> Saved:
        arrays, data = bundle.read(path, self.kind, follow=False)
        state = data.get("state")
        if data.get("step") != step or not isinstance(state, dict):
            raise BundleError(f"{path} does not hold the checkpoint that its name says")
        return Saved(arrays, state, path, step)

    def _found(self) -> Iterator[tuple[int, Path]]:
        """All checkpoints, newest first."""
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir(), reverse=True):
                if match := _NAME.fullmatch(path.name):
                    yield int(match[1]), path

    def _tidy(self, newest: int) -> None:
        """Keep the newest and good ones before it; what lies after it was abandoned."""
        good = 1
        for step, path in self._found():
            if step == newest or (step < newest and good < KEPT and self._is_good(step, path)):
                good += step != newest
                continue
            with suppress(OSError):  # the new one is safe; the next write tries again
                path.unlink()
        with suppress(OSError):
            remove_drafts(self.folder)

    def _is_good(self, step: int, path: Path) -> bool:
        try:
            self._read(step, path)
        except (ValueError, OSError):
            return False
        return True

    def _require_folder(self) -> None:
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise ValueError(f"{self.folder} must be a folder of its own, not a link or a file")


def last_checkpoint(path: Path, kind: str, use: Callable[[Saved], T]) -> T:
    """What ``use`` makes of the last checkpoint in a folder or a run's directory, or of a file.

    Raises:
        ValueError: if there is none, or none that can be used.
    """
    if path.is_file():
        arrays, data = bundle.read(path, kind)
        with bundle.interpreting(path):
            return use(Saved(arrays, data["state"], path, data["step"]))
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    used = Checkpoints(folder, kind).newest(use)
    if used is None:
        raise ValueError(f"there is no checkpoint in {path}")
    return used


def checkpoint_kind(class_name: str) -> str:
    """What the files of an agent's checkpoints say that they hold."""
    return f"checkpoint of {class_name}"


@final
class StopSignals:
    """While it is entered, SIGTERM and Ctrl-C are noted in ``asked`` instead of obeyed at once.

    Whoever is impatient and asks again gets what the signal does otherwise. Signals reach the main
    thread only; in any other this does nothing.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # what is ignored, as Ctrl-C is by a process in the background, stays ignored
            heard = [n for n in ASKED_BY if signal.getsignal(n) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *error: object) -> None:
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def obey(self) -> None:
        """Do now what was asked: what the signal would have done at once.

        If that was not to end, all goes on as before.
        """
        asked, self.asked = self.asked, None
        if asked is None:
            return
        listening = bool(self._before)
        self.__exit__()
        signal.raise_signal(asked)
        if listening:
            self.__enter__()

    def _note(self, number: int, frame: FrameType | None) -> None:
        again = self.asked is not None
        self.asked = signal.Signals(number)
        if again:
            self.obey()


@final
class Keeper:
    """Writes a checkpoint whenever training passes a multiple of ``every`` steps.

    Whether one is due depends on the steps alone, so a resumed training has its checkpoints, and in
    segment mode its segments, where the uninterrupted one has them. A training that has come to its
    end needs none.

    Args:
        agent: who trains, a `Snapshot`; it is about to start, or to go on.
        folder: where checkpoints go.
        every: steps.
        stop: if that is asked for, one more is written; whoever calls then obeys.
        extra: what else to keep with the agent, asked for at each checkpoint.
    """

    def __init__(
        self,
        agent: Any,
        folder: Path,
        every: int,
        stop: StopSignals,
        extra: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        if every < 1:
            raise ValueError(f"checkpoints are written every 1 or more steps, got {every}")
        self._checkpoints = Checkpoints(folder, checkpoint_kind(type(agent).__name__))
        self._every, self._stop, self._extra = every, stop, extra
        self._last = agent.num_timesteps

    def after_update(self, agent: Any) -> Path | None:
        """Write a checkpoint if one is due, or if training is to stop."""
        step = agent.num_timesteps
        if not agent.remaining_timesteps:
            return None
        if step // self._every != self._last // self._every:
            arrays, data = agent.checkpoint()
        elif self._stop.asked is not None and step != self._last:
            arrays, data = agent.snapshot()
            # a segment starts where every run has one, and nowhere else
            if data["training"]["reason"] is not None:
                return None
        else:
            return None
        self._last = step
        return self._checkpoints.write(step, arrays, {"agent": data, **self._extra()})
