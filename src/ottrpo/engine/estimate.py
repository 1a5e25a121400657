"""Step 3: what a rollout says about the advantages of the actions that were taken in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ottrpo.core.checks import NonFiniteError

from .acting import evaluate_rows
from .arrays import namespace, on_host, put, sums_to_the_end, wide
from .schedules import Now
from .state import Normaliser, TrainState

Array = Any
Name = Callable[[], str]  # asked for only if there is something to tell
ADVICE = (
    "the agent is as it was before this update. Rewards or observations of a huge magnitude, or a "
    "learning rate that is too large, can do this"
)


class CutOff(NamedTuple):
    """Final observations of episodes that were cut off by a time limit.

    Attributes:
        where: their steps and their environments; nothing for all there are, in their order.
        flat: their features.
        images: their images.
    """

    where: tuple[Array, ...]
    flat: Array
    images: tuple[Array, ...]


class Rollout(NamedTuple):
    """Experience of n environments over T steps; observations as they came, not normalised.

    Attributes:
        flat: [T + 1, n, f]; the last entry is where the next rollout starts.
        images: arrays [T + 1, n, channels, h, w].
        reward: [T, n].
        done: the episode ended with this step, [T, n].
        terminated: it ended for good rather than by a time limit, [T, n].
        drawn: the actor's record of actions and distributions, [T, n, ...].
        cut_off: what the values of V(s_{t+1}) are of where episodes were cut off.
    """

    flat: Array
    images: tuple[Array, ...]
    reward: Array
    done: Array
    terminated: Array
    drawn: dict[str, Array]
    cut_off: CutOff | None = None


class Experience(NamedTuple):
    """A rollout as arrays with rows first, [steps · environments, ...], ready to learn from.

    Attributes:
        raw: features as they came.
        flat: normalised features.
        images: images.
        advantage: generalised advantage estimates.
        target: targets of the value function.
        value: the value function's estimates.
        drawn: the actor's record, rows first.
        state: the state as costs see it: its number if observations are numbers, else the raw
            features.
    """

    raw: Array
    flat: Array
    images: tuple[Array, ...]
    advantage: Array
    target: Array
    value: Array
    drawn: dict[str, Array]
    state: Array

    def recorded(self, *names: str) -> tuple[Array, ...]:
        """What the actor recorded, in the precision of the dual."""
        return tuple(wide(self.drawn[name]) for name in names)


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimator:
    """How a rollout is made ready to learn from.

    Attributes:
        normaliser: of observations and rewards.
        numbered: observations are the numbers of states, one-hot.
        limits_end: a time limit counts as an ending.
    """

    normaliser: Normaliser
    numbered: bool = False
    limits_end: bool = False

    @np.errstate(over="ignore", invalid="ignore")  # the host tells of it in its own words
    def __call__(
        self, state: TrainState, rollout: Rollout, now: Now
    ) -> tuple[TrainState, Experience]:
        """Fold the rollout into the normalisers, and estimate its advantages."""
        if self.limits_end:
            rollout = rollout._replace(terminated=rollout.done, cut_off=None)
        steps, rows = rollout.reward.shape
        used = steps * rows
        raw = _merged(rollout.flat)
        observations = self.normaliser.fold_observations(state.observations, raw[:used])
        flat = self.normaliser(observations, raw)
        images = tuple(_merged(image) for image in rollout.images)
        network = state.networks.value
        value = _values(network, flat, images).reshape(steps + 1, rows)
        next_value, ends = value[1:], rollout.cut_off
        if ends is not None:
            final = _values(network, self.normaliser(observations, ends.flat), ends.images)
            next_value = put(next_value, ends.where, final.reshape(next_value[ends.where].shape))
        rewards, reward = self.normaliser.fold_rewards(state.rewards, rollout.reward, rollout.done)
        advantage = generalised_advantage(
            reward,
            value[:-1],
            next_value,
            rollout.terminated,
            rollout.done,
            now.discount,
            now.trace_decay,
        )
        batch = Experience(
            raw=raw[:used],
            flat=flat[:used],
            images=tuple(image[:used] for image in images),
            advantage=advantage.reshape(-1),
            target=(advantage + value[:-1]).reshape(-1),
            value=value[:-1].reshape(-1),
            drawn={key: _merged(array) for key, array in rollout.drawn.items()},
            state=raw[:used].argmax(1) if self.numbered else raw[:used].astype(np.float32),
        )
        replay = None if state.replay is None else state.replay.followed_by(rollout)
        state = state._replace(observations=observations, rewards=rewards, replay=replay)
        return state, batch


def generalised_advantage(
    reward_tn: Array,
    value_tn: Array,
    next_value_tn: Array,
    terminated_tn: Array,
    done_tn: Array,
    discount: Array,
    gae_lambda: Array,
) -> Array:
    """Advantages [steps, environments] of the actions taken; time limits are no endings.

    A_t = δ_t + γλ A_{t+1} within an episode, with δ_t = r_t + γ V(s_{t+1}) − V(s_t).

    Args:
        reward_tn: rewards.
        value_tn: V(s_t).
        next_value_tn: V(s_{t+1}), of the *final* observation where an episode was cut off.
        terminated_tn: the episode really ended: nothing follows, V(s_{t+1}) counts as 0.
        done_tn: the episode ended or was cut off by a time limit: the sum stops here.
        discount: γ.
        gae_lambda: λ of the estimator (not the multiplier of the trust region).
    """
    delta_tn = reward_tn + discount * next_value_tn * ~terminated_tn - value_tn
    return sums_to_the_end(delta_tn, discount * gae_lambda * ~done_tn)


def explained_variance(batch: Experience) -> Array:
    """Share of the variance of the targets that the values had foreseen."""
    xp = namespace(batch.target)
    variance = batch.target.var()
    left = (batch.target - batch.value).var() / xp.where(variance == 0, 1.0, variance)
    return xp.where(variance == 0, 0.0, 1.0 - left)


def told(batch: Experience, fit: dict[str, Array], now: Now) -> dict[str, Array]:
    """What all algorithms log: how the fit went, and the settings that change."""
    return {
        "train/discount": now.discount,
        "train/explained_variance": explained_variance(batch),
        **{f"train/{name}": value for name, value in fit.items()},
        "train/learning_rate": now.learning_rate,
    }


def require_finite_estimates(
    name: Name, state: TrainState, batch: Experience, shape: tuple[int, int], end: int
) -> None:
    """Raise unless what was estimated from the rollout that ended at step ``end`` is finite.

    Args:
        name: of the environment.
        state: with the statistics that took the rollout in.
        batch: what was estimated.
        shape: steps and environments.
        end: the agent's step.

    Raises:
        NonFiniteError: it names the environment, its index, the step and the quantity.
    """
    seen = {"observations": state.observations.moments, "rewards": state.rewards.moments}
    require_finite_statistics(name, {what: moments[:2] for what, moments in seen.items()}, end)
    told = {"value": batch.value, "advantage": batch.advantage}
    require_finite_steps(name, {what: x.reshape(shape) for what, x in told.items()}, end)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = batch.advantage.std()
    if not np.isfinite(spread):
        raise NonFiniteError(
            f"{name()}: the spread of the advantages at step {end} is not finite: the rewards or "
            "the values are too large; scale the rewards, or leave normalize_reward on"
        )


def require_finite_statistics(name: Name, seen: Mapping[str, tuple[Array, ...]], end: int) -> None:
    """Raise unless running means and variances are finite at step ``end``."""
    for quantity, moments in seen.items():
        if not all(np.isfinite(moment).all() for moment in moments):
            raise NonFiniteError(
                f"{name()}: the running variance of the {quantity} overflows at step {end}; "
                f"{ADVICE}"
            )


def require_finite_steps(name: Name, told: Mapping[str, Array], end: int) -> None:
    """Raise unless what is told of each step and environment [t, n] until ``end`` is finite."""
    for quantity, array_tn in told.items():
        if not np.isfinite(array_tn).all():
            t, index = (int(i) for i in np.argwhere(~np.isfinite(array_tn))[-1])  # sums run back
            step = end - (len(array_tn) - t - 1) * array_tn.shape[1]
            raise NonFiniteError(
                f"{name()}: the {quantity} of environment {index} at step {step} is "
                f"{array_tn[t, index]}; {ADVICE}"
            )


def _values(network: Any, flat: Array, images: tuple[Array, ...]) -> Array:
    if on_host(flat):  # without a compiled program for every number of rows
        return evaluate_rows(network.body, network.head, flat, images)[:, 0].astype(np.float64)
    return network(flat, images)


def _merged(array: Array) -> Array:
    """Steps and environments as one axis of rows."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
