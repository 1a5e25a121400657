"""A cost of one's own: which moves of probability are cheap is a choice.

In Taxi four actions move the car and two handle the passenger. Here mass passes within each group
at a third of the price of passing between them.

Run: python examples/shape_the_region.py
"""

import numpy as np

from ottrpo import TabularOTTRPO
from ottrpo.core import Binary, TableCost

group_a = np.array([0, 0, 0, 0, 1, 1])  # south, north, east, west; pick up, drop off
between_ab = (group_a[:, None] != group_a[None, :]).astype(float)
cost = TableCost(between_ab) + Binary() * 0.5
print(cost.matrix(6))

for name, transport in (("binary", Binary()), ("grouped", cost)):
    agent = TabularOTTRPO("Taxi-v4", cost=transport, seed=0).learn(50_000)
    returns = agent.evaluate(100, deterministic=False, seed=1)
    print(f"{name:>8}: {returns.mean():.2f} after {agent.num_timesteps:,} steps")
