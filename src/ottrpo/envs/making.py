"""Vector environments of an id: all of them in one call where their physics allows it."""

from functools import partial
from importlib import import_module
from numbers import Integral
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

from ottrpo.persistence.environments.capturable import Capturable
from ottrpo.threads import share_of_cores

from . import catalogue
from .lean import LeanVecEnv

if TYPE_CHECKING:
    from .batched.task import Task

# those that can be simulated together, by the names of their tasks
_TASKS = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
_GYMNASIUM = "gymnasium.envs.mujoco."
_VERSION = "_v5"


def make_vec(
    id: "str | Task",
    n_envs: int,
    *,
    threads: int | None = None,
    seed: int | None = None,
    subprocesses: bool = False,
    **kwargs: Any,
) -> VecEnv:
    """Environments as an SB3 `VecEnv`, bit-identical to ``n_envs`` of Gymnasium's.

    Gymnasium's MuJoCo tasks, version 5, and tasks of one's own are simulated together on a pool of
    threads. Other environments are stepped one after the other, and a printed line says so.

    Args:
        id: Gymnasium's id, or a `Task` of one's own.
        n_envs: how many.
        threads: of the physics; by default as many as ``OTTRPO_THREADS`` says, or one per core,
            but no more than environments. Results do not depend on it.
        seed: the environments are seeded ``seed``, ``seed + 1``, ...; ``None`` for at random.
        subprocesses: run every environment in a process of its own instead.
        kwargs: for `gymnasium.make`.

    Raises:
        ValueError: if there is no such environment, or no such keyword.
    """
    _require(n_envs, threads)
    env: VecEnv
    task = None if subprocesses else task_of(id, **kwargs)
    if task is not None:
        from .batched.sb3 import BatchedVecEnv

        env = BatchedVecEnv(task, n_envs, threads or min(share_of_cores(), n_envs))
    elif subprocesses:
        if not isinstance(id, str) or threads is not None:
            raise ValueError("subprocesses=True takes an id and no threads")
        catalogue.make(id, **kwargs).close()  # says what is wrong before any process starts
        env = SubprocVecEnv([partial(_remote, id, **kwargs) for _ in range(n_envs)])
    else:
        env = LeanVecEnv([partial(_monitored, str(id), **kwargs) for _ in range(n_envs)])
    if seed is not None:
        env.seed(seed)
    return env


def make_vector_env(
    id: "str | Task",
    n_envs: int,
    *,
    threads: int | None = None,
    seed: int | None = None,
    **kwargs: Any,
) -> "VectorEnv[Any, Any, Any]":
    """As `make_vec`, but as Gymnasium's `VectorEnv`, which starts episodes anew in the same step.

    The seed is used by the first `reset` that is not given another.
    """
    _require(n_envs, threads)
    task = task_of(id, **kwargs)
    if task is not None:
        from .batched.gymnasium_vector import BatchedVectorEnv

        return BatchedVectorEnv(task, n_envs, threads or min(share_of_cores(), n_envs), seed)
    env = SyncVectorEnv(
        [partial(catalogue.make, str(id), **kwargs) for _ in range(n_envs)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    if seed is not None:
        env.reset(seed=seed)
    return env


def task_of(id: "str | Task", **kwargs: Any) -> "Task | None":
    """The task of an id, if its physics can be batched; if not, a line says why."""
    if not isinstance(id, str):
        if kwargs:
            raise ValueError(f"a task of one's own takes no keywords, got {', '.join(kwargs)}")
        return id
    env = catalogue.make(id, disable_env_checker=True, **kwargs)
    reason = _why_not(env)
    if reason is None:
        tasks = import_module("ottrpo.envs.batched.gymnasium_tasks")
        task: Task = getattr(tasks, type(env.unwrapped).__name__.removesuffix("Env"))(env)
        return task
    env.close()
    print(f"{id}: {reason}; its environments are stepped one after the other")  # noqa: T201
    return None


def _why_not(env: gym.Env[Any, Any]) -> str | None:
    """Why an environment's physics can't be batched; ``None`` if it can."""
    kind = type(env.unwrapped)
    ours = kind.__module__.startswith(_GYMNASIUM) and kind.__module__.endswith(_VERSION)
    if not ours or kind.__name__.removesuffix("Env") not in _TASKS:
        return "there is no batched physics for it"
    if env.spec is not None and env.spec.additional_wrappers:
        return "it is registered with wrappers of its own"
    if env.render_mode == "human":
        return "windows are drawn by each environment itself"
    try:
        import_module("mujoco.batch")
    except ImportError:
        return "batched physics needs mujoco 3.17 or later"
    return None


def _monitored(id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    return Monitor(catalogue.make(id, disable_env_checker=True, **kwargs))


def _remote(id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    return Capturable(_monitored(id, **kwargs))


def _require(n_envs: int, threads: int | None) -> None:
    for name, value in (("n_envs", n_envs), ("threads", 1 if threads is None else threads)):
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
