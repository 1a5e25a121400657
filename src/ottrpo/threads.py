"""One thread per process, unless the user says otherwise.

The arrays of this library are small: a second thread costs more than it brings, and many runs
share a machine better as one process each. The variables are read when NumPy, JAX, torch or numba
are first loaded, so this must come before them.
"""

import os
import re

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NPROC",  # the size of XLA's thread pool on the CPU
)


def default_to_one_thread() -> None:
    """Ask every numerical library for one thread; what the user has set already stays.

    Where XLA is told to make several devices of the CPU, each waits for the others in a thread of
    its pool: with no more threads than that a program can wait for ever.
    """
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
