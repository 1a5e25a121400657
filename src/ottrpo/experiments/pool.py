"""All runs of a study, wherever they are placed: started, tried again, told.

A run that crashes, is killed or hangs is tried again, and goes on from its last checkpoint; the
others do not notice.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Literal, Protocol, final

from .jobs import Job

if TYPE_CHECKING:
    from .board import StudyBoard

TICK_SECONDS = 1.0


@final
@dataclass(frozen=True)
class News:
    """What has become of a run: it began, is finished, or failed for a reason."""

    job: Job
    kind: Literal["began", "finished", "failed"]
    reason: str = ""


class Place(Protocol):
    """Where runs are done."""

    @property
    def room(self) -> int:
        """How many more runs can be started now."""

    def start(self, job: Job) -> None:
        """Take a run; it may begin later."""

    def wait(self, seconds: float) -> list[News]:
        """What has happened, as soon as something has, or after so long."""

    def close(self) -> None:
        """End what still runs."""


def run_jobs(
    jobs: Iterable[Job], place: Place, *, retries: int, board: "StudyBoard"
) -> dict[str, str]:
    """Do all jobs, each tried again so often; those that failed for good, with the reason."""
    # audited runs first: one after the other they share processes
    waiting = deque(sorted(jobs, key=lambda job: not job.cell.audit))
    running = 0
    tries: Counter[str] = Counter()
    failed: dict[str, str] = {}
    ticked = time.monotonic()
    try:
        while waiting or running:
            while waiting and place.room > 0:
                job = waiting.popleft()
                for each in (job, *job.others):
                    _make_room(each, board)
                place.start(job)
                running += 1
            for news in place.wait(TICK_SECONDS):
                name = news.job.name
                tries[name] += news.kind == "failed"
                again = tries[name] <= retries
                if news.kind == "failed" and again:
                    waiting.append(news.job)
                elif news.kind == "failed":
                    failed[name] = news.reason
                running -= news.kind != "began"
                for job in (news.job, *news.job.others):
                    board.tell(replace(news, job=job), again=again)
            if time.monotonic() - ticked >= TICK_SECONDS:
                ticked = time.monotonic()
                board.tick()
    finally:
        place.close()
    return failed


def _make_room(job: Job, board: "StudyBoard") -> None:
    """Keep aside what is in the place of a run and is not it."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    if job.state() == "other":
        names = (job.path.with_name(f"{job.path.name}~{number}") for number in count(1))
        aside = job.path.rename(next(path for path in names if not path.exists()))
        board.say(f"{job.path} holds another run; kept as {aside.name}")
