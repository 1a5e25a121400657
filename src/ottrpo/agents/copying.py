"""What copies and pickles of agents are made of."""

from copy import deepcopy
from typing import Any

import torch
from stable_baselines3.common.vec_env import VecEnvWrapper

# what belongs to the agent that is copied alone
NOT_COPIED = ("_logger", "while_learning", "_listeners", "_judged", "_problem")


def kept(agent: Any, without: tuple[str, ...]) -> dict[str, Any]:
    """The attributes of an agent, but for some."""
    return {name: value for name, value in vars(agent).items() if name not in without}


def copied_along(env: Any) -> Any:
    """The environments, if they can be copied whole; else ``None``."""
    try:
        inner = deepcopy(env)
    except Exception:  # whatever it is that it holds
        return None
    while isinstance(inner, VecEnvWrapper):  # `VecNormalize` leaves behind what it is around
        inner = inner.venv
    return None if inner is None else env


def settle(distribution: Any) -> None:
    """Let a policy's distribution forget its last actions: torch copies no tensor with a graph."""
    for name, value in vars(distribution).items():
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, torch.distributions.Distribution):
            setattr(distribution, name, None)
        elif isinstance(value, torch.Tensor):
            setattr(distribution, name, value.detach())
