r"""A cost that is learnt: two actions are as far apart as what they lead to.

Of transitions s, a -> s' the change of the observation is fitted by least squares, in units of the
observation's own deviations,

    s' − s ≈ b + F s + B a,    M = (1 − floor) BᵀB / mean(diag BᵀB) + floor · 1

so that (a − a')ᵀM(a − a') is how far apart the expected next observations are, squared; the
diagonal is 1 on average, as that of the squared distance. What moves the body much is dear to
change.
"""

import numpy as np
from numpy.typing import ArrayLike

from .checks import floats, require, same_shape
from .costs import Mahalanobis

# Entries that vary by less stand still; actions that observations tell to this share are known.
ROUNDING, TOLD = 1e-12, 1e-8


def sensitivity_cost(
    seen_nf: ArrayLike, action_nd: ArrayLike, after_nf: ArrayLike, floor: float = 0.1
) -> Mahalanobis:
    """The metric of actions that n transitions tell.

    >>> rng = np.random.default_rng(0)
    >>> seen, action = rng.standard_normal((500, 2)), rng.uniform(-1, 1, (500, 2))
    >>> after = seen + action * [3.0, 1.0]  # the first joint moves the body three times as far
    >>> sensitivity_cost(seen, action, after, floor=0.0).metric.diagonal().round(1)
    array([1.8, 0.2])

    Args:
        seen_nf: observations.
        action_nd: the actions taken there, not a function of the observation alone; in units of
            half the box from its centre, as agents measure them.
        after_nf: what was seen next, before any reset.
        floor: share of the squared distance, so that what seems to move nothing is not free.

    Raises:
        ValueError: if there are too few transitions to tell, or no action moves anything.
    """
    seen, action, after = (
        floats(name, value, ndim=2)
        for name, value in (("seen_nf", seen_nf), ("action_nd", action_nd), ("after_nf", after_nf))
    )
    same_shape("after_nf", after, seen.shape, "seen_nf")
    rows, features = seen.shape
    least = 1 + features + action.shape[1]
    require(
        len(action) == rows > least,
        f"more than {least} transitions are needed, with an action each; got {rows} and "
        f"{len(action)}",
    )
    require(0.0 <= floor <= 1.0, f"floor must be from 0 to 1, got {floor}")
    spread = seen.std(axis=0)
    varies = spread > ROUNDING * np.abs(seen).max(axis=0)
    scaled, change = seen[:, varies] / spread[varies], (after - seen)[:, varies] / spread[varies]
    scaled, change, action = (x - x.mean(0) for x in (scaled, change, action))
    # what observations do not tell of the actions; entries that follow from others do no harm
    own = action - scaled @ np.linalg.lstsq(scaled, action)[0]
    moved, _, _, singular = np.linalg.lstsq(own, change)
    share = moved @ moved.T
    unit = float(np.diagonal(share).mean())
    require(
        bool(singular.min() > TOLD * np.linalg.norm(action)) and unit > 0,
        "the transitions do not tell what actions do: draw actions at random, in every state anew",
    )
    return Mahalanobis((1.0 - floor) * share / unit + floor * np.eye(len(share)))
