"""What an environment costs by itself."""

import time
from collections.abc import Callable

from . import catalogue

Clock = Callable[[], float]


def step_seconds(environment: str, steps: int, clock: Clock = time.perf_counter) -> float:
    """Seconds per step with random actions, over so many steps; resets count as well."""
    env = catalogue.make(environment, disable_env_checker=True)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(steps)]
    began = clock()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    taken = clock() - began
    env.close()
    return taken / steps
