"""Policies that are no Gaussians, moved by the transport of their samples.

Sources are drawn from the policy at every visited state; each may stay, or go to actions that were
drawn there too, whose gains the learned advantage tells. The dual says where it goes, and the
policy is fitted to the samples that arrived. A plan between the old and the new policy certifies
the update: its cost is never less than their discrepancy.
"""

from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ottrpo.core import Cost
from ottrpo.engine.arrays import Generator, Randomness, like, namespace, program, wide
from ottrpo.engine.densities import Density, Mixture, RichActions
from ottrpo.engine.estimate import Experience
from ottrpo.engine.networks import Policy
from ottrpo.engine.update import Batch, Spent

from .base import Given, Options, Plan, PolicyLoss, from_above
from .candidates import CandidatesModel, Draws
from .labels import greedy_cost

Array = Any
N_SOURCES = 4  # sampled sources per state, unless told
COUPLED_POINTS = 32  # of each row, where a plan's cost is known from points


@final
class Transported(CandidatesModel):
    """Every sampled source may go to one of n targets drawn from the policy."""

    name = "candidates"
    actions: ClassVar[type[RichActions]] = RichActions
    advantages = ("network",)
    samples = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.density: Density = options.actions.density
        if options.std_moves:
            raise ValueError("the widths of a mixture or a flow are learnt with all the rest")
        if options.update not in (None, "regression"):
            raise ValueError(f"update of a mixture or a flow is a fit, got {options.update!r}")
        if isinstance(self.density, Mixture) and self.metric is None:
            raise ValueError(
                "a mixture needs a quadratic cost (SquaredEuclidean, Mahalanobis, their sums and "
                f"multiples), got {options.cost!r}; a flow takes any"
            )

    def draw(self, rows: int, rng: Generator) -> Draws:
        """The noise of sources and candidates."""
        counts = self.options.n_sources or N_SOURCES, self.options.n_candidates
        normals = (rng.standard_normal((rows, count, self.size)) for count in counts)
        return Draws(*(self.density.noise(normal, rng) for normal in normals))

    def plan(self, given: Given) -> Plan:
        """N + 1 candidates for every source: itself first, and no others beyond the box."""
        head = wide(given.batch.drawn["head"])[:, None]
        source, candidate = (self.density.push(head, noise) for noise in given.draws)
        return self.among(given, source, candidate.clip(-1.0, 1.0), given.draws.source)

    def loss(self) -> PolicyLoss:
        """Maximum likelihood of the samples where the transport maps sent them.

        A regression of f(s, z) on where z was sent would lose what targets of the same z differ
        by, and every policy would become narrow before it knows why.
        """
        density = self.density

        def loss(policy: Policy, rows: Batch, weight: Array, constants: dict[str, Array]) -> Array:
            head = policy.raw(rows["flat"], rows["images"])[:, None, None]
            log_density = density.log_density(head, rows["target"])
            return -weight @ (rows["share"] * log_density).sum(-1).mean(-1)

        return loss

    def spent(self) -> Spent:
        """What the plan between the policy that acted and the new one costs."""
        density, cost = self.density, self.options.cost

        @program
        def spent(policy: Policy, rows: Batch) -> Array:
            new, state = policy.raw(rows["flat"], rows["images"]), rows.get("state")
            return coupled_cost(density, rows["head"], new, cost, state)

        return spent

    def region_rows(self, batch: Experience) -> dict[str, Any]:
        """The policy that acted."""
        return {"head": batch.drawn["head"]} | self.state_rows(batch)

    def typical_cost(self, batch: Experience) -> Array:
        """Half of the mean cost between two draws; of a Gaussian that is a draw's from its mean.

        Beyond the box all actions are the same, and however far a policy reaches is no unit.
        """
        head, state = batch.drawn["head"], self.state_rows(batch).get("state")
        other = self.density.push(jnp.asarray(head), points(self.density, (len(head),)))
        one, other = (wide(x).clip(-1.0, 1.0) for x in (batch.drawn["action"], like(head, other)))
        return 0.5 * self.options.cost(one, other, state).mean()

    def gained(self, policy: Policy, batch: Experience, seen: Batch, advantage_r: Array) -> Array:
        """A (π'(a)/π(a) − 1) of the action that was taken."""
        head, action = batch.recorded("head", "action")
        new = like(head, _raw(policy, seen))
        log_ratio = self.density.log_density(new, action) - self.density.log_density(head, action)
        return advantage_r * namespace(head).expm1(log_ratio)


@eqx.filter_jit
def _raw(policy: Policy, seen: Batch) -> Array:
    return policy.raw(seen["flat"], seen["images"])


def points(density: Density, shape: tuple[int, ...]) -> Array:
    """Noise that is always the same."""
    rng = Randomness(jax.random.key(0))
    return density.noise(rng.standard_normal((*shape, density.size), jnp.float32), rng)


def coupled_cost(
    density: Density, old: Array, new: Array, cost: Cost, state: Array | None = None
) -> Array:
    """The mean cost of a plan between the policies of two heads [r, o]: the discrepancy or more."""
    if isinstance(density, Mixture):
        return by_components(density, old, new, cost).mean()
    return by_noise(density, old, new, cost, state)


def by_components(density: Mixture, old: Array, new: Array, cost: Cost) -> Array:
    """What stays in its component moves with its noise, the rest goes where it is cheap [r].

    The weights' problem has the costs of `component_costs`; the plan keeps what can stay and then
    serves the cheapest moves first.
    """
    weight, new_weight = (jnp.exp(density.parts(head)[0]) for head in (old, new))
    cost_rkl = component_costs(density, old, new, cost)
    stays = jnp.minimum(weight, new_weight) * jnp.diagonal(cost_rkl, axis1=1, axis2=2)
    return stays.sum(-1) + greedy_cost(weight, new_weight, cost_rkl)


def component_costs(density: Mixture, old: Array, new: Array, cost: Cost) -> Array:
    """C of every pair of components [r, k, l], exactly if M is diagonal, else from above.

    m + σz -> m' + σ'z costs (m − m')ᵀM(m − m') + Σ_j M_jj (σ_j − σ'_j)².
    """
    (_, mean, std), (_, new_mean, new_std) = density.parts(old), density.parts(new)
    unit = np.eye(density.size, dtype=np.float32)
    std, new_std = std[..., None] * unit, new_std[..., None] * unit
    moved = cost(mean[:, :, None], new_mean[:, None])
    return moved + cost(std[:, :, None], new_std[:, None]).sum(-1)


def by_noise(density: Density, old: Array, new: Array, cost: Cost, state: Array | None) -> Array:
    """The same noise in both: optimal in one coordinate, a plan in any case.

    The mean is estimated from points of their own for every row; several standard errors are
    added, so that chance does not lead out of the region. A shift has none.
    """
    noise = points(density, (COUPLED_POINTS, len(old)))
    cost_jr = cost(density.push(old, noise), density.push(new, noise), state)
    return from_above(cost_jr)
