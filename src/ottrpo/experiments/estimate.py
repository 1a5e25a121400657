"""How long a study will take, from the steps per second of finished runs.

Of the same cell on this machine, else of kept results; once some runs have made their first steps
their own speed tells better (see `ottrpo.experiments.board`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ottrpo.results.layout import RUNS
from ottrpo.results.study_folder import Table

from .jobs import Job

HERE, KEPT, LIKE = "earlier runs here", "kept results", "kept results of other settings"
# Seconds per step, evaluations included, and where the figure comes from.
Speed = tuple[float, str]


def estimate(
    jobs: Iterable[Job], missing: Sequence[Job], *, results: Iterable[Path], workers: int
) -> str:
    """How long ``missing``, of all the ``jobs`` of a study, will take on ``workers`` processes."""
    speeds = dict(_kept(missing, results)) | dict(_earlier(jobs))
    known = [job for job in missing if job.cell.name in speeds]
    cells = {job.cell.name for job in missing}
    never = len(cells - set(speeds))
    left = f", of {never} unknown" if never else ""
    if not known:
        return "no estimate yet: nothing like these runs was ever measured"
    # the schedule that the runs follow: in order, each on the first free process
    free = [0.0] * workers
    for job in known:
        free.sort()
        free[0] += (job.spec.steps - job.standing().timestep) * speeds[job.cell.name][0]
    sources = Counter(source for name, (_, source) in speeds.items() if name in cells)
    told = ", ".join(f"{sources[s]} from {s}" for s in (HERE, KEPT, LIKE) if sources[s])
    return f"about {in_words(max(free))} (speed of {told}{left})"


def in_words(seconds: float) -> str:
    """A duration for people.

    >>> in_words(0.2), in_words(40), in_words(400), in_words(40_000)
    ('1 s', '40 s', '7 min', '11 h 7 min')
    """
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _earlier(jobs: Iterable[Job]) -> Iterator[tuple[str, Speed]]:
    for job in jobs:
        seconds = job.standing().wall_seconds
        if seconds > 0 and job.state() == "finished":
            yield job.cell.name, (seconds / job.spec.steps, HERE)


def _kept(jobs: Iterable[Job], results: Iterable[Path]) -> Iterator[tuple[str, Speed]]:
    """Of the same cell in whichever study, else of the slowest of its environment and agent."""
    kept = {name: seconds for folder in results for name, seconds in _measured(folder)}
    for job in jobs:
        name = job.cell.name
        family = "__".join(name.split("__")[:2]) + "__"
        like = [seconds for other, seconds in kept.items() if other.startswith(family)]
        if name in kept:
            yield name, (kept[name], KEPT)
        elif like:
            yield name, (max(like), LIKE)


def _measured(results: Path) -> Iterator[tuple[str, float]]:
    """Seconds per step of every cell in ``results``."""
    for path in sorted(results.glob(f"*/{RUNS}")):
        try:
            for row in Table.parse(path, path.read_bytes()).records():
                seconds = float(row.get("wall_seconds") or row["train_seconds"])
                yield row["cell"], seconds / int(row["steps"])
        except (OSError, ValueError, LookupError, ZeroDivisionError):
            continue  # an estimate is not worth a complaint
