"""What the process of a run does.

It is a fork of the one that planned the run, or ``python -m ottrpo.experiments.worker PARENT``.
Jobs come in as lines of JSON, and each is answered by a line: ``done``, or ``failed`` and why; an
empty line is the end. What a run prints, and the whole story of a failure, go into the log that its
job names. The process dies with the one that started it, so that nobody writes into a run directory
that another has taken over.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from ottrpo.threads import default_to_one_thread

PR_SET_PDEATHSIG = 1
MOST_SAID = 1000  # characters; a pipe takes such a line in one piece


def main(parent: int) -> None:
    """Do jobs until no more come."""
    die_with(parent)
    default_to_one_thread()
    with open(os.dup(1), "w", buffering=1, encoding="utf-8", errors="replace") as answers:
        for line in sys.stdin:
            if not line.strip():
                break
            reason = do(json.loads(line))
            answers.write("done\n" if reason is None else f"failed {reason[:MOST_SAID]}\n")


def do(job: dict[str, Any]) -> str | None:
    """One run, with its output in its log; why it failed, in one line, if it did."""
    try:
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        if job["audit"]:
            from .audits import main as run
        else:
            from .one_run import main as run
        run(job)
        sys.stdout.flush()
    except Exception as error:
        with suppress(OSError):  # the disk may be full
            traceback.print_exc()
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


def die_with(parent: int) -> None:
    """Arrange to be killed when the process ``parent``, which started this one, ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
