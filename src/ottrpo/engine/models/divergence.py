r"""Regions that are not the paper's, with all else as there: KL's, and Sinkhorn's.

``kl`` bounds E KL(π̃ | π), the new policy relative to the old, in nats. Of Gaussians it is

    Σ_j (Δm_j)²/(2σ_j²) + ½ (x_j² − 1) − log x_j,    x = σ̃/σ

so that for the linear model the best step within ε is known up to its multiplier, Δm = σ²g/λ and
x − 1/x = σh/λ (h: the slope along σ), and closed where σ stays: the metric is 1/(2σ²), the policy's
own, in every state. Where all σ are alike that is the transport region of squared costs, in other
units. Of labels the best policy is π exp(A/λ), normalised.

``sinkhorn`` is the paper's with a plan that is charged for being sharp, by a weight that takes a
tenth of the radius at most: the maximum in what an action is worth becomes a smooth one, every
label keeps some mass, and what the plan transports stays within the radius.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ottrpo.core import DualSolution
from ottrpo.core.entropic import SinkhornSolution, sinkhorn_at, solve_sinkhorn
from ottrpo.core.traceable import solve_linear
from ottrpo.engine.arrays import namespace, on_host, program
from ottrpo.engine.networks import Policy
from ottrpo.engine.update import Batch, Spent

from .base import BINDING_SHARE, Plan, PolicyLoss, Price, closed_plan
from .labels import choice_log_probabilities

Array = Any
ENTROPY_SHARE = 0.1  # of the radius, at most; as for tables
WIDEST, HALVINGS = 1e6, 80  # of the enclosure of a multiplier
WORTH_IT = 1e-6  # what a plan must spend beyond the least, to be shortened


def gaussian_kl(old: tuple[Array, Array], new: tuple[Array, Array]) -> Array:
    """KL(new | old) of diagonal Gaussians (mean, σ) [..., d], summed over the last axis."""
    (old_mean, old_std), (mean, std) = old, new
    xp = namespace(mean)
    ratio = std / old_std
    moved = ((mean - old_mean) / old_std) ** 2
    return (0.5 * (moved + ratio**2 - 1.0) - xp.log(ratio)).sum(-1)


def gaussian_kl_spent() -> Spent:
    """The mean divergence of the policy from the rows' old Gaussians, as a compiled function."""

    @program
    def spent(policy: Policy, rows: Batch) -> Array:
        new = policy.gaussian(rows["flat"], rows["images"])
        return gaussian_kl((rows["mean"], rows["std"]), new).mean()

    return spent


def gaussian_kl_plan(mean_rd: Array, std_rd: Array, gradient_rd: Array, radius: Array) -> Plan:
    """The best step of linear gains within E KL ≤ ε; the second half of a gradient is along σ."""
    rows, size = mean_rd.shape
    xp = namespace(mean_rd)
    weight = xp.full(rows, 1.0 / rows)
    unit_rd = 2.0**0.5 * std_rd  # of a step whose square is its divergence
    if gradient_rd.shape[1] == size:
        solution = solve_linear(weight, unit_rd * gradient_rd, radius)
        displacement = unit_rd * solution.nearest_r
        targets = {"target_mean": mean_rd + displacement}
        primal = (gradient_rd * displacement).sum() / rows
    else:
        slope, along = std_rd * gradient_rd[:, :size], std_rd * gradient_rd[:, size:]
        step, spent = _with_sigma(slope, along, radius)
        displacement = std_rd * slope * step
        ratio = _ratio(along * step)
        targets = {"target_mean": mean_rd + displacement, "target_std": std_rd * ratio}
        primal = ((slope**2 * step) + along * (ratio - 1.0)).sum() / rows
        binding = (slope != 0).any() | (along != 0).any()
        multiplier = xp.where(binding, 1.0 / step, 0.0)
        value = primal + multiplier * (radius - spent)
        maps = displacement, displacement
        one = xp.ones_like(primal)
        solution = DualSolution(multiplier, value, spent, binding, one, *maps, 0.0 * one)
    return closed_plan(solution, radius, targets | {"unit": unit_rd}, displacement, primal)


