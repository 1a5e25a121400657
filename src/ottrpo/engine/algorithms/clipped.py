"""PPO's loss in the place of the trust region: the control, with everything else as in OT-TRPO."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.engine.arrays import Generator, like, single
from ottrpo.engine.estimate import Experience, told
from ottrpo.engine.models.labels import choice_log_probabilities
from ottrpo.engine.networks import Networks, Policy
from ottrpo.engine.schedules import Now
from ottrpo.engine.spaces import BoxActions, FiniteActions
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import Batch, make_descend, minibatches, start

from .base import Algorithm, Report
from .objective import clipped_loss, gaussian_log_probability
from .ottrpo import actor_critic_loss

Array = Any


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ClippedRatio(Algorithm):
    """Policy optimisation by a clipped ratio of probabilities (PPO).

    Attributes:
        clip_range: of the ratio, about 1.
        ent_coef: weight of the entropy bonus.
    """

    clip_range: float
    ent_coef: float

    @cached_property
    def descend(self) -> Any:
        """The compiled gradient steps."""
        loss = actor_critic_loss(self._policy_loss, self.vf_coef)
        return make_descend(loss, self.max_grad_norm, self.weight_decay)

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Policy and value function."""
        return {"agent": start(networks, self.max_grad_norm)}

    def draw(self, rows: int, rng: Generator) -> tuple[Array, Array]:
        """Minibatches."""
        return minibatches(rows, self.batch_size, self.n_epochs, rng)

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Any, now: Now
    ) -> tuple[TrainState, Report]:
        """Descend."""
        drawn, rows = batch.drawn, {"flat": batch.flat, "images": batch.images}
        rows |= {"return": single(batch.target), "advantage": single(batch.advantage)}
        rows |= taken(self.actions, batch)
        if isinstance(self.actions, BoxActions):
            old = gaussian_log_probability(*(drawn[key] for key in ("action", "mean", "std")))
        else:
            old = _tried(jax.nn.log_softmax(jnp.asarray(drawn["logits"])), drawn["label"])
        rows["log_probability"] = single(like(batch.flat, old))
        learner, fit = self.descend(state.learners["agent"], rows, draws, now.learning_rate)
        return state.with_learner("agent", learner), told(batch, fit, now)

    def _policy_loss(
        self, policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]
    ) -> Array:
        new, entropy = log_probability(self.actions, policy, rows)
        normalize = self.normalize_advantage
        loss, _ = clipped_loss(new, rows, weight, self.clip_range, normalize=normalize)
        return loss - self.ent_coef * (weight @ entropy)


def taken(actions: BoxActions | FiniteActions, batch: Experience) -> Batch:
    """Of the rows of a rollout: the actions, and what else was allowed."""
    drawn = batch.drawn
    if isinstance(actions, BoxActions):
        return {"action": drawn["action"]}
    allowed = np.broadcast_to(actions.allowed_fk, drawn["logits"].shape)
    return {"label": drawn["label"], "allowed": drawn.get("mask", allowed)}


def log_probability(
    actions: BoxActions | FiniteActions, policy: Policy, rows: Batch
) -> tuple[Array, Array]:
    """Of the actions that were `taken`, and the entropy, up to a constant in a box [r]."""
    if isinstance(actions, BoxActions):
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        return gaussian_log_probability(rows["action"], mean, std), jnp.log(std).sum(-1)
    log = choice_log_probabilities(policy, rows, actions.choices)
    return _tried(log, rows["label"]), -(jnp.exp(log) * log).sum((-2, -1))


def _tried(log_rfk: Array, label_rf: Array) -> Array:
    """Log-probability [r] of the labels that were taken."""
    return jnp.take_along_axis(log_rfk, jnp.asarray(label_rf)[..., None], axis=-1).sum((-2, -1))
