"""A policy of a grid world as text."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ottrpo.envs.catalogue import Grid


def draw_policy(policy_sa: NDArray[Any], grid: Grid) -> str:
    """One character per state: the arrow of its most probable action, or its sign.

    >>> world = Grid(columns=2, arrows="<>", signs={3: "G"})
    >>> print(draw_policy(np.array([[0.1, 0.9], [0.8, 0.2], [0.0, 1.0], [0.5, 0.5]]), world))
    > <
    > G
    """
    cell_s = [grid.arrows[action] for action in policy_sa.argmax(axis=1)]
    for state, sign in grid.signs.items():
        cell_s[state] = sign
    rows = np.array(cell_s).reshape(-1, grid.columns)
    return "\n".join(" ".join(row) for row in rows)