def gaussian_kl_spent_at(std_rd: Array, gradient_rd: Array, price: Price) -> Array:
    """What the best step of linear gains spends when a nat has that price."""
    size = std_rd.shape[1]
    slope = std_rd * gradient_rd[:, :size]
    if gradient_rd.shape[1] == size:
        return 0.5 * (slope**2).sum(-1).mean() / price.multiplier**2
    return _spent_with_sigma(slope, std_rd * gradient_rd[:, size:], 1.0 / price.multiplier)


def _ratio(along: Array) -> Array:
    """σ̃/σ > 0 of a slope σh/λ: the root of x − 1/x."""
    half = 0.5 * along
    xp = namespace(along)
    root = xp.sqrt(half**2 + 1.0)
    # without cancellation: the product of both roots is −1
    return xp.where(half > 0, half + root, 1.0 / (root - half))


def _with_sigma(slope: Array, along: Array, radius: Array) -> tuple[Array, Array]:
    """1/λ* by halving, and what it spends; both slopes are in units of σ."""
    xp = namespace(slope)
    energy = (0.5 * slope**2 + 0.25 * along**2).sum(-1).mean()  # of the divergence, nearby
    guess = xp.sqrt(radius / xp.maximum(energy, xp.finfo(slope.dtype).tiny ** 0.5))
    low, high = guess / WIDEST, guess * WIDEST
    for _ in range(HALVINGS):
        middle = xp.sqrt(low) * xp.sqrt(high)
        inside = _spent_with_sigma(slope, along, middle) <= radius
        low, high = xp.where(inside, middle, low), xp.where(inside, high, middle)
    return low, _spent_with_sigma(slope, along, low)


def _spent_with_sigma(slope: Array, along: Array, step: Array) -> Array:
    """The mean divergence of a step of 1/λ; both slopes are in units of σ."""
    ratio = _ratio(along * step)
    bulk = 0.5 * ((slope * step) ** 2 + (ratio - 1.0) * (ratio + 1.0)) - namespace(slope).log(ratio)
    return bulk.sum(-1).mean()


