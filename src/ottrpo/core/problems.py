r"""The finite problems behind every way the paper evaluates its dual.

All of them are one problem. Rows r are (state, source action) pairs with weight w_r; each row has
K candidate targets with gain A_rk and transport cost c_rk, one of which is to stay, at no cost:

    max  Σ_r w_r Σ_k p_rk A_rk    over distributions p_r on the candidates of each row,
    s.t. Σ_r w_r Σ_k p_rk c_rk ≤ ε.

`DualProblem` holds it; the functions below build it from policies, from Gaussian means with
sampled actions, or from any candidate set. `LinearProblem` is its limit for a gain that is linear
in the action and a quadratic cost, where the candidates are all actions.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from .checks import (
    Bools,
    Floats,
    Integers,
    distributions,
    floats,
    mask,
    non_negative,
    positive_number,
    require,
    same_shape,
)
from .costs import Cost, positive_definite


@final
@dataclass(frozen=True, eq=False, init=False)
class DualProblem:
    """Rows with weights, and candidates with gains and costs, within a transport budget.

    Attributes:
        weight_r: mass of each row, not negative; rows of weight zero are allowed and stay.
        gain_rk: what moving row r to candidate k gains (an advantage, or Q: shifts per row cancel).
        cost_rk: what moving row r to candidate k costs per unit of mass, not negative.
        radius: ε > 0, the largest total cost Σ_r w_r c_rk that may be spent.
        allowed_rk: which candidates may be used; ``None`` if all.
        stay_r: for each row the candidate that stands for staying. Its cost must be 0. By default
            the first allowed candidate of cost 0.
    """

    weight_r: Floats
    gain_rk: Floats
    cost_rk: Floats
    radius: float
    allowed_rk: Bools | None
    stay_r: Integers

    def __init__(
        self,
        weight_r: ArrayLike,
        gain_rk: ArrayLike,
        cost_rk: ArrayLike,
        radius: float,
        allowed_rk: ArrayLike | None = None,
        stay_r: ArrayLike | None = None,
    ) -> None:
        weight, gain, cost = checked_rows(weight_r, gain_rk, cost_rk)
        allowed = mask("allowed_rk", allowed_rk, gain.shape, "gain_rk")
        assign(
            self,
            weight_r=weight,
            gain_rk=gain,
            cost_rk=cost,
            radius=positive_number("radius", radius),
            allowed_rk=allowed,
            stay_r=_stay(cost, allowed, stay_r),
        )

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.gain_rk)

    @property
    def candidates(self) -> int:
        """Number of candidates K."""
        return int(self.gain_rk.shape[1])


@final
@dataclass(frozen=True, eq=False, init=False)
class LinearProblem:
    r"""Gain linear in the action, cost quadratic: candidates are *all* displacements δ ∈ ℝᵈ.

        max Σ_r w_r g_r·δ_r   s.t.   Σ_r w_r δ_rᵀ M δ_r ≤ ε

    Attributes:
        weight_r: mass of each row, not negative.
        gradient_rd: g_r, the gradient of the advantage at the row's source action.
        radius: ε > 0.
        metric: M, as ``None`` (identity: squared Euclidean cost), its diagonal [d], or a symmetric
            positive definite matrix [d, d] (Mahalanobis cost).
    """

    weight_r: Floats
    gradient_rd: Floats
    radius: float
    metric: Floats | None

    def __init__(
        self,
        weight_r: ArrayLike,
        gradient_rd: ArrayLike,
        radius: float,
        metric: ArrayLike | None = None,
    ) -> None:
        weight = non_negative("weight_r", weight_r, ndim=1)
        gradient = floats("gradient_rd", gradient_rd, ndim=2)
        require(gradient.size > 0, f"the problem is empty: gradient_rd has shape {gradient.shape}")
        same_shape("weight_r", weight, gradient.shape[:1], "the rows of gradient_rd")
        assign(
            self,
            weight_r=weight,
            gradient_rd=gradient,
            radius=positive_number("radius", radius),
            metric=_metric(metric, gradient.shape[1]),
        )

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return len(self.gradient_rd)


@final
@dataclass(frozen=True, eq=False)
class FiniteProblem:
    """A policy on finite states and actions, and the dual problem of its rows that hold mass.

    Attributes:
        policy_sa: the current policy π.
        occupancy_s: ρ.
        gain_sa: the advantage or Q.
        cost_sab: the cost table, [1, A, A], or [S, A, A] if it depends on the state.
        dual: the problem over rows (s, a) with ρ_s π_sa > 0; its candidates are the actions.
        state_r: state of each row.
        action_r: source action of each row.
    """

    policy_sa: Floats
    occupancy_s: Floats
    gain_sa: Floats
    cost_sab: Floats
    dual: DualProblem
    state_r: Integers
    action_r: Integers


def finite_problem(
    policy_sa: ArrayLike,
    occupancy_s: ArrayLike,
    gain_sa: ArrayLike,
    cost: Cost,
    radius: float,
    allowed_sa: ArrayLike | None = None,
) -> FiniteProblem:
    """The problem of finite states and actions: weights ρ_s π_sa, candidates the actions.

    Args:
        policy_sa: π, a distribution over actions for each state.
        occupancy_s: ρ ≥ 0; it need not sum to one. States where it is 0 take no part.
        gain_sa: the advantage, or Q: a shift per state changes nothing.
        cost: of moving mass between actions; it may depend on the state.
        radius: ε > 0.
        allowed_sa: the actions that may be used in each state; the policy must respect it.
    """
    policy, occupancy, gain, allowed = _checked(policy_sa, occupancy_s, gain_sa, allowed_sa)
    cost_sab = cost_table(cost, *policy.shape)
    weight_sa = occupancy[:, None] * policy
    state_r, action_r = np.nonzero(weight_sa)
    if state_r.size == 0:  # nothing was visited: the rows are there, without weight, and stay
        state_r, action_r = np.nonzero(policy)
    dual = object.__new__(DualProblem)
    assign(  # what it is made of was checked, and need not be again, row by row
        dual,
        weight_r=weight_sa[state_r, action_r],
        gain_rk=gain[state_r],
        cost_rk=cost_sab[state_r if len(cost_sab) > 1 else 0, action_r],
        radius=positive_number("radius", radius),
        allowed_rk=None if allowed is None else allowed[state_r],
        stay_r=action_r,
    )
    return FiniteProblem(policy, occupancy, gain, cost_sab, dual, state_r, action_r)


def mean_and_sample_problem(
    mean_rd: ArrayLike,
    action_rd: ArrayLike,
    advantage_r: ArrayLike,
    cost: Cost,
    radius: float,
    weight_r: ArrayLike | None = None,
    state_r: ArrayLike | None = None,
) -> DualProblem:
    """A Gaussian through its mean, with one sampled action per state (paper, step 4, GAE).

    The candidates of each row are the mean, with gain 0 and cost 0, and the sampled action, with
    its advantage and c(mean, action). Weights default to 1/R: every visited state counts equally.
    """
    mean, action, gain = _samples(mean_rd, action_rd, advantage_r)
    stay = np.zeros(len(gain))
    candidate, gain_rk = action[:, None], gain[:, None]
    return candidates_problem(mean, candidate, gain_rk, cost, radius, stay, weight_r, state_r)


def antithetic_problem(
    mean_rd: ArrayLike,
    action_rd: ArrayLike,
    advantage_r: ArrayLike,
    cost: Cost,
    radius: float,
    weight_r: ArrayLike | None = None,
    state_r: ArrayLike | None = None,
) -> DualProblem:
    """As `mean_and_sample_problem`, but a bad action speaks for its mirror image.

    To first order around the mean m the advantage is odd, A(m + δ) = −A(m − δ), so a negative
    advantage at a is a positive one at 2m − a, and no sample is lost.
    """
    mean, action, advantage = _samples(mean_rd, action_rd, advantage_r)
    target = np.where(advantage[:, None] >= 0, action, 2.0 * mean - action)
    gain = np.abs(advantage)
    return mean_and_sample_problem(mean, target, gain, cost, radius, weight_r, state_r)


def candidates_problem(
    source_rd: ArrayLike,
    candidate_rkd: ArrayLike,
    gain_rk: ArrayLike,
    cost: Cost,
    radius: float,
    stay_gain_r: ArrayLike,
    weight_r: ArrayLike | None = None,
    state_r: ArrayLike | None = None,
) -> DualProblem:
    """Any candidate set per row: sampled actions, a learned advantage, an arbitrary policy.

    Candidate 0 of the problem is the source itself, with gain ``stay_gain_r`` and cost 0; the
    given candidates follow in order.

    Args:
        source_rd: the source action of each row (labels [R] for a label cost).
        candidate_rkd: the targets offered to each row (labels [R, K] for a label cost).
        gain_rk: their gains.
        cost: of moving from source to target.
        radius: ε > 0.
        stay_gain_r: the gain of staying.
        weight_r: mass of each row; 1/R by default.
        state_r: the state of each row, for a cost that depends on it.
    """
    source, candidate = np.asarray(source_rd), np.asarray(candidate_rkd)
    gain = floats("gain_rk", gain_rk, ndim=2)
    stay_gain = floats("stay_gain_r", stay_gain_r, ndim=1)
    same_shape("stay_gain_r", stay_gain, gain.shape[:1], "the rows of gain_rk")
    require(
        candidate.shape[:2] == gain.shape and source.shape[:1] == gain.shape[:1],
        f"sources {source.shape} and candidates {candidate.shape} must have the rows and columns "
        f"of gain_rk {gain.shape}",
    )
    state = None if state_r is None else np.asarray(state_r)[:, None]
    cost_rk = np.broadcast_to(np.asarray(cost(source[:, None], candidate, state)), gain.shape)
    return DualProblem(
        weight_r=_weights(weight_r, gain.shape[0]),
        gain_rk=np.concatenate([stay_gain[:, None], gain], axis=1),
        cost_rk=np.concatenate([np.zeros((len(gain), 1)), cost_rk], axis=1),
        radius=radius,
        stay_r=np.zeros(len(gain), dtype=np.intp),
    )


def checked_rows(
    weight_r: ArrayLike, gain_rk: ArrayLike, cost_rk: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Weights, gains and costs that fit together."""
    weight = non_negative("weight_r", weight_r, ndim=1)
    gain = floats("gain_rk", gain_rk, ndim=2)
    cost = non_negative("cost_rk", cost_rk, ndim=2)
    require(gain.size > 0, f"the problem is empty: gain_rk has shape {gain.shape}")
    same_shape("weight_r", weight, gain.shape[:1], "the rows of gain_rk")
    same_shape("cost_rk", cost, gain.shape, "gain_rk")
    return weight, gain, cost


