"""One thread per process, unless the user says otherwise.

The arrays of this library are small: a second thread costs more than it brings, and many runs
share a machine better as one process each. Sums that several threads make come in another order,
too: a seed would give other numbers on a machine with more cores.
"""

import os
import re
import sys

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NPROC",  # the size of XLA's thread pool on the CPU
)


def default_to_one_thread() -> None:
    """Ask every numerical library for one thread; what the user has set already stays.

    Libraries read the variables when they are loaded; those that are loaded already are told.

    Where XLA is told to make several devices of the CPU, each waits for the others in a thread of
    its pool: with no more threads than that a program can wait for ever.
    """
    if not any(name in os.environ for name in THREAD_VARIABLES) and "numpy" in sys.modules:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        threadpool_limits(1)
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1" if name != "NPROC" else str(_pool()))


def _pool() -> int:
    """Threads for XLA's pool on the CPU."""
    asked = re.search(r"xla_force_host_platform_device_count=(\d+)", os.getenv("XLA_FLAGS", ""))
    devices = int(asked[1]) if asked else 1
    return 4 * devices if devices > 1 else 1


# how many threads the physics of this process takes; whoever starts several of them sets it
SHARE_VARIABLE = "OTTRPO_THREADS"


def share_of_cores() -> int:
    """Threads for the physics of this process: what the environment says, or one per core."""
    said = os.environ.get(SHARE_VARIABLE, "")
    return int(said) if said.isdigit() and int(said) > 0 else cores()


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
