"""An agent that learns nothing but to count, for tests of the runner alone."""

import json
from pathlib import Path

import numpy as np

from ottrpo.persistence.snapshot import Boundary


class CountingAgent(Boundary):
    """Finite spaces; each update takes ``stride`` steps; the return is the step it has reached."""

    def __init__(self, env, *, stride=7, cost=None, table=None, seed=0):
        if stride < 1:
            raise ValueError(f"stride must be at least 1, got {stride}")
        self.env, self.stride, self.cost, self.table, self.seed = env, stride, cost, table, seed
        self.num_timesteps = 0
        self.last_update = {}
        self.evaluation_seeds = []

    def learn(self, total_timesteps):
        while self.num_timesteps < total_timesteps:
            self.num_timesteps += self.stride
            self.last_update = {"ot/spent": 0.5, "ot/violation": float(self.num_timesteps % 2)}
            if not self._after_update():
                break
        return self

    def evaluate(self, episodes, *, deterministic, seed):
        self.evaluation_seeds.append(seed)
        return np.full(episodes, float(self.num_timesteps))

    def get_parameters(self):
        return {"policy": np.tile([0.0, 1.0, 0.0, 0.0], (48, 1))}  # of CliffWalking: always right

    def save(self, path):
        state = {"num_timesteps": self.num_timesteps, "stride": self.stride}
        Path(f"{path}.json").write_text(json.dumps(state))

    @classmethod
    def load(cls, path, env=None):
        state = json.loads(Path(f"{path}.json").read_text())
        agent = cls(env, stride=state["stride"])
        agent.num_timesteps = state["num_timesteps"]
        return agent
