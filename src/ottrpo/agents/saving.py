"""What `DeepAgent` says of itself to files, and becomes from them."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from stable_baselines3.common.utils import check_for_correct_spaces

from ottrpo.engine.spaces import ObservationLayout
from ottrpo.engine.state import TrainState
from ottrpo.persistence import bundle

from .settings import functions_of, saved_names, settings_of
from .snapshots import VectorSnapshot, environment_again
from .spaces import space_from_data
from .state import (
    ACTING_SCALE,
    acting_scale,
    flatten,
    last_observation,
    observation_arrays,
    restored,
    state_arrays,
    state_counts,
    unflatten,
)


class SavedAgent(VectorSnapshot):
    """Saving and loading of an agent whose training is a `TrainState`."""

    train_state: TrainState
    layout: ObservationLayout
    rng: np.random.Generator
    _predict_rng: np.random.Generator
    policy_class: Any
    _setup_model: Any
    _plan_networks: Any
    _planned_entries: Any
    _wrap_env: Any
    set_env: Any
    verbose: int

    def settings(self) -> dict[str, Any]:
        """The constructor's keywords as plain data, from which an equal agent can be built."""
        return settings_of(self)

    def _learnt(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = state_arrays(self.train_state) | observation_arrays(self._last_obs)
        random = {
            "rng": self.rng.bit_generator.state,
            "predict_rng": self._predict_rng.bit_generator.state,
        }
        return arrays, self._said(state_counts(self.train_state) | random)

    def _restore(self, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        state = data["state"]
        self.train_state = restored(self.train_state, arrays, state)
        self.rng.bit_generator.state = state["rng"]
        self._predict_rng.bit_generator.state = state["predict_rng"]
        self._restore_counters(state)
        self._last_obs = last_observation(arrays)

    def _start_from(self, observation: Any) -> None:
        self._last_obs = self.layout.encode(observation, self.n_envs)
        rewards = self.train_state.rewards
        rewards = rewards._replace(return_n=np.zeros_like(rewards.return_n))
        self.train_state = self.train_state._replace(rewards=rewards)

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
            make: Any = cls
            agent: Self = make(
                data["policy"], None, device=device, _init_setup_model=False, **keywords
            )
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
        seen = self.train_state.observations
        return {
            key: array
            for name, learner in self.train_state.learners.items()
            for key, array in flatten(name, learner.networks).items()
        } | dict(zip(ACTING_SCALE, (seen.mean, seen.scale), strict=True))

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
                if ".networks" in k or k in ACTING_SCALE
            }
        known = self.get_parameters()
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(f"this agent has no parameter {unknown[0]!r}; it has {list(known)}")
        learners = {
            name: learner._replace(
                networks=unflatten(name, learner.networks, given, exact=exact_match)
            )
            for name, learner in self.train_state.learners.items()
        }
        seen, wanted = self.train_state.observations, given if exact_match else known | given
        mean, scale = acting_scale(wanted, seen.mean.shape)
        self.train_state = self.train_state._replace(
            learners=learners, observations=seen._replace(mean=mean, scale=scale)
        )
