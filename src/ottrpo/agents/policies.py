"""The kinds of policies that SB3 has names for, and the networks that its keywords describe."""

import math
import warnings
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common import policies as sb3_s
from stable_baselines3.common import torch_layers

from ottrpo.core.checks import Refused, require_one_of
from ottrpo.engine.densities import KINDS, RichActions
from ottrpo.engine.networks import Architecture, activation_name
from ottrpo.engine.spaces import (
    BoxActions,
    FiniteActions,
    ObservationLayout,
    actions_of,
    observation_layout,
)
from ottrpo.engine.update import ADAM_EPSILON
from ottrpo.names import plainly

from .checks import at_least, finite, flag, not_negative

KEYWORDS = (
    *("net_arch", "activation_fn", "ortho_init", "log_std_init", "features_dim"),
    *(
        "features_extractor_kwargs",
        "bins",
        *KINDS,
        "squash_output",
        "use_expln",
        "normalize_images",
        "features_extractor_class",
    ),
    *("optimizer_class", "optimizer_kwargs"),
)
WITH_SDE = ("squash_output", "use_expln")  # as in SB3 they go with gSDE alone
OPTIMISERS = ("Adam", "AdamW")
MOST_NUMBERS = 2**16  # of a mixture or a flow, about
ADAMW_DECAY = 0.01  # torch's, if nothing is said
# SB3's that can be said because it is so anyway: the one value, and what the others would need
AS_IT_IS: dict[str, tuple[Any, str]] = {
    "share_features_extractor": (
        False,
        "policy and value function have encoders of their own, so that a step back of the policy "
        "leaves the value function alone",
    ),
    "full_std": (True, "gSDE has a σ for every feature and action"),
}
# of Adam
AS_ADAM_IS = {"eps": ADAM_EPSILON, "betas": (0.9, 0.999), "amsgrad": False, "maximize": False}


class MlpPolicy:
    """Perceptrons on flat observations."""

    convolve = False
    extractor = torch_layers.FlattenExtractor  # whose layers ours are, as SB3 has them


class CnnPolicy:
    """Convolutional encoders for images, perceptrons after them."""

    convolve = True
    extractor = torch_layers.NatureCNN


class MultiInputPolicy:
    """Dict observations: convolutional encoders for their images, the rest side by side."""

    convolve = True
    extractor = torch_layers.CombinedExtractor


POLICIES = {kind.__name__: kind for kind in (MlpPolicy, CnnPolicy, MultiInputPolicy)}
# programs import them from where their algorithm is, by the same names
OF_SB3_S: dict[Any, type] = {
    sb3_s.ActorCriticPolicy: MlpPolicy,
    sb3_s.ActorCriticCnnPolicy: CnnPolicy,
    sb3_s.MultiInputActorCriticPolicy: MultiInputPolicy,
}


def bins_of(policy_kwargs: Any) -> int | None:
    """Of each coordinate of a box, if ``policy_kwargs`` ask for a binned actor."""
    if not isinstance(policy_kwargs, dict) or policy_kwargs.get("bins") is None:
        return None
    if "log_std_init" in policy_kwargs:
        raise ValueError("log_std_init is a Gaussian's; with bins there is none")
    return at_least("bins", policy_kwargs["bins"], 2)


def density_of(policy_kwargs: Any) -> str | None:
    """The name of the density that ``policy_kwargs`` ask for; ``None``: of a Gaussian, or bins."""
    if not isinstance(policy_kwargs, dict):
        return None
    asked = [name for name in ("bins", *KINDS) if policy_kwargs.get(name) is not None]
    if len(asked) > 1:
        raise ValueError(f"policy_kwargs can't have {asked[0]} and {asked[1]}: a policy is one")
    return asked[0] if asked and asked[0] in KINDS else None


def actions_for(
    space: spaces.Space[Any], policy_kwargs: Any, log_std_init: float
) -> BoxActions | FiniteActions:
    """How a policy of these ``policy_kwargs`` sees the action space."""
    kind, bins = density_of(policy_kwargs), bins_of(policy_kwargs)
    actions = actions_of(space, bins, squash=squashed(policy_kwargs))
    if kind is None:
        return actions
    if not isinstance(actions, BoxActions):
        raise ValueError(f"{kind} needs actions in a Box, got {plainly(space)}")
    count = at_least(kind, policy_kwargs[kind])
    if (count + actions.size) * actions.size > MOST_NUMBERS:
        raise ValueError(f"{kind} {count} of {actions.size} coordinates is too large")
    scale = math.exp(finite("log_std_init", policy_kwargs.get("log_std_init", log_std_init)))
    return RichActions(**vars(actions), density=KINDS[kind](actions.size, count, scale))


