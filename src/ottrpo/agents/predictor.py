"""Acting outside training: `predict` and `evaluate`."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ottrpo.deep.acting import Actor, BoxActions, FiniteActions, actor_for
from ottrpo.deep.networks import Policy
from ottrpo.deep.normaliser import ObservationNormaliser
from ottrpo.deep.observations import Encoded

Array = Any
NOISE_STEPS = 1024  # steps of noise drawn at once


class Predictor:
    """The policy for a fixed number of rows, with noise drawn in chunks; no noise without rng."""

    def __init__(
        self,
        policy: Policy,
        normaliser: ObservationNormaliser,
        actions: BoxActions | FiniteActions,
        rows: int,
        rng: np.random.Generator | None,
        *,
        sde_sample_freq: int,
        noise_color: float,
    ) -> None:
        self._make: Callable[[], Actor] = partial(
            actor_for,
            policy,
            normaliser,
            actions,
            steps=1 if rng is None else NOISE_STEPS,
            rows=rows,
            rng=rng,
            sde_sample_freq=sde_sample_freq,
            noise_color=noise_color,
        )
        self._sampled = rng is not None
        self._actor: Actor = self._make()
        self._t = 0

    def __call__(self, observation: Encoded, mask: Array | None) -> Array:
        """Actions for the rows."""
        if self._sampled and self._t == NOISE_STEPS:
            self._actor, self._t = self._make(), 0
        action = self._actor.act(self._t, observation.flat, observation.images, mask)
        self._t += self._sampled
        return action


def as_batch(observation: Any, space: spaces.Space[Any]) -> tuple[Any, bool]:
    """The observation with an axis for environments, and whether it had one."""
    if isinstance(space, spaces.Dict):
        key = next(iter(space.spaces))
        vectorised = _has_axis(observation[key], space.spaces[key])
        return (observation if vectorised else with_axis(observation)), vectorised
    vectorised = _has_axis(observation, space)
    return (np.asarray(observation) if vectorised else with_axis(observation)), vectorised


def channels_first(observation: Any, space: spaces.Space[Any]) -> Any:
    """A batch whose images have their channels last, if they do, as the agent was trained.

    Raises:
        ValueError: if it does not fit the space; a shorter one would be broadcast.
    """
    if isinstance(space, spaces.Dict):
        return {key: channels_first(observation[key], leaf) for key, leaf in space.spaces.items()}
    shape = space.shape or ()
    if observation[0].size != math.prod(shape):
        raise ValueError(
            f"the agent needs observations of shape {shape}, or batches of them; got one of shape "
            f"{observation[0].shape}"
        )
    if len(shape) == 3 and observation.shape[1:] == (shape[1], shape[2], shape[0]) != shape:
        return np.moveaxis(observation, -1, 1)
    return observation


def with_axis(observation: Any) -> Any:
    """One observation as a batch of one."""
    if isinstance(observation, dict):
        return {key: np.asarray(leaf)[None] for key, leaf in observation.items()}
    return np.asarray(observation)[None]


def rows_of(observation: Any) -> int:
    """Number of observations in a batch."""
    return len(next(iter(observation.values())) if isinstance(observation, dict) else observation)


def _has_axis(leaf: Any, space: spaces.Space[Any]) -> bool:
    return np.asarray(leaf).ndim > len(space.shape or ())
