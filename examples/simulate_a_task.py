"""A task of one's own on every core: a pendulum's MJCF, its observations and its rewards.

Run: python examples/simulate_a_task.py [STEPS]
"""

import sys

import numpy as np

from ottrpo import OTTRPO
from ottrpo.envs import Outcome, Task, make_vec

PENDULUM = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="pole">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.04" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-1 1" gear="4"/></actuator>
</mujoco>
"""


class SwingUp(Task):
    """The pole hangs; it should stand. Every method sees all simulations at once, row by row."""

    def observe(self, s):
        """Where the pole points, and how fast it turns."""
        return np.concatenate((np.cos(s.qpos), np.sin(s.qpos), 0.1 * s.qvel), axis=1)

    def score(self, s, before, action):
        """High is good, effort is not."""
        height = -np.cos(s.qpos[:, 0])
        effort = 0.01 * np.sum(action**2, axis=1)
        never = np.zeros(len(height), bool)
        return Outcome(height - effort, never, {"height": height, "effort": effort})

    def draw(self, rng):
        """Hanging, not quite straight."""
        return rng.uniform(-0.3, 0.3, 1), np.zeros(1)


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
env = make_vec(SwingUp(PENDULUM, frame_skip=3, max_episode_steps=150), n_envs=8, seed=0)
agent = OTTRPO("MlpPolicy", env, n_steps=128, seed=0).learn(steps)

observation, heights = env.reset(), []
for _ in range(149):
    action, _ = agent.predict(observation, deterministic=True)
    observation, _, _, infos = env.step(action)
    heights.append([info["height"] for info in infos])
low, high = np.mean(heights[:20]), np.mean(heights[-20:])
print(f"height {low:+.2f} in the first steps, {high:+.2f} in the last (1 is upright)")
