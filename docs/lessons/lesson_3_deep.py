"""
3. The deep agent, through Stable-Baselines3's interface
========================================================

CartPole with a callback, an evaluation and a saved file. The largest return of an episode is 500.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

from ottrpo import OTTRPO


class Budget(BaseCallback):
    """Keeps what every update logged; an SB3 callback like any other."""

    def __init__(self):
        super().__init__()
        self.log = []

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        if self.model.last_update:
            self.log.append((self.num_timesteps, dict(self.model.last_update)))


budget = Budget()
agent = OTTRPO("MlpPolicy", "CartPole-v1", seed=0)
agent.learn(40_000, callback=budget)
mean, std = evaluate_policy(agent, agent.get_env(), n_eval_episodes=5, warn=False)
print(f"return {mean:.1f} ± {std:.1f} after {agent.num_timesteps:,} steps")

# %%
# ``ot/spent`` is the exact discrepancy between the policies before and after the update, averaged
# over the visited states. It stays below the radius: a step that went too far is shortened.

steps = [at for at, _ in budget.log]
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(steps, [told["ot/radius"] for _, told in budget.log], label="ot/radius")
axes.plot(steps, [told["ot/spent"] for _, told in budget.log], label="ot/spent")
axes.set(xlabel="steps", ylabel="transport")
axes.legend()
plt.show()

# %%
# A saved agent is one file without a pickle. It contains the normaliser, so ``predict`` takes raw
# observations.

with tempfile.TemporaryDirectory() as folder:
    agent.save(Path(folder) / "cartpole")
    loaded = OTTRPO.load(Path(folder) / "cartpole")
observation = agent.get_env().reset()
print(
    "the same action:",
    agent.predict(observation, deterministic=True)[0],
    loaded.predict(observation, deterministic=True)[0],
)
