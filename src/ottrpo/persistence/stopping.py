"""Being asked to stop: the signal is noted, and obeyed when that loses nothing."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self, final

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
