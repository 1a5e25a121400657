"""Numbers that are none, in the imported agents: named, and kept out of all that is learnt."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd

from ottrpo.collect.host import name_of
from ottrpo.core.checks import NonFiniteError
from ottrpo.engine.estimate import ADVICE


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
            self._require_finite_parameters()
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
        for name, running in self._statistics.items():
            if not (np.isfinite(running.mean).all() and np.isfinite(running.var).all()):
                raise NonFiniteError(
                    f"{name_of(self.env)}: the running variance of the {name} overflows at step "
                    f"{self.num_timesteps}; {ADVICE}"
                )
        buffer: Any = self.rollout_buffer
        for quantity, array_tn in (("value", buffer.values), ("advantage", buffer.advantages)):
            if np.isfinite(array_tn).all():
                continue
            t, index = (int(i) for i in np.argwhere(~np.isfinite(array_tn))[-1])
            step = self.num_timesteps - (len(array_tn) - t - 1) * array_tn.shape[1]
            raise NonFiniteError(
                f"{name_of(self.env)}: the {quantity} of environment {index} at step {step} is "
                f"{array_tn[t, index]}; {ADVICE}"
            )

    def _require_finite_parameters(self) -> None:
        lost = self._parameters_lost()
        if lost is not None:
            raise lost

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
