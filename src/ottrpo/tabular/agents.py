"""Steps 4 and 5 of Algorithm 1 on tables: `TabularOTTRPO`, and `WPO`, which it is compared with."""

from typing import Any, final

import numpy as np
from scipy import optimize

from ottrpo.core import (
    DualProblem,
    FiniteProblem,
    PolicyUpdate,
    SinkhornProblem,
    audit,
    dual_value,
    finite_problem,
    kl_problem,
    push_forward,
    push_plan,
    solve_at,
    solve_dual,
)
from ottrpo.core.checks import Floats, Integers

from .base import TabularAgent
from .problem import Improvement
from .settings import RegionSettings, Tie, WPOSettings


@final
class TabularOTTRPO(TabularAgent):
    """Optimal-transport trust region policy optimisation on finite states and actions.

    Each round plays whole episodes with the current policy, estimates Q and the occupancy,
    solves the dual exactly and moves the policy by the optimal transport plan, which spends the
    radius to the last digit and never more (cor:dual-discrete).

    >>> agent = TabularOTTRPO("CliffWalking-v1", seed=0).learn(200_000)
    >>> agent.evaluate(episodes=2, deterministic=True)
    array([-13., -13.])

    Args:
        env: an environment id, an environment with Discrete observations and actions, or a
            problem of `ottrpo.tabular`.
        seed: of all random streams.
        initial_policy: a table [S, A]; uniform by default.
        settings: see `RegionSettings`.
    """

    name = "ottrpo"
    settings_type = RegionSettings
    settings: RegionSettings

    def _improve(self, occupancy_s: Floats, gain_sa: Floats, remaining: float) -> Improvement:
        problem = self._problem(occupancy_s, gain_sa, remaining)
        return improved(problem, self.settings, self.settings.multiplier_at(remaining))


def improved(
    problem: FiniteProblem, settings: RegionSettings, multiplier: float | None
) -> Improvement:
    """The best policy of the region around the one of the problem.

    Args:
        problem: policy, occupancy and gains; its radius counts unless there is a multiplier.
        settings: say which region.
        multiplier: the price λ of what the region measures; None for the radius of the problem.
    """
    dual, occupancy_s, old_sa = problem.dual, problem.occupancy_s, problem.policy_sa
    transport, split_mass = None, 0.0
    if settings.region == "transport":
        solution = _solved(dual, multiplier)
        update = PolicyUpdate.by(problem, solution)
        policy_sa, split_mass = update.policy_sa, update.split_mass
        moved = dual.weight_r[solution.farthest_r != problem.action_r].sum()
    else:
        if settings.region == "kl":
            region = kl_problem(old_sa, occupancy_s, problem.gain_sa, dual.radius)
            solution = _solved(region, multiplier)
            policy_sa = np.where((occupancy_s > 0)[:, None], solution.plan_rk, old_sa)
        else:
            occupancy, n_actions = float(occupancy_s.sum()), old_sa.shape[1]
            entropy = settings.entropy_for(dual.radius, occupancy, n_actions)
            solution = _solved(SinkhornProblem.smoothing(dual, entropy), multiplier)
            policy_sa, transport = push_plan(problem, solution.plan_rk), solution.transport
        moved = occupancy_s @ np.maximum(old_sa - policy_sa, 0.0).sum(axis=1)
    return Improvement(
        problem=problem,
        policy_sa=policy_sa,
        multiplier=solution.multiplier,
        spent=solution.spent,
        value=solution.value,
        split_mass=split_mass,
        moved=float(moved),
        radius=dual.radius if multiplier is None else solution.spent,
        transport=transport,
    )


def _solved(problem: Any, multiplier: float | None) -> Any:
    return solve_dual(problem) if multiplier is None else solve_at(problem, multiplier)


