"""
1. One state, one budget
========================

A single trust-region update: one state, four actions, and the effect of a growing budget.
"""

import matplotlib.pyplot as plt
import numpy as np

from ottrpo.core import Binary, SquaredEuclidean, audit, update_policy

policy_sa = np.array([[0.4, 0.3, 0.2, 0.1]])
occupancy_s = np.array([1.0])
advantage_sa = np.array([[-0.5, 0.0, 0.4, 1.0]])

# %%
# An update is one call. ``multiplier`` is the price of transport at which the budget is exactly
# spent. Mass that is indifferent at this price is split; ``split`` is the share of the cheaper
# move.

update = update_policy(policy_sa, occupancy_s, advantage_sa, SquaredEuclidean(), radius=0.3)
print("new policy ", update.policy_sa[0].round(3))
print("multiplier ", update.solution.multiplier)
print("split      ", round(update.solution.split, 3))
print("spent      ", update.solution.spent)

# %%
# ``audit`` checks the result independently: it computes the transport between the two policies by a
# linear program, and the gap between the gain and the upper bound of the dual.

checked = audit(update.problem, update.policy_sa, update.solution.multiplier)
print(f"spent {checked.spent:.6f}, violation {checked.violation}, gap {checked.gap:.1e}")

# %%
# Now increase the budget. With the squared distance neighbours are cheap, so mass first moves one
# step up; the binary cost has no neighbours, and mass moves to the best action from the start. In
# both cases the gain is concave: the first unit of transport gains the most, and its price λ* falls
# until the budget no longer binds.

figure, (gains, prices) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
costs = (("squared distance", SquaredEuclidean(), 5.5), ("binary", Binary(), 1.0))
for name, cost, limit in costs:
    radii = np.linspace(0.001, limit, 60)
    updates = [update_policy(policy_sa, occupancy_s, advantage_sa, cost, r) for r in radii]
    gained = [((u.policy_sa - policy_sa) * advantage_sa).sum() for u in updates]
    gains.plot(radii / limit, gained, label=name)
    prices.plot(radii / limit, [u.solution.multiplier for u in updates], label=name)
gains.set(xlabel="radius, as a share of the largest", ylabel="gain")
prices.set(xlabel="radius, as a share of the largest", ylabel="λ*")
gains.legend()
plt.show()
