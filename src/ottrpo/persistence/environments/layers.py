"""The state of one Gymnasium environment, layer by layer: its wrappers, then what they wrap.

All attributes are kept, except what never changes: an attribute that a later version of a library
adds is kept as well, or found out to be none that can be. A layer that says how it is captured
(`capture_state` and `restore_state`) is asked. Whether that was all of its state only a trial can
tell (`proof`).
"""

import hashlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from inspect import getattr_static
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ottrpo.names import one_line
from ottrpo.persistence.strict_json import TAG, Arrays, NotPlain, decode, encode

# Of a simulation positions and velocities are not enough: the solver starts from where it ended
# (`qacc_warmstart`), and rewards and observations read what was computed before the state moved on.
# What environments read after a step, computed during it.
DERIVED = (
    *(
        "xpos",
        "xquat",
        "xmat",
        "xipos",
        "ximat",
        "geom_xpos",
        "geom_xmat",
        "site_xpos",
        "site_xmat",
    ),
    *("subtree_com", "subtree_linvel", "subtree_angmom", "cinert", "cvel", "cacc"),
    *("cfrc_int", "cfrc_ext", "qacc", "qfrc_actuator", "actuator_force", "sensordata"),
)
INTEGRATION = "integration"
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
# Things that are there and are put into a state; all else is data, and replaced.
_IN_PLACE = ("space", "physics", "object", "objects", "same")
_FIXED_TYPES = (spaces.Space, EnvSpec, np.dtype, type, types.ModuleType)
_FIXED_MODULES = ("mujoco.", "gymnasium.envs.mujoco.")


class NotCaptured(ValueError):
    """A layer whose state can't be captured; the message says why."""


def layers_of(env: Any, *, whole: bool = False) -> Iterator[Any]:
    """The wrappers from the outside in, then the environment.

    No further than who keeps itself, unless ``whole``. Gymnasium's checker changes nothing, and is
    not always there; it does not count.
    """
    while isinstance(env, gym.Wrapper) and (whole or not keeps_itself(env)):
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
            return {"own": encode(_own(layer), arrays, name)}
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


def restored_alike(was: Any, now: Any) -> bool:
    """Whether two things that environments returned are the same, bit for bit."""
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(restored_alike(was[key], now[key]) for key in was)
    if isinstance(was, tuple | list):
        return len(was) == len(now) and all(map(restored_alike, was, now))
    one, other = np.asarray(was), np.asarray(now)
    if one.dtype == object or other.dtype == object:
        return bool(was == now)
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and one.tobytes() == other.tobytes()


def _own(layer: Any) -> Any:
    """What a layer says of itself; its author may not have thought of everything."""
    try:
        return layer.capture_state()
    except NotCaptured:
        raise
    except Exception as error:
        failed = f"capture_state of {type(layer).__name__} failed: {one_line(error)}"
        raise NotCaptured(failed) from error


def _variables(owner: Any) -> dict[str, Any]:
    """The attributes of an object, whether it has a dictionary or slots."""
    found = dict(getattr(owner, "__dict__", {}))
    for kind in type(owner).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            hidden = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if hidden else slot
            if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                found[name] = getattr(owner, name)
    return found


