"""Step 5: all epochs and minibatches of a rollout as one compiled loop, and the way back.

A step that has spent more than the radius is taken back until it has not.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from ottrpo.core.checks import NonFiniteError

from .arrays import Generator, like, namespace, on_host, program, repeat_while, traced
from .estimate import ADVICE, Experience, Name
from .networks import Policy
from .state import Learner, Normaliser, Observations, TrainState, scale_between

Array = Any
Batch = dict[str, Any]
# (networks, rows of the batch, weight of each row, constants) -> (loss, terms of it to report)
Loss = Callable[[Any, Batch, Array, dict[str, Array]], tuple[Array, dict[str, Array]]]

# (policy, rows) -> discrepancy between what the rows say and the policy
Spent = Callable[[Policy, Batch], Array]

ADAM_EPSILON = 1e-5  # as in SB3's on-policy agents
# discrepancies are float32 means: stay this much inside, so that no rounding crosses the border
MARGIN = 1e-4
NEARLY = 0.9  # a step that uses this much of the radius is not lengthened any more
MOST_TRIES = 20
PROGRAMS = 16  # that are kept for agents to come; each may be megabytes
SMALLEST_SPENT = 1e-6  # of the radius; a step that spends less is not a guide


def optimiser(max_grad_norm: float) -> optax.GradientTransformation:
    """Adam on gradients clipped by their joint norm; the learning rate is applied by `descend`."""
    clip = optax.clip_by_global_norm(max_grad_norm)
    # one flat vector instead of a dozen small arrays: fewer, larger operations per step
    return optax.flatten(optax.chain(clip, optax.scale_by_adam(eps=ADAM_EPSILON)))


def start(networks: Any, max_grad_norm: float) -> Learner:
    """A learner at its first step."""
    return Learner(networks, no_moments_of(networks, max_grad_norm))


@eqx.filter_jit
def _all_finite(arrays: list[Array]) -> Array:
    return jnp.stack([jnp.isfinite(array).all() for array in arrays]).all()


def all_finite(tree: Any) -> bool:
    """Whether every array of a learner, or of a part of it, holds finite numbers only."""
    arrays = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    return not arrays or bool(_all_finite(arrays))


def require_finite_update(
    name: Name, learners: Mapping[str, Learner], logged: Mapping[str, float], step: int
) -> None:
    """Raise unless losses, gradients and parameters of the update at ``step`` are finite.

    Raises:
        NonFiniteError: it names the environment, the step and the quantity.
    """
    for part, learner in learners.items():
        if not all_finite(learner):
            # the moments are averages of gradients, so they tell of the first bad one
            quantity = "parameter" if all_finite(learner.moments) else "gradient"
            raise NonFiniteError(
                f"{name()}: a {quantity} of {part!r} is not finite at step {step}; {ADVICE}"
            )
    for key, value in logged.items():
        if not np.isfinite(value):
            raise NonFiniteError(
                f"{name()}: {key} is {value}, not finite, at step {step}; {ADVICE}"
            )


def minibatches(rows: int, batch_size: int, epochs: int, rng: Generator) -> tuple[Array, Array]:
    """Row numbers [minibatch, batch_size] of shuffled epochs, and the weight of each entry.

    As in SB3 the last minibatch of an epoch is smaller if the batch size does not divide the
    rows; it is filled with entries of weight zero so that all have one shape.
    """
    batch_size = min(batch_size, rows)
    missing = -rows % batch_size
    order = [rng.permutation(rows) for _ in range(epochs)]
    xp = namespace(order[0])
    index = xp.pad(xp.stack(order).astype(np.int32), ((0, 0), (0, missing)))
    weight = np.ones((epochs, rows + missing), np.float32)
    weight[:, rows:] = 0.0
    weight = weight.reshape(-1, batch_size)
    weight /= weight.sum(1, keepdims=True)
    return index.reshape(-1, batch_size), weight


def block(rows: int, share: float, rng: Any) -> Array:
    """Which rows of a rollout to hold out: some that follow each other.

    Rows that stand side by side share their noise: the same rewards are in their advantages, and
    coloured noise in their actions. Single rows among those that are fitted would seem to gain.
    """
    start = rng.random(()) * (rows - round(share * rows))
    row = namespace(start).arange(rows)
    return (row >= start) & (row < start + round(share * rows))


def held_out(weight: Array, index: Array, held: Array) -> Array:
    """Weights of the rows of minibatches, without those that are held out."""
    xp = namespace(held)
    weight = weight * ~held[index]
    return (weight / xp.maximum(weight.sum(1, keepdims=True), 1e-12)).astype(np.float32)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` as a program of its own; inside a larger program, as a part of that.

    ``options`` go to JAX's jit, which takes them for whole programs only.
    """
    whole = program(function, **options)

    def call(*arguments: Any) -> Any:
        inside = any(map(traced, jax.tree.leaves(arguments)))
        return (function if inside else whole)(*arguments)

    return call


