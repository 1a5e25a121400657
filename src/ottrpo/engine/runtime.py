"""How JAX runs here: one thread per process, a compilation cache on disk, the CPU by default.

Networks of this size gain nothing from a second thread, and runs side by side lose a factor of
up to three to threads that fight. All of this must be said before JAX starts, so `configure` runs
when ``ottrpo.engine`` is imported; whatever the user has set in the environment wins.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from ottrpo.threads import default_to_one_thread

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

_STATE = {"started": False, "orphaned": False}  # JAX in this process; in one it was forked from


def configure() -> None:
    """One thread for XLA and BLAS, and compiled programs kept between processes."""
    default_to_one_thread()
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {ONE_THREAD}".strip()

    import jax

    config: Any = jax.config
    if not config.jax_compilation_cache_dir:
        config.update("jax_compilation_cache_dir", str(cache_directory()))
    # by default only programs that took over a second are kept; ours take less, but many
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    os.register_at_fork(after_in_child=_remember_fork)


def _remember_fork() -> None:
    device_for.cache_clear()
    _STATE["orphaned"] = _STATE["started"]
    if _STATE["orphaned"]:
        import jax

        # the end of a client, or of a pool, waits for its threads: they never end, the child can
        clients = {device.client for device in (*jax.local_devices(), *jax.devices("cpu"))}
        lowering = sys.modules.get("jax._src.interpreters.mlir")
        for orphan in (*clients, getattr(lowering, "global_thread_pool", None)):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(orphan))


def require_threads() -> None:
    """Raise in a forked child, where JAX would wait for ever for threads its parent has kept.

    Raises:
        RuntimeError: if JAX had started before the fork.
    """
    if _STATE["orphaned"]:
        raise RuntimeError(
            "this process was forked from one that uses JAX, whose threads a fork leaves behind: "
            "agents can predict here, but not be built or trained. Start processes by "
            'multiprocessing.get_context("forkserver"), or "spawn"'
        )


def cache_directory() -> Path:
    """Where compiled programs are kept: ``OTTRPO_CACHE``, or the user's cache directory."""
    explicit = os.environ.get("OTTRPO_CACHE")
    if explicit:
        return Path(explicit) / "jax"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ottrpo" / "jax"


@cache  # in this process
def device_for(name: str) -> Any:
    """The JAX device behind SB3's device names.

    ``auto`` is the CPU: these networks are too small to repay the way to an accelerator.
    """
    import jax

    require_threads()
    _STATE["started"] = True
    platform = {"auto": "cpu", "cpu": "cpu", "cuda": "gpu", "gpu": "gpu", "tpu": "tpu"}.get(
        name.split(":")[0]
    )
    if platform is None:
        raise ValueError(f"device must be auto, cpu, cuda, gpu or tpu, got {name!r}")
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError:  # JAX was installed without it, or there is none
        devices = []
    index = int(name.split(":")[1]) if ":" in name else 0
    if index >= len(devices):
        raise ValueError(f"device {name!r} was asked for, but there are {len(devices)}")
    return devices[index]
