"""The dual on its own: three states, three actions, and a budget.

Run: python examples/solve_a_dual.py
"""

import numpy as np

from ottrpo.core import SquaredEuclidean, audit, update_policy

policy_sa = np.array([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]])
occupancy_s = np.array([0.5, 0.4, 0.1])
advantage_sa = np.array([[-0.4, 0.2, 1.0], [0.3, 0.1, -0.2], [0.0, 2.0, 1.0]])

# actions are the points 0, 1, 2 of a line: a move across two of them costs four
update = update_policy(policy_sa, occupancy_s, advantage_sa, SquaredEuclidean(), radius=0.2)
solution = update.solution
print(f"multiplier {solution.multiplier:.4f}, split {solution.split:.4f}")
print(f"spent {solution.spent:.4f} of {update.problem.dual.radius}")
print("new policy")
print(update.policy_sa.round(4))

# everything recomputed from the two policies alone, transport by a linear program
checked = audit(update.problem, update.policy_sa, solution.multiplier)
print(f"audit: spent {checked.spent:.4f}, violation {checked.violation}, gap {checked.gap:.1e}")
