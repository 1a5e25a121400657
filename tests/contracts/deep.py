"""The deep agents, small, and an environment of every kind of space."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from ottrpo import BGPG, OTTRPO, WNPG, WPPG, ClippedPPO, WPOGradient
from ottrpo.agents.sb3 import A2C, PPO, TRPO

NETS = {"net_arch": [8]}
SMALL_CODES = {  # as SB3 spells it
    "image": {"features_extractor_kwargs": {"features_dim": 8}},
    "dict": {"features_extractor_kwargs": {"cnn_output_dim": 8}},
}
OURS = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
GUIDED = OURS | {"n_actions": 2, "n_features": 4, "dual_steps": 2}
# how each is called
DEEP = {
    "ottrpo": (OTTRPO, OURS | {"buffer_size": 64}),
    "ottrpo-gae": (OTTRPO, OURS | {"advantage": "gae"}),
    "ottrpo-network": (OTTRPO, OURS | {"advantage": "network", "n_candidates": 3}),
    "ottrpo-sample": (OTTRPO, OURS | {"model": "sample"}),
    "ottrpo-natural": (OTTRPO, OURS | {"region": "kl", "update": "natural"}),
    "ottrpo-sinkhorn": (OTTRPO, OURS | {"region": "sinkhorn", "advantage": "network"}),
    "ottrpo-priced": (OTTRPO, OURS | {"multiplier": 10.0}),
    "ottrpo-spo": (
        OTTRPO,
        OURS | {"region": "sinkhorn", "advantage": "network", "entropy": 0.02, "multiplier": 1.0},
    ),
    "ottrpo-bins": (OTTRPO, OURS | {"policy_kwargs": NETS | {"bins": 5}}),
    "ottrpo-mixture": (OTTRPO, OURS | {"policy_kwargs": NETS | {"mixture": 2}}),
    "ottrpo-flow": (OTTRPO, OURS | {"policy_kwargs": NETS | {"flow": 2}}),
    "bgpg": (BGPG, GUIDED),
    "wnpg": (WNPG, GUIDED | {"n_basis": 2}),
    "clipped-ppo": (ClippedPPO, OURS),
    "wpo-gradient": (WPOGradient, OURS | {"buffer_size": 64}),
    "wppg": (WPPG, OURS | {"buffer_size": 64}),
    "trpo": (TRPO, {"n_steps": 16, "batch_size": 16}),
    "ppo": (PPO, OURS),
    "a2c": (A2C, {"n_steps": 16}),
}
IMPORTED = ("trpo", "ppo", "a2c")
RICH = ("ottrpo-mixture", "ottrpo-flow")
BOXES_ONLY = ("bgpg", "wnpg", "wpo-gradient", "wppg", "ottrpo-bins", *RICH)
KEEP_NO_IMAGES = ("wpo-gradient", "wppg")
# the networks see what they see in every variant; one of them tries all spaces
VARIANTS = (
    *("ottrpo-gae", "ottrpo-network", "ottrpo-sample", "ottrpo-natural", "ottrpo-priced"),
    *("ottrpo-sinkhorn", "ottrpo-spo", "ottrpo-bins"),
    *RICH,
)
every_agent = pytest.mark.parametrize("name", DEEP)

IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
VECTOR = spaces.Box(-3, 3, (2,), np.float32)
OBSERVATIONS = {
    "vector": VECTOR,
    "matrix": spaces.Box(-3, 3, (2, 2), np.float64),
    "label": spaces.Discrete(5, start=2),
    "labels": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(3),
    "image": IMAGE,
    "dict": spaces.Dict(image=IMAGE, number=spaces.Discrete(4), vector=VECTOR),
    "label from 0": spaces.Discrete(5),
}
ACTIONS = {
    "box": spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32)),
    "doubles": spaces.Box(-1, 1, (1, 2), np.float64),
    "label": spaces.Discrete(3),
    "labels": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(3),
}


class Drawn(gym.Env):
    """Shows what it draws from a space, and takes nothing but what is in the other."""

    def __init__(self, observed="vector", actions="box"):
        self.observation_space = deepcopy(OBSERVATIONS[observed])
        self.action_space = ACTIONS[actions]
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self._steps += 1
        reward = float(np.mean(action))
        return self.observation_space.sample(), reward, self._steps == 5, False, {}


def pairs(name):
    """The spaces to try an agent in: every one of both kinds, not every pair."""
    if name in VARIANTS:
        found = [("vector", "box"), ("label", "label"), ("matrix", "labels")]
    else:
        actions = ("box", "doubles", "label", "labels", "bits", "label", "box")
        found = list(zip(list(OBSERVATIONS)[:7], actions, strict=True))
    if name in BOXES_ONLY:
        found = [(observed, "box") for observed, _ in found]
    if name in KEEP_NO_IMAGES:
        found = [(seen, taken) for seen, taken in found if seen not in SMALL_CODES]
    if name in IMPORTED:  # they count from 0
        found = [("label from 0" if seen == "label" else seen, taken) for seen, taken in found]
    return list(dict.fromkeys(found))


def made(name, env=None, *, observed="vector", **settings):
    """A small agent, in one environment of its own if none is given."""
    kind, small = DEEP[name]
    policy = {"image": "CnnPolicy", "dict": "MultiInputPolicy"}.get(observed, "MlpPolicy")
    nets = NETS if name in IMPORTED else NETS | SMALL_CODES.get(observed, {})
    env = several(1, observed) if env is None else env
    return kind(policy, env, **({"policy_kwargs": nets, "seed": 0} | small | settings))


def several(count, observed="vector", actions="box"):
    return DummyVecEnv([lambda: Monitor(Drawn(observed, actions))] * count)


def same(left, right):
    assert left.keys() == right.keys()
    return all(np.array_equal(np.asarray(left[key]), np.asarray(right[key])) for key in left)
