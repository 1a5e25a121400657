"""The imported agents as data: their settings, and what they have learnt, as arrays and back."""

from collections.abc import Mapping
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd

from ottrpo.core.checks import require_one_of
from ottrpo.engine.networks import Architecture, activation_name
from ottrpo.engine.schedules import as_schedule, schedule_to_data
from ottrpo.extras import needed
from ottrpo.persistence.strict_json import global_randomness, set_global_randomness

from .checks import at_least, fraction
from .policies import layers_of

SCHEDULED = ("learning_rate", "clip_range", "clip_range_vf")
POLICY_KEYWORDS = (
    "net_arch",
    "activation_fn",
    "ortho_init",
    "log_std_init",
    "full_std",
    "use_expln",
    "optimizer_kwargs",
)
COUNTS = ("n_steps", "batch_size", "n_epochs", "n_critic_updates", "cg_max_steps")
FRACTIONS = ("gamma", "gae_lambda")
PLACES = ("tensorboard_log", "device")  # where to write and to compute: not saved
# keywords of the libraries that plain data can't say
NOT_OFFERED = ("rollout_buffer_class", "rollout_buffer_kwargs")
_TORCH_ACTIVATIONS = {
    name.lower(): getattr(torch.nn, name)
    for name in ("Tanh", "ReLU", "LeakyReLU", "ELU", "Sigmoid", "SiLU", "GELU")
}


def joint_signature(ours: Any, library: type) -> Signature:
    """The keywords of our constructor, then those that only the library's has."""
    own = [p for p in signature(ours).parameters.values() if p.name != "self"]
    taken = {p.name for p in own} | set(NOT_OFFERED)
    theirs = [
        p.replace(kind=Parameter.KEYWORD_ONLY)
        for p in signature(library).parameters.values()
        if p.name not in taken
    ]
    return Signature([p for p in own if p.kind is not Parameter.VAR_KEYWORD] + theirs)


def require_settings(settings: dict[str, Any], known: Signature, agent: str) -> None:
    """Refuse what the library would take for something else, or fail on much later."""
    for name in settings:
        require_one_of(name, known.parameters, f"a setting of {agent}")
    for name in FRACTIONS:
        fraction(name, settings.get(name, 0.0))
    for name in COUNTS:
        at_least(name, settings.get(name, 1), 1)


def for_library(settings: dict[str, Any]) -> dict[str, Any]:
    """Schedules as functions, activations as classes; what they need is installed."""
    keywords = dict(settings)
    needed("tensorboard", keywords.get("tensorboard_log"))
    for name in SCHEDULED:
        if keywords.get(name) is not None:
            keywords[name] = as_schedule(keywords[name])
    if keywords.get("policy_kwargs") is not None:
        keywords["policy_kwargs"] = _policy_keywords(keywords["policy_kwargs"])
    return keywords


