"""What every deep agent of ours shares: Stable-Baselines3's interface over the JAX engine.

SB3 wraps environments, runs callbacks and writes logs; networks, acting, rollouts and updates are
those of `ottrpo.deep`. An agent adds `train`: what it learns from a rollout.
"""

from abc import abstractmethod
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecTransposeImage

from ottrpo.deep import runtime
from ottrpo.deep.acting import BoxActions, FiniteActions, actor_for
from ottrpo.deep.activations import activation_name
from ottrpo.deep.forward import evaluate_rows
from ottrpo.deep.gae import generalised_advantage
from ottrpo.deep.networks import Architecture, Networks
from ottrpo.deep.normaliser import ObservationNormaliser, RewardNormaliser, RunningMoments
from ottrpo.deep.observations import Encoded, observation_layout
from ottrpo.deep.rollout import Rollout, SingleSource, Source, Step, VectorSource, collect
from ottrpo.deep.update import Learner, start

Array = Any
PREDICT_CHUNK = 1024  # steps of noise drawn at once outside training


class MlpPolicy:
    """Perceptrons on flat observations."""

    convolve = False


class CnnPolicy:
    """Convolutional encoders for images, perceptrons after them."""

    convolve = True


class MultiInputPolicy:
    """Dict observations: convolutional encoders for their images, the rest side by side."""

    convolve = True


@dataclass(frozen=True)
class Experience:
    """A rollout as arrays with rows first, [steps · environments, ...], ready to learn from.

    Attributes:
        flat: normalised features.
        images: images.
        advantage: generalised advantage estimates.
        target: targets of the value function.
        value: the value function's estimates.
        drawn: the actor's record, rows first.
        state: the state as costs see it: its number if observations are numbers, else the raw
            features.
    """

    flat: Array
    images: tuple[Array, ...]
    advantage: Array
    target: Array
    value: Array
    drawn: dict[str, Array]
    state: Array


