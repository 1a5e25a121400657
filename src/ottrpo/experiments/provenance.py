"""What a run was made with: versions, hardware, commit. No names of machines or people."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy  # noqa: F401  # the BLAS it brings is told of
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from ottrpo import __version__
from ottrpo.threads import THREAD_VARIABLES

PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "gymnasium",
    "mujoco",
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
)
# environment variables that change arithmetic, beside XLA_FLAGS
ARITHMETIC = (
    *("JAX_PLATFORMS", "NPY_DISABLE_CPU_FEATURES", "GLIBC_TUNABLES"),
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT"),
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
)
# those that a program may tell JAX as well, and what holds if nobody does
JAX_ARITHMETIC = {
    "JAX_DEFAULT_MATMUL_PRECISION": "None",
    "JAX_DEFAULT_PRNG_IMPL": "threefry2x32",
    "JAX_DISABLE_JIT": "False",
    "JAX_ENABLE_X64": "False",
    "JAX_THREEFRY_PARTITIONABLE": "True",
}
# how the vector instructions of processors begin, by which sums come in another order
VECTORS = ("avx", "fma", "amx", "asimd", "sve")


def versions() -> dict[str, str | None]:
    """The versions of everything that may change a number; None if not installed."""
    found: dict[str, str | None] = {"ottrpo": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def hardware() -> dict[str, Any]:
    """The kind of machine."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": {name: os.environ.get(name) for name in THREAD_VARIABLES},
    }


def arithmetic() -> dict[str, str | None]:
    """What else may change a number: the processor, and how JAX was told to compute."""
    told = {name: os.environ.get(name) for name in ARITHMETIC} | _jax_arithmetic()
    flags = os.environ.get("XLA_FLAGS", "").split()
    told["XLA_FLAGS"] = " ".join(flag for flag in flags if "thread" not in flag)  # those are ours
    # processors of one name may differ in these
    vectors = sorted(word for word in _told_of_it("flags", "Features") if word.startswith(VECTORS))
    kernels = {pool.get("architecture") for pool in threadpool_info() if pool["user_api"] == "blas"}
    told["instructions"], told["blas"] = " ".join(vectors), " ".join(sorted(kernels - {None}))
    return {"processor": _processor(), **told}


def _jax_arithmetic() -> dict[str, str]:
    config = getattr(sys.modules.get("jax"), "config", None)
    told = {
        name: str(getattr(config, name.lower(), os.environ.get(name, value)))
        for name, value in JAX_ARITHMETIC.items()
    }
    truths = {"1": "True", "true": "True", "0": "False", "false": "False"}
    return {name: truths.get(value, value) for name, value in told.items()}


def devices() -> list[str]:
    """What kinds of devices JAX has."""
    import jax

    return [device.device_kind for device in jax.devices()]


def commit() -> str | None:
    """The commit of the package, with ``+`` if its files are changed; None outside a repository.

    Other changes do not count: results that were just collected do not make the next runs doubtful.
    """
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        tracked = _git(here, "ls-files", "--error-unmatch", Path(__file__).name)
        changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return None if not tracked else head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _processor() -> str:
    return " ".join(_told_of_it("model name")) or platform.processor()


def _told_of_it(*keys: str) -> list[str]:
    """What Linux tells of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    told = (line.partition(":") for line in lines)
    return next((value.split() for key, _, value in told if key.strip() in keys), [])
