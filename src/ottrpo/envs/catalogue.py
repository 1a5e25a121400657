"""From the paper's environment ids to the installed ones, said aloud and never silently.

Of the six ids in the paper only MountainCarContinuous-v0 still exists in Gymnasium. This module
holds what is keyed by an environment's name, so that no algorithm needs to know one.
"""

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium

from ottrpo.extras import load, remedy

from .functional import family_of


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How to draw a policy of a grid world.

    Attributes:
        columns: states are numbered row by row, this many to a row.
        arrows: one character per action.
        signs: states where no action is taken, and the character that stands for them.
    """

    columns: int
    arrows: str
    signs: Mapping[int, str]

    def drawn(self, policy_sa: Any) -> str:
        """One character per state: the arrow of its most probable action, or its sign.

        >>> import numpy as np
        >>> world = Grid(columns=2, arrows="<>", signs={3: "G"})
        >>> print(world.drawn(np.array([[0.1, 0.9], [0.8, 0.2], [0.0, 1.0], [0.5, 0.5]])))
        > <
        > G
        """
        cell_s = [self.arrows[action] for action in policy_sa.argmax(axis=1)]
        for state, sign in self.signs.items():
            cell_s[state] = sign
        starts = range(0, len(cell_s), self.columns)
        return "\n".join(" ".join(cell_s[start : start + self.columns]) for start in starts)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the project knows about one installed environment.

    Attributes:
        env_id: the id that Gymnasium registers today.
        paper_id: the id of the paper's experiments; None if the paper did not use it.
        retired_ids: ids that no longer exist and stand for this environment.
        max_episode_steps: our cap where Gymnasium registers none; None keeps Gymnasium's.
        difference: what differs from the retired ids, in words.
        grid: how to draw a policy; None if states are no grid.
        optimum: the largest expected return of an episode, step cap included, that any agent can
            have, by exact planning; None if it is not known.
    """

    env_id: str
    paper_id: str | None = None
    retired_ids: tuple[str, ...] = ()
    max_episode_steps: int | None = None
    difference: str = ""
    grid: Grid | None = None
    optimum: float | None = None


# A policy that walks into a wall never leaves CliffWalking, which has no time limit of its own.
# The paper's worst score, -5001, is what such a policy earns under a cap of 5001 steps.
CLIFF_WALKING_CAP = 5001
DEFAULT_CAP = CLIFF_WALKING_CAP
_CLIFF = Grid(columns=12, arrows="↑→↓←", signs={**dict.fromkeys(range(37, 47), "▒"), 47: "G"})
_MUJOCO = "MuJoCo's own bindings instead of mujoco-py"

CATALOGUE: tuple[Entry, ...] = (
    Entry(
        env_id="CliffWalking-v1",
        paper_id="CliffWalking-v0",
        retired_ids=("CliffWalking-v0",),
        max_episode_steps=CLIFF_WALKING_CAP,
        difference="same transition table; our cap of 5001 steps an episode",
        grid=_CLIFF,
        optimum=-13.0,
    ),
    Entry(
        env_id="CliffWalkingSlippery-v1",
        max_episode_steps=CLIFF_WALKING_CAP,
        difference="our cap of 5001 steps an episode",
        grid=_CLIFF,
        optimum=-64.7092,
    ),
    Entry(
        env_id="Taxi-v4",
        paper_id="Taxi-v3",
        retired_ids=("Taxi-v3", "Taxi-v2"),
        difference="same transition table",
        optimum=7.93,
    ),
    Entry(env_id="FrozenLake-v1", optimum=0.7442),
    Entry(env_id="FrozenLake8x8-v1", optimum=0.9132),
    Entry(env_id="MountainCarContinuous-v0", paper_id="MountainCarContinuous-v0"),
    Entry(
        env_id="Hopper-v5",
        paper_id="Hopper-v3",
        retired_ids=("Hopper-v3", "Hopper-v2"),
        difference=f"{_MUJOCO}; the healthy bonus is not paid on the terminating step",
    ),
    Entry(
        env_id="Swimmer-v5",
        paper_id="Swimmer-v3",
        retired_ids=("Swimmer-v3", "Swimmer-v2"),
        difference=_MUJOCO,
    ),
    Entry(
        env_id="HalfCheetah-v5",
        paper_id="HalfCheetah-v3",
        retired_ids=("HalfCheetah-v3", "HalfCheetah-v2"),
        difference=_MUJOCO,
    ),
)
# Environments of our own, registered when the first of them is made; those drawn by number.
OWN, DRAWN = "ottrpo/", "ottrpo/Random"
OWN_MODULES = ("ottrpo.envs.toys", "ottrpo.envs.random_tables")
_BY_ID = {name: entry for entry in CATALOGUE for name in (entry.env_id, *entry.retired_ids)}


