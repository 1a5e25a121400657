"""The state of an SB3 vector environment: its own wrappers, and every environment in it."""

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper

from ottrpo.persistence.values import Arrays, decode, encode

from . import proof
from .capturable import Capturable
from .layers import (
    NotCaptured,
    capture_layer,
    capture_layers,
    class_name,
    keeps_itself,
    restore_layer,
    restore_layers,
)

# wrappers of which all state stands in their attributes
KNOWN = ("stable_baselines3.common.vec_env.", "ottrpo.")


def why_not_exact(env: VecEnv) -> str | None:
    """Why ``env`` can't be relied on to go on exactly; ``None`` if its environments did in a trial.

    It need not have been reset, and is not touched.
    """
    wrappers, base = _unwrapped(env)
    reasons = [_captured(wrapper, {}, "wrapper")[1] for wrapper in wrappers]
    return next((why for why in (*reasons, _why_not_inside(base)) if why is not None), None)


def _why_not_inside(base: VecEnv) -> str | None:
    if keeps_itself(base):
        return None
    if isinstance(base, DummyVecEnv):
        each = {tuple(map(class_name, proof.layers(env))): env for env in base.envs}
        reasons = (proof.why_not_exact(env) for env in each.values())
        return next((why for why in reasons if why is not None), None)
    reason: str | None = _why_not_remote(base) or base.env_method("why_not_exact", indices=0)[0]
    return reason


def _why_not_remote(base: VecEnv) -> str | None:
    if type(base) is not SubprocVecEnv:
        return f"{type(base).__name__} is none of the vector environments that are known"
    # the outermost wrapper: it captures what is inside of it only
    if set(_outermost(base)) != {Capturable.__name__}:
        return "environments in other processes need the wrapper Capturable around each"
    return None


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
    if keeps_itself(layer) or class_name(layer).startswith(KNOWN):
        try:
            state = capture_layer(layer, arrays, name)
        except NotCaptured as error:
            reason = str(error)
    else:
        reason = f"{type(layer).__name__} is none of the vector wrappers that are known"
    return {"class": class_name(layer), "state": state}, reason


def _capture_base(base: VecEnv, arrays: Arrays, name: str) -> tuple[list[Any], str | None]:
    if keeps_itself(base):
        return [capture_layer(base, arrays, name)], None
    if isinstance(base, DummyVecEnv):
        both = [capture_layers(env, arrays, f"{name}.{i}") for i, env in enumerate(base.envs)]
        return [states for states, _ in both], next((why for _, why in both if why), None)
    reason = _why_not_remote(base)
    if reason is None:  # ask first: a worker that raises is a worker that is gone
        reason = next((why for why in base.env_method("why_not_captured") if why), None)
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
