"""The trust-region models. One that is new joins by its own file and a line in `MODELS`."""

from typing import Any

from ottrpo.engine.densities import RichActions

from .base import Model, Options, Plan
from .binned import BinnedLinear, BinnedSample
from .candidates import Antithetic, Candidates, Sample
from .finite import FiniteCandidates, FiniteLinear, FiniteSample
from .linear import Linear
from .transported import Transported

__all__ = ["MODELS", "Model", "Options", "Plan", "model_for", "names"]

# the first that can use an estimate of the advantage is its default
MODELS: list[type[Model]] = [
    Transported,
    Candidates,
    Linear,
    Sample,
    Antithetic,
    FiniteCandidates,
    BinnedLinear,
    BinnedSample,
    FiniteLinear,
    FiniteSample,
]


def names(advantage: str) -> tuple[str, ...]:
    """The models that can use this estimate of the advantage; the first is the default."""
    return tuple(dict.fromkeys(m.name for m in MODELS if advantage in m.advantages))


def model_for(name: str, advantage: str, actions: Any) -> type[Model]:
    """The model of this name for these actions.

    Raises:
        ValueError: if it has no meaning for them.
    """
    rich = isinstance(actions, RichActions)
    for model in MODELS:
        fits = model.name == name and advantage in model.advantages
        if (
            fits
            and isinstance(actions, model.actions)
            and issubclass(model.actions, RichActions) is rich
        ):
            return model
    if rich:
        raise ValueError(
            f"a mixture or a flow is moved by model 'candidates' with advantage 'network'; got "
            f"{name!r} with {advantage!r}"
        )
    raise ValueError(
        f"model {name!r} with advantage {advantage!r} needs actions in a Box; of finite ones a "
        f"network tells all gains (model 'candidates')"
    )
