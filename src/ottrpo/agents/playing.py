"""Acting outside training: `predict` and `evaluate`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ottrpo.collect.host import allowed, with_axis
from ottrpo.core.checks import NonFiniteError
from ottrpo.engine.acting import Actor
from ottrpo.engine.spaces import BoxActions, Encoded, FiniteActions, ObservationLayout

Array = Any
NOISE_STEPS = 1024  # steps of noise drawn at once


class Playing(ABC):
    """What `DeepAgent` does with its policy when it does not train."""

    actions: BoxActions | FiniteActions
    layout: ObservationLayout
    observation_space: Any
    _predict_rng: np.random.Generator
    _predictors: dict[int, Actor]  # the mode, for the number of rows that was last asked for
    _vec_normalize_env: Any

    @abstractmethod
    def actor(
        self, steps: int, rows: int, rng: Any, *, masked: bool = False, policy: Any = None
    ) -> Actor:
        """A policy for so many steps and environments; its mode without ``rng``.

        It is the one to be played with (`TrainState.played`), unless ``policy`` is another.
        """

    @abstractmethod
    def fresh_env(self, **keywords: Any) -> Any:
        """A new environment like that of the agent."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Array, Any]:
        """Actions for one raw observation or a batch of them, as SB3's ``predict``.

        Args:
            observation: as the environment gives it; it is normalised here.
            state: returned as it came; these policies have no memory.
            episode_start: not used.
            deterministic: the policy's mode (True) or a sample (False).
            action_masks: the allowed actions, for finite action spaces.
        """
        if isinstance(observation, tuple) and isinstance(observation[-1], dict):
            raise ValueError(
                "predict takes an observation, got a pair; mixing Gym API: its reset also "
                "returns what else it has to say: observation, info = env.reset()"
            )
        batch, vectorised = as_batch(observation, self.observation_space)
        rows = rows_of(batch)
        encoded = self.layout.encode(channels_first(batch, self.observation_space), rows)
        require_finite_observation(encoded)
        if deterministic and rows not in self._predictors:
            self._predictors = {rows: self.actor(1, rows, None)}
        rng = self._predict_rng
        actor = self._predictors[rows] if deterministic else self.actor(1, rows, rng)
        masks = masks_of(self.actions, action_masks, rows)
        action = actor.act(0, encoded.flat, encoded.images, masks)
        return (action if vectorised else action.squeeze(0)), state

    def evaluate(
        self,
        episodes: int,
        *,
        deterministic: bool = True,
        seed: int = 0,
        env: Any = None,
        after_episode: Callable[[], object] = lambda: None,
    ) -> Array:
        """Undiscounted returns of whole episodes in a fresh environment.

        The environment and the noise have random streams of their own, so training goes on as if
        nothing had happened.

        Args:
            episodes: how many.
            deterministic: the policy's mode (True) or its samples (False).
            seed: of the environment and of the noise.
            env: a Gymnasium environment to use; by default a new one like the training one.
            after_episode: called after each.
        """
        fresh = env is None
        env = self.fresh_env() if fresh else env
        rng = None if deterministic else np.random.default_rng(seed)
        predictor = Predictor(self.actor, 1, rng)
        returns = np.zeros(episodes)
        observation, _ = env.reset(seed=seed)
        for episode in range(episodes):
            done = False
            while not done:
                action = predictor(self._encode_one(observation), self._mask_of(env))[0]
                observation, reward, terminated, truncated, _ = env.step(action)
                returns[episode] += float(reward)
                done = terminated or truncated
            after_episode()
            if episode + 1 < episodes:
                observation, _ = env.reset()
        if fresh:
            env.close()
        return returns

    def _encode_one(self, observation: Any) -> Encoded:
        """One raw observation, through whatever wraps the training environments."""
        if self._vec_normalize_env is None and self.layout.is_plain:
            return Encoded(np.asarray(observation)[None])
        batch = channels_first(with_axis(observation), self.observation_space)
        if self._vec_normalize_env is not None:
            batch = self._vec_normalize_env.normalize_obs(batch)
        return self.layout.encode(batch, 1)

    def _mask_of(self, env: Any) -> Array | None:
        if not isinstance(self.actions, FiniteActions) or not env.has_wrapper_attr("action_masks"):
            return None
        return allowed(self.actions, np.asarray(env.get_wrapper_attr("action_masks")())[None])


class Predictor:
    """The policy for a fixed number of rows, with noise drawn in chunks; no noise without rng."""

    def __init__(
        self,
        make: Callable[[int, int, np.random.Generator | None], Actor],
        rows: int,
        rng: np.random.Generator | None,
    ) -> None:
        self._make = partial(make, 1 if rng is None else NOISE_STEPS, rows, rng)
        self._sampled = rng is not None
        self._actor = self._make()
        self._t = 0

    def __call__(self, observation: Encoded, mask: Array | None) -> Array:
        """Actions for the rows."""
        if self._sampled and self._t == NOISE_STEPS:
            self._actor, self._t = self._make(), 0
        action = self._actor.act(self._t, observation.flat, observation.images, mask)
        self._t += self._sampled
        return action


def require_finite_observation(encoded: Encoded) -> None:
    """Refuse to act on what is no number: a label would be chosen all the same."""
    for seen in (encoded.flat, *encoded.images):
        if seen.dtype.kind == "f" and not np.isfinite(seen).all():
            raise NonFiniteError(
                "predict needs finite numbers, got an observation of NaN or infinity"
            )


def masks_of(actions: BoxActions | FiniteActions, given: Any, rows: int) -> Array | None:
    """Given action masks as the engine sees them; ``None`` where there are none."""
    if given is None or not isinstance(actions, FiniteActions):
        return None
    return allowed(actions, np.asarray(given).reshape(rows, -1))


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


def rows_of(observation: Any) -> int:
    """Number of observations in a batch."""
    return len(next(iter(observation.values())) if isinstance(observation, dict) else observation)


def _has_axis(leaf: Any, space: spaces.Space[Any]) -> bool:
    return np.asarray(leaf).ndim > len(space.shape or ())
