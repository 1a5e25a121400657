"""Runs on this machine: one process each, a few at a time.

A server that has loaded what runs need forks their processes. Audited runs, which take less time
than starting a process, follow each other in one.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import connection, get_context
from pathlib import Path
from typing import final

from ottrpo.results.run_directory import read_tail
from ottrpo.threads import cores, default_to_one_thread

from .jobs import Job
from .pool import News
from .worker import serve

# A process that is asked to end has this long before it is killed.
GRACE_SECONDS = 10.0
_CONTEXT = get_context("forkserver")


@final
class Processes:
    """Places runs in processes of this machine; see `ottrpo.experiments.pool.Place`.

    Args:
        workers: so many at once.
        time_limit: seconds without a sign of life after which a run counts as hanging.
        modules: that runs need, loaded once for all.
        share: cores for all of them together, by default all there are; so many threads are left
            to the physics of each.
    """

    def __init__(
        self, workers: int, time_limit: float, modules: Iterable[str], share: int | None = None
    ) -> None:
        self._workers, self._time_limit = workers, time_limit
        self._threads = max(1, (share or cores()) // workers)
        default_to_one_thread()  # before the server loads libraries that have threads
        _CONTEXT.set_forkserver_preload(["ottrpo.experiments.run", *modules])
        self._busy: list[Worker] = []
        self._idle: list[Worker] = []
        self._news: list[News] = []

    @property
    def room(self) -> int:
        """How many more runs can be started now."""
        return self._workers - len(self._busy)

    def start(self, job: Job) -> None:
        """Begin a run."""
        if job.cell.audit and self._idle:
            worker = self._idle.pop()
            worker.begin(job)
        else:
            while self._idle:
                self._idle.pop().dismiss()
            worker = Worker(job, self._threads)
        self._busy.append(worker)
        self._news.append(News(job, "began"))

    def wait(self, seconds: float) -> list[News]:
        """What has happened, as soon as something has."""
        news, self._news = self._news, []
        ready = connection.wait([w.pipe for w in self._busy], 0 if news else seconds)
        for worker in [worker for worker in self._busy if worker.pipe in ready]:
            reason = worker.verdict()
            done = reason is None
            news.append(News(worker.job, "finished" if done else "failed", reason or ""))
            self._busy.remove(worker)
            if worker.alive and worker.job.cell.audit:
                self._idle.append(worker)
            elif worker.alive:
                worker.dismiss()
        for worker in self._busy:
            if worker.silent_for() > self._time_limit:
                worker.kill(hung=True)  # the pipe then tells of the end like of any other
        return news

    def close(self) -> None:
        """End what still runs, the runs themselves too."""
        for worker in self._busy:
            worker.process.terminate()
        for worker in self._idle:
            worker.dismiss()
        for worker in (*self._busy, *self._idle):
            worker.stop()


@final
class Worker:
    """A process that does one run after another."""

    def __init__(self, job: Job, threads: int) -> None:
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=serve, args=(theirs, job.log, threads))
        self.process.start()
        theirs.close()
        self._hung = False
        self.begin(job)

    def begin(self, job: Job) -> None:
        """Hand it a run."""
        self.job = job
        self._life = job.sign_of_life()
        self._seen = time.monotonic()
        with suppress(OSError):  # if it has died already, the pipe tells
            self.pipe.send(job)

    @property
    def alive(self) -> bool:
        """Whether it can do another run."""
        return self.process.exitcode is None

    def verdict(self) -> str | None:
        """Why the run, which has ended, is not finished; None if it is."""
        try:
            reason = self.pipe.recv()
        except (EOFError, OSError):
            code = self.stop()
            if self._hung:
                return "hung: it wrote nothing for longer than the time limit"
            if code < 0:
                return f"killed by {signal.Signals(-code).name}"
            return f"exit code {code}: {last_line(self.job.log)}"
        if reason is not None:
            return str(reason)
        state = self.job.state()
        return None if state == "finished" else f"its directory is {state} after it ended"

    def silent_for(self) -> float:
        """Seconds since the run last wrote something."""
        life = self.job.sign_of_life()
        if life != self._life:
            self._life, self._seen = life, time.monotonic()
        return time.monotonic() - self._seen

    def dismiss(self) -> None:
        """No more runs: the process ends by itself."""
        self.pipe.close()

    def kill(self, *, hung: bool = False) -> None:
        """End the process at once, and what it has started."""
        self._hung = hung
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()  # it may not have a group of its own yet

    def stop(self) -> int:
        """Wait for the process to end, and kill it if it does not; its exit code."""
        self.process.join(GRACE_SECONDS)
        if self.alive:
            self.kill(hung=self._hung)
            self.process.join()
        self.pipe.close()
        return self.process.exitcode or 0


def last_line(path: Path) -> str:
    """The last line of a log that says something."""
    try:
        lines = read_tail(path, 4096).decode(errors="replace").split("\n")
    except OSError as error:
        return str(error)
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
