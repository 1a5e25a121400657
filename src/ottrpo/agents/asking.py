"""What the policy and the value function say of observations, asked as SB3's policies are.

Everything is in the units of the environment: actions as drawn, before they are clipped to their
box, densities per unit of action, and values as rewards come, normalised or not.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy

from ottrpo.core.checks import Refused
from ottrpo.engine import runtime
from ottrpo.engine.acting import Eyes, forward_for
from ottrpo.engine.densities import RichActions
from ottrpo.engine.spaces import BoxActions, Encoded, FiniteActions
from ottrpo.engine.state import TrainState
from ottrpo.names import in_short

from .playing import Playing, as_batch, channels_first, masks_of, rows_of

Array = Any
MOST_SQUASHED = 1.0 - 1e-6  # beyond it an action could have come from anywhere


class Drawn:
    """What is drawn from any distribution of actions, under SB3's name."""

    sample: Callable[[], Array]
    mode: Callable[[], Array]

    def get_actions(self, deterministic: bool = False) -> Array:
        """The likeliest action of each row, or a sample."""
        return self.mode() if deterministic else self.sample()


class Gaussian(Drawn):
    """Independent normal distributions of the coordinates of actions, rows first."""

    def __init__(self, actions: BoxActions, rng: np.random.Generator, mean: Array, std: Array):
        self._shape, self._rng = (len(mean), *actions.shape), rng
        self._mean = actions.to_world(mean)
        self._std = std * (0.5 * (actions.high - actions.low))

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each coordinate, rows first."""
        return self._mean, self._std

    def sample(self) -> Array:
        """An action for each row."""
        noise = self._rng.standard_normal(self._mean.shape, dtype=np.float32)
        return self._made(self._mean + self._std * noise)

    def mode(self) -> Array:
        """The likeliest action of each row; of one that is squashed, its squashed mean."""
        return self._made(self._mean)

    def _made(self, drawn: Array) -> Array:
        return drawn.reshape(self._shape)

    def log_prob(self, actions: Array) -> Array:
        """Logarithm of the density at an action of each row."""
        action = np.asarray(actions).reshape(self._mean.shape)
        constant = 0.5 * math.log(2 * math.pi) * self._mean.shape[1]
        gap = (action - self._mean) / self._std
        return -(0.5 * gap**2 + np.log(self._std)).sum(-1) - constant

    def entropy(self) -> Array:
        """Differential entropy of each row."""
        return (np.log(self._std) + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


class Categorical(Drawn):
    """Independent choices among labels, rows first."""

    def __init__(self, actions: FiniteActions, rng: np.random.Generator, logits: Array):
        self._actions, self._rng = actions, rng
        shifted = logits - logits.max(-1, keepdims=True)
        self._log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    @property
    def logits(self) -> list[Array]:
        """Logarithms of the probabilities of the labels of each factor, rows first."""
        return [self._log[:, i, :count] for i, count in enumerate(self._actions.counts)]

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
        if ((label < 0) | (label >= self._actions.counts)).any():  # -1 would be the last one
            raise ValueError(
                f"actions must be among the labels, got {in_short(np.asarray(actions).tolist())}"
            )
        return np.take_along_axis(self._log, label[..., None], -1)[..., 0].sum(-1)

    def entropy(self) -> Array:
        """Entropy of each row."""
        return -(np.exp(self._log) * self._log).sum((-2, -1))


class SquashedGaussian(Gaussian):
    """A normal distribution, squashed into the box by a hyperbolic tangent.

    Densities are per unit of the squashed action. Its entropy has no closed form: ``None``, as of
    SB3's.
    """

    def __init__(self, actions: BoxActions, rng: np.random.Generator, mean: Array, std: Array):
        super().__init__(actions, rng, mean, std)
        self._mean, self._std, self._box = mean, std, actions

    def log_prob(self, actions: Array) -> Array:
        """Logarithm of the density at an action of each row."""
        half = 0.5 * (self._box.high - self._box.low)
        share = (np.asarray(actions).reshape(self._mean.shape) - self._box.low) / half - 1.0
        inside = np.clip(share, -MOST_SQUASHED, MOST_SQUASHED)
        stretch = np.log(half * (1.0 - inside**2)).sum(-1)
        return super().log_prob(np.arctanh(inside)) - stretch

    def entropy(self) -> None:
        """There is no formula for it."""

    def _made(self, drawn: Array) -> Array:
        return self._box.to_world(np.tanh(drawn)).reshape(self._shape)


class Rich(Drawn):
    """A mixture of Gaussians or a flow, rows first; its entropy has no formula: ``None``."""

    def __init__(self, actions: RichActions, rng: np.random.Generator, head: Array):
        self._actions, self._rng, self._head = actions, rng, head

    def sample(self) -> Array:
        """An action for each row."""
        normal = self._rng.standard_normal((len(self._head), self._actions.size), dtype=np.float32)
        return self._made(self._actions.density.noise(normal, self._rng))

    def mode(self) -> Array:
        """The mean of the likeliest component, or the middle of a flow."""
        return self._made(np.zeros((len(self._head), self._actions.density.noises), np.float32))

    def log_prob(self, actions: Array) -> Array:
        """Logarithm of the density at an action of each row."""
        low, half = self._actions.low, 0.5 * (self._actions.high - self._actions.low)
        unit = (np.asarray(actions).reshape(len(self._head), -1) - low) / half - 1.0
        return self._actions.density.log_density(self._head, unit) - np.log(half).sum()

    def entropy(self) -> None:
        """There is no formula for it."""

    def _made(self, noise: Array) -> Array:
        action = self._actions.density.push(self._head, noise)
        return self._actions.to_world(action).reshape(-1, *self._actions.shape)


class OnTensors:
    """A distribution that was asked with torch's tensors, and answers with them."""

    def __init__(self, distribution: "Distribution", space: spaces.Space[Any]) -> None:
        self._distribution, self._space = distribution, space

    @property
    def distribution(self) -> Any:
        """Torch's own, of the kind that SB3 has for these actions: a list of several factors.

        A box's is that of what is drawn, before it is clipped or squashed.
        """
        told = self._distribution
        if isinstance(told, Rich):
            raise AttributeError("torch has no distribution that is this mixture or flow")
        if isinstance(told, Gaussian):
            return torch.distributions.Normal(*tensors(told.moments))
        factors = [torch.distributions.Categorical(logits=tensors(log)) for log in told.logits]
        if isinstance(self._space, spaces.MultiBinary):
            ones = torch.stack([factor.probs[:, 1] for factor in factors], dim=1)
            return torch.distributions.Bernoulli(probs=ones)
        return factors[0] if isinstance(self._space, spaces.Discrete) else factors

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._distribution, name)
        return lambda *given, **named: tensors(method(*map(as_arrays, given), **named))


