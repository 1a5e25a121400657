"""What the tabular agents share: playing, estimating, accounting, saving."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from ottrpo.core import FiniteProblem, finite_problem, violation
from ottrpo.core.checks import (
    Bools,
    Floats,
    NonFiniteError,
    distributions,
    floats,
    non_negative,
    require,
)
from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Saved
from ottrpo.persistence.snapshot import Snapshot
from ottrpo.terminal import bar

from . import planning
from .environments import as_problem, environment_from_spec, environment_spec
from .estimators import Estimates, estimate_occupancy
from .mdp import say_endless
from .model import EmpiricalModel
from .problem import Improvement, Problem, Simulator, Trajectories, require_finite, within_mask
from .settings import TabularSettings

Callback = Callable[[Any], bool | None]

# Evaluations draw from streams that no training run can reach, whatever its seed.
EVALUATION_STREAM = 0x6576616C
PREDICTION_STREAM = 0x70726564
UPDATE_STREAM = 0x75706474


class TabularAgent(Snapshot):
    """What the tabular agents share: everything but the update of the policy itself."""

    name: ClassVar[str]
    settings_type: ClassVar[type[TabularSettings]]

    def __init_subclass__(cls) -> None:
        # the settings are keywords of the constructor, and `help` and the command line show them
        own = list(inspect.signature(TabularAgent.__init__).parameters.values())[1:-1]
        settings = inspect.signature(cls.settings_type).parameters.values()
        cls.__signature__ = inspect.Signature([*own, *settings])

    __signature__: ClassVar[inspect.Signature]

    def __init__(
        self,
        env: "str | gym.Env[Any, Any] | Problem",
        *,
        seed: int = 0,
        initial_policy: ArrayLike | None = None,
        **settings: Any,
    ) -> None:
        self.settings = self.settings_type.from_mapping(settings)
        self.problem = as_problem(env, step_cap=self.settings.step_cap)
        require(
            int(seed) == seed and seed >= 0, f"seed must be 0 or a positive integer, got {seed}"
        )
        self.seed = int(seed)
        if "exact" in (self.settings.estimator, self.settings.occupancy):
            planning.known_table(self.problem)
        self._environment = environment_spec(env)
        self._simulator = self.problem.simulator(self.seed, masks=self.settings.masks)
        # numpy seeds by several numbers as by one: the second says what the stream is for
        self._update_rng = np.random.default_rng([self.seed, UPDATE_STREAM])
        self._predict_rng = np.random.default_rng([self.seed, PREDICTION_STREAM])
        n_states, n_actions = self.problem.n_states, self.problem.n_actions
        # a cost of the wrong size is refused now, not after the first batch
        self._cost = self.settings.cost
        self._typical_cost = self.settings.typical_cost(n_states, n_actions)
        self._shape = n_states, n_actions
        self._everything_sa = np.ones(self._shape, dtype=np.bool_)
        self.policy_sa = self._first_policy(initial_policy)
        self.estimates = Estimates.unknown(
            self._shape, self.settings.initial_q, by_model=self.settings.by_model
        )
        self.num_timesteps = 0
        self.num_episodes = 0
        self.num_updates = 0
        self._ended_by_task = 0
        self.last_update: dict[str, float] = {}
        self.last_improvement: Improvement | None = None

    @abstractmethod
    def _improve(self, occupancy_s: Floats, gain_sa: Floats, remaining: float) -> Improvement:
        """Steps 4 and 5 of Algorithm 1, when this share of training remains."""

    def _problem(self, occupancy_s: Floats, gain_sa: Floats, remaining: float) -> FiniteProblem:
        radius = self.settings.radius_at(remaining, self._typical_cost)
        allowed_sa = self._simulator.allowed_sa
        return finite_problem(self.policy_sa, occupancy_s, gain_sa, self._cost, radius, allowed_sa)

    def learn(
        self,
        total_timesteps: int,
        callback: Callback | None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` more steps; the last episode is finished.

        Args:
            total_timesteps: steps to play.
            callback: called with the agent after every update; returning False stops. If it has
                a method ``start``, that is called with the agent before the first.
            progress_bar: whether to show one.
        """
        require(total_timesteps > 0, f"total_timesteps must be positive, got {total_timesteps}")
        end = self._total_timesteps = self.num_timesteps + int(total_timesteps)
        episodes_before, ended_before = self.num_episodes, self._ended_by_task
        shown = bar(self.problem.name, end, stays=True) if progress_bar else nullcontext()
        with shown as move, self._learning():
            start = getattr(callback, "start", None)
            if start is not None:
                start(self)
            if callback is not None:
                self.while_learning.enter_context(self.telling(callback))
            while self.num_timesteps < end:
                self._iterate(end)
                if move is not None:
                    returned = self.last_update["rollout/ep_rew_mean"]
                    move(min(self.num_timesteps, end), f"return {returned:.1f}")
                if not self._after_update():
                    break
        if self._ended_by_task == ended_before:
            say_endless(self.problem, self.num_episodes - episodes_before)
        return self

    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one observation or an array of them, and None, as SB3's agents return.

        Args:
            observation: a state, or an array of states.
            state: unused; the agent has no memory.
            episode_start: unused.
            deterministic: take the most probable action instead of sampling one.
        """
        states = np.asarray(observation)
        n_states = self.problem.n_states
        require(
            np.issubdtype(states.dtype, np.integer)
            and bool(((states >= 0) & (states < n_states)).all()),
            f"an observation must be a state 0..{n_states - 1}, got {observation!r}",
        )
        if deterministic:
            return self.policy_sa[states].argmax(axis=-1), None
        level = self._predict_rng.random(states.shape)[..., None]
        cumulative = self.policy_sa[states].cumsum(axis=-1)
        # rounding may leave the total below the level: scale, so that an action always remains
        return (cumulative <= level * cumulative[..., -1:]).sum(axis=-1), None

    def evaluate(self, episodes: int = 10, *, deterministic: bool = False, seed: int = 0) -> Floats:
        """Undiscounted returns of fresh episodes; training and its random streams don't notice.

        Args:
            episodes: how many.
            deterministic: play the most probable action instead of sampling.
            seed: of the evaluation's own streams.
        """
        require(episodes >= 1, f"episodes must be at least 1, got {episodes}")
        streams = np.random.SeedSequence([int(seed), EVALUATION_STREAM])
        simulator = self.problem.simulator(streams, masks=self.settings.masks)
        policy_sa = self.policy_sa
        if deterministic:
            policy_sa = np.eye(self.problem.n_actions)[policy_sa.argmax(axis=1)]
        return simulator.returns(policy_sa, episodes)

    def fresh_env(self, **keywords: Any) -> Any:
        """A new environment like that of the agent.

        Args:
            keywords: for `gymnasium.make`, such as ``render_mode``.

        Raises:
            ValueError: if it was not trained in a registered environment.
        """
        return environment_from_spec(self._environment, self.problem.name, **keywords)

    def get_parameters(self) -> dict[str, Floats]:
        """Copies of the policy table and of Q."""
        return {"policy": self.policy_sa.copy(), "q": self.estimates.q_sa.copy()}

    def set_parameters(self, parameters: Mapping[str, ArrayLike]) -> None:
        """Take over a policy table, and Q if it is given."""
        policy_sa = distributions("policy", parameters["policy"], ndim=2)
        self._require_shape("policy", policy_sa)
        self.policy_sa = policy_sa.copy()
        if "q" in parameters:
            q_sa = floats("q", parameters["q"], ndim=2)
            self._require_shape("q", q_sa)
            self.estimates.q_sa[:] = q_sa

    def save(self, path: str | Path) -> None:
        """Write the agent to one file of safetensors and JSON; ``.zip`` is added to a bare name.

        Training continued after `load` is the training that would have followed here.
        """
        arrays, data = self._learnt()
        data["simulator"], _ = self._simulator.capture(arrays)
        bundle.write(path, type(self).__name__, arrays, data)

    def _learnt(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {
            "policy": self.policy_sa,
            "q": self.estimates.q_sa,
            "count": self.estimates.count_sa,
        }
        if self.estimates.model is not None:
            arrays |= self.estimates.model.to_arrays()
        if self._simulator.allowed_sa is not None:
            arrays["allowed"] = self._simulator.allowed_sa
        data = {
            "environment": self._environment,
            "problem": self.problem.name,
            "settings": self.settings.to_mapping(),
            "seed": self.seed,
            "num_timesteps": self.num_timesteps,
            "num_episodes": self.num_episodes,
            "num_updates": self.num_updates,
            "ended_by_task": self._ended_by_task,
            "update_rng": self._update_rng.bit_generator.state,
            "predict_rng": self._predict_rng.bit_generator.state,
        }
        return arrays, data

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: "str | gym.Env[Any, Any] | Problem | None" = None,
        **settings: Any,
    ) -> Self:
        """An agent that `save` wrote, ready to act, to be evaluated or to train on.

        Args:
            path: the file, or the directory of a run.
            env: needed if the agent was not trained on a registered environment.
            settings: replace saved ones; a schedule that was a function has to be given again.
        """
        saved = Saved(*bundle.read(path, cls.__name__), path)
        with bundle.interpreting(path):
            agent = cls._made_again(saved, env, settings)
            agent._restore(saved.arrays, saved.data)
            agent._simulator.restore(saved.data["simulator"], saved.arrays)
        return agent

    @classmethod
    def _made_again(cls, saved: Saved, env: Any, settings: Mapping[str, Any]) -> Self:
        data = saved.data
        made = environment_from_spec(data["environment"], data["problem"]) if env is None else env
        agent = cls(made, seed=data["seed"], **{**data["settings"], **settings})
        if env is None:
            agent._environment = data["environment"]  # as it was said, not as it was made again
        return agent

    def _kept(self) -> dict[str, Any]:
        return {"total_timesteps": self._total_timesteps}

    def _go_on(self, kept: dict[str, Any], first: Any) -> None:
        self._total_timesteps = int(kept["total_timesteps"])

    def _description(self) -> dict[str, Any]:
        told = self.settings.to_mapping()
        return {"functions": [f.name for f in fields(self.settings) if f.name not in told]}

    def _world(self) -> Simulator:
        return self._simulator

    def _iterate(self, end: int) -> None:
        """One round of Algorithm 1: play, estimate, solve the dual, move the policy."""
        settings = self.settings
        remaining = max(0.0, 1.0 - self.num_timesteps / end)
        batch = self._simulator.rollout(
            self.policy_sa,
            settings.episodes_per_update,
            min(settings.steps_until_update(end), end - self.num_timesteps),
        )
        if self._simulator.allowed_sa is not None:  # stepping may have revealed new masks
            self.policy_sa = within_mask(self.policy_sa, self._simulator.allowed_sa)
        q_sa = self._estimate(batch, max(0.0, remaining - batch.steps / end))
        occupancy_s = estimate_occupancy(
            settings, self.problem, batch, self.policy_sa, self.estimates.visits_s
        )
        # a copy: Q goes on changing, while an improvement stays what it was
        improvement = self._improve(occupancy_s, q_sa.copy(), remaining)
        self.policy_sa = improvement.policy_sa
        self._account(batch, improvement)

    def _estimate(self, batch: Trajectories, remaining: float) -> Floats:
        """Step 3; if numbers are lost the tables are as they were before."""
        require_finite(self.problem.name, "reward", batch.reward_t, self.num_timesteps)
        estimates = self.estimates
        before = estimates.q_sa.copy(), estimates.count_sa.copy(), estimates.model
        q_sa = estimates.update(
            self.settings,
            self.problem,
            batch,
            self.policy_sa,
            self._allowed(),
            remaining,
            self._update_rng,
        )
        try:
            require_finite(self.problem.name, "value Q(s, a)", q_sa, self.num_timesteps)
        except NonFiniteError:
            estimates.q_sa[:], estimates.count_sa[:], estimates.model = before
            raise
        return q_sa

    def _account(self, batch: Trajectories, improvement: Improvement) -> None:
        self.num_timesteps += batch.steps
        self.num_episodes += batch.episodes
        self.num_updates += 1
        self._ended_by_task += batch.episodes - batch.truncated
        self.last_improvement = improvement
        problem = improvement.problem
        primal = float(problem.occupancy_s @ (improvement.policy_sa * problem.gain_sa).sum(axis=1))
        self.last_update = {
            "ot/multiplier": improvement.multiplier,
            "ot/radius": improvement.radius,
            "ot/spent": improvement.spent,
            "ot/split_mass": improvement.split_mass,
            "ot/active_fraction": improvement.moved,
            "ot/violation": violation(improvement.spent, improvement.radius),
            "ot/dual_gap": improvement.value - primal,
            "rollout/ep_rew_mean": batch.total_reward / batch.episodes,
            "rollout/ep_len_mean": batch.steps / batch.episodes,
            "rollout/truncated_fraction": batch.truncated / batch.episodes,
            "time/episodes": float(self.num_episodes),
            "time/updates": float(self.num_updates),
        }
        if improvement.transport is not None:
            self.last_update["ot/transport"] = improvement.transport

    def _allowed(self) -> Bools:
        allowed_sa = self._simulator.allowed_sa
        return self._everything_sa if allowed_sa is None else allowed_sa

    def _first_policy(self, initial_policy: ArrayLike | None) -> Floats:
        allowed_sa = self._allowed()
        if initial_policy is None:
            return within_mask(np.zeros(allowed_sa.shape), allowed_sa)
        policy_sa = distributions("initial_policy", initial_policy, ndim=2)
        self._require_shape("initial_policy", policy_sa)
        return within_mask(policy_sa, allowed_sa)

    def _require_shape(self, name: str, table: Floats) -> None:
        require(
            table.shape == self._shape, f"{name} must have shape {self._shape}, got {table.shape}"
        )

    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        self.set_parameters({name: arrays[name] for name in ("policy", "q")})
        count_sa = non_negative("count", arrays["count"], ndim=2)
        self._require_shape("count", count_sa)
        self.estimates.count_sa[:] = count_sa
        if self.estimates.model is not None:
            self.estimates.model = EmpiricalModel.from_arrays(self._shape, arrays)
        if self._simulator.allowed_sa is not None and "allowed" in arrays:
            self._require_shape("allowed", arrays["allowed"])
            self._simulator.allowed_sa[:] = arrays["allowed"]
        self.num_timesteps = int(data["num_timesteps"])
        self.num_episodes = int(data["num_episodes"])
        self.num_updates = int(data["num_updates"])
        self._ended_by_task = int(data["ended_by_task"])
        self._update_rng.bit_generator.state = data["update_rng"]
        self._predict_rng.bit_generator.state = data["predict_rng"]
