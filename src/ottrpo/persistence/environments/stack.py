"""All layers of one Gymnasium environment."""

from collections.abc import Mapping
from typing import Any

from ottrpo.persistence.values import Arrays

from .layers import NotCaptured, capture_layer, class_name, layers_of, restore_layer


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
