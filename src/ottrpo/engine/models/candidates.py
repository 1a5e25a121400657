"""Models with finitely many targets for every source: the paper's candidates.

With the generalised advantage estimate, two: the mean, and the action that was drawn, or its mirror
image. With a learned advantage as many as are asked for, drawn from the policy.
"""

from typing import Any, NamedTuple, final

import jax

from ottrpo.core import Cost, DualProblem, DualSolution, solve_dual
from ottrpo.core.traceable import rows_at, solve_rows
from ottrpo.engine.arrays import Generator, namespace, on_host, sum_of
from ottrpo.engine.networks import Policy
from ottrpo.engine.update import Batch

from .base import BINDING_SHARE, GaussianModel, Given, Options, Plan, PolicyLoss, Price
from .divergence import candidates_sinkhorn_plan

Array = Any


class Rows(NamedTuple):
    """A `DualProblem` as arrays, of NumPy or of JAX; its radius may be a `Price`."""

    weight_r: Array
    gain_rk: Array
    cost_rk: Array
    radius: Array | Price
    allowed_rk: Array | None
    stay_r: Array

    def solve(self) -> DualSolution:
        """The minimiser of its dual."""
        problem: Any = self
        return solve_dual(DualProblem(*problem)) if on_host(self.gain_rk) else solve_rows(*problem)

    def solve_at(self, price: Price) -> tuple[DualSolution, Array, Array]:
        """The best step at a price, what it spends, and that nothing was too large."""
        arrays = self.weight_r, self.gain_rk, self.cost_rk
        solution = rows_at(*arrays, price.multiplier, self.allowed_rk, self.stay_r)
        return solution, price.radius(solution.spent), namespace(self.gain_rk).asarray(False)


def solve_binding(problem: Rows, *, shrink: bool = True) -> tuple[DualSolution, Array, Array]:
    """Solve the dual; if the radius binds nowhere and ``shrink`` is set, shrink it until it does.

    At multiplier 0 the regularised advantage is flat in the policy, and gradient ascent would
    stop for good. A radius of half of what the unconstrained plan spends always binds.

    Returns:
        the solution, the radius it belongs to, and whether the asked radius was inactive.
    """
    if isinstance(problem.radius, Price):
        return problem.solve_at(problem.radius)
    solution = problem.solve()
    xp = namespace(problem.gain_rk)
    inactive = xp.logical_not(solution.binding)
    if not shrink:
        return solution, problem.radius, inactive
    loose, radius = inactive & (solution.spent > 0), BINDING_SHARE * solution.spent
    if not on_host(problem.gain_rk):
        radius = xp.where(loose, radius, problem.radius)
    elif not loose:
        return solution, problem.radius, inactive
    return problem._replace(radius=radius).solve(), radius, inactive


def summary(problem: Rows, solution: DualSolution) -> dict[str, Array]:
    """What is worth logging about a solved candidate problem."""
    xp = namespace(problem.gain_rk)
    near, far, split = solution.nearest_r, solution.farthest_r, solution.split
    moved = (near != problem.stay_r) | ((far != problem.stay_r) & (split < 1))
    mass = problem.weight_r.sum()
    divided = sum_of(problem.weight_r, near != far) / mass
    row = xp.arange(len(near))
    gain_r = split * problem.gain_rk[row, near] + (1.0 - split) * problem.gain_rk[row, far]
    return {
        "split_mass": xp.where((split > 0) & (split < 1), divided, 0.0),
        "active_fraction": sum_of(problem.weight_r, moved) / mass,
        # rounding, if all is well
        "dual_gap": abs(solution.value - problem.weight_r @ gain_r),
    }


