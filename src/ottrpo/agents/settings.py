"""What a deep agent is told: checks of its settings, its networks, and settings as plain data."""

from collections.abc import Callable
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np

from ottrpo.core import Cost
from ottrpo.core.cost_data import cost_to_data
from ottrpo.engine.networks import Architecture, activation_name
from ottrpo.engine.schedules import as_schedule, is_function, schedule_to_data
from ottrpo.engine.spaces import BoxActions, FiniteActions, ObservationLayout

# may be functions of the progress
SCHEDULED = ("learning_rate", "radius", "noise_color", "gamma", "gae_lambda")
NOT_SAVED = ("self", "policy", "env", "device", "tensorboard_log", "_init_setup_model")


class MlpPolicy:
    """Perceptrons on flat observations."""

    convolve = False


class CnnPolicy:
    """Convolutional encoders for images, perceptrons after them."""

    convolve = True


class MultiInputPolicy:
    """Dict observations: convolutional encoders for their images, the rest side by side."""

    convolve = True


def architecture_of(
    policy_kwargs: dict[str, Any],
    layout: ObservationLayout,
    actions: BoxActions | FiniteActions,
    *,
    use_sde: bool,
    log_std_init: float,
) -> Architecture:
    """The networks that SB3's ``policy_kwargs`` describe; what they don't say is the default."""
    known = {"net_arch", "activation_fn", "ortho_init", "log_std_init", "features_dim"}
    if not isinstance(policy_kwargs, dict):
        raise ValueError(f"policy_kwargs must be a dict, got {policy_kwargs!r}")
    unknown = sorted(set(policy_kwargs) - known)
    if unknown:
        raise ValueError(
            f"policy_kwargs has no {', '.join(map(repr, unknown))}; known: "
            f"{', '.join(sorted(known))}"
        )
    policy_layers, value_layers = layers_of(policy_kwargs.get("net_arch", (64, 64)))
    log_std = None
    if isinstance(actions, BoxActions):
        outputs = actions.size
        log_std = finite("log_std_init", policy_kwargs.get("log_std_init", log_std_init))
    else:
        outputs = actions.factors * actions.choices
    return Architecture(
        inputs=layout.features,
        images=layout.images,
        outputs=outputs,
        policy_layers=policy_layers,
        value_layers=value_layers,
        activation=activation_name(policy_kwargs.get("activation_fn", "tanh")),
        ortho_init=bool(policy_kwargs.get("ortho_init", True)),
        log_std_init=log_std,
        use_sde=use_sde,
        features_dim=at_least("features_dim", policy_kwargs.get("features_dim", 256), 1),
    )


def settings_of(agent: Any) -> dict[str, Any]:
    """The constructor's keywords as plain data, from which an equal agent can be built."""
    names = saved_names(type(agent))
    return {name: _setting_to_data(name, _setting(agent, name)) for name in names}


def saved_names(agent_class: type) -> list[str]:
    """The keywords that a file may set: not those that say where to write or to compute."""
    return [name for name in signature(agent_class).parameters if name not in NOT_SAVED]


def functions_of(agent: Any) -> list[str]:
    """The settings that are functions of somebody else's: they can't be saved."""
    return [name for name in SCHEDULED if is_function(getattr(agent, name, None))]


def number(name: str, value: Any) -> float:
    """``value`` as a float; neither text nor a flag is read as a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False; "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def at_least(name: str, value: Any, least: int) -> int:
    """``value`` as an integer that is large enough."""
    if not number(name, value).is_integer() or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """``value`` if it is allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def fraction(name: str, value: Any) -> float:
    """``value`` if it lies between 0 and 1."""
    if not 0 <= number(name, value) <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """``value`` if it is not negative."""
    if not number(name, value) >= 0:
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return float(value)


def positive(name: str, value: Any) -> float:
    """``value`` if it is a positive number."""
    if not number(name, value) > 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def finite(name: str, value: Any) -> float:
    """``value`` if it is neither NaN nor infinite."""
    if not np.isfinite(number(name, value)):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return float(value)


def scheduled(name: str, value: Any, check: Callable[[str, Any], float]) -> Any:
    """A number, or a schedule whose ends are as they must be; a line stays between them."""
    schedule = as_schedule(value, name)
    if not callable(schedule):
        return check(name, schedule)
    for remaining in (1.0, 0.0):
        check(name, schedule(remaining))
    return schedule


def layers_of(net_arch: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Hidden layers of the policy and of the value function."""
    if isinstance(net_arch, dict):
        unknown = sorted(set(net_arch) - {"pi", "vf"})
        if unknown:
            raise ValueError(f"net_arch has keys 'pi' and 'vf' only, got {unknown}")
        return _sizes(net_arch.get("pi", ())), _sizes(net_arch.get("vf", ()))
    return _sizes(net_arch), _sizes(net_arch)


def _sizes(layers: Any) -> tuple[int, ...]:
    if not isinstance(layers, list | tuple):
        raise ValueError(
            f"net_arch must be a list, or one for each of 'pi' and 'vf', got {layers!r}"
        )
    return tuple(at_least("every layer of net_arch", size, 1) for size in layers)


def _setting(agent: Any, name: str) -> Any:
    return agent._stats_window_size if name == "stats_window_size" else getattr(agent, name)


def _setting_to_data(name: str, value: Any) -> Any:
    if name in SCHEDULED:
        return schedule_to_data(value)
    if isinstance(value, Cost):
        return cost_to_data(value)
    if name == "policy_kwargs":
        activation = activation_name(value.get("activation_fn", "tanh"))
        return value | {"activation_fn": activation}
    return value
