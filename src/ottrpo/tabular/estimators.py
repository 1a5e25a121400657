r"""Step 3 of Algorithm 1 on tables: estimates of Q and of the occupancy.

Q stands for the advantage everywhere: V(s) shifts all actions of a state alike, which changes
neither λ* nor the maps, and Q keeps exact ties exact.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from ottrpo.core.checks import Bools, Floats, require

from . import kernels, planning
from .mdp import FiniteMDP
from .problem import Problem, Trajectories
from .settings import EstimationSettings

_TARGET = {"sarsa": kernels.SARSA, "expected": kernels.EXPECTED, "max": kernels.MAX}
# keeps a z-score finite when all returns agree; the value of the original WPO code
Z_SCORE_OFFSET = 1e-6


@final
@dataclass(eq=False)
class Estimates:
    """Q and how often each pair was updated; what an agent carries between updates."""

    q_sa: Floats
    count_sa: Floats

    @classmethod
    def unknown(cls, shape: tuple[int, int], initial_q: float) -> "Estimates":
        """Nothing known yet."""
        return cls(np.full(shape, float(initial_q)), np.zeros(shape))

    def update(
        self,
        settings: EstimationSettings,
        problem: Problem,
        batch: Trajectories,
        policy_sa: Floats,
        allowed_sa: Bools,
    ) -> Floats:
        """Learn from a batch, in place, and return Q."""
        if not settings.keep_q:
            self.q_sa[:] = settings.initial_q
            self.count_sa[:] = 0.0
        if settings.estimator == "exact":
            self.q_sa[:] = planning.evaluate_policy(
                known_table(problem), policy_sa, settings.discount
            ).q_sa
        elif settings.estimator == "mc":
            self._towards_mean_returns(settings, batch, policy_sa)
        else:
            kernels.td_sweeps(
                self.q_sa,
                self.count_sa,
                batch.columns,
                policy_sa,
                allowed_sa,
                settings.discount,
                settings.learning_rate,
                settings.learning_rate_decay,
                _TARGET[settings.target],
                settings.sweeps,
                settings.direction == "backward",
                settings.bootstrap_at_cap,
            )
        return self.q_sa

    def _towards_mean_returns(
        self, settings: EstimationSettings, batch: Trajectories, policy_sa: Floats
    ) -> None:
        return_t = np.empty(batch.steps)
        value_s = settings.bootstrap_at_cap * (policy_sa * self.q_sa).sum(axis=1)
        kernels.discounted_returns(batch.columns, value_s, settings.discount, return_t)
        if settings.normalise_returns:
            return_t = (return_t - return_t.mean()) / (return_t.std() + Z_SCORE_OFFSET)
        n_states, n_actions = self.q_sa.shape
        row_t = batch.state_t.astype(np.intp) * n_actions + batch.action_t
        visits_r = np.bincount(row_t, minlength=n_states * n_actions)
        total_r = np.bincount(row_t, weights=return_t, minlength=n_states * n_actions)
        seen_r = visits_r > 0
        q_r, count_r = self.q_sa.reshape(-1), self.count_sa.reshape(-1)
        count_r[seen_r] += 1
        rate_r = settings.learning_rate / count_r[seen_r] ** settings.learning_rate_decay
        rate_r[count_r[seen_r] == 1] = 1.0  # the first mean has nothing to be averaged with
        q_r[seen_r] += rate_r * (total_r[seen_r] / visits_r[seen_r] - q_r[seen_r])


def estimate_occupancy(
    settings: EstimationSettings, problem: Problem, batch: Trajectories, policy_sa: Floats
) -> Floats:
    """ρ_s, the weight of each state in the trust-region problem."""
    if settings.occupancy == "exact":
        occupancy_s = planning.exact_occupancy(known_table(problem), policy_sa, settings.discount)
    else:
        occupancy_s = np.zeros(problem.n_states)
        decay = settings.discount if settings.occupancy == "discounted" else 1.0
        kernels.visit_weights(batch.columns, decay, occupancy_s)
        if not settings.normalise_occupancy:
            occupancy_s /= batch.episodes
    return occupancy_s / occupancy_s.sum() if settings.normalise_occupancy else occupancy_s


def known_table(problem: Problem) -> FiniteMDP:
    """The problem as an MDP whose table the exact methods can use."""
    require(
        isinstance(problem, FiniteMDP) and problem.fully_observed,
        f"exact estimates need a known transition table of fully observed states; {problem.name} "
        "has none: use estimator 'td' or 'mc' and occupancy 'visits' or 'discounted'",
    )
    return problem  # type: ignore[return-value]  # checked above
