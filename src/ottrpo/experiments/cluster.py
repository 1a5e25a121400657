"""Runs on a Ray cluster: the same processes as on one machine, placed by Ray.

Each run is a Ray task that starts the run's process and watches over it. Run directories travel
as bytes: a task sends them to a keeper on the driver's machine whenever there is a new checkpoint,
and the driver writes them into its own store. If a run, its worker or its node dies, Ray starts
the task again somewhere, and the run goes on from what the keeper has. The same holds for the next
driver, if this one dies. Ottrpo must be installed on every node.
"""

import io
import logging
import select
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from ottrpo import __version__
from ottrpo.persistence.lock import NAME as LOCK_NAME
from ottrpo.results.layout import CHECKPOINTS

from .jobs import Job
from .local import GRACE_SECONDS, TICK_SECONDS, Board, Worker, prepare

# A run's state is sent home when it has a new checkpoint, and at least this often for the table.
SEND_SECONDS = 20.0
LOG_TAIL = 20_000
# The keeper answers at once; a task that waits longer is cut off, and Ray tries it again.
KEEPER_SECONDS = 120.0
CONNECT_SECONDS = 120.0


class RunFailed(Exception):
    """A run that ended without being finished; Ray tries it again."""


def run_jobs_on_ray(
    ray: Any, jobs: Sequence[Job], *, retries: int, time_limit: float, board: Board
) -> dict[str, str]:
    """Do all jobs on the cluster; the names of those that failed for good, with the reason.

    Args:
        ray: what `connected` gives.
        jobs: what to do.
        retries: how often Ray tries a run again that failed or whose worker or node died.
        time_limit: seconds without a sign of life after which a run counts as hanging.
        board: who is told.
    """
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote()
    task = ray.remote(run_and_report).options(
        num_cpus=1, max_retries=retries, retry_exceptions=[RunFailed]
    )
    for job in jobs:
        prepare(job, board)
        if job.state() == "unfinished":
            ray.get(keeper.hold.remote(job.name, pack(job)))
    waiting = {task.remote(job, keeper, time_limit, __version__): job for job in jobs}
    return _Driver(ray, keeper, waiting, retries, board).run()


@final
class Keeper:
    """Holds the last known state of every run, and the news for the driver."""

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}
        self._news: list[tuple[str, str, bytes]] = []

    def hold(self, name: str, state: bytes) -> None:
        """Remember what the driver's store has of a run."""
        self._states[name] = state

    def begin(self, name: str) -> bytes | None:
        """A task has started; the state that its run goes on from, if there is one."""
        self._news.append(("began", name, b""))
        return self._states.get(name)

    def send(self, name: str, state: bytes) -> None:
        """The newest state of a run."""
        self._states[name] = state
        self._news.append(("state", name, state))

    def stumble(self, name: str, reason: str) -> None:
        """A run has failed."""
        self._news.append(("stumbled", name, reason.encode()))

    def forget(self, name: str) -> None:
        """A run needs nothing any more."""
        self._states.pop(name, None)

    def news(self) -> list[tuple[str, str, bytes]]:
        """What has happened since this was last asked."""
        news, self._news = self._news, []
        return news


def run_and_report(job: Job, keeper: Any, time_limit: float, version: str) -> bytes:
    """The task: do one run on this node; its directory, finished."""
    if version != __version__:
        raise RuntimeError(f"this node has ottrpo {__version__}, the driver {version}")
    state = _answer(keeper.begin.remote(job.name))
    with tempfile.TemporaryDirectory(prefix="ottrpo-", ignore_cleanup_errors=True) as folder:
        here = replace(job, path=Path(folder) / job.path.name)
        if state is not None:
            unpack(state, here)
        worker = Worker(here)
        try:
            reason = _watch(worker, keeper, time_limit)
        finally:
            worker.kill()
            worker.stop(GRACE_SECONDS)
        if reason is None:
            return pack(here)
        keeper.send.remote(job.name, pack(here))
        _answer(keeper.stumble.remote(job.name, reason))
        raise RunFailed(reason)


def _answer(call: Any) -> Any:
    """What a call to the keeper returns; `ray.get` would lend our core to another run meanwhile."""
    return call.future().result(KEEPER_SECONDS)


