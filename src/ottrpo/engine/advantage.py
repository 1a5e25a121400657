"""A learned advantage function: the paper's third estimator.

It is fitted to the generalised advantage estimates of the actions that were taken, and then asked
about actions that were not.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .arrays import Generator, like, namespace
from .estimate import Experience
from .networks import Architecture, Headed
from .spaces import BoxActions, FiniteActions
from .state import Learner
from .update import Batch, make_descend, start

Array = Any


class _OfAction(Headed):
    """A(s, a) for actions in a box: the action is one more input."""

    def __init__(self, architecture: Architecture, actions: BoxActions, rng: Generator) -> None:
        wider = replace(architecture, inputs=architecture.inputs + actions.size)
        super().__init__(wider, wider.value_layers, 1, 1.0, rng)

    def __call__(self, flat: Array, images: tuple[Array, ...], action: Array) -> Array:
        return self.raw(jnp.concatenate([flat, action], axis=-1), images)[:, 0]


class _OfState(Headed):
    """A(s, ·) of every label of every factor; the advantage of an action is their sum."""

    def __init__(self, architecture: Architecture, actions: FiniteActions, rng: Generator) -> None:
        outputs = actions.factors * actions.choices
        super().__init__(architecture, architecture.value_layers, outputs, 1.0, rng)

    def __call__(self, flat: Array, images: tuple[Array, ...]) -> Array:
        return self.raw(flat, images)


class AdvantageNetwork(NamedTuple):
    """A(s, a) as it was last fitted."""

    networks: Any

    def gain(self, flat: Array, images: tuple[Array, ...], action_rkd: Array) -> Array:
        """A(s_r, a_rk) [r, k]."""
        columns = [
            _told(self.networks, flat, images, action_rkd[:, k].astype(np.float32))
            for k in range(action_rkd.shape[1])
        ]
        return namespace(flat).stack([like(flat, column) for column in columns], axis=1)

    def slope(self, flat: Array, images: tuple[Array, ...], action_rd: Array) -> Array:
        """∂A/∂a at the given actions [r, d]."""
        return like(flat, _slopes(self.networks, flat, images, action_rd.astype(np.float32)))

    def table(self, flat: Array, images: tuple[Array, ...]) -> Array:
        """A(s_r, ·) of every label [r, factors · choices]."""
        return like(flat, _told(self.networks, flat, images))


class AdvantageFit:
    """How such a network is made, and fitted with an optimiser of its own."""

    def __init__(
        self,
        architecture: Architecture,
        actions: BoxActions | FiniteActions,
        max_grad_norm: float,
    ) -> None:
        self._architecture, self._actions = architecture, actions
        self._max_grad_norm = max_grad_norm
        finite = isinstance(actions, FiniteActions)
        self._descend = make_descend(_table_loss if finite else _point_loss, max_grad_norm)

    def start(self, rng: Generator) -> Learner:
        """A network that knows nothing yet."""
        if isinstance(self._actions, FiniteActions):
            network: Any = _OfState(self._architecture, self._actions, rng)
        else:
            network = _OfAction(self._architecture, self._actions, rng)
        return start(network, self._max_grad_norm)

    def __call__(
        self,
        learner: Learner,
        batch: Experience,
        advantage_r: Array,
        minibatches: tuple[Array, Array],
        learning_rate: Array,
    ) -> Learner:
        """Fit to the advantages of the actions that were taken."""
        rows = {"flat": batch.flat, "images": batch.images}
        rows["advantage"] = advantage_r.astype(np.float32)
        if isinstance(self._actions, FiniteActions):  # their positions among the outputs
            first = np.arange(self._actions.factors) * self._actions.choices
            rows["label"] = batch.drawn["label"] + first
        else:
            rows["action"] = batch.drawn["action"]
        return self._descend(learner, rows, minibatches, learning_rate)[0]


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
def _told(network: Any, *seen: Any) -> Array:
    return network(*seen)


@eqx.filter_jit
def _slopes(network: _OfAction, flat: Array, images: tuple[Array, ...], action: Array) -> Array:
    return jax.grad(lambda a: network(flat, images, a).sum())(action)
