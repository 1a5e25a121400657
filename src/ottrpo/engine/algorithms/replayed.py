"""OT-TRPO on a critic that learns from a window of past rollouts.

Slopes of single samples are mostly noise, and a transport step that fits them fits noise. Here the
slope of every state comes from Q(s, a), fitted to returns that are traced through the last rollouts
as far as the policy of now would have taken the same actions. The dual is that of the linear model,
twice in closed form: the mean moves within one budget, the standard deviation within its own.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ottrpo.core.traceable import solve_linear
from ottrpo.engine.arrays import Generator, like, namespace, put, single
from ottrpo.engine.critic import Critic, look_back, slopes, squared_error
from ottrpo.engine.estimate import Experience
from ottrpo.engine.models.base import Plan
from ottrpo.engine.models.linear import Linear, compact
from ottrpo.engine.networks import Networks
from ottrpo.engine.replay import empty_replay, held_out, retrace
from ottrpo.engine.schedules import SMALLEST_RADIUS, Now
from ottrpo.engine.spaces import BoxActions
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import make_descend, minibatches, start, with_policy

from .base import Report
from .ottrpo import TrustRegion

Array = Any
PLAN_ROWS = 2048  # states whose targets an update fits: half of them of the last rollout
CRITIC_BATCH = 256
CRITIC_RATE = 3e-4
# σ changes by this share of itself per update at most: its slope is an average over all states,
# nearly free of noise, and would shrink it long before the mean has found its place
STD_STEP = 0.003
STD_FLOOR = 0.1


class Draws(NamedTuple):
    """The random numbers of an update.

    Attributes:
        held: which rows of the rollout are held out [r].
        ahead: actions of the policy after every step of the window.
        critic: minibatches of the critic, as uniform numbers.
        rows: states to plan for, likewise.
        noise: where their slopes are taken.
        move: minibatches of these states.
    """

    held: Array
    ahead: Array
    critic: Array
    rows: Array
    noise: Array
    move: tuple[Array, Array]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayedTrustRegion(TrustRegion):
    """Transport steps along the slope of a replayed critic.

    Attributes:
        n_steps: steps of each environment per rollout.
        rollouts: how many of them are kept.
        critic_layers: hidden layers of Q(s, a).
        critic_ratio: gradient steps of the critic per step of the environments.
    """

    n_steps: int
    rollouts: int
    model: Linear
    actions: BoxActions
    critic_layers: tuple[int, ...] = (128, 128)
    critic_ratio: float = 0.25

    @cached_property
    def fit_critic(self) -> Any:
        """The compiled gradient steps of the critic."""
        return make_descend(squared_error, np.inf)

    def init(self, init_rng: Generator, rng: Generator, environments: int) -> TrainState:
        """A training state with an empty window."""
        state = super().init(init_rng, rng, environments)
        window, features = self.rollouts * self.n_steps, self.architecture.inputs
        replay = empty_replay(window, environments, features, self.actions.size)
        return state._replace(replay=replay)

    def learners(self, networks: Networks, rng: Generator) -> dict[str, Learner]:
        """Policy, value function and critic."""
        inputs = self.architecture.inputs + self.actions.size
        critic = start(Critic(inputs, self.critic_layers, rng), np.inf)
        return super().learners(networks, rng) | {"critic": critic}

    def draw(self, rows: int, rng: Generator) -> Any:
        """For the window, the critic, the plan and the move."""
        size = self.actions.size
        steps = max(1, round(self.critic_ratio * rows))
        return Draws(
            rng.random((rows,)) < self.hold_out,
            rng.standard_normal((self.rollouts * rows, size), dtype=np.float32),
            rng.random((steps, CRITIC_BATCH)),
            rng.random((PLAN_ROWS,)),
            rng.standard_normal((PLAN_ROWS, size), dtype=np.float32),
            minibatches(PLAN_ROWS, self.batch_size, self.n_epochs, rng),
        )

    def improve(
        self, before: TrainState, state: TrainState, batch: Experience, draws: Any, now: Now
    ) -> tuple[TrainState, Report]:
        """Fit the critic, solve the dual (step 4), move the policy (step 5), stay in the region."""
        advantage = self.standardised(batch.advantage)
        state = state._replace(replay=state.replay.holding(draws.held))
        state, window, report = self._look_back(state, draws, now)
        plan, rows, std = self._plan_rows(state, batch, window, draws, now)
        learner, fit = self.descend(
            state.learners["agent"], rows, *self._minibatches(rows, draws), now.learning_rate, {}
        )
        policy = learner.networks.policy
        state = state.with_learner("agent", learner)
        log_std = jnp.log(jnp.asarray(std, policy.log_std.dtype))
        state = with_policy(state, eqx.tree_at(lambda p: p.log_std, policy, log_std))
        state, share, spent = self.return_to_region(before, state, batch, plan)
        report |= self.gains(state, batch, advantage, draws.held, spent)
        return state, report | self._report(batch, plan, fit, share, spent, now)

    def _look_back(
        self, state: TrainState, draws: Draws, now: Now
    ) -> tuple[TrainState, dict[str, Array], Report]:
        """Fit the critic to what the window says, and keep the window as rows."""
        replay, critic = state.replay, state.learners["critic"]
        normaliser = self.estimate.normaliser
        flat = normaliser(state.observations, replay.flat)
        ahead = draws.ahead.reshape(replay.action.shape)
        value, next_value, log_prob = (
            like(flat, array)
            for array in look_back(
                critic.networks, state.networks.policy, flat, replay.action, ahead
            )
        )
        reward = normaliser.scaled_rewards(state.rewards, replay.reward)
        target, speaks = retrace(
            replay, reward, value, next_value, log_prob, now.discount, now.trace_decay
        )
        window = {
            "flat": flat[:-1].reshape(-1, flat.shape[-1]),
            "action": replay.action.reshape(-1, self.actions.size),
            "target": single(target.reshape(-1)),
            "held": replay.held.reshape(-1),
        }
        index = replay.rows(draws.critic)
        even = np.full(index.shape, 1.0 / CRITIC_BATCH, np.float32)
        weight = held_out(even, index, window["held"])
        rows = {key: window[key] for key in ("flat", "action", "target")} | {"images": ()}
        critic, fit = self.fit_critic(critic, rows, index, weight, np.float32(CRITIC_RATE), {})
        report = {"train/critic_loss": fit["critic_loss"], "train/replay_share": speaks}
        return state.with_learner("critic", critic), window, report

    def _plan_rows(
        self,
        state: TrainState,
        batch: Experience,
        window: dict[str, Array],
        draws: Draws,
        now: Now,
    ) -> tuple[Plan, dict[str, Array], Array]:
        """Step 4: targets of the mean for states of the window, and the next σ.

        The two budgets share the radius. That of σ is a share of its square, so that it is as
        small in every unit.
        """
        xp = namespace(batch.flat)
        total = len(window["flat"])
        newest = xp.arange(total - min(PLAN_ROWS // 2, len(batch.flat)), total)
        picked = state.replay.rows(draws.rows)
        picked = put(picked, (slice(0, len(newest)),), newest.astype(np.int32))
        flat = window["flat"][picked]
        found = slopes(state.learners["critic"].networks, state.networks.policy, flat, draws.noise)
        mean, std, slope, std_slope = (like(flat, array) for array in found)
        unit = self.model.typical_cost(batch) if self.relative else 1.0
        radius = xp.maximum(now.radius * unit, SMALLEST_RADIUS)
        std, metric = std[0], compact(self.model.metric)
        std_metric = None if metric is None else np.diag(metric)
        std_energy = (std**2 * (1.0 if std_metric is None else std_metric)).sum()
        std_radius = xp.minimum(STD_STEP**2 * std_energy, 0.5 * radius)
        even = xp.full(PLAN_ROWS, 1.0 / PLAN_ROWS)
        solution = solve_linear(even, slope, radius - std_radius, metric)
        along = solve_linear(xp.ones(1), std_slope.mean(0)[None], std_radius, std_metric)
        target = xp.clip(mean + solution.nearest_r, -1.0, 1.0)
        plan = Plan(
            solution,
            radius,
            inactive=xp.logical_not(solution.binding),
            rows={},
            split_mass=0.0,
            active_fraction=solution.nearest_r.any(1).mean(),
            dual_gap=abs(solution.value - (even[:, None] * slope * solution.nearest_r).sum()),
        )
        rows = {
            "flat": flat,
            "images": (),
            "target_mean": single(target),
            "return": window["target"][picked],
            "held": window["held"][picked],
        }
        return plan, rows, xp.clip(std + along.nearest_r[0], STD_FLOOR, 1.0)

    def _minibatches(self, rows: dict[str, Array], draws: Draws) -> tuple[Array, Array]:
        index, weight = draws.move
        return index, held_out(weight, index, rows.pop("held"))
