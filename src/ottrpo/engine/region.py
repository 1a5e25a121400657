"""The way back into the trust region, when a step has spent more than the radius."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .arrays import like, namespace, on_host, repeat_while
from .estimate import Experience
from .models.base import Spent
from .networks import Policy
from .state import Normaliser, Observations, TrainState, scale_between

Array = Any
# discrepancies are float32 means: stay this much inside, so that no rounding crosses the border
MARGIN = 1e-4
NEARLY = 0.9  # a step that uses this much of the radius is not lengthened any more
MOST_TRIES = 20


def return_to_region(
    before: tuple[Policy, Observations],
    state: TrainState,
    batch: Experience,
    rows: dict[str, Any],
    radius: Array,
    spent: Spent,
    normaliser: Normaliser,
) -> tuple[TrainState, Array, Array]:
    """Step back if the step spent too much.

    The step is that of the policy as a function of raw observations: network and normalisation are
    taken back together.

    Args:
        before: the policy that acted, and what it acted with.
        state: after the step.
        batch: the rollout.
        rows: what the discrepancy is measured against.
        radius: ε.
        spent: the discrepancy.
        normaliser: of the observations.

    Returns:
        the state, the share of the step that was kept and what it spends.
    """
    (old, old_seen), (new, seen) = before, (state.networks.policy, state.observations)

    def at(share: Array) -> tuple[Policy, Observations]:
        return between(old, new, share), scale_between(old_seen, seen, share)

    def spent_at(share: Array) -> Array:
        policy, seen = at(share)
        return like(radius, spent(policy, rows | {"flat": normaliser(seen, batch.raw)}))

    share, left = largest_share(like(radius, spent(new, rows)), spent_at, radius)
    if on_host(share) and share == 1.0:
        return state, share, left
    kept = at(share)
    if not on_host(share):
        kept = jax.tree.map(lambda a, b: jnp.where(share < 1, a, b), kept, (new, seen))
    return with_policy(state, kept[0])._replace(observations=kept[1]), share, left


class _Search(NamedTuple):
    """The interval in which the largest share is, and the best that was found."""

    outside: Array
    inside: Array
    share: Array  # to be tried next
    kept: Array  # what the share inside spends; below 0 if none was found yet
    tries: Array
    done: Array


def largest_share(
    full: Array, spent_at: Callable[[Array], Array], radius: Array
) -> tuple[Array, Array]:
    """A share of the step that stays inside the radius, and what it spends.

    Halves the interval between a share inside and one outside until the budget is nearly used,
    starting from a guess: the discrepancy grows about like the square of the share. If nothing is
    found inside, the step is not taken at all.

    Args:
        full: what the whole step spends.
        spent_at: what a share of it spends.
        radius: ε.
    """
    border = (1.0 - MARGIN) * radius
    xp = namespace(full)

    def unfinished(search: _Search) -> Array:
        searching = (search.tries < MOST_TRIES) | (search.kept < 0)
        return searching & xp.logical_not(search.done)

    def step(search: _Search) -> _Search:
        share = xp.where(search.tries < MOST_TRIES, search.share, 0.0)
        spent = spent_at(share)
        fits = (spent <= border) | (search.tries == MOST_TRIES)
        outside = xp.where(fits, search.outside, share)
        inside = xp.where(fits, share, search.inside)
        return _Search(
            outside,
            inside,
            0.5 * (inside + outside),
            xp.where(fits, spent, search.kept),
            search.tries + 1,
            fits & ((spent >= NEARLY * radius) | (search.tries == MOST_TRIES)),
        )

    one = xp.ones_like(full)
    guess = 0.97 * (border / xp.where(full > border, full, border)) ** 0.5
    start = _Search(one, 0.0 * one, guess, -one, 0, full <= border)
    found = repeat_while(unfinished, step, start)
    whole = full <= border
    return xp.where(whole, one, found.inside), xp.where(whole, full, found.kept)


def between(old: Any, new: Any, share: Array) -> Any:
    """The module ``share`` of the way from ``old`` to ``new``."""
    return _between(old, new, jnp.float32(share))


def with_policy(state: TrainState, policy: Policy) -> TrainState:
    """The state with another policy."""
    learner = state.learners["agent"]
    networks = eqx.tree_at(lambda n: n.policy, learner.networks, policy)
    return state.with_learner("agent", learner._replace(networks=networks))


@eqx.filter_jit
def _between(old: Any, new: Any, share: Array) -> Any:
    return jax.tree.map(lambda a, b: a + share * (b - a) if eqx.is_array(a) else b, old, new)
