"""Somebody's own program: ``python killed_script.py KIND FOLDER``, started as often as it takes."""

import json
import sys
from pathlib import Path

import gymnasium as gym
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from ottrpo import OTTRPO
from ottrpo.agents.watching import CheckpointEvery
from ottrpo.envs import make_vec
from ottrpo.persistence.environments import Capturable

STEPS, EVERY = 6_000, 700
ENVIRONMENTS = {
    "several": lambda: VecNormalize(DummyVecEnv([lambda: gym.make("Hopper-v5")] * 3)),
    "batched": lambda: VecNormalize(make_vec("Hopper-v5", 16, threads=2)),
    "subprocess": lambda: SubprocVecEnv([lambda: Capturable(gym.make("Hopper-v5"))] * 2),
}


def main(kind, folder):
    env = ENVIRONMENTS[kind]()
    callback = CheckpointEvery(EVERY, folder / "checkpoints")
    if any((folder / "checkpoints").glob("step-*.zip")):
        agent = OTTRPO.resume(folder / "checkpoints", env=env)
        agent.learn(agent.remaining_timesteps, reset_num_timesteps=False, callback=callback)
    else:
        steps = 24 if kind == "batched" else 128
        agent = OTTRPO("MlpPolicy", env, n_steps=steps, batch_size=64, n_epochs=4, seed=5)
        agent.learn(STEPS, callback=callback)
    returns = agent.evaluate(3, seed=1).tolist()
    (folder / "evaluations.jsonl").write_text(json.dumps({"returns": returns}) + "\n")
    (folder / "metrics.jsonl").write_text(json.dumps(agent.last_update) + "\n")
    agent.save(folder / "agent.zip")
    env.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
