"""Where an imported agent trains: copies of an environment, normalised if asked, and guarded.

Numbers that are none are named, and kept out of all that is learnt.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecNormalize

from ottrpo.collect.host import made, name_of
from ottrpo.core.checks import NonFiniteError
from ottrpo.engine.estimate import ADVICE, require_finite_statistics, require_finite_steps
from ottrpo.engine.spaces import actions_of, observation_layout
from ottrpo.envs import catalogue


def copies(env_id: str, count: int) -> VecEnv:
    """As many environments of an id, stepped in turns."""
    first, name = made(env_id), catalogue.resolve(env_id)
    rest = [catalogue.make(name, disable_env_checker=True) for _ in range(count - 1)]
    monitored = iter([Monitor(env) for env in (first, *rest)])
    return DummyVecEnv([lambda: next(monitored)] * count)


def require_count(env: VecEnv, asked: int) -> None:
    """Refuse environments that are fewer or more than were asked for; 1 asks for any number."""
    if asked not in (1, env.num_envs):
        raise ValueError(
            f"n_envs is {asked}, but the environments given are {env.num_envs}; pass an id to have "
            "them made"
        )


def require_spaces(seen: spaces.Space[Any], taken: spaces.Space[Any]) -> None:
    """Refuse what can't be done in our own words, before SB3 wraps it.

    Labels that do not begin at 0 SB3's networks would take for others.
    """
    actions_of(taken)
    observation_layout(seen, convolve=False)
    for space in (seen, taken):
        leaves = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
        for leaf in leaves:
            if np.any(getattr(leaf, "start", 0)):
                raise ValueError(f"labels must be counted from 0 for this agent, got {leaf}")


def normalised(
    env: VecEnv, given: Mapping[str, Any], statistics: dict[str, RunningMeanStd]
) -> VecEnv:
    """The environments in a `VecNormalize`, if the settings ask for one.

    Args:
        env: the environments.
        given: the settings of the agent.
        statistics: shared with the environments, not copied: they survive a change of them.
    """
    if not (given["normalize_obs"] or given["normalize_reward"]):
        return env
    if given["normalize_obs"] and not isinstance(env.observation_space, spaces.Box):
        raise ValueError(
            f"normalize_obs needs observations in a Box, {name_of(env)} has "
            f"{type(env.observation_space).__name__}; set normalize_obs=false"
        )
    normaliser: Any = VecNormalize(
        env,
        norm_obs=given["normalize_obs"],
        norm_reward=given["normalize_reward"],
        clip_obs=given["clip_obs"],
        clip_reward=given["clip_reward"],
        gamma=given["gamma"],
    )
    normaliser.ret_rms = statistics.setdefault("rewards", normaliser.ret_rms)
    if given["normalize_obs"]:
        normaliser.obs_rms = statistics.setdefault("observations", normaliser.obs_rms)
    return normaliser  # type: ignore[no-any-return]


class FiniteOnly(VecEnvWrapper):
    """Refuses observations and rewards that are NaN or infinite before anybody has seen them.

    Args:
        venv: the environments.
        taken: the steps taken so far.
        single: whether observations go to the networks as they are, which know single floats.
    """

    def __init__(self, venv: VecEnv, taken: Callable[[], int], *, single: bool) -> None:
        super().__init__(venv)
        self._taken, self._single = taken, single

    def reset(self) -> Any:
        """The first observations."""
        observation = self.venv.reset()
        self._require_finite("observation", observation)
        return observation

    def step_wait(self) -> Any:
        """What the environments answer."""
        observation, reward, done, infos = self.venv.step_wait()
        self._require_finite("reward", reward)
        self._require_finite("observation", observation)
        for index in np.flatnonzero(done):
            last = infos[index].get("terminal_observation")
            if last is not None:
                self._require_finite("last observation", last, int(index))
        return observation, reward, done, infos

    def capture_state(self) -> None:
        """There is nothing to capture."""

    def restore_state(self, state: None) -> None:
        """There is nothing to restore."""

    def _require_finite(self, quantity: str, seen: Any, index: int | None = None) -> None:
        for leaf in seen.values() if isinstance(seen, dict) else (seen,):
            with np.errstate(over="ignore"):
                seen_as = np.asarray(leaf, np.float32) if self._single else leaf
            finite = np.isfinite(seen_as)
            if finite.all():
                continue
            at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(finite))[0])
            article = "an" if quantity == "observation" else "a"
            raise NonFiniteError(
                f"{name_of(self.venv)}: environment {at[0] if index is None else index} returned "
                f"{article} {quantity} of {np.atleast_1d(leaf)[at]} at step "
                f"{self._taken() + self.num_envs}; {ADVICE}"
            )


class Guarded(OnPolicyAlgorithm):
    """Before an update the estimates must be finite, after it the parameters; else it is undone."""

    _statistics: dict[str, RunningMeanStd]
    _before: Mapping[str, RunningMeanStd]

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """The library's."""
        self._before = deepcopy(self._statistics)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # told in our own words
                return super().collect_rollouts(*arguments, **keywords)
        except NonFiniteError:
            self._put_statistics_back()
            raise

    def train(self) -> None:
        """The library's."""
        policy: Any = self.policy
        before = deepcopy((policy.state_dict(), policy.optimizer.state_dict(), self._n_updates))
        try:
            self._require_finite_estimates()
            super().train()
            if (lost := self._parameters_lost()) is not None:
                raise lost
        except Exception as error:  # whatever happened: no half-trained agent is left behind
            told = error if isinstance(error, NonFiniteError) else self._parameters_lost()
            policy.load_state_dict(before[0])
            policy.optimizer.load_state_dict(before[1])
            self._n_updates = before[2]
            self._put_statistics_back()
            raise (told or error) from (None if told is error else error)

    def _put_statistics_back(self) -> None:
        for name, kept in self._before.items():  # the environments share them
            running = self._statistics[name]
            running.mean, running.var, running.count = kept.mean, kept.var, kept.count

    def _require_finite_estimates(self) -> None:
        buffer: Any = self.rollout_buffer
        name, end = partial(name_of, self.env), self.num_timesteps
        seen = {key: (running.mean, running.var) for key, running in self._statistics.items()}
        require_finite_statistics(name, seen, end)
        told = {"value": buffer.values, "advantage": buffer.advantages}
        require_finite_steps(name, told, end)

    def _parameters_lost(self) -> NonFiniteError | None:
        """The error if a parameter or a moment of the optimiser is no number."""
        policy: Any = self.policy
        moments = policy.optimizer.state_dict()["state"].values()
        quantities = {
            # the moments are averages of gradients, so they tell of the first bad one
            "gradient": [m for each in moments for m in each.values() if torch.is_tensor(m)],
            "parameter": list(policy.state_dict().values()),
        }
        for quantity, tensors in quantities.items():
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
                return NonFiniteError(
                    f"{name_of(self.env)}: a {quantity} is not finite at step "
                    f"{self.num_timesteps}; {ADVICE}"
                )
        return None