class CandidatesModel(GaussianModel):
    """A model with finitely many targets for every source."""

    def loss(self) -> PolicyLoss:
        """Regression on the targets, or the paper's ascent."""
        ascends = self.options.update == "ascent"
        loss = regularised_gaussian_advantage if ascends else towards_gaussian_targets
        return loss(self.options.cost, learn_std=self.options.learn_std)

    def towards(self, given: Given, gain_rk: Array, candidate_rkd: Array, noise_sjd: Array) -> Plan:
        """The plan whose rows are the sources j of the states s; candidate 0 is the source."""
        state = self.state_rows(given.batch)
        sources = noise_sjd.shape[1]
        state_r = None if not state else state["state"].repeat(sources, axis=0)[:, None]
        xp = namespace(gain_rk)
        moved_rk = self.options.cost(candidate_rkd[:, :1], candidate_rkd[:, 1:], state_r)
        rows = len(gain_rk)
        problem = Rows(
            xp.full(rows, 1.0 / rows),
            gain_rk,
            xp.concatenate([xp.zeros((rows, 1)), moved_rk], axis=1),
            given.radius,
            None,
            xp.zeros(rows, dtype=int),
        )
        if self.options.region == "sinkhorn":
            rows_of = gain_rk, problem.cost_rk, given.radius, candidate_rkd, noise_sjd, state
            shrink, entropy = self.options.shrink, self.options.entropy
            return candidates_sinkhorn_plan(*rows_of, shrink=shrink, entropy=entropy)
        return candidates_plan(problem, candidate_rkd, noise_sjd, state, self.options.shrink)

    def among(self, given: Given, source: Array, candidate: Array, noise: Array) -> Plan:
        """The plan of sources [s, j, d] that may stay or go to a candidate [s, k, d]."""
        batch, network = given.batch, given.network
        if network is None:
            raise TypeError("model 'candidates' needs a learned advantage")
        xp, sources = namespace(source), source.shape[1]
        asked = xp.concatenate([source, candidate], axis=1)
        gain = network.gain(batch.flat, batch.images, asked)
        stay = source.reshape(-1, 1, self.size), gain[:, :sources].reshape(-1, 1)
        move = (xp.repeat(array, sources, axis=0) for array in (candidate, gain[:, sources:]))
        offered, gain = (xp.concatenate(both, axis=1) for both in zip(stay, move, strict=True))
        return self.towards(given, gain, offered, noise)


class PairModel(CandidatesModel):
    """A model with two candidates in every state."""

    advantages = ("gae",)

    def between(self, given: Given, mean_rd: Array, target_rd: Array, gain_r: Array) -> Plan:
        """To stay at the mean gains nothing, to go to the target what is said."""
        xp = namespace(mean_rd)
        gain_rk = xp.stack([xp.zeros_like(gain_r), gain_r], axis=1)
        candidate_rkd = xp.stack([mean_rd, target_rd], axis=1)
        return self.towards(given, gain_rk, candidate_rkd, xp.zeros_like(mean_rd)[:, None])


@final
class Sample(PairModel):
    """To stay at the mean gains nothing, to go to the sampled action its advantage."""

    name = "sample"

    def plan(self, given: Given) -> Plan:
        """Two candidates: (paper, step 4, GAE)."""
        mean, action = given.batch.recorded("mean", "action")
        return self.between(given, mean, action, given.advantage_r)


@final
class Antithetic(PairModel):
    """A bad action speaks for its mirror image, so that no sample is lost.

    To first order around the mean m the advantage is odd, A(m + δ) = −A(m − δ), so a negative
    advantage at a is a positive one at 2m − a.
    """

    name = "antithetic"

    def plan(self, given: Given) -> Plan:
        """Two candidates, the better side of the mean."""
        mean, action = given.batch.recorded("mean", "action")
        xp = namespace(mean)
        target = xp.where(given.advantage_r[:, None] >= 0, action, 2.0 * mean - action)
        return self.between(given, mean, target, xp.abs(given.advantage_r))


class Draws(NamedTuple):
    """Standard normal numbers of the sources [r, j, d] and of the candidates [r, k, d]."""

    source: Array
    candidate: Array


