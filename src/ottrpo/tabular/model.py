r"""What all steps ever taken say of a finite problem, and what a policy is worth under it.

The counts of the transitions are sufficient statistics: nothing else of the past matters. Under
the model that they make, a policy is evaluated exactly over the horizon that scores count, the
step cap: with Q_h the value of h steps to go,

    Q_h(s, a) = (1 − d) (r + Σ P(s'|s, a) V_{h−1}(s')) + d U_h,   V_h(s) = Σ_a π(a|s) Q_h(s, a).

*Doubt* d = (k / (n + k))² is the chance given to the pair being better than all that was seen: that
it leads to U_h, the most that h steps can pay at the rewards seen so far. A pair that was never
tried is all doubt, and so worth trying, whatever the sign and the size of rewards. The square is
for long episodes, which meet doubt at every step: with k / (n + k) hundreds of steps among pairs
that were tried thousands of times promised more than a goal that is seldom reached.

Shares of n visits err by 1/√n, which doubt does not cover: an action that had bad luck a hundred
times would be left for good. So while the policy explores, P is drawn from what the counts leave
possible, Dirichlet's distribution, anew for each update (Thompson's sampling): an action leads as
often as it may well be the best. Where a pair has one outcome there is nothing to draw. A policy
that settles goes by the shares themselves.

What the policy's return gains from action a in state s is Σ_t P(s_t = s) Q_{T−t}(s, a): the
occupancy and the mean of Q under it, which is what step 3 of Algorithm 1 asks for. That is the
slope of the score, and slopes have local optima: to leave a circle pays less, on average over its
steps, than to have left it at the start. So Q_T, with all steps to go, leads until the policy is
to settle, as in policy iteration. A small share of the model's episodes begins in any state that
was ever visited, so that no state is without weight because the present policy avoids it (Kakade
and Langford's restart distribution).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np

from ottrpo.core.checks import Floats, floats, non_negative, require

from . import kernels
from .problem import Trajectories

# The share of the model's episodes that begin anywhere.
RESTARTS = 0.1
# Values that are kept at a time, one for each state and number of steps to go. A horizon that
# does not fit is cut: beyond millions of steps nothing is learnt of its end.
VALUES_AT_MOST = 1 << 24
KEPT = ("key_o", "count_o", "reward_o", "start_s")


@final
@dataclass(eq=False)
class EmpiricalModel:
    """Counts of all transitions seen, their rewards, and where episodes began.

    Attributes:
        n_states: number of states.
        n_actions: number of actions.
        key_o: each transition seen, as ((s A + a) S + s') 2 + terminal, ascending.
        count_o: how often it was seen.
        reward_o: the sum of its rewards.
        start_s: how often an episode began in each state.
    """

    n_states: int
    n_actions: int
    key_o: Any = field(default_factory=lambda: np.empty(0, np.int64))
    count_o: Floats = field(default_factory=lambda: np.empty(0))
    reward_o: Floats = field(default_factory=lambda: np.empty(0))
    start_s: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if not self.start_s.size:
            self.start_s = np.zeros(self.n_states)

    def plus(self, batch: Trajectories) -> Self:
        """The model with a batch of whole episodes added."""
        ended_t = batch.ending_t == kernels.TERMINATED
        row_t = batch.state_t.astype(np.int64) * self.n_actions + batch.action_t
        key_t = (row_t * self.n_states + batch.next_t) * 2 + ended_t
        known = self.key_o.size
        key_o, index = np.unique(np.concatenate([self.key_o, key_t]), return_inverse=True)
        count_o = _sums(index[known:], np.ones(batch.steps), key_o.size)
        reward_o = _sums(index[known:], batch.reward_t, key_o.size)
        count_o[index[:known]] += self.count_o
        reward_o[index[:known]] += self.reward_o
        first_t = np.concatenate([[True], batch.ending_t[:-1] != kernels.RUNNING])
        begun_s = np.bincount(batch.state_t[first_t], minlength=self.n_states)
        start_s = self.start_s + begun_s
        return type(self)(self.n_states, self.n_actions, key_o, count_o, reward_o, start_s)

    @property
    def row_o(self) -> Any:
        """The pair s A + a of each transition."""
        return self.key_o // (2 * self.n_states)

    def visits(self) -> Floats:
        """How often each pair was tried."""
        n_rows = self.n_states * self.n_actions
        count_r = _sums(self.row_o, self.count_o, n_rows)
        return count_r.reshape(self.n_states, self.n_actions)

    def evaluate(
        self,
        policy_sa: Floats,
        step_cap: int,
        discount: float,
        optimism: float,
        *,
        settling: bool = True,
        rng: np.random.Generator | None = None,
    ) -> tuple[Floats, Floats]:
        """The occupancy (expected visits an episode) and Q of a policy.

        Args:
            policy_sa: the policy.
            step_cap: T, the horizon.
            discount: γ; 1 for the return as it is scored.
            optimism: k, visits in favour of every pair. At 0 nothing is doubted but what was
                never tried, and that is taken to be as bad as can be.
            settling: whether Q is the mean over visits, or that of all steps to go.
            rng: draws the chances of what follows each pair; None takes the shares seen.
        """
        horizon = min(step_cap, max(1, VALUES_AT_MOST // self.n_states))
        count_r = self.visits().reshape(-1)
        row_o, tried_r = self.row_o, count_r > 0
        share_o, mean_r = self._outcomes(count_r, rng)
        doubt_r = (optimism / np.maximum(count_r + optimism, 1.0)) ** 2
        model = (
            np.searchsorted(row_o, np.arange(count_r.size + 1)),
            self.key_o // 2 % self.n_states,
            np.where(self.key_o % 2, 0.0, discount * share_o),
            mean_r,
            np.where(tried_r, doubt_r, 1.0),
        )
        visited_s = tried_r.reshape(self.n_states, -1).any(axis=1)
        start_s = (1.0 - RESTARTS) * self.start_s / self.start_s.sum()
        start_s += RESTARTS * visited_s / visited_s.sum()
        unknown_h = self.bound(horizon, best=optimism > 0)
        value_hs = kernels.values_to_go(model, unknown_h, policy_sa)
        occupancy_s, first_sa, q_sa = kernels.weigh(model, unknown_h, policy_sa, value_hs, start_s)
        return occupancy_s, q_sa if settling else first_sa

    def _outcomes(
        self, count_r: Floats, rng: np.random.Generator | None = None
    ) -> tuple[Floats, Floats]:
        """The chance of each transition after its pair, and the mean reward of each pair."""
        row_o = self.row_o
        if rng is None:
            paid_r = _sums(row_o, self.reward_o, count_r.size)
            return self.count_o / count_r[row_o], paid_r / np.maximum(count_r, 1.0)
        # Dirichlet's distribution with the counts as its parameters, by Gamma variates
        weight_o = rng.standard_gamma(self.count_o)
        share_o = weight_o / _sums(row_o, weight_o, count_r.size)[row_o]
        return share_o, _sums(row_o, share_o * self.reward_o / self.count_o, count_r.size)

    def bound(self, horizon: int, *, best: bool) -> Floats:
        """The most (or the least) that h = 0, 1, ... steps can pay at the rewards seen so far.

        Either the episode ends at once, or it goes on to the horizon.
        """
        mean_o, ends_o = self.reward_o / self.count_o, self.key_o % 2 == 1
        pick = max if best else min
        kinds = [mean_o[ends_o], mean_o[~ends_o]]
        ending, going = (float(pick(kind if kind.size else mean_o)) for kind in kinds)
        if best and mean_o.max() == mean_o.min() >= 0:
            ending += 1.0  # no reward differed yet: any number above them says that one may
        last_h = (np.arange(horizon + 1) - 1) * going + pick(going, ending)
        bound_h: Floats = (np.maximum if best else np.minimum)(ending, last_h)
        return bound_h

    def to_arrays(self) -> dict[str, Any]:
        """What is kept in a file."""
        return {f"model.{name}": getattr(self, name) for name in KEPT}

    @classmethod
    def from_arrays(cls, shape: tuple[int, int], arrays: Mapping[str, Any]) -> Self:
        """The model that `to_arrays` described, for a problem of the given size."""
        key_o = np.asarray(arrays["model.key_o"])
        last = 2 * shape[0] * shape[1] * shape[0]
        require(
            key_o.dtype == np.int64
            and key_o.ndim == 1
            and bool((np.diff(key_o) > 0).all())
            and bool(((key_o >= 0) & (key_o < last)).all()),
            "the transitions of the model are not in order",
        )
        count_o = non_negative("the counts of the model", arrays["model.count_o"], ndim=1)
        reward_o = floats("the rewards of the model", arrays["model.reward_o"], ndim=1)
        start_s = non_negative("the starts of the model", arrays["model.start_s"], ndim=1)
        sizes = (count_o.size, reward_o.size, start_s.size)
        require(
            sizes == (key_o.size, key_o.size, shape[0]) and bool(count_o.all()),
            f"the model has {key_o.size} transitions and {shape[0]} states, and tables of {sizes}",
        )
        return cls(*shape, key_o, count_o, reward_o, start_s)


def _sums(index: Any, number: Floats, size: int) -> Floats:
    """What is summed up under each index."""
    return np.asarray(np.bincount(index, weights=number, minlength=size), dtype=np.float64)