def assign(instance: object, **values: object) -> None:
    """Set attributes of a frozen dataclass that is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _stay(cost: Floats, allowed: Bools | None, stay_r: ArrayLike | None) -> Integers:
    if stay_r is not None:
        named = floats("stay_r", stay_r)
        same_shape("stay_r", named, cost.shape[:1], "the rows of cost_rk")
        require(
            bool(((named >= 0) & (named < cost.shape[1]) & (named == np.floor(named))).all()),
            f"stay_r must name candidates 0..{cost.shape[1] - 1}",
        )
        stay = named.astype(np.intp)
    else:
        free = cost == 0 if allowed is None else (cost == 0) & allowed
        stay = free.argmax(axis=1)
    row = np.arange(len(cost))
    cost_of_staying = cost[row, stay]
    if cost_of_staying.any():
        worst = int(cost_of_staying.argmax())
        raise ValueError(
            "every row needs an allowed candidate of cost 0, to stay (c(a, a) = 0); "
            f"in row {worst} staying costs {cost_of_staying[worst]}"
        )
    if allowed is not None and not allowed[row, stay].all():
        worst = int(np.argmin(allowed[row, stay]))
        raise ValueError(f"every row must be allowed to stay; in row {worst} it is not")
    return stay


def _metric(metric: ArrayLike | None, dimension: int) -> Floats | None:
    if metric is None:
        return None
    array = floats("metric", metric)
    require(
        array.shape in ((dimension,), (dimension, dimension)),
        f"metric must have shape [{dimension}] or [{dimension}, {dimension}], got {array.shape}",
    )
    if array.ndim == 2:
        return positive_definite("metric", array)
    require(bool((array > 0).all()), f"a diagonal metric must be positive, got {array.min()}")
    return array


def _checked(
    policy_sa: ArrayLike, occupancy_s: ArrayLike, gain_sa: ArrayLike, allowed_sa: ArrayLike | None
) -> tuple[Floats, Floats, Floats, Bools | None]:
    policy = distributions("policy_sa", policy_sa, ndim=2)
    occupancy = non_negative("occupancy_s", occupancy_s, ndim=1)
    same_shape("occupancy_s", occupancy, policy.shape[:1], "the states of policy_sa")
    gain = floats("gain_sa", gain_sa, ndim=2)
    same_shape("gain_sa", gain, policy.shape, "policy_sa")
    allowed = mask("allowed_sa", allowed_sa, policy.shape, "policy_sa")
    if allowed is not None:
        blocked = ~allowed.any(axis=1)
        require(
            not blocked.any(),
            f"the mask forbids every action in state {int(blocked.argmax())}; allow at least one",
        )
        forbidden = np.where(allowed, 0.0, policy)
        if forbidden.any():
            state, action = np.unravel_index(int(forbidden.argmax()), policy.shape)
            raise ValueError(
                f"the policy gives probability {policy[state, action]} to action {action} in "
                f"state {state}, which the mask forbids; start from a policy on allowed actions"
            )
    return policy, occupancy, gain, allowed


def cost_table(cost: Cost, n_states: int, n_actions: int) -> Floats:
    """The cost as [1, A, A], or [S, A, A] if it depends on the state, with a zero diagonal."""
    require(isinstance(cost, Cost), f"cost must be a cost of ottrpo.core, got {cost!r}")
    if cost.depends_on_state:
        table = cost.matrix(n_actions, states=n_states)
    else:
        table = cost.matrix(n_actions)[None]
    table = non_negative("the cost", table)
    diagonal = np.diagonal(table, axis1=1, axis2=2)
    require(not diagonal.any(), f"the cost of staying, c(a, a), must be 0; got {diagonal.max()}")
    return table


def _samples(
    mean_rd: ArrayLike, action_rd: ArrayLike, advantage_r: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    mean = floats("mean_rd", mean_rd, ndim=2)
    action = floats("action_rd", action_rd, ndim=2)
    advantage = floats("advantage_r", advantage_r, ndim=1)
    same_shape("action_rd", action, mean.shape, "mean_rd")
    same_shape("advantage_r", advantage, mean.shape[:1], "the rows of mean_rd")
    return mean, action, advantage


def _weights(weight_r: ArrayLike | None, rows: int) -> ArrayLike:
    return np.full(rows, 1.0 / max(rows, 1)) if weight_r is None else weight_r
