"""Settings of the imported agents as plain data, and as their libraries take them."""

from inspect import Parameter, Signature, signature
from typing import Any

import torch
from gymnasium import spaces

from ottrpo.core.checks import require_one_of
from ottrpo.engine.networks import Architecture, activation_name
from ottrpo.engine.schedules import as_schedule, schedule_to_data

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
    """Schedules as functions, activations as classes."""
    keywords = dict(settings)
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
