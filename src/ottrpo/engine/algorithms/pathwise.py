"""Agents that follow critics alone: what WPO of Pfau et al. and WPPG share.

They have the critics of `mixed`, with its window of past rollouts and its returns of a few steps,
and no trust region: after every rollout the critics learn from the window, and then the policy
takes gradient steps in states of the window along ∇ₐQ, each in its own way. What a step has cost is
measured as for OT-TRPO, and bounded by nothing.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.core import SquaredEuclidean
from ottrpo.engine.arrays import Generator, like
from ottrpo.engine.critic import Twins
from ottrpo.engine.estimate import Experience, told
from ottrpo.engine.models.base import gaussian_spent
from ottrpo.engine.networks import Networks, Policy
from ottrpo.engine.schedules import Now
from ottrpo.engine.spaces import BoxActions
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import (
    Batch,
    Spent,
    make_descend,
    minibatches,
    no_moments_of,
    with_policy,
)

from .base import Report
from .critics import WithCritics, in_order

Array = Any
SEEDS = 2**31 - 1


class Draws(NamedTuple):
    """The random numbers of an update.

    Attributes:
        critic: rows of the critics' minibatches, as uniform numbers.
        ahead: the actions that their returns are continued by.
        rows: states in which the policy follows them, as uniform numbers.
        seeds: of the actions that are drawn in these states.
        value: minibatches of the rollout for the value function.
    """

    critic: Array
    ahead: Array
    rows: Array
    seeds: Array
    value: tuple[Array, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pathwise(WithCritics):
    """Policy steps along the slope of learned critics, as many as these take.

    Attributes:
        steps_ahead: of the returns that the critics learn.
        n_samples: actions that are drawn in each state.
    """

    actions: BoxActions
    steps_ahead: int
    n_samples: int

    @abstractmethod
    def policy_loss(
        self, policy: Policy, rows: Batch, weight: Array, constants: dict[str, Any]
    ) -> tuple[Array, dict[str, Array]]:
        """What the policy descends, and the terms of it to report.

        ``rows`` are the states (``flat``), the ``seed`` of each, and what `targets` adds; the
        constants are the ``critics`` and the policy ``before`` the update.
        """

    def targets(self, critics: Twins, policy: Policy, rows: Batch) -> Batch:
        """What is fixed before the policy moves, with rows first; by default nothing is."""
        return {}

    @cached_property
    def fit_policy(self) -> Any:
        """The compiled gradient steps of the policy."""
        return make_descend(self.policy_loss, self.max_grad_norm)

    @property
    def critic_batch(self) -> int:
        """That of all."""
        return self.batch_size

    @cached_property
    def spent(self) -> Spent:
        """The squared Wasserstein distance between two policies, on average over the states."""
        return gaussian_spent(SquaredEuclidean(), np.eye(self.actions.size), std_moves=True)

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Those of critics, and an optimiser of the policy."""
        policy = Learner((), no_moments_of(networks.policy, self.max_grad_norm))
        return super().learners(networks, rng) | {"policy": policy}

    def draw(self, rows: int, rng: Generator) -> Any:
        """For critics, policy and value function."""
        count = max(1, round(self.critic_ratio * rows)) * self.batch_size
        return Draws(
            critic=rng.random((count,)),
            ahead=rng.standard_normal((count, self.actions.size), dtype=np.float32),
            rows=rng.random((count,)),
            seeds=rng.integers(0, SEEDS, (count,), dtype=np.int32),
            value=minibatches(rows, self.batch_size, self.n_epochs, rng),
        )

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Any, now: Now
    ) -> tuple[TrainState, Report]:
        """Fit the critics to the window and the value function to the rollout; follow."""
        ahead = self.steps_ahead
        # the policy has no use for V; callbacks and reports have
        state, fit = self.learn(state, batch, draws, now, ahead, now.critic_rate, most=ahead)
        state, terms = self._follow(state, draws, now)
        rows = {"flat": batch.flat, "images": (), **batch.drawn}
        policy = state.networks.policy
        return state, {
            "ot/spent": like(batch.flat, self.spent(policy, rows)),
            "train/std": like(batch.flat, policy.gaussian(batch.flat[:1])[1].mean()),
            **told(batch, fit | terms, now),
        }

    def _follow(self, state: TrainState, draws: Draws, now: Now) -> tuple[TrainState, Report]:
        """The policy's gradient steps in states of the window."""
        replay, policy = state.replay, state.networks.policy
        flat = self.estimate.normaliser(state.observations, replay.flat[replay.picked(draws.rows)])
        critics = state.learners["critic"].networks
        rows = {"flat": flat, "seed": draws.seeds, "images": ()}
        rows |= self.targets(critics, policy, rows)
        shape = (len(draws.rows) // self.batch_size, self.batch_size)
        weight = np.full(shape, 1.0 / self.batch_size, np.float32)
        steps = in_order(weight), weight
        constants = {"critics": critics, "before": policy}
        one = Learner(policy, state.learners["policy"].moments)
        moved, terms = self.fit_policy(one, rows, steps, now.learning_rate, constants)
        state = with_policy(state, moved.networks)
        return state.with_learner("policy", Learner((), moved.moments)), terms


def normals(seed_r: Array, samples: int, size: int) -> Array:
    """Standard normal numbers [r, samples, size], from a seed for each row."""
    return jax.vmap(lambda seed: jax.random.normal(jax.random.key(seed), (samples, size)))(seed_r)


def action_slopes(critics: Any, flat_rf: Array, action_rkd: Array) -> Array:
    """∇ₐQ(s_r, a_rk), of the mean of the critics."""
    flat_rkf = jnp.broadcast_to(flat_rf[:, None], (*action_rkd.shape[:2], flat_rf.shape[-1]))
    value, pull = jax.vjp(lambda action: critics(flat_rkf, action), action_rkd)
    return pull(jnp.full_like(value, 1.0 / len(value)))[0]
