"""Numbers that are none: found where they arise, named, and kept out of the parameters."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ottrpo.core.checks import NonFiniteError
from ottrpo.engine.estimate import Experience
from ottrpo.engine.state import Learner, TrainState
from ottrpo.engine.update import all_finite

Array = Any
Name = Callable[[], str]  # asked for only if there is something to tell
ADVICE = (
    "the agent is as it was before this update. Rewards or observations of a huge magnitude, or a "
    "learning rate that is too large, can do this"
)


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
    for quantity, moments in seen.items():
        if not (np.isfinite(moments.mean).all() and np.isfinite(moments.variance).all()):
            raise NonFiniteError(
                f"{name()}: the running variance of the {quantity} overflows at step {end}; "
                f"{ADVICE}"
            )
    for quantity, array_r in (("value", batch.value), ("advantage", batch.advantage)):
        if np.isfinite(array_r).all():
            continue
        array_tn = array_r.reshape(shape)
        t, index = (int(i) for i in np.argwhere(~np.isfinite(array_tn))[-1])  # sums run backwards
        step = end - (len(array_tn) - t - 1) * array_tn.shape[1]
        raise NonFiniteError(
            f"{name()}: the {quantity} of environment {index} at step {step} is "
            f"{array_tn[t, index]}; {ADVICE}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        spread = batch.advantage.std()
    if not np.isfinite(spread):
        raise NonFiniteError(
            f"{name()}: the spread of the advantages at step {end} is not finite: the rewards or "
            "the values are too large; scale the rewards, or leave normalize_reward on"
        )


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
