"""What an imported agent has learnt, as arrays, and back: networks, optimiser, statistics."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd

from ottrpo.persistence.strict_json import global_randomness, set_global_randomness

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
