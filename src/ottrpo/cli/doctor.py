"""``ottrpo doctor``."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ottrpo.extras import remedy
from ottrpo.terminal import say, say_json


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Print versions, threads and devices, and run a short self-test."""

    json: bool = False
    """print one JSON object"""

    def run(self) -> int:
        """Look, test, tell; exit code 1 if a test fails."""
        from ottrpo.experiments import provenance

        report: dict[str, Any] = {
            "versions": provenance.versions(),
            "hardware": provenance.hardware(),
            "physics": _physics(),
            "devices": _devices(),
            "self_test": {name: _outcome(test) for name, test in SELF_TESTS.items()},
        }
        passed = all(outcome["passed"] for outcome in report["self_test"].values())
        if self.json:
            say_json(report, indent=2)
        else:
            say(_as_text(report))
        return 0 if passed else 1


def _physics() -> dict[str, Any]:
    """How many threads simulate the environments of one process, and why so many."""
    from ottrpo.threads import SHARE_VARIABLE, cores, share_of_cores

    try:
        import mujoco
    except ImportError as error:
        return {"threads": 0, "why": remedy(error)}

    threads = share_of_cores()
    why = "one per core; a study divides them among its workers"
    if threads != cores():
        why = f"by {SHARE_VARIABLE}, of {cores()} cores"
    if find_spec("mujoco.batch") is None:
        threads, why = 1, f"mujoco {mujoco.__version__} has no batch; 3.17 has"
    return {"threads": threads, "why": why}


def _devices() -> dict[str, str]:
    found = {}
    for name, devices in (("jax", _jax_devices), ("torch", _torch_devices)):
        try:
            found[name] = ", ".join(devices())
        except Exception as error:  # a driver that does not fit, say
            found[name] = remedy(error) or f"unusable: {error}"
    return found


def _jax_devices() -> list[str]:
    import jax

    return [str(device) for device in jax.devices()]


def _torch_devices() -> list[str]:
    import torch

    return ["cpu", *map(torch.cuda.get_device_name, range(torch.cuda.device_count()))]


def _outcome(test: Callable[[], str]) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        told, passed = test(), True
    except Exception as error:  # a doctor reports what is wrong, whatever it is
        told, passed = f"{type(error).__name__}: {error}", False
    return {"passed": passed, "told": told, "seconds": round(time.perf_counter() - began, 3)}


def _dual_is_exact() -> str:
    """A random finite problem: no multiplier bounds it lower than what the new policy attains."""
    import numpy as np

    from ottrpo.core import TableCost, audit, update_policy

    rng = np.random.default_rng(0)
    policy_sa, occupancy_s = rng.dirichlet(np.ones(5), 40), rng.dirichlet(np.ones(40))
    cost = TableCost(rng.uniform(size=(5, 5)) * (1 - np.eye(5)))
    update = update_policy(policy_sa, occupancy_s, rng.normal(size=(40, 5)), cost, radius=0.05)
    found = audit(update.problem, update.policy_sa, update.solution.multiplier)
    if abs(found.gap) > 1e-12 or abs(found.spent - found.radius) > 1e-12:
        raise ArithmeticError(f"the policy spends {found.spent}, and the gap is {found.gap}")
    return f"the plan attains the dual's bound within {abs(found.gap):.0e}, budget spent exactly"


def _environments_run() -> str:
    from ottrpo.envs import catalogue

    names = ["CliffWalking-v1", *(["Hopper-v5"] if find_spec("mujoco") else [])]
    for name in names:
        env = catalogue.make(name)
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(10):
            env.step(env.action_space.sample())
        env.close()
    return f"{' and '.join(names)} can be stepped"


def _disk_is_writable() -> str:
    """A megabyte, written through to the disk."""
    with tempfile.NamedTemporaryFile(dir=os.getcwd(), prefix=".ottrpo-doctor-") as file:
        began = time.perf_counter()
        file.write(b"\0" * 2**20)
        file.flush()
        os.fsync(file.fileno())
        seconds = time.perf_counter() - began
    return f"1 MiB in {1000 * seconds:.0f} ms"


SELF_TESTS: dict[str, Callable[[], str]] = {
    "dual": _dual_is_exact,
    "environments": _environments_run,
    "disk": _disk_is_writable,
}


def _as_text(report: dict[str, Any]) -> str:
    lines = ["versions"]
    lines += [
        f"  {name:<18} {found or 'not installed'}" for name, found in report["versions"].items()
    ]
    hardware = report["hardware"]
    lines += [
        "hardware",
        f"  {hardware['processor']}, {hardware['cores']} cores, {hardware['system']}",
        "threads",
        *(f"  {name:<22} {value}" for name, value in hardware["threads"].items()),
        f"  {'physics':<22} {report['physics']['threads']} ({report['physics']['why']})",
        "devices",
        *(f"  {name:<18} {value}" for name, value in report["devices"].items()),
        "self-test",
    ]
    for name, outcome in report["self_test"].items():
        verdict = "ok" if outcome["passed"] else "FAILED"
        lines.append(f"  {name:<18} {verdict} in {outcome['seconds']:.2f} s: {outcome['told']}")
    return "\n".join(lines)