def _attributes(owner: Any, arrays: Arrays, name: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in _variables(owner).items():
        if isinstance(value, spaces.Space):
            drawn = _generators(value)
            if any(generator is not None for generator in drawn):
                kept[key] = {TAG: "space", "drawn": encode(drawn, arrays, f"{name}.{key}")}
        elif key not in _DESCRIPTION and not _is_fixed(owner, value):
            kept[key] = _attribute(key, value, arrays, f"{name}.{key}")
    return kept


def _generators(space: Any) -> list[Any]:
    """Those of a space and of the spaces in it; None where nothing was drawn yet."""
    inner = getattr(space, "spaces", ())
    leaves = inner.values() if isinstance(inner, dict) else inner
    return [space._np_random, *(drawn for leaf in leaves for drawn in _generators(leaf))]


def _set_generators(space: Any, drawn: Iterator[Any]) -> None:
    space._np_random = next(drawn)
    inner = getattr(space, "spaces", ())
    for leaf in inner.values() if isinstance(inner, dict) else inner:
        _set_generators(leaf, drawn)


def _attribute(key: str, value: Any, arrays: Arrays, name: str) -> Any:
    if key in _TABLES:
        return {TAG: "same", "sha256": _fingerprint(value)}
    if _is_simulation(value):
        return {TAG: "physics", "arrays": _capture_simulation(value, arrays, name)}
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
    mine = _variables(owner)
    kind = encoded.get(TAG) if isinstance(encoded, dict) else None
    known = (
        _is_state(owner, name, mine[name], kind) if name in mine else _is_made(owner, name, kind)
    )
    if not known:
        raise ValueError(f"{type(owner).__name__} has no state {name!r}")
    if kind == "space":
        _restore_space(mine[name], decode(encoded["drawn"], arrays))
    elif name in _TABLES:
        if encoded["sha256"] != _fingerprint(mine[name]):
            raise ValueError(f"{type(owner).__name__} has another {name!r} than it had")
    elif kind == "physics":
        _restore_simulation(mine[name], encoded["arrays"], arrays)
    elif kind == "object":
        _restore_object(mine[name], encoded, arrays)
    elif kind == "objects":
        for key, value in encoded["items"].items():
            _restore_object(mine[name][key], value, arrays)
    else:
        value = decode(encoded, arrays)
        _require_alike(f"{type(owner).__name__}.{name}", mine.get(name), value)
        setattr(owner, name, value)


def _restore_object(entered: Any, encoded: Any, arrays: Mapping[str, Any]) -> None:
    for key, value in encoded["attributes"].items():
        _restore_attribute(entered, key, value, arrays)


def _is_state(owner: Any, name: str, value: Any, kind: str | None) -> bool:
    if isinstance(value, spaces.Space):
        return kind == "space"
    return kind != "space" and name not in _DESCRIPTION and not _is_fixed(owner, value)


def _is_made(owner: Any, name: str, kind: str | None) -> bool:
    """Whether ``name`` can be state that the layer has made while it was stepped.

    It was reset only, and has none of that yet: where ``count = 0`` stands in the class, the first
    ``self.count += 1`` makes it. What a class says of methods and properties is no state.
    """
    if kind in _IN_PLACE or name in _DESCRIPTION | _TABLES or not name.isidentifier():
        return False
    said = getattr_static(type(owner), name, None)
    if isinstance(said, types.MemberDescriptorType):  # a slot that is empty
        return True
    return not (name.startswith("__") or hasattr(said, "__get__") or _is_fixed(owner, said))


def _restore_space(space: Any, drawn: Any) -> None:
    kinds = (np.random.Generator, type(None))
    if len(drawn) != len(_generators(space)) or not all(isinstance(one, kinds) for one in drawn):
        raise ValueError(f"the saved generators are not those of {type(space).__name__}")
    _set_generators(space, iter(drawn))


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
    if _is_simulation(value):
        return False
    return isinstance(value, _FIXED_TYPES) or class_name(value).startswith(_FIXED_MODULES)


def _fingerprint(table: Any) -> str:
    content = table.tobytes() if isinstance(table, np.ndarray) else repr(table).encode()
    return hashlib.sha256(content).hexdigest()


def capture_layers(env: Any, arrays: Arrays, name: str) -> tuple[list[Any], str | None]:
    """The state of every layer (``None`` where that can't be had), and why not all of it."""
    both = [try_layer(layer, arrays, f"{name}.{i}") for i, layer in enumerate(layers_of(env))]
    return [state for state, _ in both], first_of(why for _, why in both)


def try_layer(layer: Any, arrays: Arrays, name: str) -> tuple[dict[str, Any], str | None]:
    """The state of one layer under the name of its class, and why it can't be had, if so."""
    state, reason = None, None
    try:
        state = capture_layer(layer, arrays, name)
    except NotCaptured as error:
        reason = str(error)
    return {"class": class_name(layer), "state": state}, reason


def first_of(reasons: Iterable[str | None]) -> str | None:
    """The first reason, if there is any."""
    return next((reason for reason in reasons if reason is not None), None)


def restore_layers(env: Any, states: list[Any], arrays: Mapping[str, Any]) -> None:
    """Put the layers, which have been reset, into the states that were captured.

    Raises:
        ValueError: if the layers are others.
    """
    restore_each(list(layers_of(env)), states, arrays)


def restore_each(layers: list[Any], states: list[Any], arrays: Mapping[str, Any]) -> None:
    """The same of layers that somebody else has found."""
    found, asked = [class_name(layer) for layer in layers], [state["class"] for state in states]
    if found != asked:
        raise ValueError(f"the environment is made of {found}, the saved one of {asked}")
    for layer, state in zip(layers, states, strict=True):
        if state["state"] is not None:
            restore_layer(layer, state["state"], arrays)


def _is_simulation(value: Any) -> bool:
    """Whether ``value`` is a MuJoCo simulation."""
    mujoco = sys.modules.get("mujoco")  # if it was never loaded there can be none
    return mujoco is not None and isinstance(value, mujoco.MjData)


def _capture_simulation(data: Any, arrays: Arrays, name: str) -> dict[str, str]:
    """Add the simulation's arrays to ``arrays``; the names under which they are there."""
    import mujoco

    whole = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(data.model, whole))
    mujoco.mj_getState(data.model, data, state, whole)
    found = {INTEGRATION: state} | {key: getattr(data, key).copy() for key in DERIVED}
    arrays |= {f"{name}.{key}": array for key, array in found.items()}
    return {key: f"{name}.{key}" for key in found}


def _restore_simulation(data: Any, names: Mapping[str, str], arrays: Mapping[str, Any]) -> None:
    """Put the simulation into the state that was captured.

    Raises:
        ValueError: if the arrays are those of another model.
    """
    import mujoco

    if set(names) != {INTEGRATION, *DERIVED}:
        raise ValueError(f"the state of a simulation consists of {INTEGRATION}, {DERIVED}")
    whole = mujoco.mjtState.mjSTATE_INTEGRATION
    shapes = {key: getattr(data, key).shape for key in DERIVED}
    shapes[INTEGRATION] = (mujoco.mj_stateSize(data.model, whole),)
    for key, shape in shapes.items():
        if arrays[names[key]].shape != shape:
            raise ValueError(
                f"the simulation's {key} has shape {arrays[names[key]].shape}, this model {shape}"
            )
    mujoco.mj_setState(data.model, data, arrays[names[INTEGRATION]].astype(np.float64), whole)
    for key in DERIVED:
        getattr(data, key)[...] = arrays[names[key]]