@final
class Candidates(CandidatesModel):
    """Every source may go to n targets drawn from the policy, whose gains the network tells."""

    name = "candidates"
    advantages = ("network",)
    regions = ("transport", "sinkhorn")
    samples = True

    def __init__(self, options: Options) -> None:
        self.moves_std = options.n_sources > 0
        super().__init__(options)
        if options.region == "sinkhorn" and options.update == "ascent":
            raise ValueError("update 'ascent' of points needs region 'transport', got 'sinkhorn'")

    def draw(self, rows: int, rng: Generator) -> Draws:
        """Of sources and candidates."""
        sources = max(self.options.n_sources, 1)
        source = rng.standard_normal((rows, sources, self.size))
        candidate = rng.standard_normal((rows, self.options.n_candidates, self.size))
        # the mean is the source with z = 0
        return Draws(source if self.options.n_sources else 0.0 * source, candidate)

    def plan(self, given: Given) -> Plan:
        """N + 1 candidates for every source: itself first."""
        mean, std = given.batch.recorded("mean", "std")
        source, candidate = (mean[:, None] + std[:, None] * noise for noise in given.draws)
        return self.among(given, source, candidate, given.draws.source)


def candidates_plan(
    problem: Rows, candidate_rkd: Array, noise_sjd: Array, state: dict[str, Any], shrink: bool
) -> Plan:
    """Solve a candidate problem whose rows are the sources j of the states s, in that order.

    The targets are those of the nearest and the farthest map, with shares t* and 1 − t*. Source j
    of a state is its mean plus σ times ``noise_sjd``.
    """
    solution, radius, inactive = solve_binding(problem, shrink=shrink)
    xp = namespace(candidate_rkd)
    row = xp.arange(len(candidate_rkd))
    near, far = candidate_rkd[row, solution.nearest_r], candidate_rkd[row, solution.farthest_r]
    leading = noise_sjd.shape[:2]
    shares = xp.stack([xp.asarray(solution.split), 1.0 - xp.asarray(solution.split)])

    def by_state(array: Array) -> Array:
        return array.reshape(*leading, *array.shape[1:])

    rows = {
        "noise": noise_sjd,
        "target": by_state(xp.stack([near, far], axis=1)),
        "share": xp.broadcast_to(shares, (*leading, 2)),
        "candidate": by_state(candidate_rkd),
        "gain": by_state(problem.gain_rk),
    }
    return Plan(solution, radius, inactive, rows | state, **summary(problem, solution))


def towards_gaussian_targets(cost: Cost, *, learn_std: bool) -> PolicyLoss:
    """Regression of a Gaussian's sources on where the transport maps send them.

    minimises mean_r Σ_j Σ_k share_rjk c(a_θ,rj, target_rjk), the cost of the plan that is left to
    be done. Source j is m_θ + σ_θ z_j; the mean is the source with z = 0. The targets are those
    of the nearest and the farthest map, with shares t* and 1 − t*.
    """

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        source = _sources(policy, rows, learn_std=learn_std)
        left = cost(source[:, :, None], rows["target"], _state(rows))
        return weight @ (rows["share"] * left).sum(-1).mean(-1)

    return loss


def regularised_gaussian_advantage(cost: Cost, *, learn_std: bool) -> PolicyLoss:
    """The paper's ascent: maximise mean_r mean_j max_k { A_rjk − λ c(a_θ,rj, a_rjk) }."""

    def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
        source = _sources(policy, rows, learn_std=learn_std)
        moved = cost(source[:, :, None], rows["candidate"], _state(rows))
        return -weight @ (rows["gain"] - constants["multiplier"] * moved).max(-1).mean(-1)

    return loss


def _sources(policy: Policy, rows: Batch, *, learn_std: bool) -> Array:
    """The policy's actions [r, j, d] for the noise that each source was drawn with."""
    mean, std = policy.gaussian(rows["flat"], rows["images"])
    std = std if learn_std else jax.lax.stop_gradient(std)
    return mean[:, None] + std[:, None] * rows["noise"]


def _state(rows: Batch) -> Array | None:
    """The state of each row for costs that depend on it, against [r, j, k] actions."""
    state = rows.get("state")
    return None if state is None else state[:, None, None]