def weight_decay_of(policy_kwargs: Any) -> float:
    """What SB3's ``optimizer_class`` and ``optimizer_kwargs`` ask for, if it can be had here."""
    name = optimiser_name((policy_kwargs or {}).get("optimizer_class"))
    given = dict((policy_kwargs or {}).get("optimizer_kwargs") or {})
    decay = given.pop("weight_decay", ADAMW_DECAY if name == "AdamW" else 0.0)
    if not_negative("weight_decay", decay) and name == "Adam":
        raise Refused(f"weight_decay {decay!r} needs optimizer_class AdamW, which does it properly")
    for key, value in given.items():
        require_one_of(key, ("weight_decay", *AS_ADAM_IS), "one of optimizer_kwargs")
        only = AS_ADAM_IS[key]
        if value != only and tuple(np.atleast_1d(value)) != only:
            raise Refused(f"{key} of optimizer_kwargs must be {only}, got {value!r}")
    return float(decay)


def optimiser_name(given: Any) -> str:
    """That of a class of torch's, or of its name."""
    name = "Adam" if given is None else getattr(given, "__name__", given)
    if name not in OPTIMISERS:
        raise Refused(
            f"optimizer_class must be one of {', '.join(OPTIMISERS)}, or torch's class of that "
            f"name; got {given!r}"
        )
    return str(name)


def squashed(policy_kwargs: Any) -> bool:
    """Whether actions are to be squashed into their box."""
    return bool(isinstance(policy_kwargs, dict) and policy_kwargs.get("squash_output"))


def layout_for(
    policy_class: Any, space: spaces.Space[Any], policy_kwargs: Any = None
) -> ObservationLayout:
    """Where observations go in a policy of this kind; refused if there is nothing for it."""
    if policy_class not in POLICIES.values():
        known = ", ".join(POLICIES)
        raise ValueError(
            f"policy must be one of {known} (or SB3's of that name); got {policy_class}"
        )
    given = policy_kwargs if isinstance(policy_kwargs, dict) else {}
    _require_extractor(policy_class.extractor, given)
    pixels = given.get("normalize_images", True)
    layout = observation_layout(space, convolve=policy_class.convolve, pixels=pixels)
    if not layout.parts:
        raise ValueError(f"there is nothing to observe in {plainly(space)}")
    if policy_class is CnnPolicy and not layout.images:
        raise Refused(
            "CnnPolicy needs an image, a Box of bytes from 0 to 255 with three axes; got "
            f"{plainly(space)}. Use MlpPolicy, or policy_kwargs=dict(normalize_images=False) for "
            "other numbers in three axes, channels first"
        )
    return layout


def architecture_of(
    policy_kwargs: dict[str, Any],
    layout: ObservationLayout,
    actions: BoxActions | FiniteActions,
    *,
    use_sde: bool,
    log_std_init: float,
) -> Architecture:
    """The networks that SB3's ``policy_kwargs`` describe; what they don't say is the default."""
    if not isinstance(policy_kwargs, dict):
        raise ValueError(f"policy_kwargs must be a dict, got {policy_kwargs!r}")
    for name, value in policy_kwargs.items():
        _require_keyword(name, value, use_sde=use_sde)
    sizes = dict(policy_kwargs.get("features_extractor_kwargs") or {})  # SB3's way to say it
    for name in sizes:
        require_one_of(name, ("features_dim", "cnn_output_dim"), "one of features_extractor_kwargs")
    features_dim = (policy_kwargs | sizes).get("features_dim", sizes.get("cnn_output_dim", 256))
    net_arch = policy_kwargs.get("net_arch")
    policy_layers, value_layers = layers_of((64, 64) if net_arch is None else net_arch)
    log_std = None
    first: tuple[float, ...] = ()
    if isinstance(actions, RichActions):
        first = actions.density.first
        outputs = len(first)
    elif isinstance(actions, BoxActions):
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
        use_expln=bool(policy_kwargs.get("use_expln", False)),
        features_dim=at_least("features_dim", features_dim),
        scale_images=bool(policy_kwargs.get("normalize_images", True)),
        first=first,
    )


def _require_extractor(ours: type, given: dict[str, Any]) -> None:
    """Refuse a feature extractor of torch's, but for the one whose layers ours are."""
    asked = given.get("features_extractor_class", ours)
    if asked not in (ours, ours.__name__):
        raise ValueError(
            "policy_kwargs can't have features_extractor_class: networks are JAX's; see "
            f"features_dim and net_arch, or say {ours.__name__}, which is had anyway"
        )


def _require_keyword(name: str, value: Any, *, use_sde: bool) -> None:
    """Refuse one of ``policy_kwargs`` that nothing here does."""
    if name in (*WITH_SDE, "normalize_images"):
        flag(name, value)
    if name in WITH_SDE and value and not use_sde:
        raise Refused(f"{name} needs gSDE: use_sde=True")
    if name not in AS_IT_IS:
        require_one_of(name, KEYWORDS, "one of policy_kwargs")
    elif value is not AS_IT_IS[name][0]:
        only, why = AS_IT_IS[name]
        raise ValueError(f"{name} must be {only}, got {value!r}: {why}")


def layers_of(net_arch: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Hidden layers of the policy and of the value function."""
    if isinstance(net_arch, list) and len(net_arch) == 1 and isinstance(net_arch[0], dict):
        (net_arch,) = net_arch
        warnings.warn(
            "net_arch=[dict(...)] is SB3's spelling of before 1.8; write net_arch=dict(...)",
            stacklevel=2,
        )
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
    return tuple(at_least("every layer of net_arch", size) for size in layers)