# (what is carried on, rows of the minibatch, its own arguments, arguments of all minibatches) ->
# (what is carried on, terms to report)
Step = Callable[..., tuple[Any, Batch]]


def over_minibatches(step: Step, **compile_options: Any) -> Callable[..., tuple[Any, Batch]]:
    """``step`` repeated over the minibatches of a rollout, as one compiled loop.

    The loop takes what is carried on, a batch of arrays with rows first, the minibatches (row
    numbers of each, then arrays with one entry per minibatch), and what all of them share. It
    returns what was carried on and the mean of each term over all minibatches.

    XLA's convolutions on the CPU are ten times slower inside a compiled loop than outside, so
    batches with images are looped over in Python. Either way ``compile_options`` go to JAX's jit.
    """

    def scan(
        state: Any, batch: Batch, index: Array, each: tuple[Any, ...], *shared: Any
    ) -> tuple[Any, Batch]:
        changing, fixed = eqx.partition(state, eqx.is_array)

        def body(changing: Any, picked: tuple[Array, tuple[Any, ...]]) -> tuple[Any, Batch]:
            rows = jax.tree.map(lambda array: jnp.asarray(array)[picked[0]], batch)
            moved, terms = step(eqx.combine(changing, fixed), rows, *picked[1], *shared)
            return eqx.filter(moved, eqx.is_array), terms

        changing, terms = jax.lax.scan(body, changing, (index, each))
        return eqx.combine(changing, fixed), jax.tree.map(jnp.mean, terms)

    one, all_of_them = (compiled(function, **compile_options) for function in (step, scan))

    def loop(
        state: Any, batch: Batch, minibatches: tuple[Any, ...], *shared: Any
    ) -> tuple[Any, Batch]:
        index, *each = minibatches
        if not batch["images"]:
            done: tuple[Any, Batch] = all_of_them(state, batch, index, tuple(each), *shared)
            return done
        collected = []
        for i, picked in enumerate(index):
            rows = jax.tree.map(lambda array, picked=picked: array[picked], batch)
            own = jax.tree.map(lambda array, i=i: array[i], each)
            state, terms = one(state, rows, *own, *shared)
            collected.append(terms)
        return state, jax.tree.map(lambda *values: jnp.stack(values).mean(), *collected)

    return loop


def make_descend(
    loss: Loss, max_grad_norm: float, weight_decay: float = 0.0
) -> Callable[..., tuple[Learner, Batch]]:
    """The compiled update for ``loss``; ``weight_decay`` is that of AdamW, beside the gradient.

    It takes a learner, a batch of arrays with rows first, `minibatches`, the learning rate and
    the loss's constants, and returns the new learner and the mean of each term of the loss over
    all minibatches.
    """
    transform = optimiser(max_grad_norm)

    def one(
        learner: Learner,
        rows: Batch,
        weight: Array,
        learning_rate: Array,
        constants: dict[str, Array] | None = None,
    ) -> tuple[Learner, Batch]:
        constants = constants or {}
        trained, static = eqx.partition(learner.networks, eqx.is_array)

        def objective(trained: Any) -> tuple[Array, dict[str, Array]]:
            return loss(eqx.combine(trained, static), rows, weight, constants)

        gradient, terms = jax.grad(objective, has_aux=True)(trained)
        change, moments = transform.update(gradient, learner.moments, trained)
        if "pace" in constants:  # of the policy alone
            slower = jax.tree.map(lambda d: constants["pace"] * d, change.policy)
            change = eqx.tree_at(lambda c: c.policy, change, slower)
        if weight_decay:
            change = jax.tree.map(lambda d, x: d + weight_decay * x, change, trained)
        trained = jax.tree.map(lambda x, d: x - learning_rate * d, trained, change)
        return Learner(eqx.combine(trained, static), moments), terms

    return over_minibatches(one)


