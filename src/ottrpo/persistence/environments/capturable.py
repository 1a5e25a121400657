"""All layers of one Gymnasium environment, and a wrapper that captures them from afar."""

import json
import multiprocessing
import signal
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from ottrpo.persistence.values import Arrays

from .layers import NotCaptured, capture_layer, class_name, layers_of, restore_layer


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
        """Why the state can't be captured; ``None`` if it can."""
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


def capture_layers(env: Any, arrays: Arrays, name: str) -> tuple[list[Any], str | None]:
    """The state of every layer (``None`` where that can't be had), and why not all of it."""
    states: list[Any] = []
    reason = None
    for i, layer in enumerate(layers_of(env)):
        state: dict[str, Any] | None = None
        try:
            state = capture_layer(layer, arrays, f"{name}.{i}")
        except NotCaptured as error:
            reason = reason or str(error)
        states.append({"class": class_name(layer), "state": state})
    return states, reason


def restore_layers(env: Any, states: list[Any], arrays: Mapping[str, Any]) -> None:
    """Put the layers, which have been reset, into the states that were captured.

    Raises:
        ValueError: if the layers are others.
    """
    layers = list(layers_of(env))
    found, asked = [class_name(layer) for layer in layers], [state["class"] for state in states]
    if found != asked:
        raise ValueError(f"the environment is made of {found}, the saved one of {asked}")
    for layer, state in zip(layers, states, strict=True):
        if state["state"] is not None:
            restore_layer(layer, state["state"], arrays)