@final
class WPO(TabularAgent):
    """Wasserstein policy optimisation (Song et al.): the same problem, one transport map.

    All mass of a pair (s, a) goes to one best target of A − λc. At the optimal λ some mass is
    indifferent, so a single map leaves radius unused or spends too much; ``tie`` chooses which.

    Args:
        env: as for `TabularOTTRPO`.
        seed: of all random streams.
        initial_policy: a table [S, A]; uniform by default.
        settings: see `WPOSettings`.
    """

    name = "wpo"
    settings_type = WPOSettings
    settings: WPOSettings

    def _improve(self, occupancy_s: Floats, gain_sa: Floats, remaining: float) -> Improvement:
        problem = self._problem(occupancy_s, gain_sa, remaining)
        radius, allowed_sa = problem.dual.radius, self._simulator.allowed_sa
        multiplier, target_r = self._map(problem.dual)
        policy_sa = push_forward(problem, [(target_r, 1.0)])
        unvisited_s = occupancy_s == 0
        if self.settings.update_unvisited and unvisited_s.any():
            rest = finite_problem(policy_sa, unvisited_s, gain_sa, self._cost, radius, allowed_sa)
            rest_r = single_map(rest.dual, multiplier, self.settings.tie)
            policy_sa = push_forward(rest, [(rest_r, 1.0)])
        checked = audit(problem, policy_sa, multiplier)
        return Improvement(
            problem=problem,
            policy_sa=policy_sa,
            multiplier=multiplier,
            spent=checked.spent,
            value=checked.dual,
            split_mass=0.0,
            moved=float(problem.dual.weight_r[target_r != problem.action_r].sum()),
            radius=radius,
        )

    def _map(self, dual: DualProblem) -> tuple[float, Integers]:
        """λ by the rule that was chosen, and the map it implies."""
        settings = self.settings
        if settings.multiplier == "exact":
            solution = solve_dual(dual)
            if settings.tie == "lowest":
                return solution.multiplier, lowest_maximiser(
                    dual, solution.multiplier, solution.nearest_r, solution.farthest_r
                )
            target_r = solution.nearest_r if settings.tie == "stay" else solution.farthest_r
            return solution.multiplier, target_r
        if settings.multiplier == "scalar":
            multiplier = scalar_multiplier(dual)
        elif self.num_episodes <= settings.solve_episodes:
            multiplier = annealed_multiplier(dual, self._update_rng)
        else:
            noise = settings.fixed_multiplier_spread * (self._update_rng.random() - 0.5)
            multiplier = settings.fixed_multiplier + noise
        return multiplier, single_map(dual, multiplier, settings.tie)


def single_map(dual: DualProblem, multiplier: float, tie: Tie) -> Integers:
    """For each row one maximiser of A − λc, ties between equal numbers broken by the rule."""
    score_rk = dual.gain_rk - multiplier * dual.cost_rk
    if dual.allowed_rk is not None:
        score_rk = np.where(dual.allowed_rk, score_rk, -np.inf)
    best_rk = score_rk == score_rk.max(axis=1, keepdims=True)
    sign = {"lowest": 0.0, "stay": -1.0, "move": 1.0}[tie]
    worth_rk = sign * dual.cost_rk
    target_r: Integers = np.where(best_rk, worth_rk, -np.inf).argmax(axis=1)
    return target_r


def lowest_maximiser(
    dual: DualProblem, multiplier: float, nearest_r: Integers, farthest_r: Integers
) -> Integers:
    """The maximiser of lowest index at an exact λ*.

    λ* is a breakpoint, where the scores of the nearest and the farthest maximiser agree but for
    rounding. Both are known to be maximisers, and so is whatever has exactly the score of one of
    them; no tolerance is needed.
    """
    row = np.arange(dual.rows)
    score_rk = dual.gain_rk - multiplier * dual.cost_rk
    best_rk = score_rk == score_rk[row, nearest_r][:, None]
    best_rk |= score_rk == score_rk[row, farthest_r][:, None]
    if dual.allowed_rk is not None:
        best_rk &= dual.allowed_rk
    target_r: Integers = best_rk.argmax(axis=1)
    return target_r


# What the original WPO code gives to scipy's dual annealing.
ANNEALING_INTERVAL = (0.0, 4.0)
ANNEALING_ITERATIONS = 20


def annealed_multiplier(dual: DualProblem, rng: np.random.Generator) -> float:
    """λ as the original WPO code finds it: simulated annealing on a fixed interval."""
    result = optimize.dual_annealing(
        lambda multiplier: dual_value(dual, float(multiplier[0])),
        [ANNEALING_INTERVAL],
        maxiter=ANNEALING_ITERATIONS,
        rng=rng,
    )
    return float(result.x[0])


def scalar_multiplier(dual: DualProblem) -> float:
    """λ by a numerical minimiser of one variable, which stops near λ*, on either side of it."""
    costly = dual.cost_rk > 0
    if not costly.any():
        return 0.0
    # beyond the largest gain per cost nothing moves, so λ* lies below
    highest = float(np.ptp(dual.gain_rk, axis=1).max() / dual.cost_rk[costly].min())
    if highest == 0:
        return 0.0
    result = optimize.minimize_scalar(
        lambda multiplier: dual_value(dual, float(multiplier)),
        bounds=(0.0, highest),
        method="bounded",
    )
    return float(result.x)
