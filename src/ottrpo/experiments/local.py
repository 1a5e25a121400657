"""Runs on this machine: one process each, a few at a time.

Where that is safe a process is a copy of this one, which has loaded already what a run needs.
A run that crashes, is killed or hangs is tried again, and goes on from its last checkpoint; the
others do not notice. Audited runs, which take less time than starting a process, follow each other
in one.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Protocol, final

from .forked import Forked, may_fork
from .jobs import Job, set_aside
from .worker import main as work

COMMAND = (sys.executable, "-m", "ottrpo.experiments.worker")
TICK_SECONDS = 1.0
# A process that is asked to end has this long before it is killed.
GRACE_SECONDS = 10.0


class Board(Protocol):
    """Someone who is told how the runs fare."""

    def began(self, job: Job) -> None:
        """A run has been started, or started again."""

    def ended(self, job: Job) -> None:
        """A run is finished."""

    def stumbled(self, job: Job, reason: str, *, again: bool) -> None:
        """A run has failed; whether it is tried again."""

    def say(self, line: str) -> None:
        """Anything else."""

    def tick(self) -> None:
        """About a second has passed."""


@final
class Worker:
    """A process that does one run after another."""

    def __init__(self, job: Job) -> None:
        with open(job.log, "ab") as log:
            self.process = _forked(log) if may_fork() else _started(log)
        self.hung = False
        self.begin(job)

    def begin(self, job: Job) -> None:
        """Hand it a run."""
        self.job = job
        self._life = job.sign_of_life()
        self._seen = time.monotonic()
        self._say(json.dumps(job.data()))

    @property
    def answers(self) -> IO[bytes]:
        """Readable when the run has ended, one way or the other."""
        return self._pipe(self.process.stdout)

    def verdict(self) -> str | None:
        """Why the run, which has ended, is not finished; None if it is."""
        said = os.read(self.answers.fileno(), 8192).decode(errors="replace")
        answer, _, reason = said.partition(" ")
        if answer == "done\n":
            state = self.job.state()
            return None if state == "finished" else f"its directory is {state} after it ended"
        if answer == "failed":
            return reason.strip()
        code = self.stop()
        if self.hung:
            return "hung: it wrote nothing for longer than the time limit"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}: {last_line(self.job.log)}"

    def silent_for(self) -> float:
        """Seconds since the run last wrote something."""
        life = self.job.sign_of_life()
        if life != self._life:
            self._life, self._seen = life, time.monotonic()
        return time.monotonic() - self._seen

    def dismiss(self) -> None:
        """No more runs: the process ends by itself."""
        self._say("")  # closing the pipe would not do: younger forks have a copy of our end

    def _say(self, line: str) -> None:
        with suppress(BrokenPipeError):  # if it has died already, its other pipe tells
            self._pipe(self.process.stdin).write(f"{line}\n".encode())
            self._pipe(self.process.stdin).flush()

    def kill(self) -> None:
        """End the process at once, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self, grace: float = GRACE_SECONDS) -> int:
        """Wait for the process to end, and kill it if it does not; its exit code."""
        try:
            code = self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):  # a job that it did not live to read
                self._pipe(pipe).close()
        return code

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise RuntimeError("the process was started without pipes")
        return pipe


def _forked(log: IO[bytes]) -> Forked:
    return Forked(partial(work, os.getpid()), log)


def _started(log: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*COMMAND, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # an interrupt at the terminal is for us to handle
    )


def prepare(job: Job, board: Board) -> None:
    """Make room for a run: what is not it is kept aside."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    if job.state() == "other":
        aside = set_aside(job.path)
        board.say(f"{job.path} holds another run; kept as {aside.name}")


def run_jobs(
    jobs: Sequence[Job], *, workers: int, retries: int, time_limit: float, board: Board
) -> dict[str, str]:
    """Do all jobs; the names of those that failed for good, with the reason."""
    pool = _Pool(jobs, workers=workers, retries=retries, time_limit=time_limit, board=board)
    try:
        pool.run()
    finally:
        pool.close()
    return pool.failed


@final
class _Pool:
    def __init__(
        self, jobs: Iterable[Job], *, workers: int, retries: int, time_limit: float, board: Board
    ) -> None:
        self.failed: dict[str, str] = {}
        # audited runs first: one after the other they share processes
        self._waiting = deque(sorted(jobs, key=lambda job: not job.cell.audit))
        self._tries: dict[str, int] = {}
        self._live: list[Worker] = []
        self._leaving: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._workers, self._retries, self._time_limit = workers, retries, time_limit
        self._board = board

    def run(self) -> None:
        """Until every job is finished or given up."""
        ticked = time.monotonic()
        while self._waiting or self._live:
            while self._waiting and len(self._live) < self._workers:
                self._start()
            for key, _ in self._selector.select(TICK_SECONDS):
                # before the verdict, which may close the pipe: younger forks have it open too, and
                # the kernel would go on to report it, under the number of whatever is opened next
                self._selector.unregister(key.fileobj)
                self._settle(key.data, key.data.verdict())
            if time.monotonic() - ticked >= TICK_SECONDS:
                ticked = time.monotonic()
                self._look_after()
                self._board.tick()

    def close(self) -> None:
        """End what still runs, the runs themselves too."""
        for worker in self._live:
            worker.process.terminate()
        for worker in (*self._live, *self._leaving):
            worker.stop()
        self._selector.close()

    def _start(self) -> None:
        job = self._next()
        worker = Worker(job)
        self._live.append(worker)
        self._listen(worker)

    def _listen(self, worker: Worker) -> None:
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)

    def _next(self) -> Job:
        job = self._waiting.popleft()
        prepare(job, self._board)
        self._board.began(job)
        return job

    def _settle(self, worker: Worker, reason: str | None) -> None:
        """Note how a run has ended, and find its process something else to do."""
        job = worker.job
        if reason is None:
            self._board.ended(job)
        else:
            self._tries[job.name] = self._tries.get(job.name, 0) + 1
            again = self._tries[job.name] <= self._retries
            self._board.stumbled(job, reason, again=again)
            if again:
                self._waiting.append(job)
            else:
                self.failed[job.name] = reason
        alive = worker.process.returncode is None
        if alive and job.cell.audit and self._waiting and self._waiting[0].cell.audit:
            worker.begin(self._next())
            self._listen(worker)
            return
        self._live.remove(worker)
        if alive:
            worker.dismiss()
            self._leaving.append(worker)

    def _look_after(self) -> None:
        """Kill what hangs, and bury what has left."""
        for worker in self._live:
            if worker.silent_for() > self._time_limit:
                worker.hung = True
                worker.kill()  # the pipe then tells of the end like of any other
        for worker in [w for w in self._leaving if w.process.poll() is not None]:
            worker.stop()
            self._leaving.remove(worker)


def last_line(path: Path) -> str:
    """The last line of a log that says something."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError as error:
        return str(error)
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
