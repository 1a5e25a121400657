"""What every deep agent of ours shares: Stable-Baselines3's interface over the engine.

SB3 wraps environments, runs callbacks and writes logs; networks, acting and updates are those of
`ottrpo.engine`. An agent says which algorithm it is and what its schedules are.
"""

import warnings
from typing import Any, ClassVar, Self

import jax
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from ottrpo.collect.host import collect, made, name_of, source_of
from ottrpo.engine import runtime
from ottrpo.engine.acting import Actor, Eyes, actor_for, draw_noise
from ottrpo.engine.algorithms.base import Algorithm
from ottrpo.engine.estimate import Estimator, Rollout, require_finite_estimates
from ottrpo.engine.schedules import (
    AUTO_REWARD_DISCOUNT,
    FADING_COLOR,
    FADING_TRACE,
    LABELS_GAE_LAMBDA,
    Now,
    Schedules,
    as_schedule,
    is_auto,
    value_at,
)
from ottrpo.engine.spaces import FiniteActions, actions_of, observation_layout
from ottrpo.engine.state import Normaliser, TrainState
from ottrpo.engine.update import require_finite_update
from ottrpo.extras import needed

from .asking import Asked
from .offering import offer
from .policies import OF_SB3_S, POLICIES, actions_for, architecture_of, layout_for, weight_decay_of
from .saving import SavedAgent, streams
from .settings import DeepSettings
from .watching import Locals, RolloutView, Watcher, complete_view, see_to_observation, unbroken

# settings that are asked for at every update; for the others the algorithm is built anew
LIVE = {"learning_rate", "n_steps", "gamma", "gae_lambda", "radius", "noise_color"}
LIVE |= {"sde_sample_freq"}