def no_moments_of(module: Any, max_grad_norm: float) -> Any:
    """The moments of an optimiser that has not seen a gradient of the module."""
    return optimiser(max_grad_norm).init(eqx.filter(module, eqx.is_array))


@lru_cache(PROGRAMS)
def make_fit_one(
    loss: Callable[..., Array], max_grad_norm: float
) -> Callable[..., tuple[Learner, Batch]]:
    """`make_descend` of a loss without terms or constants; one program for the same loss."""

    def with_terms(
        networks: Any, rows: Batch, weight: Array, constants: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        total = loss(networks, rows, weight, constants)
        return total, {"loss": total}

    return make_descend(with_terms, max_grad_norm)


def return_to_region(
    before: TrainState,
    state: TrainState,
    batch: Experience,
    rows: dict[str, Any],
    radius: Array,
    spent: Spent,
    normaliser: Normaliser,
    longest: float = 1.0,
) -> tuple[TrainState, Array, Array]:
    """Step back if the step spent too much.

    The step is that of the policy as a function of raw observations: network and normalisation are
    taken back together.

    Args:
        before: the state that acted.
        state: after the step.
        batch: the rollout.
        rows: what the discrepancy is measured against.
        radius: ε.
        spent: the discrepancy.
        normaliser: of the observations.
        longest: up to this many times the step, if it spent little.

    Returns:
        the state, the share of the step that was kept and what it spends.
    """
    old, old_seen = before.networks.policy, before.observations
    new, seen = state.networks.policy, state.observations

    # other parts of a step may have taken normalisation back before: as it is now, it counts
    rows = rows | {"flat": normaliser(seen, batch.raw)}

    def at(share: Array) -> tuple[Policy, Observations]:
        kept = share if longest == 1.0 else namespace(share).minimum(share, 1.0)
        return between(old, new, share), scale_between(old_seen, seen, kept)

    def spent_at(share: Array) -> Array:
        policy, seen = at(share)
        return like(radius, spent(policy, rows | {"flat": normaliser(seen, batch.raw)}))

    share, left = largest_share(like(radius, spent(new, rows)), spent_at, radius, longest)
    if on_host(share) and share == 1.0:
        return state, share, left
    kept = at(share)
    if not on_host(share):
        kept = jax.tree.map(lambda a, b: jnp.where(share != 1, a, b), kept, (new, seen))
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
    full: Array, spent_at: Callable[[Array], Array], radius: Array, longest: float = 1.0
) -> tuple[Array, Array]:
    """A share of the step that stays inside the radius, and what it spends.

    Halves the interval between a share inside and one outside until the budget is nearly used,
    starting from a guess: the discrepancy grows about like the square of the share. If nothing is
    found inside, the step is not taken at all.

    Args:
        full: what the whole step spends.
        spent_at: what a share of it spends.
        radius: ε.
        longest: the largest share that is tried.
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
            fits & ((spent >= NEARLY * radius) | (search.tries == MOST_TRIES) | (share >= longest)),
        )

    one, whole = xp.ones_like(full), full <= border
    guess = 0.97 * (border / xp.maximum(full, SMALLEST_SPENT * border)) ** 0.5
    start = _Search(
        xp.where(whole, longest * one, one),
        xp.where(whole, one, 0.0 * one),
        xp.minimum(guess, longest),
        xp.where(whole, full, -one),
        0,
        whole & ((full >= NEARLY * radius) | (longest == 1.0)),
    )
    found = repeat_while(unfinished, step, start)
    return found.inside, found.kept


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