def pack(job: Job) -> bytes:
    """The directory and the log of a run, also while it is being written.

    Checkpoints come first: what a run has logged by the time they are read is never less than
    what they say.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        files = sorted(path for path in job.path.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: CHECKPOINTS not in path.parts):
            if path.name != LOCK_NAME and not path.name.endswith(".draft"):
                _add(archive, path, f"run/{path.relative_to(job.path)}")
        _add(archive, job.log, "log", tail=LOG_TAIL)
    return content.getvalue()


def unpack(state: bytes, job: Job) -> None:
    """Put a run's directory and log in their places; the directory all at once."""
    incoming = job.path.with_name(f".{job.path.name}.incoming")
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(state)) as archive:
        archive.extractall(incoming)
    if (incoming / "log").is_file():
        (incoming / "log").replace(job.log)
    if (incoming / "run").is_dir():
        shutil.rmtree(job.path, ignore_errors=True)
        (incoming / "run").rename(job.path)
    shutil.rmtree(incoming)


def _add(archive: zipfile.ZipFile, path: Path, name: str, tail: int | None = None) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # an old checkpoint, removed since it was listed
        return
    archive.writestr(name, content if tail is None else content[-tail:])


def _watch(worker: Worker, keeper: Any, time_limit: float) -> str | None:
    """Wait for a run to end and send news of it; why it is not finished, None if it is."""
    sent, checkpoints = time.monotonic(), _checkpoints(worker.job)
    while not select.select([worker.answers], [], [], TICK_SECONDS)[0]:
        if worker.silent_for() > time_limit:
            worker.hung = True
            worker.kill()
        found = _checkpoints(worker.job)
        if found != checkpoints or time.monotonic() - sent > SEND_SECONDS:
            sent, checkpoints = time.monotonic(), found
            keeper.send.remote(worker.job.name, pack(worker.job))
    return worker.verdict()


def _checkpoints(job: Job) -> list[str]:
    return sorted(path.name for path in (job.path / CHECKPOINTS).glob("*"))


@final
class _Driver:
    """Receives what the tasks send."""

    def __init__(
        self, ray: Any, keeper: Any, waiting: dict[Any, Job], retries: int, board: Board
    ) -> None:
        self._ray, self._keeper, self._waiting = ray, keeper, waiting
        self._jobs = {job.name: job for job in waiting.values()}
        self._retries, self._board = retries, board
        self._stumbles: dict[str, int] = {}
        self._failed: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        while self._waiting:
            ended, _ = self._ray.wait(list(self._waiting), timeout=TICK_SECONDS)
            self._hear()
            for task in ended:
                self._settle(task, self._waiting.pop(task))
            self._board.tick()
        return self._failed

    def _hear(self) -> None:
        for kind, name, content in self._ray.get(self._keeper.news.remote()):
            job = self._jobs[name]
            if kind == "state":
                unpack(content, job)
            elif kind == "began":
                self._board.began(job)
            else:
                self._stumbles[name] = self._stumbles.get(name, 0) + 1
                if self._stumbles[name] <= self._retries:
                    self._board.stumbled(job, content.decode(), again=True)

    def _settle(self, task: Any, job: Job) -> None:
        try:
            unpack(self._ray.get(task), job)
            state = job.state()
            reason = None if state == "finished" else f"its directory is {state} after it ended"
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            reason = str(cause).strip().splitlines()[0] if str(cause).strip() else repr(cause)
        self._keeper.forget.remote(job.name)
        if reason is None:
            self._board.ended(job)
        else:
            self._failed[job.name] = reason
            self._board.stumbled(job, reason, again=False)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address``.

    Raises:
        ValueError: if Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ValueError(
            "--ray needs Ray, which is not installed: pip install 'ottrpo[ray]'"
        ) from error
    _require_alive(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ValueError(_no_cluster(address, str(error).strip().splitlines()[0])) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_alive(address: str) -> None:
    """Ask the cluster's head first: connecting to one that has died never ends."""
    where = [] if address == "auto" else ["--address", address]
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *where]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, timeout=CONNECT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(_no_cluster(address, "it does not answer")) from error
    if asked.returncode != 0:
        lines = asked.stderr.strip().splitlines() or ["it is not healthy"]
        raise ValueError(_no_cluster(address, lines[-1]))


def _no_cluster(address: str, reason: str) -> str:
    return f"no Ray cluster at {address!r}: {reason} (`ray start --head` starts one)"


def cores(ray: Any) -> int:
    """How many runs the cluster does at once."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))
