"""Models that Stable-Baselines3 saved. Opening one runs whatever code it carries.

SB3 keeps Python objects as pickles, inside its zip files and for `VecNormalize`; unpickling calls
any function that the file names. This is the only module of the library that does it, and only for
files that the caller vouches for: ``trust=True``.
"""

import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

from ottrpo.names import one_line

ALGORITHMS = {
    "a2c": ("stable_baselines3", "A2C"),
    "ppo": ("stable_baselines3", "PPO"),
    "trpo": ("sb3_contrib", "TRPO"),
}


def load_sb3(path: str | Path, algorithm: str, *, trust: bool = False, device: str = "cpu") -> Any:
    """An agent that SB3's own ``save`` wrote.

    Args:
        path: the zip file.
        algorithm: ``"a2c"``, ``"ppo"`` or ``"trpo"``.
        trust: say True if you made the file, or trust whoever did as you would trust a program.
        device: where torch computes.

    Raises:
        ValueError: without trust, or if there is no such file or it can't be read.
    """
    file = _vouched_for(path, trust)
    if algorithm not in ALGORITHMS:
        raise ValueError(f"{algorithm!r} is no algorithm of SB3's here; known: {[*ALGORITHMS]}")
    module, name = ALGORITHMS[algorithm]
    agent_class = getattr(import_module(module), name)
    try:
        return agent_class.load(file, device=device)
    except Exception as error:  # a pickle may raise anything
        raise _unreadable(file, f"model of {name}", error) from error


def load_vec_normalize(path: str | Path, *, trust: bool = False) -> Any:
    """The statistics that SB3's ``VecNormalize.save`` wrote: a `VecNormalize` without environment.

    It no longer learns from what it sees; ``normalize_obs`` and ``obs_rms`` are what it is for.

    Args:
        path: the pickle.
        trust: say True if you made the file, or trust whoever did as you would trust a program.

    Raises:
        ValueError: without trust, or if there is no such file or it holds something else.
    """
    from stable_baselines3.common.vec_env import VecNormalize

    file = _vouched_for(path, trust)
    try:
        with file.open("rb") as stream:
            statistics = pickle.load(stream)
    except Exception as error:  # a pickle may raise anything
        raise _unreadable(file, "VecNormalize", error) from error
    if not isinstance(statistics, VecNormalize):
        raise ValueError(f"{file} holds a {type(statistics).__name__}, not a VecNormalize")
    statistics.training = statistics.norm_reward = False
    return statistics


def _vouched_for(path: str | Path, trust: bool) -> Path:
    if trust is not True:
        raise ValueError(
            f"{path} was saved by SB3, as a pickle, and opening a pickle runs any code in it; if "
            "you made it, or trust whoever did as you would a program, say trust=True"
        )
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {file}")
    return file


def _unreadable(file: Path, what: str, error: Exception) -> ValueError:
    return ValueError(f"{file} can't be read as a {what} by SB3: {one_line(error)}")
