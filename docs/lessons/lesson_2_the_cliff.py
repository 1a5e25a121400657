"""
2. CliffWalking, update by update
=================================

The tabular agent on CliffWalking: its returns, its spending, and a check that it never leaves its
region.
"""

import matplotlib.pyplot as plt

from ottrpo import TabularOTTRPO

log = []


def watch(agent):
    """Called after every update."""
    log.append((agent.num_timesteps, dict(agent.last_update)))
    return True


agent = TabularOTTRPO("CliffWalking-v1", seed=0).learn(100_000, callback=watch)
print(agent.num_updates, "updates in", agent.num_timesteps, "steps")
print("return of the trained policy:", agent.evaluate(1, deterministic=True).tolist())

# %%
# No update spent more than its radius. Where the two curves separate, the policy is optimal for the
# current estimates, so no further transport is worthwhile.

steps = [at for at, _ in log]
figure, (returns, budget) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
returns.plot(steps, [told["rollout/ep_rew_mean"] for _, told in log])
returns.set(xlabel="steps", ylabel="return of an episode", yscale="symlog")
budget.plot(steps, [told["ot/radius"] for _, told in log], label="radius")
budget.plot(steps, [told["ot/spent"] for _, told in log], label="spent")
budget.set(xlabel="steps", ylabel="transport")
budget.legend()
print("updates outside the region:", sum(told["ot/violation"] > 0 for _, told in log))
plt.show()

# %%
# The trained policy, as arrows:

rows = [agent.policy_sa[row * 12 : row * 12 + 12].argmax(axis=1) for row in range(3)]
print("\n".join(" ".join("↑→↓←"[action] for action in row) for row in rows))
