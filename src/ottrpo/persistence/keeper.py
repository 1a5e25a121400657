"""When a training agent is saved: at every so many steps, after an update, and before it stops."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, final

from .checkpoints import Checkpoints, checkpoint_kind
from .snapshot import Snapshot

ASKED_BY = (signal.SIGTERM, signal.SIGINT)


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

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
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
        agent: who trains; it is about to start, or to go on.
        folder: where checkpoints go.
        every: steps.
        stop: if that is asked for, one more is written; whoever calls then obeys.
        extra: what else to keep with the agent, asked for at each checkpoint.
    """

    def __init__(
        self,
        agent: Snapshot,
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

    def after_update(self, agent: Snapshot) -> Path | None:
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
