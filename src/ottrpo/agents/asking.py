"""What the policy and the value function say of observations, asked as SB3's policies are.

Everything is in the units of the environment: actions as drawn, before they are clipped to their
box, and densities per unit of action. Values are in the units in which they are learnt.
"""

import math
from typing import Any

import numpy as np

from ottrpo.engine.acting import Eyes, forward_for
from ottrpo.engine.spaces import BoxActions, Encoded, FiniteActions
from ottrpo.engine.state import TrainState

from .playing import Playing, as_batch, channels_first, masks_of, rows_of

Array = Any


class Gaussian:
    """Independent normal distributions of the coordinates of actions, rows first."""

    def __init__(self, actions: BoxActions, rng: np.random.Generator, mean: Array, std: Array):
        self._shape, self._rng = (len(mean), *actions.shape), rng
        self._mean = actions.to_world(mean)
        self._std = std * (0.5 * (actions.high - actions.low))

    def sample(self) -> Array:
        """An action for each row."""
        noise = self._rng.standard_normal(self._mean.shape, dtype=np.float32)
        return (self._mean + self._std * noise).reshape(self._shape)

    def mode(self) -> Array:
        """The likeliest action of each row."""
        return self._mean.reshape(self._shape)

    def log_prob(self, actions: Array) -> Array:
        """Logarithm of the density at an action of each row."""
        action = np.asarray(actions).reshape(self._mean.shape)
        constant = 0.5 * math.log(2 * math.pi) * self._mean.shape[1]
        gap = (action - self._mean) / self._std
        return -(0.5 * gap**2 + np.log(self._std)).sum(-1) - constant

    def entropy(self) -> Array:
        """Differential entropy of each row."""
        return (np.log(self._std) + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


class Categorical:
    """Independent choices among labels, rows first."""

    def __init__(self, actions: FiniteActions, rng: np.random.Generator, logits: Array):
        self._actions, self._rng = actions, rng
        shifted = logits - logits.max(-1, keepdims=True)
        self._log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    def sample(self) -> Array:
        """An action for each row."""
        noise = self._rng.gumbel(size=self._log.shape)
        return self._actions.to_world((self._log + noise).argmax(-1))

    def mode(self) -> Array:
        """The likeliest action of each row."""
        return self._actions.to_world(self._log.argmax(-1))

    def log_prob(self, actions: Array) -> Array:
        """Logarithm of the probability of an action of each row."""
        label = self._actions.labels_of(actions)
        return np.take_along_axis(self._log, label[..., None], -1)[..., 0].sum(-1)

    def entropy(self) -> Array:
        """Entropy of each row."""
        return -(np.exp(self._log) * self._log).sum((-2, -1))


Distribution = Gaussian | Categorical


def distribution_of(
    actions: BoxActions | FiniteActions, drawn: dict[str, Array], rng: np.random.Generator
) -> Distribution:
    """Of the rows of an actor's record."""
    if isinstance(actions, BoxActions):
        return Gaussian(actions, rng, drawn["mean"], drawn["std"])
    return Categorical(actions, rng, drawn["logits"])


def drawn_actions(actions: BoxActions | FiniteActions, drawn: dict[str, Array]) -> Array:
    """The actions in the rows of an actor's record, not clipped."""
    if isinstance(actions, BoxActions):
        return actions.to_world(drawn["action"]).reshape(-1, *actions.shape)
    return actions.to_world(drawn["label"])


class Asked(Playing):
    """What `DeepAgent` answers in the place of SB3's policies, on arrays."""

    algorithm: Any
    train_state: TrainState

    @property
    def net_arch(self) -> dict[str, list[int]]:
        """The hidden layers of the policy and of the value function."""
        built = self.algorithm.architecture
        return {"pi": list(built.policy_layers), "vf": list(built.value_layers)}

    def forward(
        self, obs: Any, deterministic: bool = False, action_masks: Any = None
    ) -> tuple[Array, Array, Array]:
        """Actions, values [n, 1] and log-probabilities of the actions [n]."""
        distribution = self.get_distribution(obs, action_masks)
        actions = distribution.mode() if deterministic else distribution.sample()
        return actions, self.predict_values(obs), distribution.log_prob(actions)

    def evaluate_actions(
        self, obs: Any, actions: Array, action_masks: Any = None
    ) -> tuple[Array, Array, Array]:
        """Values [n, 1], log-probabilities of the given actions [n], and entropies [n]."""
        distribution = self.get_distribution(obs, action_masks)
        return self.predict_values(obs), distribution.log_prob(actions), distribution.entropy()

    def get_distribution(self, obs: Any, action_masks: Any = None) -> Distribution:
        """That of the actions for each observation."""
        encoded = self._encoded(obs)
        rows = len(encoded.flat)
        actor = self.actor(1, rows, np.random.default_rng(0))  # what it draws is not used
        actor.act(0, encoded.flat, encoded.images, masks_of(self.actions, action_masks, rows))
        drawn = {name: array[0] for name, array in actor.record().items()}
        return distribution_of(self.actions, drawn, self._predict_rng)

    def predict_values(self, obs: Any) -> Array:
        """The value of each observation, [n, 1]."""
        return self.values_of(self._encoded(obs))

    def values_of(self, encoded: Encoded) -> Array:
        """The same of what the engine sees."""
        state, rows = self.train_state, len(encoded.flat)
        eyes = Eyes(self.algorithm.estimate.normaliser, state.observations)
        network, value = state.networks.value, np.empty((rows, 1), np.float32)
        forward_for(network.body, network.head, eyes, rows)(encoded.flat, encoded.images, value)
        return value

    def _encoded(self, observation: Any) -> Encoded:
        batch, _ = as_batch(observation, self.observation_space)
        return self.layout.encode(channels_first(batch, self.observation_space), rows_of(batch))
