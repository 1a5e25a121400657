"""OT-TRPO on CliffWalking: train, watch the budget, save, load, act.

Run: python examples/train_on_tables.py
"""

import tempfile
from pathlib import Path

from ottrpo import TabularOTTRPO

overspent = 0


def watch(agent: TabularOTTRPO) -> bool:
    """Called after every update; returning False would stop."""
    global overspent
    overspent += agent.last_update["ot/violation"] > 0
    return True


agent = TabularOTTRPO("CliffWalking-v1", seed=0).learn(100_000, callback=watch)
print(f"{agent.num_updates} updates, {overspent} of them outside the trust region")

with tempfile.TemporaryDirectory() as folder:
    agent.save(Path(folder) / "cliff")
    loaded = TabularOTTRPO.load(Path(folder) / "cliff")
print("returns", loaded.evaluate(5, deterministic=True, seed=0).tolist())
print("action at the start", int(loaded.predict(36, deterministic=True)[0]), "(0 is up)")
