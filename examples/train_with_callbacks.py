"""The deep agent through Stable-Baselines3's interface: callbacks, evaluate_policy, save, load.

Run: python examples/train_with_callbacks.py [STEPS]
"""

import sys
import tempfile
from pathlib import Path

from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from ottrpo import OTTRPO

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
agent = OTTRPO("MlpPolicy", env, n_steps=512, seed=0)

with tempfile.TemporaryDirectory() as folder:
    callback = EvalCallback(
        make_vec_env("CartPole-v1", n_envs=1, seed=1), eval_freq=2_000, log_path=folder, verbose=0
    )
    agent.learn(steps, callback=callback)
    mean, std = evaluate_policy(agent, make_vec_env("CartPole-v1", seed=2), n_eval_episodes=5)
    print(f"return {mean:.1f} ± {std:.1f} after {agent.num_timesteps:,} steps")
    print({key: value for key, value in agent.last_update.items() if key.startswith("ot/")})
    agent.save(Path(folder) / "cartpole")
    OTTRPO.load(Path(folder) / "cartpole", env=env)
