"""What every deep agent of ours shares: Stable-Baselines3's interface over the JAX engine.

SB3 wraps environments, runs callbacks and writes logs; networks, acting, rollouts and updates are
those of `ottrpo.deep`. An agent adds `train`: what it learns from a rollout.
"""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import FloatSchedule, check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv

from ottrpo.deep import runtime
from ottrpo.deep.acting import FiniteActions, actor_for
from ottrpo.deep.forward import evaluate_rows
from ottrpo.deep.gae import generalised_advantage
from ottrpo.deep.networks import Networks
from ottrpo.deep.normaliser import ObservationNormaliser, RewardNormaliser, RunningMoments
from ottrpo.deep.observations import Encoded, observation_layout
from ottrpo.deep.rollout import Rollout, collect
from ottrpo.deep.update import Learner, start
from ottrpo.persistence import bundle

from . import state
from .environments import Watcher, allowed, fresh_env, made, name_of, source_of
from .experience import Experience, merged
from .guards import require_finite_estimates, require_finite_update
from .predictor import Predictor, as_batch, channels_first, rows_of, with_axis
from .settings import (
    CnnPolicy,
    MlpPolicy,
    MultiInputPolicy,
    architecture_of,
    at_least,
    flag,
    fraction,
    functions_of,
    not_negative,
    positive,
    saved_names,
    scheduled,
    settings_of,
)
from .snapshots import VectorSnapshot, environment_again
from .spaces import actions_of, as_schedule, space_from_data
from .trees import flatten, unflatten

Array = Any
# gamma="auto": how many steps ahead it looks at least and at most
AUTO_HORIZON = (100.0, 1000.0)
# rewards are scaled by the spread of returns at one discount, or their unit would drift with it
AUTO_REWARD_DISCOUNT = 0.995
LABELS_GAE_LAMBDA = 0.95
# while values are unknown, long traces find what pays late; then short ones learn with less noise
FADING_TRACE = {"start": 0.98, "end": 0.92, "end_fraction": 0.3}
# slow noise finds what needs a swing (a car in a valley), white noise then learns to be precise
FADING_COLOR = {"start": 1.0, "end": 0.0, "end_fraction": 0.2}


