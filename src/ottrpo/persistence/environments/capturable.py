"""A wrapper that captures the environment inside of it from afar."""

import json
import multiprocessing
import signal
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from ottrpo.persistence.strict_json import Arrays

from . import proof
from .layers import NotCaptured, capture_layers, restore_layers


class Capturable(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Lets a subprocess vector environment be captured: wrap each of its environments in it.

    ``make_vec_env("Hopper-v5", 4, vec_env_cls=SubprocVecEnv, wrapper_class=Capturable)``. An
    environment of your own that has these two methods is captured exactly as well; what it returns
    must be plain: numbers, texts, arrays, random generators, and lists, tuples and dictionaries of
    them.

    In a worker process Ctrl-C is left to the process that trains, which stops between two updates.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)  # so that evaluations can make it again
        gym.Wrapper.__init__(self, env)
        if multiprocessing.current_process().daemon:  # a worker, not somebody's program
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def why_not_exact(self) -> str | None:
        """Why it would not go on exactly; ``None`` if it did in a trial."""
        return proof.why_not_exact(self.env)

    def why_not_captured(self) -> str | None:
        """Why the state can't be captured now; ``None`` if it can."""
        return capture_layers(self.env, {}, "inside")[1]

    def capture_state(self) -> dict[str, Any]:
        """The state of everything inside.

        Raises:
            NotCaptured: if it can't be captured.
        """
        arrays: Arrays = {}
        states, reason = capture_layers(self.env, arrays, "inside")
        if reason is not None:
            raise NotCaptured(reason)
        return {"layers": json.dumps(states), "arrays": arrays}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Put everything inside, which has been reset, into the state that was captured."""
        restore_layers(self.env, json.loads(state["layers"]), state["arrays"])
