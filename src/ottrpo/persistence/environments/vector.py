"""The state of an SB3 vector environment: its own wrappers, and every environment in it."""

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper

from ottrpo.persistence.values import Arrays, decode, encode

from .capturable import Capturable, capture_layers, restore_layers
from .layers import NotCaptured, capture_layer, class_name, keeps_itself, restore_layer


def why_not_exact(env: VecEnv) -> str | None:
    """Why the state of ``env`` can't be captured whole; ``None`` if it can."""
    return capture(env, {}, "environment")[1]


def capture(env: VecEnv, arrays: Arrays, name: str) -> tuple[dict[str, Any], str | None]:
    """The state of ``env`` as JSON, its arrays in ``arrays``, and why it is not whole, if so.

    What can't be captured is left out: whoever goes on from there must seed and reset first.
    """
    wrappers, base = _unwrapped(env)
    states, reasons = [], []
    for i, wrapper in enumerate(wrappers):
        state, reason = _captured(wrapper, arrays, f"{name}.wrapper{i}")
        states.append(state)
        reasons.append(reason)
    inside, reason = _capture_base(base, arrays, name)
    reasons.append(reason)
    data = {"wrappers": states, "base": class_name(base), "environments": inside}
    return data, next((reason for reason in reasons if reason is not None), None)


def restore(env: VecEnv, data: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Put ``env``, which has been reset, into the state that was captured.

    Raises:
        ValueError: if it is made of other parts.
    """
    wrappers, base = _unwrapped(env)
    found = [*map(class_name, wrappers), class_name(base)]
    asked = [*(state["class"] for state in data["wrappers"]), data["base"]]
    if found != asked:
        raise ValueError(f"the vector environment is made of {found}, the saved one of {asked}")
    _restore_base(base, data["environments"], arrays)
    for wrapper, state in zip(wrappers, data["wrappers"], strict=True):
        if state["state"] is not None:
            restore_layer(wrapper, state["state"], arrays)


def _unwrapped(env: VecEnv) -> tuple[list[VecEnvWrapper], VecEnv]:
    wrappers = []
    while isinstance(env, VecEnvWrapper):
        wrappers.append(env)
        env = env.venv
    return wrappers, env


def _captured(layer: Any, arrays: Arrays, name: str) -> tuple[dict[str, Any], str | None]:
    state, reason = None, None
    try:
        state = capture_layer(layer, arrays, name)
    except NotCaptured as error:
        reason = str(error)
    return {"class": class_name(layer), "state": state}, reason


def _capture_base(base: VecEnv, arrays: Arrays, name: str) -> tuple[list[Any], str | None]:
    if keeps_itself(base):
        return [capture_layer(base, arrays, name)], None
    if isinstance(base, DummyVecEnv):
        both = [capture_layers(env, arrays, f"{name}.{i}") for i, env in enumerate(base.envs)]
        return [states for states, _ in both], next((why for _, why in both if why), None)
    if type(base) is not SubprocVecEnv:
        return [], f"{type(base).__name__} is none of the vector environments that are known"
    # the outermost wrapper: it captures what is inside of it only
    if set(_outermost(base)) != {Capturable.__name__}:
        return [], "environments in other processes need the wrapper Capturable around each"
    # ask first: a worker that raises is a worker that is gone
    reason = next((why for why in base.env_method("why_not_exact") if why), None)
    if reason is not None:
        return [], reason
    states = base.env_method("capture_state")
    return [encode(state, arrays, f"{name}.{i}") for i, state in enumerate(states)], None


def _outermost(base: VecEnv) -> list[str]:
    return base.env_method("class_name") if base.has_attr("class_name") else []


def _restore_base(base: VecEnv, states: list[Any], arrays: Mapping[str, Any]) -> None:
    if keeps_itself(base):
        restore_layer(base, states[0], arrays)
        return
    if states and len(states) != base.num_envs:
        raise ValueError(
            f"there are {base.num_envs} environments, the saved ones are {len(states)}"
        )
    for i, state in enumerate(states):
        if isinstance(base, DummyVecEnv):
            restore_layers(base.envs[i], state, arrays)
        else:
            base.env_method("restore_state", decode(state, arrays), indices=i)
