"""A learned advantage function: the paper's third estimator.

It is fitted to the generalised advantage estimates of the actions that were taken, and then asked
about actions that were not.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from .acting import BoxActions, FiniteActions
from .networks import Architecture, Body, Linear, latent_size
from .update import Batch, Learner, make_descend, start

Array = Any
Floats = NDArray[np.float64]


class _OfAction(eqx.Module):
    """A(s, a) for actions in a box: the action is one more input."""

    body: Body
    head: Linear

    def __init__(
        self, architecture: Architecture, actions: BoxActions, rng: np.random.Generator
    ) -> None:
        wider = replace(architecture, inputs=architecture.inputs + actions.size)
        self.body = Body(wider, wider.value_layers, rng)
        latent = latent_size(wider, wider.value_layers)
        self.head = Linear(latent, 1, rng, gain=1.0, ortho=architecture.ortho_init)

    def __call__(self, flat: Array, images: tuple[Array, ...], action: Array) -> Array:
        return self.head(self.body(jnp.concatenate([flat, action], axis=-1), images))[:, 0]


class _OfState(eqx.Module):
    """A(s, ·) of every label of every factor; the advantage of an action is their sum."""

    body: Body
    head: Linear

    def __init__(
        self, architecture: Architecture, actions: FiniteActions, rng: np.random.Generator
    ) -> None:
        self.body = Body(architecture, architecture.value_layers, rng)
        latent = latent_size(architecture, architecture.value_layers)
        outputs = actions.factors * actions.choices
        self.head = Linear(latent, outputs, rng, gain=1.0, ortho=architecture.ortho_init)

    def __call__(self, flat: Array, images: tuple[Array, ...]) -> Array:
        return self.head(self.body(flat, images))


class AdvantageNetwork:
    """A(s, a) as a network with an optimiser of its own."""

    def __init__(
        self,
        architecture: Architecture,
        actions: BoxActions | FiniteActions,
        rng: np.random.Generator,
        max_grad_norm: float,
    ) -> None:
        self._finite = isinstance(actions, FiniteActions)
        if isinstance(actions, FiniteActions):
            network: Any = _OfState(architecture, actions, rng)
            self._choices = actions.choices
        else:
            network = _OfAction(architecture, actions, rng)
        self.learner: Learner = start(network, max_grad_norm)
        self._descend = make_descend(_table_loss if self._finite else _point_loss, max_grad_norm)

    def fit(self, batch: Batch, index: Array, weight: Array, learning_rate: Array) -> float:
        """Fit to the advantages in ``batch``; the mean squared error along the way."""
        if self._finite:  # positions of the chosen labels among the outputs
            factors = np.arange(batch["label"].shape[1])
            batch = batch | {"label": batch["label"] + factors * self._choices}
        self.learner, terms = self._descend(self.learner, batch, index, weight, learning_rate, {})
        return float(terms["advantage_loss"])

    def gain(self, flat: Array, images: tuple[Array, ...], action_rkd: Floats) -> Floats:
        """A(s_r, a_rk) [r, k]."""
        columns = [
            _points(self.learner.networks, flat, images, action_rkd[:, k].astype(np.float32))
            for k in range(action_rkd.shape[1])
        ]
        return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)

    def slope(self, flat: Array, images: tuple[Array, ...], action_rd: Floats) -> Floats:
        """∂A/∂a at the given actions [r, d]."""
        slope = _slopes(self.learner.networks, flat, images, action_rd.astype(np.float32))
        return np.asarray(slope, np.float64)

    def table(self, flat: Array, images: tuple[Array, ...]) -> Floats:
        """A(s_r, ·) of every label [r, factors · choices]."""
        return np.asarray(_tables(self.learner.networks, flat, images), np.float64)


def _point_loss(
    network: _OfAction, rows: Batch, weight: Array, constants: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    error = network(rows["flat"], rows["images"], rows["action"]) - rows["advantage"]
    loss = weight @ error**2
    return loss, {"advantage_loss": loss}


def _table_loss(
    network: _OfState, rows: Batch, weight: Array, constants: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    table = network(rows["flat"], rows["images"])
    chosen = jnp.take_along_axis(table, rows["label"], axis=1).sum(1)
    loss = weight @ (chosen - rows["advantage"]) ** 2
    return loss, {"advantage_loss": loss}


@eqx.filter_jit
def _points(network: _OfAction, flat: Array, images: tuple[Array, ...], action: Array) -> Array:
    return network(flat, images, action)


@eqx.filter_jit
def _slopes(network: _OfAction, flat: Array, images: tuple[Array, ...], action: Array) -> Array:
    return jax.grad(lambda a: network(flat, images, a).sum())(action)


@eqx.filter_jit
def _tables(network: _OfState, flat: Array, images: tuple[Array, ...]) -> Array:
    return network(flat, images)
