"""Runs on a Ray cluster: the same processes as on one machine, placed by Ray.

Each run is a Ray task that starts the run's process and watches over it. Run directories travel as
bytes: a task yields its own whenever there is a new checkpoint, and at the end, and the driver
writes them into its store. If a run, its worker or its node dies, the next try goes on from what
came home. The same holds for the next driver, if this one dies. Ottrpo must be installed on every
node.
"""

import io
import logging
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from ottrpo import __version__
from ottrpo.persistence.lock import NAME as LOCK_NAME
from ottrpo.results.layout import CHECKPOINTS

from .jobs import Job
from .pool import TICK_SECONDS, News
from .processes import Processes

# A run's state is sent home when it has a new checkpoint, and at least this often for the table.
SEND_SECONDS = 20.0
LOG_TAIL = 20_000
CONNECT_SECONDS = 120.0


@final
@dataclass(frozen=True)
class Message:
    """What a task tells the driver.

    Attributes:
        news: what has become of the run; None if it goes on.
        state: its directory and log; None if nothing of them is new.
    """

    news: News | None
    state: bytes | None = None


@final
class Cluster:
    """Places runs on a Ray cluster; see `ottrpo.experiments.pool.Place`.

    Args:
        ray: what `connected` gives.
        time_limit: seconds without a sign of life after which a run counts as hanging.
    """

    room = sys.maxsize  # Ray itself lets tasks wait, and asks for more machines where it can

    def __init__(self, ray: Any, time_limit: float) -> None:
        self._ray, self._time_limit = ray, time_limit
        # a run that is lost is ours to try again: we know what came home of it
        self._task = ray.remote(run_there).options(
            num_cpus=1, max_retries=0, num_returns="streaming"
        )
        self._jobs: dict[Any, Job] = {}

    def start(self, job: Job) -> None:
        """Hand a run to Ray, which begins it when a core is free."""
        state = pack(job) if job.state() == "unfinished" else None
        self._jobs[self._task.remote(job, state, self._time_limit, __version__)] = job

    def wait(self, seconds: float) -> list[News]:
        """What the tasks have told, as soon as one has."""
        ready, _ = self._ray.wait(list(self._jobs), timeout=seconds)
        return [news for task in ready for news in self._hear(task)]

    def close(self) -> None:
        """Nothing: what still runs ends with the connection."""

    def _hear(self, task: Any) -> Iterator[News]:
        job = self._jobs[task]
        try:
            message: Message = self._ray.get(next(task))
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            lines = str(cause).strip().splitlines() or [repr(cause)]
            message = Message(News(job, "failed", lines[0]))
        if message.state is not None:
            unpack(message.state, job)
        if message.news is None:
            return
        if message.news.kind != "began":
            del self._jobs[task]
        yield replace(message.news, job=job)


def run_there(job: Job, state: bytes | None, time_limit: float, version: str) -> Iterator[Message]:
    """The task: do one run on this node, going on from ``state``, and tell of it."""
    if version != __version__:
        raise RuntimeError(f"this node has ottrpo {__version__}, the driver {version}")
    with tempfile.TemporaryDirectory(prefix="ottrpo-", ignore_cleanup_errors=True) as folder:
        here = replace(job, path=Path(folder) / job.path.name)
        if state is not None:
            unpack(state, here)
        place = Processes(1, time_limit, [job.module], share=1)
        try:
            place.start(here)
            ended = False
            sent, checkpoints = time.monotonic(), _checkpoints(here)
            while not ended:
                for news in place.wait(TICK_SECONDS):
                    ended = news.kind != "began"
                    yield Message(news, pack(here) if ended else None)
                found = _checkpoints(here)
                if not ended and (found != checkpoints or time.monotonic() - sent > SEND_SECONDS):
                    sent, checkpoints = time.monotonic(), found
                    yield Message(None, pack(here))
        finally:
            place.close()


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
        if job.path.exists():  # aside, not removed: half of it would be believed
            job.path.rename(incoming / "before")
        (incoming / "run").rename(job.path)
    shutil.rmtree(incoming)


def _add(archive: zipfile.ZipFile, path: Path, name: str, tail: int | None = None) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # an old checkpoint, removed since it was listed
        return
    archive.writestr(name, content if tail is None else content[-tail:])


def _checkpoints(job: Job) -> list[str]:
    return sorted(path.name for path in (job.path / CHECKPOINTS).glob("*"))


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address``.

    Raises:
        ValueError: if Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
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