class DeepAgent(SavedAgent, Asked, BaseAlgorithm):
    """An on-policy agent with SB3's face; subclasses say which algorithm it wears."""

    policy_aliases: ClassVar[dict[str, Any]] = POLICIES
    LOG_STD_INIT: ClassVar[float] = 0.0
    rollout_buffer: Any = None  # a `RolloutView` of the last rollout
    settings_type: ClassVar[type[DeepSettings]]
    algorithm_type: ClassVar[type[Algorithm]]
    told: DeepSettings  # change it by `tell`, or by assigning to the attribute of the setting

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "settings_type" in vars(cls):
            offer(cls)

    def __init__(
        self,
        policy: str | type,
        env: Any,
        *arguments: Any,
        _init_setup_model: bool = True,
        **settings: Any,
    ) -> None:
        told = self.told = self.settings_type.given(type(self).__name__, arguments, settings)
        super().__init__(
            policy=OF_SB3_S.get(policy, policy),
            env=made(env, told.n_envs, told.threads),
            learning_rate=told.learning_rate,
            policy_kwargs=told.policy_kwargs,
            stats_window_size=told.stats_window_size,
            tensorboard_log=needed("tensorboard", told.tensorboard_log),
            verbose=told.verbose,
            device="cpu",  # of torch, which has nothing to do here
            support_multi_env=True,
            seed=told.seed,
            use_sde=told.use_sde,
            sde_sample_freq=told.sde_sample_freq,
        )
        if env is None:
            self.n_envs = told.n_envs  # of the environments to come
        runtime.device_for(str(told.device))  # refused now rather than at the first update
        self.last_update: dict[str, float] = {}
        if _init_setup_model:
            self._setup_model()

    def tell(self, name: str, value: Any) -> None:
        """Change a setting; from the next update on it counts.

        Raises:
            ValueError: if it is not as it must be, or can't change any more.
        """
        told, built = self.told.changed(**{name: value}), "schedules" in vars(self)
        if built and name in told.fixed:
            raise ValueError(
                f"{name} can't change once an agent is built; make another, or "
                f"load(path, {name}=...)"
            )
        self.told = told
        if built:
            self._setup_lr_schedule()
            self.schedules = self._schedules()
            if name not in LIVE or self._outdated():
                self.algorithm = self._algorithm()

    def _outdated(self) -> bool:
        """Whether the algorithm has to be built anew for what the schedules say."""
        return False

    @property
    def discount(self) -> float:
        """γ now. ``auto`` looks as far ahead as recent episodes lasted."""
        return float(self._now().discount)

    @property
    def trace_decay(self) -> float:
        """λ of the advantage estimate now; by default it fades for boxes, and stays for labels."""
        return float(self._now().trace_decay)

    def _lasted(self) -> float:
        """How many steps recent episodes took; before the first has ended, at least."""
        lengths = [episode["l"] for episode in self.ep_info_buffer or ()]
        return float(np.mean(lengths)) if lengths else self.num_timesteps / self.n_envs

    def _now(self) -> Now:
        left, ended = self._current_progress_remaining, self.train_state.signal.ended
        return self.schedules.now(left, self._lasted(), ended)

    # ------------------------------------------------------------------ building

    def _setup_model(self) -> None:
        if not hasattr(self, "observation_space"):
            raise ValueError("an agent needs an environment to learn its spaces from, got None")
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        self.rng, self._predict_rng, init_rng = streams(self.seed)
        self._plan_networks()
        self.schedules = self._schedules()
        self.algorithm = self._algorithm()
        with jax.default_device(self.jax_device):
            environments = 1 if self.env is None else self.n_envs
            self.train_state = self.algorithm.init(init_rng, self.rng, environments)
        rollout = 0 if self.env is None else self.told.n_steps * self.n_envs
        batch_size = self.told.batch_size
        if rollout > batch_size and rollout % batch_size:
            warnings.warn(
                f"batch_size {batch_size} does not divide the {rollout} steps of a rollout: "
                f"there will be a truncated mini-batch of size {rollout % batch_size} per epoch",
                stacklevel=2,
            )
        self.policy: Any = self  # SB3's tools look for a policy that predicts

    def _plan_networks(self) -> None:
        self.layout = layout_for(self.policy_class, self.observation_space, self.policy_kwargs)
        self.actions = actions_for(self.action_space, self.policy_kwargs, self.LOG_STD_INIT)
        self.architecture = architecture_of(
            self.policy_kwargs,
            self.layout,
            self.actions,
            use_sde=self.use_sde,
            log_std_init=self.LOG_STD_INIT,
        )

    def _planned_entries(self) -> int:
        self._plan_networks()
        return self.architecture.weights

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        env = made(env)
        # refuse what we cannot do in our own words, before SB3 wraps it
        actions_of(env.action_space)
        observation_layout(env.observation_space, convolve=False)
        wrapped = BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)
        normalised = unwrap_vec_normalize(wrapped)
        if normalised is not None and is_auto(normalised.gamma):  # the Zoo hands it our discount
            normalised.gamma = AUTO_REWARD_DISCOUNT
        return wrapped

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Train in other environments, any number of them.

        A `VecNormalize` around them takes the place of the agent's own normalisation.
        """
        if isinstance(env, str):
            env = made(env, self.n_envs, self.told.threads)
        wrapped, before = self._wrap_env(env, self.verbose), self.n_envs
        check_for_correct_spaces(wrapped, self.observation_space, self.action_space)
        vars(self)["n_envs"] = wrapped.num_envs
        super().set_env(wrapped, force_reset)
        if "schedules" not in vars(self):
            return  # it is about to be built, for these
        self.algorithm, state = self._algorithm(), self.train_state
        if self.n_envs != before:  # what is kept per environment begins anew
            nothing = np.random.default_rng(0)  # is kept of what this draws
            with jax.default_device(self.jax_device):
                fresh = self.algorithm.init(nothing, nothing, self.n_envs)
            state = state._replace(replay=fresh.replay)
        self.train_state = state.elsewhere(self.n_envs)

    def _algorithm(self) -> Algorithm:
        """What the settings describe."""
        return self.algorithm_type(**self._given(self.algorithm_type))

    def _given(self, kind: type[Algorithm], *, limits_end: bool = False) -> dict[str, Any]:
        """What an algorithm of this kind is told: settings of the names of its fields, and more.

        ``limits_end``: a time limit counts as an ending.
        """
        numbered = isinstance(self.observation_space, spaces.Discrete)
        ours = self._vec_normalize_env is None  # a VecNormalize around the environment does it all
        told = self.told
        normaliser = Normaliser(
            measured=self.layout.measured,
            clip_obs=told.clip_obs,
            clip_reward=told.clip_reward,
            discount=told.gamma if isinstance(told.gamma, float) else AUTO_REWARD_DISCOUNT,
            observations=told.normalize_obs and ours,
            rewards=told.normalize_reward and ours,
        )
        return {
            **told.of(kind),
            "architecture": self.architecture,
            "actions": self.actions,
            "estimate": Estimator(normaliser=normaliser, numbered=numbered, limits_end=limits_end),
            "weight_decay": weight_decay_of(self.policy_kwargs),
        }

    def _window(self, steps: int) -> int:
        """How many rollouts have so many steps of all environments together; one at least."""
        return max(1, steps // (self.told.n_steps * (1 if self.env is None else self.n_envs)))

    def _schedules(self, **more: Any) -> Schedules:
        """The settings that change as training proceeds."""
        trace, color = self.told.gae_lambda, self.told.noise_color
        if trace is None:
            labels = isinstance(self.actions, FiniteActions)
            trace = LABELS_GAE_LAMBDA if labels else as_schedule(FADING_TRACE)
        return Schedules(
            learning_rate=lambda left: self.lr_schedule(left),  # SB3 lets it be replaced
            gamma=self.told.gamma,
            gae_lambda=trace,
            noise_color=as_schedule(FADING_COLOR) if color is None else color,
            **more,
        )

    @property
    def train_state(self) -> TrainState:
        """All that training carries from one update to the next, but for counters and chance."""
        return self._train_state

    @train_state.setter
    def train_state(self, state: TrainState) -> None:
        self._train_state = state
        self._predictors: dict[int, Actor] = {}

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Alternate rollouts and updates until ``total_timesteps`` steps were taken.

        As in SB3 the total is a lower bound: the last rollout is always completed. TensorBoard's
        folder has the name of the agent unless ``tb_log_name`` says another.
        """
        tb_log_name = tb_log_name or type(self).__name__
        self._environment()
        watched = callback is not None or progress_bar
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        with self._learning():
            iteration = 0
            told: Any = Locals(locals())
            callback.on_training_start(told, globals())
            while self.num_timesteps < total_timesteps:
                rollout = self.collect_rollout(callback if watched else None)
                if rollout is None:
                    break
                told["iteration"] = iteration = iteration + 1
                self._update_current_progress_remaining(self.num_timesteps, total_timesteps)
                self._train_and_record(rollout)
                if log_interval is not None and iteration % log_interval == 0:
                    self.dump_logs(iteration)
                if not self._after_update():
                    break
            callback.on_training_end()
        return self

    def dump_logs(self, iteration: int = 0) -> None:
        """Write what was logged since the last time, and how episodes went of late."""
        OnPolicyAlgorithm.dump_logs(self, iteration)  # type: ignore[arg-type]

    def train(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a rollout and return what to log."""
        before, algorithm, now = self.train_state, self.algorithm, self._now()
        state, batch = algorithm.estimate(before, rollout, now)
        require_finite_estimates(self._name, state, batch, rollout.reward.shape, self.num_timesteps)
        draws = algorithm.draw(len(batch.flat), self.rng)
        self.train_state, report = algorithm.improve(before, state, batch, draws, now)
        for remark in algorithm.remarks(report):
            warnings.warn(remark, stacklevel=2)
        return {key: float(value) for key, value in report.items()}

    def _train_and_record(self, rollout: Rollout) -> None:
        before = self.train_state
        complete_view(self, rollout)
        try:
            with jax.default_device(self.jax_device):
                update = self.train(rollout)
            learners = self.train_state.learners
            require_finite_update(self._name, learners, update, self.num_timesteps)
        except Exception:  # whatever happened: no half-trained agent is left behind
            self.train_state = before
            raise
        self.last_update = update
        self._n_updates += 1
        for key, value in self.last_update.items():
            self.logger.record(key, value)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def collect_rollout(self, callback: BaseCallback | None) -> Rollout | None:
        """Act for ``n_steps`` steps in every environment; ``None`` if a callback said stop."""
        if callback is not None:
            callback.on_rollout_start()
        env = self._environment()
        source, masked = source_of(
            env, self.layout, self.actions, name_of(env), watched=callback is not None
        )
        see_to_observation(self)
        steps, policy = self.told.n_steps, self.train_state.networks.policy
        actor = self.actor(steps, source.rows, self.rng, masked=masked, policy=policy)
        watcher = None if callback is None else Watcher(self, callback, actor)
        taken, starts = self.num_timesteps, self._last_episode_starts
        with unbroken(self):
            collected = collect(source, actor, self._seen, steps, watcher, taken=taken)
        if collected is None:
            return None
        rollout, recorder = collected
        self._seen, self._last_episode_starts = recorder.at(-1), rollout.done[-1]
        if watcher is None:
            self._update_info_buffer(recorder.endings, np.ones(len(recorder.endings)))
            self.num_timesteps += steps * source.rows
            self.rollout_buffer = RolloutView(self, actor, recorder, starts=starts)
        else:
            self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
            complete_view(self, rollout)
            watcher.complete()
        return rollout

    def actor(
        self, steps: int, rows: int, rng: Any, *, masked: bool = False, policy: Any = None
    ) -> Actor:
        """As `Playing.actor` says."""
        state, noise = self.train_state, None
        policy, seen = state.played if policy is None else (policy, state.observations)
        if rng is not None:
            left, ended = self._current_progress_remaining, state.signal.ended
            noise = draw_noise(
                policy,
                self.actions,
                rng,
                steps=steps,
                rows=rows,
                sde_sample_freq=self.told.sde_sample_freq,
                noise_color=value_at(self.schedules.noise_color, left, ended),
            )
        eyes = Eyes(self.algorithm.estimate.normaliser, seen)
        return actor_for(policy, eyes, self.actions, rows, noise, masked=masked)

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        super()._update_current_progress_remaining(num_timesteps, total_timesteps)
        # the last rollout may go beyond the total; schedules end at 0
        self._current_progress_remaining = max(self._current_progress_remaining, 0.0)

    def _name(self) -> str:
        return name_of(self._environment())

    def set_random_seed(self, seed: int | None = None) -> None:
        """Begin all that is random anew from ``seed``: of SB3, of training and of `predict`."""
        super().set_random_seed(seed)
        if seed is not None:
            self.rng, self._predict_rng, _ = streams(seed)
