"""A cost of one's own: improve a policy everywhere but where an expert's way must be kept.

An expert crosses CliffWalking one row away from the edge, in 15 steps, and says nothing about
other cells. The shortest way has 13 steps and follows the edge, where one wrong step costs 100.
Under the binary cost a few updates give up the expert's way for the edge. Under a cost that makes
moves of probability a thousand times as dear on it, the same updates with the same radius keep it,
and improve all other cells as before.

Run: python examples/shape_the_region.py
"""

import numpy as np

from ottrpo.core import Binary, TableCost, update_policy
from ottrpo.tabular import as_problem, planning

UP, RIGHT, DOWN, LEFT = range(4)
COLUMNS, UPDATES, RADIUS, DISCOUNT = 12, 30, 0.05, 0.99
cliff = as_problem("CliffWalking-v1")

# up twice, along the second row, down twice above the goal; elsewhere any action
way = {36: UP, 24: UP, **dict.fromkeys(range(12, 23), RIGHT), 23: DOWN, 35: DOWN}
expert_sa = np.full((cliff.n_states, 4), 0.25)
for state, action in way.items():
    expert_sa[state] = np.eye(4)[action]

kept_sab = np.tile(Binary().matrix(4), (cliff.n_states, 1, 1))
kept_sab[list(way)] *= 1000.0

cells = np.arange(3 * COLUMNS + 1)  # those one can stand in: the first three rows and the start
occupancy_s = np.isin(np.arange(cliff.n_states), cells) / cells.size
elsewhere = np.setdiff1d(cells, list(way))


def tell(name: str, policy_sa: np.ndarray) -> None:
    """The way from the start, and how good the policy is off the expert's way."""
    state, steps = 36, []
    while state != 47 and len(steps) < 30:
        action = int(policy_sa[state].argmax())
        steps.append("↑→↓←"[action])
        state += (-COLUMNS, 1, COLUMNS, -1)[action]
    value_s = planning.evaluate_policy(cliff, policy_sa, DISCOUNT).value_s
    print(
        f"{name:>7}: {len(steps)} steps {''.join(steps)}; elsewhere {value_s[elsewhere].mean():.1f}"
    )


tell("expert", expert_sa)
for name, cost in (("binary", Binary()), ("kept", TableCost(kept_sab))):
    policy_sa = expert_sa
    for _ in range(UPDATES):  # Algorithm 1 with exact advantages, every cell weighing the same
        q_sa = planning.evaluate_policy(cliff, policy_sa, DISCOUNT).q_sa
        policy_sa = update_policy(policy_sa, occupancy_s, q_sa, cost, RADIUS).policy_sa
    tell(name, policy_sa)