def as_data(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON can hold them, whatever they were given as."""
    data = {key: value for key, value in settings.items() if key != "tensorboard_log"}
    for name in SCHEDULED:
        if name in data:
            data[name] = schedule_to_data(data[name])
    if data.get("policy_kwargs") and "activation_fn" in data["policy_kwargs"]:
        activation = activation_name(data["policy_kwargs"]["activation_fn"])
        data["policy_kwargs"] = data["policy_kwargs"] | {"activation_fn": activation}
    return data


def plain_attributes(agent: Any) -> dict[str, Any]:
    """The settings that the library keeps as plain attributes, as they are now.

    Programs change them on the fly. Those that it takes at construction only are left out.
    """
    names = set(agent.__signature__.parameters) - {*PLACES, "policy", "env", "n_envs", "seed"}
    known = {name: vars(agent).get(name) for name in names}
    return {n: x for n, x in known.items() if isinstance(x, bool | int | float) or n == "target_kl"}


def require_saved(settings: dict[str, Any]) -> None:
    """Refuse from a file what `as_data` does not write: where to write is not its to say."""
    if "tensorboard_log" in settings:
        raise ValueError("a saved agent has no 'tensorboard_log'; give it to load(...)")


def weights(policy_kwargs: dict[str, Any], observation_space: spaces.Space[Any]) -> int:
    """At least how many weights the networks have: what it takes to build them."""
    image = len(observation_space.shape or ()) == 3
    encoded = image or isinstance(observation_space, spaces.Dict)  # what comes out is small
    given = policy_kwargs.get("net_arch")
    policy, value = layers_of((() if image else (64, 64)) if given is None else given)
    inputs = 1 if encoded else int(spaces.flatdim(observation_space))
    return Architecture(inputs=inputs, outputs=1, policy_layers=policy, value_layers=value).weights


def _policy_keywords(given: dict[str, Any]) -> dict[str, Any]:
    for name in given:
        require_one_of(name, POLICY_KEYWORDS, "one of policy_kwargs")
    keywords = dict(given)
    if "activation_fn" in keywords:
        keywords["activation_fn"] = _TORCH_ACTIVATIONS[activation_name(keywords["activation_fn"])]
    return keywords


Arrays = dict[str, Any]
NETWORKS, OPTIMISER, NORMALISER = "policy.", "optimizer.", "normaliser."


def network_arrays(policy: torch.nn.Module) -> Arrays:
    """The parameters by their path, copied."""
    return {
        NETWORKS + name: tensor.detach().cpu().numpy().copy()
        for name, tensor in policy.state_dict().items()
    }


def restore_networks(policy: torch.nn.Module, arrays: Mapping[str, Any], *, exact: bool) -> None:
    """Replace the parameters.

    Raises:
        ValueError: if names (with ``exact``) or shapes differ, or a number is not finite; nothing
            is changed then.
    """
    own = network_arrays(policy)
    given = {name: np.asarray(array) for name, array in arrays.items()}
    different = sorted(set(own) ^ set(given)) if exact else sorted(set(given) - set(own))
    if different:
        raise ValueError(f"the networks differ in {different[0]!r}")
    for name, array in given.items():
        if array.shape != own[name].shape:
            raise ValueError(f"{name!r} has shape {array.shape}, the agent needs {own[name].shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name!r} holds NaN or infinity")
    tensors = {
        name: torch.from_numpy(array.astype(own[name].dtype)) for name, array in given.items()
    }
    policy.load_state_dict({n.removeprefix(NETWORKS): t for n, t in tensors.items()}, strict=exact)


def optimiser_arrays(optimiser: torch.optim.Optimizer) -> Arrays:
    """Its moments, by the number of the parameter."""
    return {
        f"{OPTIMISER}{number}.{name}": tensor.cpu().numpy().copy()
        for number, moments in optimiser.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, arrays: Mapping[str, Any]) -> None:
    """Replace the moments; its settings stay.

    Raises:
        ValueError: if there are moments of other parameters than it has.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, array in arrays.items():
        if name.startswith(OPTIMISER):
            _, index, part = name.split(".")
            moments.setdefault(int(index), {})[part] = torch.from_numpy(np.array(array))
    for number, parts in moments.items():
        fits = 0 <= number < len(parameters) and all(
            part == "step" or tensor.shape == parameters[number].shape
            for part, tensor in parts.items()
        )
        if not fits:
            raise ValueError(f"the optimiser's moments of parameter {number} do not fit")
    optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})


def statistics_arrays(statistics: Mapping[str, RunningMeanStd]) -> Arrays:
    """Mean, variance and count of what is normalised."""
    return {
        f"{NORMALISER}{name}.{part}": np.asarray(value, np.float64)
        for name, running in statistics.items()
        for part, value in (
            ("mean", running.mean),
            ("variance", running.var),
            ("count", running.count),
        )
    }


def restore_statistics(
    statistics: dict[str, RunningMeanStd],
    arrays: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Take over the statistics of the given names and shapes.

    Raises:
        ValueError: if they were saved with other shapes, or are not finite.
    """
    for name, shape in shapes.items():
        mean, variance, count = (
            np.array(arrays[f"{NORMALISER}{name}.{part}"]) for part in ("mean", "variance", "count")
        )
        fits = mean.shape == variance.shape == shape and count.shape == ()
        if not fits or not all(np.isfinite(array).all() for array in (mean, variance, count)):
            raise ValueError(f"the saved statistics of the {name} are not those of this agent")
        running = statistics.setdefault(name, RunningMeanStd(shape=shape))
        # in place: the environments share them
        running.mean, running.var, running.count = mean, variance, float(count)


def random_states() -> dict[str, Any]:
    """The states of the generators that the libraries draw from."""
    return global_randomness() | {"torch": torch.get_rng_state().numpy().copy()}


def set_random_states(states: Mapping[str, Any]) -> None:
    """Draw on from `random_states`."""
    set_global_randomness(states)
    torch.set_rng_state(torch.from_numpy(np.array(states["torch"])))
