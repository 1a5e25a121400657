"""Generalised advantage estimation that knows time limits from endings."""

import numpy as np
from numpy.typing import NDArray

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
    if delta_tn.shape[1] == 1:  # plain floats are ten times faster than arrays of length one
        advantage_tn[:, 0] = _backwards(delta_tn[:, 0].tolist(), carry_tn[:, 0].tolist())
        return advantage_tn
    running = np.zeros(delta_tn.shape[1])
    for t in range(len(delta_tn) - 1, -1, -1):
        running = delta_tn[t] + carry_tn[t] * running
        advantage_tn[t] = running
    return advantage_tn


def _backwards(delta_t: list[float], carry_t: list[float]) -> list[float]:
    running, advantage = 0.0, []
    for delta, carry in zip(reversed(delta_t), reversed(carry_t), strict=True):
        running = delta + carry * running
        advantage.append(running)
    return advantage[::-1]
