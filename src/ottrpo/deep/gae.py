"""Generalised advantage estimation that knows time limits from endings."""

import numpy as np
from numpy.typing import NDArray

from . import kernels

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def generalised_advantage(
    reward_tn: Floats,
    value_tn: Floats,
    next_value_tn: Floats,
    terminated_tn: Bools,
    done_tn: Bools,
    discount: float,
    gae_lambda: float,
) -> Floats:
    """Advantages [steps, environments] of the actions taken.

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
    carry_tn = discount * gae_lambda * ~done_tn
    advantage_tn = np.empty_like(delta_tn)
    kernels.sums_to_the_end(delta_tn, carry_tn, advantage_tn)
    return advantage_tn
