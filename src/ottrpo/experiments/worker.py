"""The process that does runs: ``python -m ottrpo.experiments.worker PARENT``.

Jobs come in as lines of JSON and each is answered by a line, ``done`` or ``failed``. What a run
prints, and the reason of a failure, go into the log that its job names. The process dies with the
one that started it, so that nobody writes into a run directory that another has taken over.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any

from ottrpo.threads import default_to_one_thread

PR_SET_PDEATHSIG = 1


def main(parent: int) -> None:
    """Do jobs until no more come."""
    die_with(parent)
    default_to_one_thread()
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        for line in sys.stdin:
            answers.write("done\n" if do(json.loads(line)) else "failed\n")


def do(job: dict[str, Any]) -> bool:
    """One run, with its output in its log; whether it went well."""
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    try:
        if job["audit"]:
            from .audits import main as run
        else:
            from .one_run import main as run
        run(job)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        return False
    finally:
        sys.stdout.flush()
    return True


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