def towards_gaussian_in_nats(*, learn_std: bool) -> PolicyLoss:
    """Regression on the targets of `gaussian_kl_plan`, in the metric of small divergences."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        mean, std = policy.gaussian(rows["flat"], rows["images"])
        total = weight @ (((mean - rows["target_mean"]) / rows["unit"]) ** 2).sum(-1)
        if learn_std:
            gap = (std - rows["target_std"]) / rows["unit"]
            total += 2.0 * (weight @ (gap**2).sum(-1))
        return total

    return loss


def smooth_plan(
    problem: tuple[Array, Array, Array, Array | Price, Array, Array], *, shrink: bool
) -> tuple[SinkhornSolution, Array, Array]:
    """Solve a smooth dual (arguments of `solve_sinkhorn`); a radius that does not bind is shrunk.

    Returns:
        the solution, the radius it belongs to, and whether the asked radius was inactive.
    """
    weight_r, gain_rk, cost_rk, radius, entropy, reference_rk = problem
    if isinstance(radius, Price):
        price = radius.multiplier * namespace(gain_rk).ones_like(weight_r[0])
        solution = sinkhorn_at(weight_r, gain_rk, cost_rk, price, entropy, reference_rk)
        return solution, radius.radius(solution.spent), namespace(gain_rk).asarray(False)

    def within(radius: Array) -> SinkhornSolution:
        return solve_sinkhorn(weight_r, gain_rk, cost_rk, radius, entropy, reference_rk)

    solution = within(radius)
    xp = namespace(gain_rk)
    inactive = xp.logical_not(solution.binding)
    if on_host(gain_rk) and not (inactive and shrink):
        return solution, radius, inactive
    least = within(xp.zeros_like(radius)).spent  # by entropy alone
    loose = inactive & shrink & (solution.spent > (1.0 + WORTH_IT) * least)
    radius = xp.where(loose, least + BINDING_SHARE * (solution.spent - least), radius)
    return within(radius), radius, inactive


def weight_for(entropy: float | None, radius: Array | Price, most: Array) -> Array:
    """τ as told, or such that ``most`` entropy takes no more than its share of the radius."""
    if entropy is not None:
        return entropy
    if isinstance(radius, Price):
        raise TypeError("at a price the weight of the entropy must be told")
    return ENTROPY_SHARE * radius / most


def summary(solution: SinkhornSolution, gain: Array, active: Array) -> dict[str, Array]:
    """What is worth logging of a smooth dual; plans have nothing to split."""
    return {
        "split_mass": 0.0,
        "active_fraction": active,
        "dual_gap": abs(solution.value - gain),
    }


def as_dual(solution: SinkhornSolution) -> DualSolution:
    """The numbers of a smooth solution where those of an exact one are expected."""
    one = namespace(solution.multiplier).ones_like(solution.multiplier)
    numbers = solution.multiplier, solution.value, solution.spent, solution.binding
    return DualSolution(*numbers, one, solution.plan_rk, solution.plan_rk, 0.0 * one)


def labels_kl_plan(
    probability_rfk: Array,
    gain_rfk: Array,
    allowed_rfk: Array,
    radius: Array | Price,
    *,
    shrink: bool,
) -> Plan:
    """π exp(A/λ*) of every (state, factor), by the dual with the policy as the reference."""
    shape = probability_rfk.shape
    xp = namespace(probability_rfk)
    policy_sa, gain_sa = (x.reshape(-1, shape[2]) for x in (probability_rfk, gain_rfk))
    weight_s = xp.full(len(policy_sa), 1.0 / shape[0])
    one = xp.ones_like(weight_s[0])
    budget = radius if isinstance(radius, Price) else radius * one
    problem = weight_s, gain_sa, xp.zeros_like(gain_sa), budget, one, policy_sa
    solution, radius, inactive = smooth_plan(problem, shrink=shrink)
    target_sa = solution.plan_rk
    rows = {
        "target": target_sa.reshape(shape),
        "gain": gain_rfk,
        "probability": probability_rfk,
        "allowed": allowed_rfk,
    }
    gain = weight_s @ (target_sa * gain_sa).sum(1)
    moved = (abs(target_sa - policy_sa).max(1) > 0).mean()
    return Plan(as_dual(solution), radius, inactive, rows, **summary(solution, gain, moved))


def labels_sinkhorn_plan(
    probability_rfk: Array,
    gain_rfk: Array,
    allowed_rfk: Array,
    cost_sab: Array,
    radius: Array | Price,
    *,
    shrink: bool,
    entropy: float | None = None,
) -> Plan:
    """The policy that Sinkhorn's plan makes of every (state, factor), and smooth worths."""
    shape = states, _, choices = probability_rfk.shape
    xp = namespace(probability_rfk)
    policy_sa, gain_sb, allowed_sb = (
        x.reshape(-1, choices) for x in (probability_rfk, gain_rfk, allowed_rfk)
    )
    cost_sab = xp.broadcast_to(cost_sab, (len(policy_sa), choices, choices))
    weight_r = (policy_sa / states).reshape(-1)
    reference_sb = allowed_sb / allowed_sb.sum(1, keepdims=True)
    gain_sb = xp.where(allowed_sb, gain_sb, 0.0)
    gain_rk, reference_rk = (xp.repeat(x, choices, axis=0) for x in (gain_sb, reference_sb))
    sharp = weight_for(entropy, radius, weight_r.sum() * np.log(max(choices, 2)))
    problem = weight_r, gain_rk, cost_sab.reshape(-1, choices), radius, sharp, reference_rk
    solution, radius, inactive = smooth_plan(problem, shrink=shrink)
    plan_sab = solution.plan_rk.reshape(cost_sab.shape)
    price = xp.maximum(solution.multiplier, xp.finfo(gain_rk.dtype).tiny ** 0.5) * sharp
    score_sab = (gain_sb[:, None] - solution.multiplier * cost_sab) / price
    best_sa = xp.where(allowed_sb[:, None], score_sab, -np.inf).max(2)
    mass_sab = reference_sb[:, None] * xp.exp(xp.minimum(score_sab - best_sa[..., None], 0.0))
    worth_sa = price * (best_sa + xp.log(mass_sab.sum(2)))
    rows = {
        "target": xp.einsum("sa,sab->sb", policy_sa, plan_sab).reshape(shape),
        "worth": xp.where(allowed_sb, worth_sa, 0.0).reshape(shape),
        "allowed": allowed_rfk,
    }
    gain = weight_r @ (solution.plan_rk * gain_rk).sum(1)
    stays = xp.einsum("sa,saa->", policy_sa, plan_sab) / len(policy_sa)
    return Plan(as_dual(solution), radius, inactive, rows, **summary(solution, gain, 1.0 - stays))


