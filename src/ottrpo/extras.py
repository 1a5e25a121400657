"""What is installed apart from the core, and which extra of ours brings it."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

# module -> the extra that brings it
EXTRA_OF = {
    "jax": "deep",
    "equinox": "deep",
    "optax": "deep",
    "stable_baselines3": "deep",
    "torch": "deep",
    "mujoco": "deep",
    "sb3_contrib": "sb3",
    "scipy": "scipy",
    "matplotlib": "plot",
    "pygame": "video",
    "imageio": "video",
    "imageio_ffmpeg": "video",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "optuna": "tune",
    "brax": "jaxenvs",
    "gymnax": "jaxenvs",
    "six": "jaxenvs",
    "mujoco_playground": "playground",
    "rl_zoo3": "zoo",
    "ray": "ray",
    "tensorboard": "tensorboard",
}


def remedy(error: BaseException) -> str | None:
    """What is missing and how it is installed, in one line; None if that is not what failed.

    >>> remedy(ModuleNotFoundError(name="jax.numpy"))
    "jax is not installed: pip install 'ottrpo[deep]'"
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError):
            module = (cause.name or "").partition(".")[0]
            if module in EXTRA_OF:
                return f"{module} is not installed: pip install 'ottrpo[{EXTRA_OF[module]}]'"
        cause = cause.__cause__ or cause.__context__
    return None


def needed(module: str, value: Any) -> Any:
    """A setting for which ``module`` is needed unless it is None.

    Raises:
        ImportError: if that is not installed; says what to install.
    """
    if value is not None and find_spec(module) is None:
        raise ImportError(remedy(ImportError(name=module)), name=module)
    return value


def load(module: str, name: str) -> Any:
    """What ``module`` calls ``name``.

    Raises:
        ImportError: if that needs something that is not installed; says what to install.
    """
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        line = remedy(error)
        if line is None:
            raise
        raise ImportError(f"{name} can't be loaded: {line}", name=error.name) from error