class DeepAgent(BaseAlgorithm):
    """An on-policy agent with SB3's face; subclasses say in `train` what they learn."""

    policy_aliases: ClassVar[dict[str, Any]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Box,
        spaces.Discrete,
        spaces.MultiDiscrete,
        spaces.MultiBinary,
    )
    LOG_STD_INIT: ClassVar[float] = 0.0

    def __init__(
        self,
        policy: str | type,
        env: Any,
        *,
        learning_rate: Any,
        n_steps: int,
        batch_size: int,
        n_epochs: int,
        gamma: float,
        gae_lambda: float,
        vf_coef: float,
        max_grad_norm: float,
        use_sde: bool,
        sde_sample_freq: int,
        noise_color: float,
        normalize_obs: bool,
        normalize_reward: bool,
        clip_obs: float,
        clip_reward: float,
        stats_window_size: int,
        tensorboard_log: str | None,
        policy_kwargs: dict[str, Any] | None,
        verbose: int,
        seed: int | None,
        device: str,
    ) -> None:
        self.env_name = _name_of(env)
        super().__init__(
            policy=policy,  # type: ignore[arg-type]  # SB3 expects torch modules
            env=_made(env),
            learning_rate=as_schedule(learning_rate),
            policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device="cpu",
            support_multi_env=True,
            seed=seed,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
        )
        self.jax_device = runtime.device_for(str(device))
        self.n_steps = at_least("n_steps", n_steps, 1)
        self.batch_size = at_least("batch_size", batch_size, 1)
        self.n_epochs = at_least("n_epochs", n_epochs, 1)
        self.gamma = _share("gamma", gamma)
        self.gae_lambda = _share("gae_lambda", gae_lambda)
        self.vf_coef = vf_coef
        self.max_grad_norm = max_grad_norm
        self.noise_color = noise_color
        self.normalize_obs = normalize_obs
        self.normalize_reward = normalize_reward
        self.clip_obs = clip_obs
        self.clip_reward = clip_reward
        self.last_update: dict[str, float] = {}

    # ------------------------------------------------------------------ building

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        entropy = np.random.SeedSequence(self.seed)
        train_seed, predict_seed, init_seed = entropy.spawn(3)
        self.rng = np.random.default_rng(train_seed)
        self._predict_rng = np.random.default_rng(predict_seed)
        self.layout = observation_layout(
            self.observation_space,
            convolve=self.policy_class.convolve,  # type: ignore[attr-defined]
        )
        self.actions = actions_of(self.action_space)
        self.architecture = self._architecture()
        with runtime.on(self.jax_device):
            networks = Networks(self.architecture, int(init_seed.generate_state(1)[0] >> 1))
            self.learner: Learner = start(networks, self.max_grad_norm)
        self.observation_normaliser = ObservationNormaliser(
            RunningMoments.of_size(self.layout.features),
            self.layout.measured,
            self.clip_obs,
            enabled=self.normalize_obs and self._vec_normalize_env is None,
        )
        self.reward_normaliser = RewardNormaliser(
            self.gamma,
            self.clip_reward,
            np.zeros(self.n_envs if self.env is not None else 1),
            enabled=self.normalize_reward and self._vec_normalize_env is None,
        )
        self.policy: Any = self  # SB3's callbacks and Zoo scripts look for a policy that predicts
        self._predictors: dict[tuple[int, bool], _Predictor] = {}

    def _architecture(self) -> Architecture:
        known = {"net_arch", "activation_fn", "ortho_init", "log_std_init", "features_dim"}
        unknown = sorted(set(self.policy_kwargs) - known)
        if unknown:
            raise ValueError(
                f"policy_kwargs has no {', '.join(map(repr, unknown))}; known: "
                f"{', '.join(sorted(known))}"
            )
        given = dict(self.policy_kwargs)
        net_arch = given.get("net_arch", (64, 64))
        policy_layers, value_layers = _layers(net_arch)
        box = isinstance(self.actions, BoxActions)
        outputs = self.actions.size if box else self.actions.factors * self.actions.choices
        return Architecture(
            inputs=self.layout.features,
            images=self.layout.images,
            outputs=outputs,
            policy_layers=policy_layers,
            value_layers=value_layers,
            activation=activation_name(given.get("activation_fn", "tanh")),
            ortho_init=bool(given.get("ortho_init", True)),
            log_std_init=float(given.get("log_std_init", self.LOG_STD_INIT)) if box else None,
            use_sde=self.use_sde,
            features_dim=int(given.get("features_dim", 256)),
        )

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        wrapped = BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)
        actions_of(wrapped.action_space)  # refuse what we cannot do, in our own words
        return wrapped

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
        if self.env is None:
            raise ValueError("this agent has no environment; give it one with set_env")
        watched = callback is not None or progress_bar
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        callback.on_training_start(locals(), globals())
        iteration = 0
        while self.num_timesteps < total_timesteps:
            rollout = self.collect_rollout(callback if watched else None)
            if rollout is None:
                break
            iteration += 1
            self._update_current_progress_remaining(self.num_timesteps, total_timesteps)
            with runtime.on(self.jax_device):
                self.last_update = self.train(rollout)
            self._n_updates += 1
            self._predictors.clear()
            for key, value in self.last_update.items():
                self.logger.record(key, value)
            if log_interval is not None and iteration % log_interval == 0:
                self.dump_logs(iteration)
        callback.on_training_end()
        return self

    @abstractmethod
    def train(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a rollout and return what to log."""

    def collect_rollout(self, callback: BaseCallback | None) -> Rollout | None:
        """Act for ``n_steps`` steps in every environment; ``None`` if a callback said stop."""
        source = self._source()
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
            noise_color=self.noise_color,
            masked=self._has_masks,
        )
        on_step = None
        if callback is not None:
            callback.on_rollout_start()
            on_step = _Watcher(self, callback)
        rollout = collect(source, actor, self._last_obs, self.n_steps, on_step)
        if rollout is None:
            return None
        if callback is None:
            self.num_timesteps += self.n_steps * source.rows
        else:
            callback.on_rollout_end()
        self._last_obs = rollout.last
        for info in rollout.endings:
            self._update_info_buffer([info], np.array([True]))
        return rollout

    def _source(self) -> Source:
        env = self.env
        plain = type(env) is DummyVecEnv and env.num_envs == 1
        self._has_masks = isinstance(self.actions, FiniteActions) and _offers_masks(env)

        def masks() -> Array | None:
            if not self._has_masks:
                return None
            return self.actions.pad_mask(np.stack(env.env_method("action_masks")))

        if plain:
            scalar = isinstance(self.actions, FiniteActions) and self.actions.scalar
            return SingleSource(
                env.envs[0], self.layout, self.env_name, masks, scalar_action=scalar
            )
        return VectorSource(env, self.layout, self.env_name, masks)

    def experience(self, rollout: Rollout) -> Experience:
        """Step 3: fold the rollout into the normalisers, and estimate its advantages."""
        steps, rows = rollout.reward.shape
        features = rollout.flat.shape[2]
        self.observation_normaliser.fold(rollout.flat[:-1].reshape(-1, features))
        flat = self.observation_normaliser(rollout.flat.reshape(-1, features))
        images = tuple(_merged(image) for image in rollout.images)
        value = self._values(flat, images).reshape(steps + 1, rows)
        next_value = value[1:].copy()
        for (t, n), final in rollout.final.items():
            final_flat = self.observation_normaliser(final.flat)
            next_value[t, n] = self._values(final_flat, final.images)[0]
        reward = self.reward_normaliser(rollout.reward, rollout.done)
        advantage = generalised_advantage(
            reward,
            value[:-1],
            next_value,
            rollout.terminated,
            rollout.done,
            self.gamma,
            self.gae_lambda,
        )
        used = steps * rows
        return Experience(
            flat=flat[:used],
            images=tuple(image[:used] for image in images),
            advantage=advantage.reshape(-1),
            target=(advantage + value[:-1]).reshape(-1),
            value=value[:-1].reshape(-1),
            drawn={key: _merged(array) for key, array in rollout.drawn.items()},
            state=self._states(rollout.flat[:-1].reshape(-1, features)),
        )

    def _states(self, raw: Array) -> Array:
        if isinstance(self.observation_space, spaces.Discrete):
            return raw.argmax(1)
        return raw.astype(np.float32)

    def _values(self, flat: Array, images: tuple[Array, ...]) -> Array:
        value = self.learner.networks.value
        return evaluate_rows(value.body, value.head, flat, images)[:, 0].astype(np.float64)

    dump_logs = OnPolicyAlgorithm.dump_logs  # type: ignore[assignment]

    # ------------------------------------------------------------------ acting

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Array, None]:
        """Actions for one observation or a batch of them, as SB3's ``predict``."""
        observation, vectorised = self._as_batch(observation)
        rows = _rows_of(observation)
        key = (rows, deterministic)
        if key not in self._predictors:
            self._predictors[key] = _Predictor(self, rows, deterministic, self._predict_rng)
        encoded = self.layout.encode(observation, rows)
        mask = None
        if action_masks is not None:
            mask = self.actions.pad_mask(np.asarray(action_masks).reshape(rows, -1))
        action = self._predictors[key](encoded, mask)
        return (action if vectorised else action[0]), None

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
        env = self._fresh_env() if env is None else env
        predictor = _Predictor(self, 1, deterministic, np.random.default_rng(seed))
        returns = np.zeros(episodes)
        scalar = isinstance(self.actions, FiniteActions) and self.actions.scalar
        observation, _ = env.reset(seed=seed)
        for episode in range(episodes):
            done = False
            while not done:
                encoded = self._encode_for_acting(observation)
                action = predictor(encoded, self._mask_of(env))[0]
                observation, reward, ended, cut, _ = env.step(int(action) if scalar else action)
                returns[episode] += float(reward)
                done = ended or cut
            if episode + 1 < episodes:
                observation, _ = env.reset()
        env.close()
        return returns

    def _encode_for_acting(self, observation: Any) -> Encoded:
        if isinstance(self.env, VecTransposeImage):
            observation = self.env.transpose_observations(_with_axis(observation))
        if self._vec_normalize_env is not None:
            observation = self._vec_normalize_env.normalize_obs(observation)
        return self.layout.encode(observation, 1)

    def _mask_of(self, env: Any) -> Array | None:
        if not isinstance(self.actions, FiniteActions) or not env.has_wrapper_attr("action_masks"):
            return None
        return self.actions.pad_mask(np.asarray(env.get_wrapper_attr("action_masks")())[None])

    def _fresh_env(self) -> Any:
        spec = None
        if self.env is not None:
            spec = self.env.get_attr("spec")[0]
        if spec is None:
            raise ValueError(
                "a fresh environment can't be made: the training one was not made by gym.make; "
                "pass one to evaluate(..., env=...)"
            )
        spec = copy(spec)
        spec.additional_wrappers = tuple(  # SB3's Monitor can't be made again, and is not needed
            wrapper for wrapper in spec.additional_wrappers if wrapper.name != "Monitor"
        )
        return gym.make(spec, disable_env_checker=True)

    def _as_batch(self, observation: Any) -> tuple[Any, bool]:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            key = next(iter(space.spaces))
            leaf = np.asarray(observation[key])
            vectorised = leaf.ndim > len(space.spaces[key].shape or ())
            if not vectorised:
                observation = _with_axis(observation)
            return observation, vectorised
        leaf = np.asarray(observation)
        vectorised = leaf.ndim > len(space.shape or ())
        return (leaf if vectorised else leaf[None]), vectorised

    # ------------------------------------------------------------------ parts SB3 expects

    def set_training_mode(self, mode: bool) -> None:
        """Nothing here behaves differently in training; SB3's tools call this."""


class _Watcher:
    """Tells SB3's callbacks about each step."""

    def __init__(self, agent: DeepAgent, callback: BaseCallback) -> None:
        self._agent, self._callback = agent, callback
        self._locals: dict[str, Any] = {"self": agent, "env": agent.env, "n_steps": 0}
        self._never = np.zeros(agent.n_envs, np.bool_)

    def __call__(self, step: Step, action: Array) -> bool:
        self._agent.num_timesteps += self._agent.n_envs
        dones = self._never
        if step.endings:
            dones = dones.copy()
            dones[[ending.index for ending in step.endings]] = True
        seen = self._locals
        seen["n_steps"] += 1
        seen["actions"] = seen["clipped_actions"] = action
        seen["new_obs"] = step.observation.flat
        seen["rewards"] = np.atleast_1d(step.reward)
        seen["dones"], seen["infos"] = dones, step.infos
        self._callback.update_locals(seen)
        return bool(self._callback.on_step())


class _Predictor:
    """The policy for a fixed number of rows outside training, with noise drawn in chunks."""

    def __init__(
        self, agent: DeepAgent, rows: int, deterministic: bool, rng: np.random.Generator
    ) -> None:
        self._agent, self._rows = agent, rows
        self._rng = None if deterministic else rng
        self._steps = 1 if deterministic else PREDICT_CHUNK
        self._t = self._steps
        self._actor: Any = None

    def __call__(self, observation: Encoded, mask: Array | None) -> Array:
        if self._t >= self._steps:
            if self._actor is None or self._rng is not None:
                self._actor = actor_for(
                    self._agent.learner.networks.policy,
                    self._agent.observation_normaliser,
                    self._agent.actions,
                    steps=self._steps,
                    rows=self._rows,
                    rng=self._rng,
                    sde_sample_freq=self._agent.sde_sample_freq,
                    noise_color=self._agent.noise_color,
                )
            self._t = 0
        action = self._actor.act(self._t, observation.flat, observation.images, mask)
        self._t += 1
        return action


def actions_of(space: spaces.Space[Any]) -> BoxActions | FiniteActions:
    """How the policy sees the action space; an unsupported one is refused by name."""
    if isinstance(space, spaces.Box):
        low, high = (np.asarray(bound, np.float32).reshape(-1) for bound in (space.low, space.high))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(
                f"the action box must be bounded, got {space}; wrap the environment in "
                "gymnasium.wrappers.RescaleAction or clip its actions to finite bounds"
            )
        return BoxActions(low, high, space.shape)
    if isinstance(space, spaces.Discrete):
        return FiniteActions((int(space.n),), np.array([int(space.start)]), scalar=True)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        counts = tuple(int(count) for count in space.nvec)
        return FiniteActions(counts, np.asarray(space.start, np.int64), scalar=False)
    if isinstance(space, spaces.MultiBinary) and isinstance(space.n, int | np.integer):
        n = int(space.n)
        return FiniteActions((2,) * n, np.zeros(n, np.int64), scalar=False)
    raise ValueError(
        f"action space {space} is not supported; allowed: a bounded Box, Discrete, and "
        "MultiDiscrete or MultiBinary with one axis"
    )


def as_schedule(value: Any) -> Any:
    """A number, an SB3 schedule, or ``{"start": x, "end": y}`` for a straight line between."""
    if isinstance(value, dict):
        if set(value) != {"start", "end"}:
            raise ValueError(f"a schedule needs 'start' and 'end', got {sorted(value)}")
        return LinearSchedule(float(value["start"]), float(value["end"]), 1.0)
    if not callable(value) and not isinstance(value, int | float):
        raise ValueError(f"expected a number, a schedule or a start and an end, got {value!r}")
    return value


def _layers(net_arch: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(net_arch, dict):
        unknown = sorted(set(net_arch) - {"pi", "vf"})
        if unknown:
            raise ValueError(f"net_arch has keys 'pi' and 'vf' only, got {unknown}")
        return tuple(net_arch.get("pi", ())), tuple(net_arch.get("vf", ()))
    layers = tuple(int(size) for size in net_arch)
    return layers, layers


def _made(env: Any) -> Any:
    return gym.make(env, disable_env_checker=True) if isinstance(env, str) else env


def _name_of(env: Any) -> str:
    if env is None or isinstance(env, str):
        return str(env)
    spec = env.get_attr("spec")[0] if isinstance(env, VecEnv) else getattr(env, "spec", None)
    return type(env).__name__ if spec is None else str(spec.id)


def _offers_masks(env: VecEnv) -> bool:
    try:
        return bool(env.has_attr("action_masks"))
    except AttributeError:
        return False


def _merged(array: Array) -> Array:
    return array.reshape(-1, *array.shape[2:])


def _rows_of(observation: Any) -> int:
    return len(next(iter(observation.values())) if isinstance(observation, dict) else observation)


def _with_axis(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.asarray(leaf)[None] for key, leaf in observation.items()}
    return np.asarray(observation)[None]


def at_least(name: str, value: Any, least: int) -> int:
    """``value`` as an integer that is large enough."""
    if int(value) != value or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")
    return float(value)