class DeepAgent(VectorSnapshot, BaseAlgorithm):
    """An on-policy agent with SB3's face; subclasses say in `train` what they learn."""

    policy_aliases: ClassVar[dict[str, Any]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    LOG_STD_INIT: ClassVar[float] = 0.0
    _last_obs: Any

    def __init__(
        self,
        policy: str | type,
        env: Any,
        *,
        learning_rate: Any,
        n_steps: int,
        batch_size: int,
        n_epochs: int,
        gamma: Any,
        gae_lambda: Any,
        vf_coef: float,
        max_grad_norm: float,
        use_sde: bool,
        sde_sample_freq: int,
        noise_color: Any,
        normalize_obs: bool,
        normalize_reward: bool,
        clip_obs: float,
        clip_reward: float,
        stats_window_size: int,
        tensorboard_log: str | None,
        policy_kwargs: dict[str, Any] | None,
        verbose: int,
        seed: int | None,
        device: Any,
        _init_setup_model: bool = True,
    ) -> None:
        super().__init__(
            policy=policy,
            env=made(env),
            learning_rate=scheduled("learning_rate", learning_rate, not_negative),
            policy_kwargs=policy_kwargs,
            stats_window_size=at_least("stats_window_size", stats_window_size, 1),
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device="cpu",  # of torch, which has nothing to do here
            support_multi_env=True,
            seed=seed,
            use_sde=flag("use_sde", use_sde),
            sde_sample_freq=at_least("sde_sample_freq", sde_sample_freq, -1),
        )
        self.jax_device = runtime.device_for(str(device))
        self.n_steps = at_least("n_steps", n_steps, 1)
        self.batch_size = at_least("batch_size", batch_size, 1)
        self.n_epochs = at_least("n_epochs", n_epochs, 1)
        self.gamma = gamma if _is_auto(gamma) else scheduled("gamma", gamma, fraction)
        self.gae_lambda = gae_lambda
        if gae_lambda is not None:
            self.gae_lambda = scheduled("gae_lambda", gae_lambda, fraction)
        self.vf_coef = not_negative("vf_coef", vf_coef)
        self.max_grad_norm = positive("max_grad_norm", max_grad_norm)
        self.noise_color = noise_color
        if use_sde and noise_color is not None and noise_color != 0:
            raise ValueError(f"noise_color {noise_color!r} has no meaning with use_sde")
        color = FADING_COLOR if noise_color is None else noise_color
        self._noise_schedule = FloatSchedule(scheduled("noise_color", color, not_negative))
        self.normalize_obs = flag("normalize_obs", normalize_obs)
        self.normalize_reward = flag("normalize_reward", normalize_reward)
        self.clip_obs = positive("clip_obs", clip_obs)
        self.clip_reward = positive("clip_reward", clip_reward)
        self.last_update: dict[str, float] = {}
        if _init_setup_model:
            self._setup_model()

    @property
    def discount(self) -> float:
        """γ now. ``auto`` looks as far ahead as episodes last: 1 − 1/(mean length of the recent).

        Where episodes still end early, far rewards are noise and a long view finds policies that
        merely survive; where they last, a short view misses what slow motion brings.
        """
        if not _is_auto(self.gamma):
            return float(FloatSchedule(self.gamma)(self._current_progress_remaining))
        lengths = [episode["l"] for episode in self.ep_info_buffer or ()]
        lasted = float(np.mean(lengths)) if lengths else self.num_timesteps / self.n_envs
        return 1.0 - 1.0 / float(np.clip(lasted, *AUTO_HORIZON))

    @property
    def trace_decay(self) -> float:
        """λ of the advantage estimate now; by default it fades for boxes, and stays for labels."""
        value = self.gae_lambda
        if value is None:
            labels = isinstance(self.actions, FiniteActions)
            value = LABELS_GAE_LAMBDA if labels else as_schedule(FADING_TRACE)
        return float(FloatSchedule(value)(self._current_progress_remaining))

    # ------------------------------------------------------------------ building

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        train_seed, predict_seed, init_seed = np.random.SeedSequence(self.seed).spawn(3)
        self.rng = np.random.default_rng(train_seed)
        self._predict_rng = np.random.default_rng(predict_seed)
        self._plan_networks()
        with runtime.on(self.jax_device):
            networks = Networks(self.architecture, np.random.default_rng(init_seed))
            self.learner: Learner = start(networks, self.max_grad_norm)
        ours = self._vec_normalize_env is None  # a VecNormalize around the environment does it all
        self.observation_normaliser = ObservationNormaliser(
            RunningMoments.of_size(self.layout.features),
            self.layout.measured,
            self.clip_obs,
            enabled=self.normalize_obs and ours,
        )
        self.reward_normaliser = RewardNormaliser(
            self.gamma if isinstance(self.gamma, float) else AUTO_REWARD_DISCOUNT,
            self.clip_reward,
            np.zeros(1 if self.env is None else self.n_envs),
            enabled=self.normalize_reward and ours,
        )
        self._predictors: dict[tuple[int, bool], Predictor] = {}
        rollout = 0 if self.env is None else self.n_steps * self.n_envs
        if rollout > self.batch_size and rollout % self.batch_size:
            warnings.warn(
                f"batch_size {self.batch_size} does not divide the {rollout} steps of a rollout: "
                "the last batch of each epoch is smaller",
                stacklevel=2,
            )
        self.policy: Any = self  # SB3's tools look for a policy that predicts

    def _plan_networks(self) -> None:
        policy_class: Any = self.policy_class
        if policy_class not in self.policy_aliases.values():
            known = ", ".join(self.policy_aliases)
            raise ValueError(
                f"policy must be one of {known} (ours, not torch's); got {policy_class}"
            )
        if not hasattr(self, "observation_space"):
            raise ValueError("an agent needs an environment to learn its spaces from, got None")
        self.layout = observation_layout(self.observation_space, convolve=policy_class.convolve)
        if not self.layout.parts:
            raise ValueError(f"there is nothing to observe in {self.observation_space}")
        if policy_class is CnnPolicy and not self.layout.images:
            raise ValueError(
                f"CnnPolicy needs an image, a Box of bytes from 0 to 255 with three axes; got "
                f"{self.observation_space}. Use MlpPolicy"
            )
        self.actions = actions_of(self.action_space)
        self.architecture = architecture_of(
            self.policy_kwargs,
            self.layout,
            self.actions,
            use_sde=self.use_sde,
            log_std_init=self.LOG_STD_INIT,
        )

    def _planned_entries(self) -> int:
        """How many numbers, at least, an agent that was built as planned holds."""
        return self.architecture.weights

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        env = made(env)
        # refuse what we cannot do in our own words, before SB3 wraps it
        actions_of(env.action_space)
        observation_layout(env.observation_space, convolve=False)
        return BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)

    def learners(self) -> dict[str, Learner]:
        """Everything that is trained, by name; an agent with more networks adds them."""
        return {"agent": self.learner}

    def set_learners(self, learners: Mapping[str, Learner]) -> None:
        """Replace what `learners` returned."""
        self.learner = learners["agent"]
        self._predictors.clear()

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 1,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Alternate rollouts and updates until ``total_timesteps`` steps were taken.

        As in SB3 the total is a lower bound: the last rollout is always completed.
        """
        self._environment()
        watched = callback is not None or progress_bar
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        with self._learning():
            callback.on_training_start(locals(), globals())
            iteration = 0
            while self.num_timesteps < total_timesteps:
                rollout = self.collect_rollout(callback if watched else None)
                if rollout is None:
                    break
                iteration += 1
                self._update_current_progress_remaining(self.num_timesteps, total_timesteps)
                self._train_and_record(rollout)
                if log_interval is not None and iteration % log_interval == 0:
                    OnPolicyAlgorithm.dump_logs(self, iteration)  # type: ignore[arg-type]
                if not self._after_update():
                    break
            callback.on_training_end()
        return self

    @abstractmethod
    def train(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a rollout and return what to log."""

    def _train_and_record(self, rollout: Rollout) -> None:
        learners = self.learners()
        normalisers = deepcopy((self.observation_normaliser, self.reward_normaliser))
        try:
            with runtime.on(self.jax_device):
                update = self.train(rollout)
            require_finite_update(self._name, self.learners(), update, self.num_timesteps)
        except Exception:  # whatever happened: no half-trained agent is left behind
            self.set_learners(learners)
            self.observation_normaliser, self.reward_normaliser = normalisers
            raise
        self.last_update = update
        self._n_updates += 1
        self._predictors.clear()
        for key, value in self.last_update.items():
            self.logger.record(key, value)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def collect_rollout(self, callback: BaseCallback | None) -> Rollout | None:
        """Act for ``n_steps`` steps in every environment; ``None`` if a callback said stop."""
        watcher = None
        if callback is not None:
            callback.on_rollout_start()
            watcher = Watcher(self, callback)
        source, masked = source_of(self._environment(), self.layout, self.actions)
        if not isinstance(self._last_obs, Encoded):
            self._last_obs = self.layout.encode(self._last_obs, source.rows)
        actor = actor_for(
            self.learner.networks.policy,
            self.observation_normaliser,
            self.actions,
            steps=self.n_steps,
            rows=source.rows,
            rng=self.rng,
            sde_sample_freq=self.sde_sample_freq,
            noise_color=self._noise_schedule(self._current_progress_remaining),
            masked=masked,
        )
        taken = self.num_timesteps
        rollout = collect(source, actor, self._last_obs, self.n_steps, watcher, taken=taken)
        if rollout is None:
            return None
        self._last_obs = rollout.last
        for info in rollout.endings:
            self._update_info_buffer([info], np.array([True]))
        if callback is None:
            self.num_timesteps += self.n_steps * source.rows
        else:
            callback.on_rollout_end()
        return rollout

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        super()._update_current_progress_remaining(num_timesteps, total_timesteps)
        # the last rollout may go beyond the total; schedules end at 0
        self._current_progress_remaining = max(self._current_progress_remaining, 0.0)

    def _name(self) -> str:
        return name_of(self._environment())

    @np.errstate(over="ignore", invalid="ignore")  # told in our own words
    def experience(self, rollout: Rollout) -> Experience:
        """Step 3: fold the rollout into the normalisers, and estimate its advantages."""
        steps, rows = rollout.reward.shape
        used = steps * rows
        raw = merged(rollout.flat)
        self.observation_normaliser.fold(raw[:used])
        flat = self.observation_normaliser(raw)
        images = tuple(merged(image) for image in rollout.images)
        value = self._values(flat, images).reshape(steps + 1, rows)
        next_value = value[1:].copy()
        if rollout.final:
            where, finals = zip(*rollout.final.items(), strict=True)
            final_flat = self.observation_normaliser(np.concatenate([f.flat for f in finals]))
            final_images = tuple(map(np.concatenate, zip(*(f.images for f in finals), strict=True)))
            next_value[tuple(np.transpose(where))] = self._values(final_flat, final_images)
        advantage = generalised_advantage(
            self.reward_normaliser(rollout.reward, rollout.done),
            value[:-1],
            next_value,
            rollout.terminated,
            rollout.done,
            self.discount,
            self.trace_decay,
        )
        require_finite_estimates(
            self._name,
            {"value": value[:-1], "advantage": advantage},
            {
                "observations": self.observation_normaliser.moments,
                "rewards": self.reward_normaliser.moments,
            },
            self.num_timesteps,
        )
        return Experience(
            flat=flat[:used],
            images=tuple(image[:used] for image in images),
            advantage=advantage.reshape(-1),
            target=(advantage + value[:-1]).reshape(-1),
            value=value[:-1].reshape(-1),
            drawn={key: merged(array) for key, array in rollout.drawn.items()},
            state=self._states(raw[:used]),
        )

    def _states(self, raw: Array) -> Array:
        if isinstance(self.observation_space, spaces.Discrete):
            return raw.argmax(1)
        return raw.astype(np.float32)

    def _values(self, flat: Array, images: tuple[Array, ...]) -> Array:
        value = self.learner.networks.value
        return evaluate_rows(value.body, value.head, flat, images)[:, 0].astype(np.float64)

    # ------------------------------------------------------------------ acting

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Array, None]:
        """Actions for one raw observation or a batch of them, as SB3's ``predict``.

        Args:
            observation: as the environment gives it; it is normalised here.
            state: not used; these policies have no memory.
            episode_start: not used.
            deterministic: the policy's mode (True) or a sample (False).
            action_masks: the allowed actions, for finite action spaces.
        """
        batch, vectorised = as_batch(observation, self.observation_space)
        rows = rows_of(batch)
        encoded = self.layout.encode(channels_first(batch, self.observation_space), rows)
        key = (rows, deterministic)
        if key not in self._predictors:
            self._predictors[key] = self._predictor(
                rows, None if deterministic else self._predict_rng
            )
        mask = None
        if action_masks is not None and isinstance(self.actions, FiniteActions):
            mask = allowed(self.actions, np.asarray(action_masks).reshape(rows, -1))
        action = self._predictors[key](encoded, mask)
        return (action if vectorised else action[0]), None

    def _predictor(self, rows: int, rng: np.random.Generator | None) -> Predictor:
        return Predictor(
            self.learner.networks.policy,
            self.observation_normaliser,
            self.actions,
            rows,
            rng,
            sde_sample_freq=self.sde_sample_freq,
            noise_color=self._noise_schedule(self._current_progress_remaining),
        )

    def evaluate(
        self, episodes: int, *, deterministic: bool = True, seed: int = 0, env: Any = None
    ) -> Array:
        """Undiscounted returns of whole episodes in a fresh environment.

        The environment and the noise have random streams of their own, so training goes on as if
        nothing had happened.

        Args:
            episodes: how many.
            deterministic: the policy's mode (True) or its samples (False).
            seed: of the environment and of the noise.
            env: a Gymnasium environment to use; by default a new one like the training one.
        """
        fresh = env is None
        env = fresh_env(self._environment()) if fresh else env
        predictor = self._predictor(1, None if deterministic else np.random.default_rng(seed))
        returns = np.zeros(episodes)
        observation, _ = env.reset(seed=seed)
        for episode in range(episodes):
            done = False
            while not done:
                action = predictor(self._encode_one(observation), self._mask_of(env))[0]
                observation, reward, terminated, truncated, _ = env.step(action)
                returns[episode] += float(reward)
                done = terminated or truncated
            if episode + 1 < episodes:
                observation, _ = env.reset()
        if fresh:
            env.close()
        return returns

    def _encode_one(self, observation: Any) -> Encoded:
        """One raw observation, through whatever wraps the training environments."""
        if self._vec_normalize_env is None and self.layout.is_plain:
            return Encoded(observation[None])
        batch = channels_first(with_axis(observation), self.observation_space)
        if self._vec_normalize_env is not None:
            batch = self._vec_normalize_env.normalize_obs(batch)
        return self.layout.encode(batch, 1)

    def _mask_of(self, env: Any) -> Array | None:
        if not isinstance(self.actions, FiniteActions) or not env.has_wrapper_attr("action_masks"):
            return None
        return allowed(self.actions, np.asarray(env.get_wrapper_attr("action_masks")())[None])

    def set_training_mode(self, mode: bool) -> None:
        """Nothing here behaves differently in training; SB3's tools call this."""

    # ------------------------------------------------------------------ saving

    def settings(self) -> dict[str, Any]:
        """The constructor's keywords as plain data, from which an equal agent can be built."""
        return settings_of(self)

    def _learnt(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return state.agent_arrays(self), self._said(state.agent_data(self))

    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        state.restore(self, arrays, data["state"])
        self._restore_counters(data["state"])
        self._last_obs = state.last_observation(arrays)

    def _start_from(self, observation: Any) -> None:
        self._last_obs = self.layout.encode(observation, self.n_envs)
        self.reward_normaliser.return_n[:] = 0.0

    def _policy_name(self) -> str:
        policy_class: Any = self.policy_class
        return str(policy_class.__name__)

    def _functions(self) -> list[str]:
        return functions_of(self)

    @classmethod
    def _made_again(
        cls,
        path: Any,
        arrays: Mapping[str, Any],
        data: Mapping[str, Any],
        env: Any,
        settings: Mapping[str, Any],
    ) -> Self:
        settings = dict(settings)
        device = settings.pop("device", "auto")
        env = environment_again(data) if env is None else env
        return cls._from_saved(path, arrays, data, env, device, settings)

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: Any = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **settings: Any,
    ) -> Self:
        """An agent that `save` wrote; it predicts without an environment and learns with one.

        Args:
            path: the file, or the directory of a run.
            env: to go on learning in.
            device: where to compute.
            custom_objects: replacements for saved settings; names that were not saved are
                ignored.
            print_system_info: not supported.
            force_reset: reset the environment when learning goes on.
            settings: replacements for saved settings.
        """
        if print_system_info:
            raise ValueError("print_system_info is not supported; `ottrpo doctor` prints it")
        arrays, data = bundle.read(path, cls.__name__)
        # as in SB3, custom objects stand in for what was saved and are else ignored
        with bundle.interpreting(path):
            replaced = {k: v for k, v in (custom_objects or {}).items() if k in data["settings"]}
        agent = cls._from_saved(path, arrays, data, env, device, replaced | settings)
        if env is None or force_reset:
            agent._last_obs = None
        return agent

    @classmethod
    def _from_saved(
        cls,
        path: Any,
        arrays: Mapping[str, Any],
        data: Mapping[str, Any],
        env: Any,
        device: Any,
        settings: Mapping[str, Any],
    ) -> Self:
        with bundle.interpreting(path):
            saved = dict(data["settings"])
        unknown = sorted(set(saved) - set(saved_names(cls)))
        unknown += sorted(set(settings) - set(saved) - {"tensorboard_log"})  # where, not what
        if unknown:
            known = ", ".join(saved_names(cls))
            raise ValueError(f"{unknown[0]!r} is not a setting; known: {known}")
        keywords = saved | dict(settings)
        with bundle.interpreting(path):
            agent = cls(data["policy"], None, device=device, _init_setup_model=False, **keywords)
            agent.observation_space = space_from_data(data["observation_space"])
            agent.action_space = space_from_data(data["action_space"])
            agent._plan_networks()
            bundle.require_room(agent._planned_entries(), arrays)
        if env is not None:
            agent._adopt(env)
        with bundle.interpreting(path):
            agent._setup_model()
            agent._restore(arrays, data)
        return agent

    def _adopt(self, env: Any) -> None:
        wrapped = self._wrap_env(env, self.verbose)
        check_for_correct_spaces(wrapped, self.observation_space, self.action_space)
        self.n_envs = wrapped.num_envs
        self.set_env(wrapped)

    def get_parameters(self) -> dict[str, Any]:
        """The trained arrays, by their path, and the normalisation the policy acts with."""
        normaliser = self.observation_normaliser
        return {
            key: array
            for name, learner in self.learners().items()
            for key, array in flatten(name, learner.networks).items()
        } | dict(zip(state.ACTING_SCALE, (normaliser.mean, normaliser.scale), strict=True))

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto"
    ) -> None:
        """Replace the trained arrays by those of a file or of `get_parameters`.

        Raises:
            ValueError: if names (with ``exact_match``) or shapes differ; nothing is changed then.
        """
        given = load_path_or_dict
        if isinstance(given, Mapping):
            given = dict(given)
        else:
            saved, _ = bundle.read(given, type(self).__name__)
            given = {
                k.replace(".networks", "", 1): v
                for k, v in saved.items()
                if ".networks" in k or k in state.ACTING_SCALE
            }
        known = self.get_parameters()
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"this agent has no parameter {unknown[0]!r}; it has {list(known)}")
        learners = {
            name: Learner(
                unflatten(name, learner.networks, given, exact=exact_match), learner.moments
            )
            for name, learner in self.learners().items()
        }
        normaliser, wanted = self.observation_normaliser, given if exact_match else known | given
        scale = state.acting_scale(wanted, normaliser.mean.shape)
        self.set_learners(learners)
        normaliser.mean, normaliser.scale = scale


def _is_auto(gamma: Any) -> bool:
    return isinstance(gamma, str) and gamma == "auto"
