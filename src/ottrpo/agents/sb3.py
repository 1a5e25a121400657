"""TRPO, PPO and A2C as Stable-Baselines3 and sb3-contrib wrote them, as agents of this library.

The algorithms are imported and left alone. What is added stands around them: construction from
plain settings (several environments, running normalisation, activations and schedules by name),
evaluation that leaves training untouched, saving without pickle, and going on exactly.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Signature
from typing import Any, ClassVar, Self, final

import numpy as np
import sb3_contrib
import stable_baselines3
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ottrpo.collect.host import remade_by_id
from ottrpo.engine.schedules import is_function
from ottrpo.persistence import bundle
from ottrpo.tabular.environments import as_problem
from ottrpo.tabular.problem import Problem

from .checks import at_least
from .copying import NOT_COPIED, copied_along, kept, settle
from .sb3_data import (
    NETWORKS,
    SCHEDULED,
    as_data,
    for_library,
    joint_signature,
    network_arrays,
    optimiser_arrays,
    plain_attributes,
    random_states,
    require_saved,
    require_settings,
    restore_networks,
    restore_optimiser,
    restore_statistics,
    set_random_states,
    statistics_arrays,
    weights,
)
from .sb3_environments import (
    FiniteOnly,
    Guarded,
    copies,
    normalised,
    require_count,
    require_spaces,
)
from .sb3_playing import TOGETHER, noise_from, play, policy_table
from .snapshots import VectorSnapshot

Array = Any
NORMALISER_EPSILON = 1e-8  # VecNormalize's default


class Baseline(VectorSnapshot, Guarded):
    """What the three share; a subclass names this class first and the library's second.

    Args:
        policy: ``MlpPolicy``, ``CnnPolicy`` or ``MultiInputPolicy``.
        env: a Gymnasium id, an environment, or a `VecEnv` that is not normalised yet.
        n_envs: how many copies of an id to step in turns.
        normalize_obs: standardise observations by their running mean and spread.
        normalize_reward: divide rewards by the running spread of the discounted return.
        clip_obs: the largest standardised observation.
        clip_reward: the largest scaled reward.
        seed: of the environments, the networks and the actions.
        device: where torch computes.
        settings: those of the library's class; schedules may be plain data, as for `OTTRPO`.

    The statistics of ``normalize_obs`` belong to the agent: `predict` takes observations as the
    environment gives them, and `get_env` returns the environments that give such.
    """

    __signature__: ClassVar[Signature]
    _random: dict[str, Any] | None  # while it does not learn; then they are everybody's
    _goes_on = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__signature__ = joint_signature(Baseline.__init__, library=cls.__bases__[1])

    def __init__(
        self,
        policy: str,
        env: Any,
        *,
        n_envs: int = 1,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        seed: int | None = None,
        device: str = "cpu",
        _init_setup_model: bool = True,
        **settings: Any,
    ) -> None:
        known = self.__signature__
        require_settings(settings, known, type(self).__name__)
        self._settings: dict[str, Any] = {
            "n_envs": at_least("n_envs", n_envs, 1),
            "normalize_obs": normalize_obs,
            "normalize_reward": normalize_reward,
            "clip_obs": clip_obs,
            "clip_reward": clip_reward,
            "seed": seed,
            "gamma": known.parameters["gamma"].default,
            **as_data(settings),
        }
        self._given_functions = [name for name in SCHEDULED if is_function(settings.get(name))]
        self._statistics: dict[str, RunningMeanStd] = {}
        self._evaluation_envs: list[Any] = []
        self.last_update = {}
        asked = self._settings["n_envs"]
        wrapped = None if env is None else self._wrapped(env, asked)
        self._settings["n_envs"] = getattr(wrapped, "num_envs", asked)
        try:
            with warnings.catch_warnings():
                # a batch that is larger than a rollout is all of it; RL-Zoo does so on purpose
                warnings.filterwarnings("ignore", message=".* after every 0 untruncated")
                super().__init__(
                    policy,
                    wrapped,  # type: ignore[arg-type]
                    **for_library(settings),
                    seed=seed,
                    device=device,
                    _init_setup_model=_init_setup_model,
                )
        except AssertionError as error:  # how the libraries refuse a setting or a space
            raise ValueError(" ".join(str(error).split())) from error
        self._random, self._built = random_states(), plain_attributes(self)

    # ------------------------------------------------------------------ environments

    def _wrapped(self, env: Any, count: int) -> VecEnv:
        """The environments to train in: as many as asked for, normalised if asked for."""
        if isinstance(env, str):
            env = copies(env, count)
        require_spaces(env.observation_space, env.action_space)
        vectorised = self._wrap_env(env, verbose=0)
        if isinstance(vectorised, VecNormalize):
            raise ValueError(
                "the environment is normalised already; pass it bare, with normalize_obs=True "
                "and normalize_reward=True"
            )
        require_count(vectorised, count)
        guarded = FiniteOnly(
            vectorised, lambda: self.num_timesteps, single=not self._settings["normalize_obs"]
        )
        return normalised(guarded, self._settings, self._statistics)

    def get_env(self) -> VecEnv | None:
        """The environments as they give observations, before these are normalised."""
        env = self.env
        while isinstance(env, FiniteOnly | VecNormalize):
            env = env.venv
        return env

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Train in other environments, any number of them; the statistics go on."""
        wrapped = self._wrapped(env, self.n_envs if isinstance(env, str) else 1)
        check_for_correct_spaces(wrapped, self.observation_space, self.action_space)
        self._settings["n_envs"] = self.n_envs = wrapped.num_envs
        if "rollout_buffer" in vars(self):  # else it is about to be built, for these
            self.rollout_buffer.n_envs = self.n_envs
            self.rollout_buffer.reset()
        self._evaluation_envs = []
        vars(self).pop("_problem", None)
        super().set_env(wrapped, force_reset)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: no logger, no environment that can't be copied, new episodes."""
        settle(self.policy.action_dist)
        own = {"env": copied_along(self.get_env()), "_vec_normalize_env": None, "_last_obs": None}
        return kept(self, NOT_COPIED) | own | {"_evaluation_envs": [], "_custom_logger": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"env": None})
        if state["env"] is not None:
            self.set_env(state["env"])

    # ------------------------------------------------------------------ learning and acting

    def learn(self, *arguments: Any, **keywords: Any) -> Self:
        """The library's; see its documentation.

        The libraries draw from generators that all agents of a process share. Here each agent goes
        on where it was, so that what it learns does not depend on who else is there.
        """
        set_random_states(self._randomness())
        self._random, self._goes_on = None, True
        try:
            with self._learning():
                super().learn(*arguments, **keywords)
        finally:
            self._random = random_states()
        return self

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """The library's, unless training was ended after the last update."""
        return self._goes_on and super().collect_rollouts(*arguments, **keywords)

    def train(self) -> None:
        """The library's update; what it logs is kept in ``last_update``."""
        super().train()
        self.last_update = {
            key: float(value)
            for key, value in self.logger.name_to_value.items()
            if key.startswith("train/")
        }
        self._goes_on = self._after_update()

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Array, Any]:
        """Actions for observations as the environment gives them; see the library's `predict`."""
        return super().predict(self._normalised(observation), state, episode_start, deterministic)

    def _normalised(self, observation: Any) -> Any:
        """By the statistics as they are now, which this does not change."""
        running = self._statistics.get("observations")
        if running is None:
            return observation
        standard = (observation - running.mean) / np.sqrt(running.var + NORMALISER_EPSILON)
        limit = self._settings["clip_obs"]
        return np.clip(standard, -limit, limit).astype(np.float32)

    def evaluate(
        self,
        episodes: int,
        *,
        deterministic: bool = True,
        seed: int = 0,
        env: Any = None,
        after_episode: Callable[[], object] = lambda: None,
    ) -> Array:
        """Undiscounted returns of whole episodes, with rewards as they are and frozen statistics.

        Finite problems are played as our tabular agents play them: over the transition table.

        Args:
            episodes: how many.
            deterministic: the policy's mode (True) or its samples (False).
            seed: of the environments and of the noise.
            env: a Gymnasium environment to use; by default new ones like the training one.
            after_episode: called after each; finite problems are played at once.
        """
        if env is None and self._problem is not None:
            table = self.policy_table()
            if deterministic:
                table = np.eye(table.shape[1])[table.argmax(axis=1)]
            streams = np.random.SeedSequence(seed)
            return self._problem.simulator(streams).returns(table, episodes)
        envs = self._for_evaluation(min(episodes, TOGETHER)) if env is None else [env]
        every = self.sde_sample_freq if self.sde_sample_freq > 0 else self.n_steps

        def draw_noise(step: int) -> None:
            if self.use_sde and not deterministic and step % every == 0:
                self.policy.reset_noise(len(envs))

        def act(observations: Array) -> Array:
            return self.predict(observations, deterministic=deterministic)[0]

        with noise_from(seed, self.policy):
            return play(envs, episodes, act, seed, draw_noise, after_episode)

    def policy_table(self) -> Array:
        """Probabilities of the actions in each state; for finite problems only."""
        both = (self.observation_space, self.action_space)
        if not all(isinstance(space, spaces.Discrete) for space in both):
            raise ValueError("only a policy between Discrete spaces is a table")
        return policy_table(self.policy, int(self.observation_space.n))

    @cached_property
    def _problem(self) -> Problem | None:
        """What is trained on, if it is finite."""
        both = (self.observation_space, self.action_space)
        finite = all(isinstance(space, spaces.Discrete) for space in both)
        return as_problem(self.fresh_env()) if finite else None

    def _for_evaluation(self, count: int) -> list[Any]:
        missing = count - len(self._evaluation_envs)
        self._evaluation_envs += [self.fresh_env() for _ in range(missing)]
        return self._evaluation_envs[:count]

    # ------------------------------------------------------------------ saving

    def settings(self) -> dict[str, Any]:
        """The constructor's keywords as plain data, from which an equal agent can be built."""
        now = plain_attributes(self).items()
        return self._settings | {name: x for name, x in now if x != self._built.get(name, x)}

    def _learnt(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {
            **network_arrays(self.policy),
            **optimiser_arrays(self.policy.optimizer),
            **statistics_arrays(self._statistics),
        }
        return arrays, self._said({})

    def _policy_name(self) -> str:
        for name, policy_class in self.policy_aliases.items():
            if policy_class is self.policy_class:
                return name
        raise ValueError(f"only {', '.join(self.policy_aliases)} can be saved")

    def _functions(self) -> list[str]:
        return self._given_functions

    def _description(self) -> dict[str, Any]:
        bare: Any = self.get_env()
        return super()._description() | {"remade_by_id": remade_by_id(bare, copies=True)}

    def _start_from(self, observation: Any) -> Any:
        self._last_obs = observation
        self._last_episode_starts = np.ones(self.n_envs, dtype=bool)
        return observation

    def _kept(self) -> dict[str, Any]:
        return super()._kept() | {"seen": self._last_obs, "starts": self._last_episode_starts}

    def _go_on(self, kept: dict[str, Any], first: Any) -> None:
        self._last_obs, self._last_episode_starts = kept["seen"], kept["starts"]
        super()._go_on(kept, first)

    def _randomness(self) -> dict[str, Any]:
        return random_states() if self._random is None else self._random

    def _set_randomness(self, states: dict[str, Any]) -> None:
        set_random_states(states)
        self._random = states

    @classmethod
    def _bare(cls, data: Mapping[str, Any], settings: Mapping[str, Any]) -> Self:
        require_saved(data["settings"])
        agent = cls(data["policy"], None, _init_setup_model=False, **data["settings"] | settings)
        agent.n_envs = agent._settings["n_envs"]
        return agent

    def _planned_entries(self) -> int:
        return weights(self.policy_kwargs, self.observation_space)

    def _statistics_shapes(self) -> dict[str, tuple[int, ...]]:
        if self._settings["normalize_obs"]:
            return {"rewards": (), "observations": self.observation_space.shape or ()}
        return {"rewards": ()} if self._settings["normalize_reward"] else {}

    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        networks = {name: array for name, array in arrays.items() if name.startswith(NETWORKS)}
        restore_networks(self.policy, networks, exact=True)
        restore_optimiser(self.policy.optimizer, arrays)
        restore_statistics(self._statistics, arrays, self._statistics_shapes())
        self._restore_counters(data["state"])

    def get_parameters(self) -> dict[str, Any]:
        """The trained arrays, by their path."""
        return network_arrays(self.policy)

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto"
    ) -> None:
        """Replace the trained arrays by those of a file or of `get_parameters`.

        Raises:
            ValueError: if names (with ``exact_match``) or shapes differ, or a number is not
                finite; nothing is changed then.
        """
        given = load_path_or_dict
        if not isinstance(given, Mapping):
            saved, _ = bundle.read(given, type(self).__name__)
            given = {k: v for k, v in saved.items() if k.startswith(NETWORKS)}
        restore_networks(self.policy, given, exact=exact_match)


@final
class TRPO(Baseline, sb3_contrib.TRPO):
    """Trust region policy optimisation (Schulman et al., 2015), of sb3-contrib."""


@final
class PPO(Baseline, stable_baselines3.PPO):
    """Proximal policy optimisation (Schulman et al., 2017), of Stable-Baselines3."""


@final
class A2C(Baseline, stable_baselines3.A2C):
    """Advantage actor-critic (Mnih et al., 2016), of Stable-Baselines3."""
