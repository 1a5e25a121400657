"""A process that is a copy of this one, with all that it has loaded.

Loading JAX, torch and the environments takes longer than many a run. Who has planned a study has
loaded them already, and a copy of it can begin at once.
"""

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import IO, NoReturn, final

from ottrpo.threads import THREAD_VARIABLES

_POLL_SECONDS = 0.01


def may_fork() -> bool:
    """Whether a copy of this process would be like a new one, but for what is loaded.

    A copy has one thread, whichever locks the others held; and libraries that were loaded before
    the number of their threads was settled would use more of them than those of a new process.
    """
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:  # no Linux: forking is not safe there once such libraries are loaded
        return False
    return len(threads) == 1 and all(name in os.environ for name in THREAD_VARIABLES)


@final
class Forked:
    """A copy of this process in a session of its own; has what is needed of a `Popen`.

    Args:
        main: what it does instead of going on here.
        log: where what it prints to standard error goes.
    """

    def __init__(self, main: Callable[[], None], log: IO[bytes]) -> None:
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # else the copy would say it again
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(main, their_in, their_out, log.fileno())
        os.close(their_in)
        os.close(their_out)
        self.stdin: IO[bytes] = os.fdopen(our_in, "wb")
        self.stdout: IO[bytes] = os.fdopen(our_out, "rb")

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait for it to end.

        Raises:
            subprocess.TimeoutExpired: if it has not ended after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def _become(main: Callable[[], None], jobs: int, answers: int, log: int) -> NoReturn:
    """In the copy: let go of what belongs to the original, do ``main``, and end."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for stream, handle in enumerate((jobs, answers, log)):
            os.dup2(handle, stream)
        # new objects: the old ones may hold what was not read yet, or draw a table
        sys.stdin = os.fdopen(0, encoding="utf-8")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace")
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="replace")
        gc.freeze()  # what came with the copy stays; looking through it again would cost
        main()
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # never back into what the original was doing, nor into what it does at its end
        os._exit(code)
