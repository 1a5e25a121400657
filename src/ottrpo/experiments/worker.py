"""What the process of a run does: jobs come through a pipe, and each is answered.

What a run prints, and the whole story of a failure, go into the log of its job.
"""

import gc
import os
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from ottrpo.names import one_line
from ottrpo.threads import SHARE_VARIABLE

if TYPE_CHECKING:
    from .jobs import Job


def serve(jobs: "connection.Connection[str | None, Job]", log: Path, threads: int) -> None:
    """Do jobs until there are no more; each is answered by why it failed, None if it did not.

    ``threads`` is this process's share of the cores, unless the user says otherwise.
    """
    os.setsid()  # an interrupt at the terminal is for who started us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ.setdefault(SHARE_VARIABLE, str(threads))
    gc.freeze()  # what came with the fork stays; looking through it again would cost
    _print_into(log)
    with suppress(EOFError):
        while True:
            jobs.send(do(jobs.recv()))


def do(job: "Job") -> str | None:
    """One run, with its output in its log; why it failed, in one line, if it did."""
    try:
        _print_into(job.log)
        if job.cell.audit:
            from .audits import run_audited

            run_audited(job.spec, job.path)
        else:
            from .training import begin_or_go_on

            jobs = (job, *job.others)
            begin_or_go_on([each.spec for each in jobs], [each.path for each in jobs])
        sys.stdout.flush()
    except Exception as error:
        with suppress(OSError):  # the disk may be full
            traceback.print_exc()
        return one_line(error)
    return None


def _print_into(log: Path) -> None:
    """Let whatever this process prints from now on be added to ``log``."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)


def _die_with_parent() -> None:
    """Nobody may write into a run directory that another has taken over."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