Distribution = Gaussian | Rich | Categorical


def as_arrays(given: Any) -> Any:
    """Tensors of torch's as arrays, also in a dictionary; anything else as it is."""
    if isinstance(given, dict):
        return {key: as_arrays(leaf) for key, leaf in given.items()}
    return given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else given


def tensors(arrays: Any) -> Any:
    """Copies of arrays as torch's tensors, also in a dictionary or a tuple."""
    if isinstance(arrays, dict):
        return {key: tensors(leaf) for key, leaf in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(map(tensors, arrays))
    return None if arrays is None else torch.tensor(np.asarray(arrays))


def holds_tensors(given: Any) -> bool:
    """Whether it is a tensor of torch's, or a dictionary of them."""
    leaves = given.values() if isinstance(given, dict) else [given]
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def distribution_of(
    actions: BoxActions | FiniteActions, drawn: dict[str, Array], rng: np.random.Generator
) -> Distribution:
    """Of the rows of an actor's record."""
    if isinstance(actions, RichActions):
        return Rich(actions, rng, drawn["head"])
    if isinstance(actions, BoxActions):
        kind = SquashedGaussian if actions.squash else Gaussian
        return kind(actions, rng, drawn["mean"], drawn["std"])
    return Categorical(actions, rng, drawn["logits"])


def drawn_actions(actions: BoxActions | FiniteActions, drawn: dict[str, Array]) -> Array:
    """The actions in the rows of an actor's record, not clipped."""
    if isinstance(actions, BoxActions):
        taken = np.tanh(drawn["action"]) if actions.squash else drawn["action"]
        return actions.to_world(taken).reshape(-1, *actions.shape)
    return actions.to_world(drawn["label"])


class Asked(Playing):
    """What `DeepAgent` answers in the place of SB3's policies.

    On arrays; who asks with torch's tensors is answered with tensors, which know no gradient.
    """

    algorithm: Any
    action_space: spaces.Space[Any]
    train_state: TrainState
    get_parameters: Any
    set_parameters: Any
    jax_device: Any
    # SB3's own, which ask for the spaces alone
    scale_action: Any = BasePolicy.scale_action
    unscale_action: Any = BasePolicy.unscale_action
    is_vectorized_observation: Any = BasePolicy.is_vectorized_observation

    def state_dict(self) -> dict[str, Any]:
        """The trained arrays, by their path, as copies in torch's tensors: `load_state_dict`.

        Those without entries, as of images that have no flat features, are left out.
        """
        return {name: tensors(array) for name, array in self.get_parameters().items() if array.size}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Replace the trained arrays by these; ``strict``: by all that there are."""
        known = self.get_parameters()
        empty = {name: array for name, array in known.items() if not array.size}
        self.set_parameters(empty | as_arrays(dict(state_dict)), exact_match=strict)

    def obs_to_tensor(self, observation: Any) -> tuple[Any, bool]:
        """Observations as a batch of torch's tensors, and whether they were a batch before."""
        batch, vectorised = as_batch(as_arrays(observation), self.observation_space)
        return tensors(channels_first(batch, self.observation_space)), vectorised

    def set_training_mode(self, mode: bool) -> None:
        """Nothing here behaves differently in training; SB3's tools call this."""

    def eval(self) -> Self:
        """As `set_training_mode(False)`, in torch's word; programs that play call it first."""
        return self

    def to(self, device: Any) -> Self:
        """Stay where the networks are; refused if that is not what is asked for."""
        if runtime.device_for(str(device)) != self.jax_device:
            raise Refused(f"networks can't move to {device} once built; load(path, device=...)")
        return self

    @property
    def squash_output(self) -> bool:
        """Whether actions are squashed into their box."""
        return isinstance(self.actions, BoxActions) and self.actions.squash

    def reset_noise(self, n_envs: int = 1) -> None:
        """Every rollout and every `predict` draws noise of its own; SB3's programs call this."""

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

    def __call__(self, *arguments: Any, **keywords: Any) -> tuple[Array, Array, Array]:
        """`forward`, as of SB3's policies."""
        return self.forward(*arguments, **keywords)

    def evaluate_actions(
        self, obs: Any, actions: Array, action_masks: Any = None
    ) -> tuple[Array, Array, Array]:
        """Values [n, 1], log-probabilities of the given actions [n], and entropies [n]."""
        distribution = self.get_distribution(obs, action_masks)
        return self.predict_values(obs), distribution.log_prob(actions), distribution.entropy()

    def get_distribution(self, obs: Any, action_masks: Any = None) -> Any:
        """That of the actions for each observation."""
        encoded = self._encoded(as_arrays(obs))
        rows = len(encoded.flat)
        actor = self.actor(1, rows, np.random.default_rng(0))  # what it draws is not used
        actor.act(0, encoded.flat, encoded.images, masks_of(self.actions, action_masks, rows))
        drawn = {name: array[0] for name, array in actor.record().items()}
        distribution = distribution_of(self.actions, drawn, self._predict_rng)
        return OnTensors(distribution, self.action_space) if holds_tensors(obs) else distribution

    def predict_values(self, obs: Any) -> Array:
        """The value of each observation, [n, 1], in the unit of the environment's rewards."""
        value = self.values_of(self._encoded(as_arrays(obs)))
        return tensors(value) if holds_tensors(obs) else value

    def values_of(self, encoded: Encoded) -> Array:
        """The same of what the engine sees."""
        state, rows = self.train_state, len(encoded.flat)
        eyes = Eyes(self.algorithm.estimate.normaliser, state.observations)
        network, value = state.networks.value, np.empty((rows, 1), np.float32)
        forward_for(network.body, network.head, eyes, rows)(encoded.flat, encoded.images, value)
        return value * np.float32(eyes.normaliser.reward_unit(state.rewards))

    def _encoded(self, observation: Any) -> Encoded:
        batch, _ = as_batch(observation, self.observation_space)
        return self.layout.encode(channels_first(batch, self.observation_space), rows_of(batch))