def candidates_sinkhorn_plan(
    gain_rk: Array,
    cost_rk: Array,
    radius: Array | Price,
    candidate_rkd: Array,
    noise_sjd: Array,
    state: dict[str, Any],
    *,
    shrink: bool,
    entropy: float | None = None,
) -> Plan:
    """Sinkhorn's plan of sampled sources j of states s: shares of all their candidates."""
    rows, choices = gain_rk.shape
    xp = namespace(gain_rk)
    weight_r = xp.full(rows, 1.0 / rows)
    sharp = weight_for(entropy, radius, np.log(choices))
    reference_rk = xp.full_like(gain_rk, 1.0 / choices)
    problem = weight_r, gain_rk, cost_rk, radius, sharp, reference_rk
    solution, radius, inactive = smooth_plan(problem, shrink=shrink)
    leading = noise_sjd.shape[:2]
    arrays = {
        "noise": noise_sjd,
        "target": candidate_rkd.reshape(*leading, *candidate_rkd.shape[1:]),
        "share": solution.plan_rk.reshape(*leading, choices),
    }
    gain = weight_r @ (solution.plan_rk * gain_rk).sum(1)
    moved = 1.0 - solution.plan_rk[:, 0].mean()  # the first is the source
    told = summary(solution, gain, moved)
    return Plan(as_dual(solution), radius, inactive, arrays | state, **told)


def expected_gain(choices: int) -> PolicyLoss:
    """Ascent on what the problem maximises, mean_r Σ_a π_θ(a|s_r) A_ra."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        probability = jnp.exp(choice_log_probabilities(policy, rows, choices))
        return -weight @ (probability * rows["gain"]).sum((1, 2))

    return loss


def priced_gain(choices: int) -> PolicyLoss:
    """Ascent on mean_r Σ_a π_θ A − λ KL(π_θ | π): up to a constant −λ KL(π_θ | π exp(A/λ))."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        log_new = choice_log_probabilities(policy, rows, choices)
        gain = jnp.exp(log_new) * rows["gain"]
        kl = _labels_kl(rows, log_new)
        return weight @ (constants["multiplier"] * kl - gain.sum((1, 2)))

    return loss


def labels_kl_spent(choices: int) -> Spent:
    """The mean divergence of the policy from the rows' old probabilities, summed over factors."""

    @program
    def spent(policy: Policy, rows: Batch) -> Array:
        return _labels_kl(rows, choice_log_probabilities(policy, rows, choices)).mean()

    return spent


def _labels_kl(rows: Batch, log_new_rfk: Array) -> Array:
    """KL(new | old) [r]; what is forbidden stays so, and has no part in it."""
    log_old = jnp.log(jnp.maximum(rows["probability"], np.finfo(np.float32).tiny))
    each = jnp.exp(log_new_rfk) * (log_new_rfk - log_old)
    return jnp.where(rows["allowed"], each, 0.0).sum((1, 2))
