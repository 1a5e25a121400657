"""The state of one Gymnasium environment, layer by layer: its wrappers, then what they wrap.

Of the layers that are known all attributes are kept, except what never changes; so an attribute
that a later version of a library adds is kept as well, or found out to be none that can be. Other
layers are kept if they say how (`capture_state` and `restore_state`), or if they can have no other
state than plain attributes.
"""

import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ottrpo.persistence.values import TAG, Arrays, NotPlain, decode, encode

from . import physics

# Modules of which all state stands in the attributes of their classes' objects.
KNOWN = (
    "gymnasium.envs.classic_control.",
    "gymnasium.envs.mujoco.",
    "gymnasium.envs.toy_text.",
    "gymnasium.wrappers.",
    "ottrpo.envs.toys",
    "stable_baselines3.common.monitor",
    "stable_baselines3.common.running_mean_std",
    "stable_baselines3.common.vec_env.",
)
# Objects of these classes are entered: their own attributes are kept.
_ENTERED = (
    "gymnasium.wrappers.utils",
    "stable_baselines3.common.running_mean_std",
    "stable_baselines3.common.vec_env.stacked_observations",
)
# What describes an environment rather than being its state, or is a clock.
_DESCRIPTION = {
    *("env", "venv", "spec", "metadata", "_metadata", "_cached_spec", "_saved_kwargs", "fullpath"),
    *("_ezpickle_args", "_ezpickle_kwargs", "_action_space", "_observation_space", "render_mode"),
    *("class_attributes", "obs_spaces", "observation_structure"),
    *("t_start", "episode_start_time", "episode_times", "results_writer"),
}
# Large tables that never change; that they are the same is checked.
_TABLES = {"P", "desc", "initial_state_distrib", "_cliff"}
_FIXED_TYPES = (spaces.Space, EnvSpec, np.dtype, type, types.ModuleType)
_FIXED_MODULES = ("mujoco.", "gymnasium.envs.mujoco.")


class NotCaptured(ValueError):
    """A layer whose state can't be captured; the message says why."""


def layers_of(env: Any) -> Iterator[Any]:
    """The wrappers from the outside in, then the environment; no further than who keeps itself.

    Gymnasium's checker changes nothing, and is not always there; it does not count.
    """
    while isinstance(env, gym.Wrapper) and not keeps_itself(env):
        if not isinstance(env, gym.wrappers.PassiveEnvChecker):
            yield env
        env = env.env
    yield env


def keeps_itself(layer: Any) -> bool:
    """Whether the layer says how it, and all beneath it, is captured."""
    return all(hasattr(type(layer), name) for name in ("capture_state", "restore_state"))


def capture_layer(layer: Any, arrays: Arrays, name: str) -> dict[str, Any]:
    """The state of one layer as JSON; its arrays are added to ``arrays``.

    Raises:
        NotCaptured: if it can't be known, or is no data.
    """
    kind = type(layer).__name__
    try:
        if keeps_itself(layer):
            return {"own": encode(layer.capture_state(), arrays, name)}
        if not (_known(layer) or _converts_only(layer)):
            raise NotCaptured(f"{kind} is none of the environments and wrappers that are known")
        return {"attributes": _attributes(layer, arrays, name)}
    except NotPlain as error:
        raise NotCaptured(f"in {kind}, {str(error).removeprefix(f'{name}.')}") from error


def restore_layer(layer: Any, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Put the layer, which has been reset, into the state that was captured.

    Raises:
        ValueError: if the state is not that of such a layer.
    """
    if keeps_itself(layer):
        layer.restore_state(decode(state["own"], arrays))
        return
    for name, encoded in state["attributes"].items():
        _restore_attribute(layer, name, encoded, arrays)


def class_name(layer: Any) -> str:
    """The class, to tell whether two layers are alike."""
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _known(layer: Any) -> bool:
    return class_name(layer).startswith(KNOWN)


def _converts_only(layer: Any) -> bool:
    """Whether it is a wrapper that converts observations, actions or rewards and does no more."""
    for base in (gym.ObservationWrapper, gym.ActionWrapper, gym.RewardWrapper):
        if isinstance(layer, base):
            kind = type(layer)
            return kind.step is base.step and kind.reset is base.reset
    return False


def _attributes(owner: Any, arrays: Arrays, name: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in vars(owner).items():
        if key in _DESCRIPTION or _is_fixed(owner, value):
            continue
        kept[key] = _attribute(key, value, arrays, f"{name}.{key}")
    return kept


def _attribute(key: str, value: Any, arrays: Arrays, name: str) -> Any:
    if key in _TABLES:
        return {TAG: "same", "sha256": _fingerprint(value)}
    if physics.is_data(value):
        return {TAG: "physics", "arrays": physics.capture(value, arrays, name)}
    if class_name(value).startswith(_ENTERED):
        return {TAG: "object", "attributes": _attributes(value, arrays, name)}
    if type(value) is dict and any(class_name(v).startswith(_ENTERED) for v in value.values()):
        # statistics of a Dict observation, one object per key
        entered = {
            key: _attribute(key, item, arrays, f"{name}.{key}") for key, item in value.items()
        }
        return {TAG: "objects", "items": entered}
    return encode(value, arrays, name)


def _restore_attribute(owner: Any, name: str, encoded: Any, arrays: Mapping[str, Any]) -> None:
    mine = vars(owner)
    if name not in mine or name in _DESCRIPTION or _is_fixed(owner, mine[name]):
        raise ValueError(f"{type(owner).__name__} has no state {name!r}")
    kind = encoded.get(TAG) if isinstance(encoded, dict) else None
    if name in _TABLES:
        if encoded["sha256"] != _fingerprint(mine[name]):
            raise ValueError(f"{type(owner).__name__} has another {name!r} than it had")
    elif kind == "physics":
        physics.restore(mine[name], encoded["arrays"], arrays)
    elif kind == "object":
        for key, value in encoded["attributes"].items():
            _restore_attribute(mine[name], key, value, arrays)
    elif kind == "objects":
        for key, value in encoded["items"].items():
            for inner, state in value["attributes"].items():
                _restore_attribute(mine[name][key], inner, state, arrays)
    else:
        value = decode(encoded, arrays)
        _require_alike(f"{type(owner).__name__}.{name}", mine[name], value)
        setattr(owner, name, value)


def _require_alike(name: str, now: Any, saved: Any) -> None:
    """Refuse an array of another shape; what is empty may still have to get its shape."""
    both = isinstance(now, np.ndarray) and isinstance(saved, np.ndarray) and now.size
    if both and now.shape != saved.shape:
        raise ValueError(f"{name} was saved with shape {saved.shape}, it has {now.shape}")


def _is_fixed(owner: Any, value: Any) -> bool:
    """Whether a value can be no state: a space, a model, a renderer, a function of the library."""
    if isinstance(value, types.MethodType):
        return value.__self__ is owner
    if isinstance(value, types.FunctionType):
        return value.__module__.startswith(("gymnasium.", "stable_baselines3."))
    if physics.is_data(value):
        return False
    return isinstance(value, _FIXED_TYPES) or class_name(value).startswith(_FIXED_MODULES)


def _fingerprint(table: Any) -> str:
    content = table.tobytes() if isinstance(table, np.ndarray) else repr(table).encode()
    return hashlib.sha256(content).hexdigest()