def _known(env_id: str) -> Entry:
    """What is known of an environment; of others nothing but their id."""
    return _BY_ID.get(env_id) or Entry(env_id=env_id)


def resolve(env_id: str) -> str:
    """The id to make: a retired id is translated, any other is returned as it is.

    >>> resolve("Taxi-v3"), resolve("CartPole-v1")
    ('Taxi-v4', 'CartPole-v1')
    """
    return _known(env_id).env_id


def paper_id(env_id: str) -> str | None:
    """The id under which the paper reports this environment, if it does.

    >>> paper_id("Hopper-v5"), paper_id("CartPole-v1")
    ('Hopper-v3', None)
    """
    return _known(env_id).paper_id


def grid(env_id: str) -> Grid | None:
    """How to draw a policy of this environment, if it is a grid world we know."""
    return _known(env_id).grid


def optimum(env_id: str) -> float | None:
    """The largest expected return that any agent can have, where it is known.

    >>> optimum("Taxi-v3")
    7.93
    """
    if env_id.startswith(DRAWN):
        from ottrpo.tabular import as_problem, planning

        return planning.best_capped_return(planning.known_table(as_problem(env_id)))
    return _known(env_id).optimum


def step_cap(env_id: str) -> int:
    """The cap on an episode's steps for an environment without a time limit of its own.

    >>> step_cap("CliffWalking-v1")
    5001
    """
    return _known(env_id).max_episode_steps or DEFAULT_CAP


def translation(env_id: str) -> str | None:
    """The line to print when ``env_id`` is retired; None when it is not.

    >>> translation("Taxi-v3")
    'Taxi-v3 is retired; using Taxi-v4 (same transition table)'
    """
    entry = _known(env_id)
    if env_id == entry.env_id:
        return None
    return f"{env_id} is retired; using {entry.env_id} ({entry.difference})"


def require_no_import(env_id: str, *, trust: bool = False) -> None:
    """Refuse an id from a file that would import a module of the file's choice.

    >>> require_no_import("CartPole-v1")

    Args:
        env_id: the id.
        trust: import the module instead of refusing.

    Raises:
        ValueError: if it is ``module:Name-v0`` and the module has not been imported, or can't be.
    """
    if family_of(env_id) is not None:
        return  # a library that we name ourselves
    module, colon, _ = env_id.rpartition(":")
    if colon and trust:
        _look_here()
        try:
            import_module(module)
        except ImportError as error:
            raise ValueError(f"the module of {env_id!r} can't be imported: {error}") from error
    if colon and module not in sys.modules:
        raise ValueError(
            f"the file names the environment {env_id!r}, and opening a file must not import "
            f"{module!r}; if you trust it, import it before load(...), or give --trust to the verb"
        )


def make(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """The installed environment for ``env_id``, with our step cap where it has none.

    Raises:
        ValueError: if Gymnasium does not know the environment or can't build it.
    """
    if family_of(env_id) is not None:
        return _hosted(env_id, kwargs)
    if env_id.startswith(OWN):
        for module in OWN_MODULES:
            import_module(module)
    elif ":" in env_id:
        _look_here()
    entry = _known(env_id)
    if entry.max_episode_steps is not None:
        kwargs.setdefault("max_episode_steps", entry.max_episode_steps)
    try:
        with warnings.catch_warnings():
            # an old version that was asked for by name is recorded in the manifest, not scolded
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            return gymnasium.make(entry.env_id, **kwargs)
    except (gymnasium.error.Error, ImportError, OSError, TypeError, ValueError) as error:
        reason = remedy(error) or " ".join(str(error).split())
        raise ValueError(
            f"the environment {env_id!r} can't be made: {reason} (`ottrpo list` names some)"
        ) from error


def _look_here() -> None:
    """Find modules in the working directory too, after all others.

    Programs do, ``python -m`` does; an installed command does not, and yet it is there that who
    asks for ``my_module:MyEnv-v0`` has it.
    """
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())


def _hosted(env_id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """An environment of JAX, one step at a time."""
    try:
        made: gymnasium.Env[Any, Any] = load("ottrpo.envs.functional.hosted", "hosted")(
            env_id, **kwargs
        )
    except ImportError as error:
        raise ValueError(str(error)) from error
    return made
