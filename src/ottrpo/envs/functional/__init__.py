"""Environments that are functions of JAX: they are stepped where the policy is trained.

An environment of one's own has two spaces, a time limit and two functions; see `Environment`.
Those of other libraries are made by their names, with the family in front:

    make("gymnax:Pendulum-v1"), make("brax:ant/mjx"), make("playground:CheetahRun")
"""

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from ottrpo.extras import load, remedy

Array = Any
# family -> (module that is needed, class that adapts it)
FAMILIES = {
    "gymnax": ("gymnax", "Gymnax"),
    "brax": ("brax.envs", "Brax"),
    "playground": ("mujoco_playground", "Playground"),
}


class State(NamedTuple):
    """What one environment is in, and what it answered; shaped like Brax's.

    Attributes:
        world: whatever the environment needs to go on, a tree of arrays.
        obs: what is seen of it, as the observation space has it.
        reward: of the last action.
        done: the episode is over, for whatever reason.
        truncation: it was cut off rather than ended: what would have followed still counts.
        metrics: numbers by name, of `step`; their means over a rollout are logged as ``env/NAME``.
    """

    world: Any
    obs: Array
    reward: Array = 0.0
    done: Array = False
    truncation: Array = False
    metrics: dict[str, Array] = {}  # noqa: RUF012  # a default of a NamedTuple, never written to


class Environment(Protocol):
    """One environment, as functions that can be compiled.

    Whoever trains resets it when an episode is over, and cuts episodes off at the limit.

    Attributes:
        observation_space: Gymnasium's Box or Discrete.
        action_space: Gymnasium's Box, Discrete, MultiDiscrete or MultiBinary.
        max_episode_steps: episodes are cut off after so many; ``None`` for never.
        costly_reset: a reset costs many steps: it is done once per rollout, not once per step, and
            episodes that end in between start again from there.
    """

    observation_space: Any
    action_space: Any
    max_episode_steps: int | None
    costly_reset: bool

    def reset(self, key: Array) -> State:
        """A first state."""

    def step(self, state: State, action: Array) -> State:
        """What follows an action."""


def family_of(env_id: Any) -> str | None:
    """The family of an environment's name; ``None`` if it is no function of JAX.

    >>> family_of("brax:ant/mjx"), family_of("Hopper-v5"), family_of("my_module:Mine-v0")
    ('brax', None, None)
    """
    family = env_id.partition(":")[0] if isinstance(env_id, str) and ":" in env_id else None
    return family if family in FAMILIES else None


@cache  # they are functions: one serves all
def make(env_id: str) -> Environment:
    """The environment of that name.

    Raises:
        ValueError: if there is none.
        ImportError: if its library is not installed; says what to install.
    """
    family = family_of(env_id)
    if family is None:
        known = ", ".join(f"{name}:NAME" for name in FAMILIES)
        raise ValueError(f"{env_id!r} is no environment of JAX; those are {known}")
    module, adapter = FAMILIES[family]
    try:
        library = import_module(module)
        kind = load(f"{__name__}.adapters", adapter)
    except ImportError as error:
        raise ImportError(f"{env_id}: {remedy(error) or error}", name=error.name) from error
    try:
        made: Environment = kind(library, env_id.partition(":")[2])
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise ValueError(f"the environment {env_id!r} can't be made: {error}") from error
    return made
