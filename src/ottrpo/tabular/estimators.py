r"""Step 3 of Algorithm 1 on tables: estimates of Q and of the occupancy.

Q stands for the advantage everywhere: V(s) shifts all actions of a state alike, which changes
neither λ* nor the maps, and Q keeps exact ties exact.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from ottrpo.core.checks import Bools, Floats

from . import kernels, planning
from .model import EmpiricalModel
from .problem import Problem, Trajectories
from .settings import TabularSettings

_TARGET = {"sarsa": kernels.SARSA, "expected": kernels.EXPECTED, "max": kernels.MAX}
# keeps a z-score finite when all returns agree; the value of the original WPO code
Z_SCORE_OFFSET = 1e-6


@final
@dataclass(eq=False)
class Estimates:
    """What an agent carries between updates.

    Attributes:
        q_sa: Q.
        count_sa: how often each pair was updated, or tried where there is a model.
        model: of all steps so far; None if the estimator makes none.
        visits_s: what the model expects of an episode; of the last update, not carried on.
    """

    q_sa: Floats
    count_sa: Floats
    model: EmpiricalModel | None = None
    visits_s: Floats | None = None

    @classmethod
    def unknown(
        cls, shape: tuple[int, int], initial_q: float, *, by_model: bool = False
    ) -> "Estimates":
        """Nothing known yet."""
        model = EmpiricalModel(*shape) if by_model else None
        return cls(np.full(shape, float(initial_q)), np.zeros(shape), model)

    def update(
        self,
        settings: TabularSettings,
        problem: Problem,
        batch: Trajectories,
        policy_sa: Floats,
        allowed_sa: Bools,
        remaining: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> Floats:
        """Learn from a batch, in place, and return Q; this share of training remains.

        A policy that explores is evaluated in a model that ``rng`` draws.
        """
        if self.model is not None:
            self.model = self.model.plus(batch)
            optimism, settling = settings.optimism_at(remaining), settings.settles(remaining)
            self.visits_s, self.q_sa[:] = self.model.evaluate(
                policy_sa,
                problem.step_cap,
                settings.gamma,
                optimism,
                settling=settling,
                rng=None if settling or optimism == 0 else rng,
            )
            self.count_sa[:] = self.model.visits()
            return self.q_sa
        if not settings.keep_q:
            self.q_sa[:] = settings.initial_q
            self.count_sa[:] = 0.0
        if settings.estimator == "exact":
            self.q_sa[:] = planning.evaluate_policy(
                planning.known_table(problem), policy_sa, settings.gamma
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
                settings.gamma,
                settings.learning_rate,
                settings.learning_rate_decay,
                _TARGET[settings.target],
                settings.sweeps,
                settings.direction == "backward",
                settings.bootstrap_at_cap,
            )
        return self.q_sa

    def _towards_mean_returns(
        self, settings: TabularSettings, batch: Trajectories, policy_sa: Floats
    ) -> None:
        return_t = np.empty(batch.steps)
        value_s = settings.bootstrap_at_cap * (policy_sa * self.q_sa).sum(axis=1)
        kernels.discounted_returns(batch.columns, value_s, settings.gamma, return_t)
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
    settings: TabularSettings,
    problem: Problem,
    batch: Trajectories,
    policy_sa: Floats,
    visits_s: Floats | None = None,
) -> Floats:
    """ρ_s, the weight of each state in the trust-region problem.

    Args:
        settings: which one.
        problem: the problem.
        batch: the episodes just played.
        policy_sa: the policy they were played with.
        visits_s: what the model expects of an episode, if there is one.
    """
    if settings.occupancy == "model" and visits_s is not None:
        occupancy_s = visits_s
    elif settings.occupancy == "exact":
        occupancy_s = planning.exact_occupancy(
            planning.known_table(problem), policy_sa, settings.gamma
        )
    else:
        occupancy_s = np.zeros(problem.n_states)
        decay = settings.gamma if settings.occupancy == "discounted" else 1.0
        kernels.visit_weights(batch.columns, decay, occupancy_s)
        if not settings.normalise_occupancy:
            occupancy_s /= batch.episodes
    return occupancy_s / occupancy_s.sum() if settings.normalise_occupancy else occupancy_s
