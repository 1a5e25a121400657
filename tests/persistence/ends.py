"""Trainings that are killed and go on, of every agent in every kind of environment, many times.

    python -W ignore -m tests.persistence.ends --ends 200

An end is a training that was killed by SIGKILL at a random instant, at least once, and went on
until it was done. It must be the uninterrupted one's to the byte, or, where an environment can't be
captured, that of one that was seeded anew at its checkpoints as well, and said so.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces, wrappers
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, OTTRPO, WNPG, WPO, WPPG, ClippedPPO, TabularOTTRPO, WPOGradient
from ottrpo.agents.sb3 import A2C, PPO, TRPO
from ottrpo.agents.watching import CheckpointEvery
from ottrpo.envs import make_vec
from ottrpo.persistence.environments import Capturable

EVERY, UPDATES = 64, 10
AT_A_TIME = 3  # ends of a pair, to compare with one that was not killed
NETS = {"policy_kwargs": {"net_arch": [8]}, "seed": 3}
OURS = {"n_steps": 32, "batch_size": 32, "n_epochs": 1} | NETS
GUIDED = OURS | {"n_actions": 2, "n_features": 4, "dual_steps": 2}
AGENTS = {
    "ottrpo": (OTTRPO, OURS | {"buffer_size": 200}),
    "ottrpo-gae": (OTTRPO, OURS | {"advantage": "gae"}),
    "ottrpo-network": (OTTRPO, OURS | {"advantage": "network", "n_candidates": 3}),
    "ottrpo-natural": (OTTRPO, OURS | {"region": "kl", "update": "natural"}),
    "ottrpo-priced": (OTTRPO, OURS | {"multiplier": {"start": 10.0, "end": 20.0}}),
    "bgpg": (BGPG, GUIDED),
    "wnpg": (WNPG, GUIDED | {"n_basis": 2}),
    "clipped-ppo": (ClippedPPO, OURS),
    "wpo-gradient": (WPOGradient, OURS | {"buffer_size": 200}),
    "wppg": (WPPG, OURS | {"buffer_size": 200}),
    "trpo": (TRPO, {"n_steps": 32, "batch_size": 32} | NETS),
    "ppo": (PPO, OURS),
    "a2c": (A2C, {"n_steps": 32} | NETS),
}
BOXES_ONLY = ("bgpg", "wnpg", "wpo-gradient", "wppg")
ON_TABLES = {"tabular-ottrpo": TabularOTTRPO, "wpo": WPO}


class Hidden(gym.Env):
    """What it does next is known to its hidden part alone."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._begin(seed)
        self._at = 0.0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._at += float(action[0]) + 0.1 * self._drawn()
        seen = np.array([self._at, 1.0], np.float32)
        return seen, -abs(self._at), abs(self._at) > 3, False, {}


class OwnGenerator(Hidden):
    def _begin(self, seed):
        self._own = np.random.default_rng(seed)

    def _drawn(self):
        return self._own.normal()


class PythonsGenerator(OwnGenerator):
    def _begin(self, seed):
        self._own = random.Random(seed)

    def _drawn(self):
        return self._own.gauss(0, 1)


class OfItsClass(Hidden):
    """Its memory is its class's."""

    memory: ClassVar[list[float]] = [0.0]

    def _begin(self, seed):
        self.memory[0] = seed % 7

    def _drawn(self):
        self.memory[0] = (self.memory[0] * 1.7 + 0.3) % 2.0
        return self.memory[0]


class AGenerator(Hidden):
    """A running function can't be captured."""

    def _begin(self, seed):
        def numbers(rng=np.random.default_rng(seed)):  # noqa: B008
            while True:
                yield rng.normal()

        self._numbers = numbers()

    def _drawn(self):
        return next(self._numbers)


class Whim(gym.ActionWrapper):
    """Does something else at times, drawn from a space."""

    def action(self, action):
        return self.action_space.sample() if self.np_random.random() < 0.3 else action


def one(name, **options):
    return lambda: gym.make(name, **options)


def limited(kind):
    return lambda: wrappers.TimeLimit(kind(), 30)


SHORT = {"max_episode_steps": 40}
# kind -> (environment, whether actions are in a box, policy)
KINDS = {
    **{
        name: (one(name, **SHORT), True, "MlpPolicy")
        for name in (
            *("Pendulum-v1", "MountainCarContinuous-v0", "Hopper-v5", "Swimmer-v5", "Reacher-v5"),
            *("HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "InvertedPendulum-v5", "Pusher-v5"),
        )
    },
    **{
        name: (one(name, **SHORT), False, "MlpPolicy")
        for name in (
            *("CartPole-v1", "Acrobot-v1", "MountainCar-v0"),
            *("CliffWalking-v1", "Taxi-v4", "FrozenLake-v1"),
        )
    },
    "reach": (one("ottrpo/Reach-v0"), True, "MlpPolicy"),
    "factors": (
        one("ottrpo/Match-v0", actions="multi-discrete", observations="box"),
        *(False, "MlpPolicy"),
    ),
    "dict": (one("ottrpo/Match-v0", observations="dict"), False, "MultiInputPolicy"),
    "two": (lambda: DummyVecEnv([one("Pendulum-v1", **SHORT)] * 2), True, "MlpPolicy"),
    "stacked": (
        lambda: VecFrameStack(DummyVecEnv([one("Pendulum-v1", **SHORT)] * 2), 3),
        *(True, "MlpPolicy"),
    ),
    "batched": (lambda: make_vec("Hopper-v5", 4, threads=1, **SHORT), True, "MlpPolicy"),
    "subprocesses": (
        lambda: SubprocVecEnv([lambda: Capturable(gym.make("Pendulum-v1"))] * 2),
        *(True, "MlpPolicy"),
    ),
    "own generator": (limited(OwnGenerator), True, "MlpPolicy"),
    "Python's generator": (limited(PythonsGenerator), True, "MlpPolicy"),
    "of its class": (limited(OfItsClass), True, "MlpPolicy"),
    "a generator function": (limited(AGenerator), True, "MlpPolicy"),
    "whims": (lambda: Whim(gym.make("Pendulum-v1", **SHORT)), True, "MlpPolicy"),
}
OWN_NORMALISER = ("ppo", "trpo", "a2c")


def pairs(rng):
    """Agents and kinds of environments, every one of both soon, in random order."""
    fitting = [
        (agent, kind)
        for kind, (_, box, _) in KINDS.items()
        for agent in AGENTS
        if box or agent not in BOXES_ONLY
    ]
    fitting += [(agent, kind) for agent in ON_TABLES for kind in ("CliffWalking-v1", "Taxi-v4")]
    rng.shuffle(fitting)
    kinds, agents = Counter(), Counter()
    while fitting:  # the one whose kind and agent had the fewest turns
        best = min(fitting, key=lambda pair: kinds[pair[1]] + agents[pair[0]] / 3)
        fitting.remove(best)
        kinds[best[1]] += 1
        agents[best[0]] += 1
        yield best


def made(agent, kind):
    if agent in ON_TABLES:
        return ON_TABLES[agent](kind, seed=3, steps_per_update=EVERY)
    env, _, policy = KINDS[kind]
    class_, settings = AGENTS[agent]
    if kind == "two" and agent not in OWN_NORMALISER:
        return class_(policy, VecNormalize(env()), **settings)
    return class_(policy, env(), **settings)


def train(agent, kind, folder, kill_after=None):
    """Begin a training, or go on with it; it may die on the way."""
    about = io.StringIO()
    with contextlib.redirect_stdout(about):
        fresh = made(agent, kind)
        callback = CheckpointEvery(EVERY, folder / "checkpoints")
        total = EVERY * UPDATES * getattr(fresh, "n_envs", 1)
        if any((folder / "checkpoints").glob("step-*.zip")):
            env = None if agent in ON_TABLES else fresh.env
            if agent in OWN_NORMALISER:
                env = fresh.get_env()
            fresh = type(fresh).resume(folder / "checkpoints", env=env)
            total = fresh.remaining_timesteps
        if kill_after is not None:
            timer = threading.Timer(kill_after, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()
        began = time.monotonic()
        options = {} if agent in ON_TABLES else {"reset_num_timesteps": False}
        fresh.learn(total, callback=callback, **options)
    took = time.monotonic() - began
    fresh.save(folder / "end.zip")
    (folder / "said.txt").write_text(f"{took}\n{about.getvalue()}")


def started(*arguments):
    """A process of its own; its exit code."""
    process = multiprocessing.get_context("forkserver").Process(target=train, args=arguments)
    process.start()
    process.join(600)
    assert process.exitcode in (0, -signal.SIGKILL), f"{arguments}: exit code {process.exitcode}"
    return process.exitcode


def ends(agent, kind, count, root, rng, told):
    """The ends of one pair; what came out differently is told."""
    whole = root / "whole"
    whole.mkdir(parents=True)
    started(agent, kind, whole)
    first, said = (whole / "said.txt").read_text().split("\n", 1)
    took, anew, number = float(first), "seeded anew" in said, 0
    while number < count:
        folder, kills, most = root / f"{number} {took}", 0, rng.choice((1, 1, 1, 3))
        folder.mkdir()
        while not (folder / "end.zip").exists():
            delay = rng.uniform(0.0, took) if kills < most else None
            kills += started(agent, kind, folder, delay) != 0
        if not kills:
            took *= 0.8  # it was faster than the first
            continue
        number += 1
        same = (folder / "end.zip").read_bytes() == (whole / "end.zip").read_bytes()
        told["identical" if same else "DIFFERENT"] += 1
        told["kills"] += kills
        told["announced as seeded anew"] += anew
        assert same, f"{agent} on {kind} ended elsewhere after {kills} kills"


def run(wanted, seed=0, minutes=None, only=None, at_a_time=AT_A_TIME):
    """Pairs until there were so many ends, or no time is left; what came of them.

    Returns:
        what there was, and the ends by agent and by kind of environment.
    """
    multiprocessing.set_forkserver_preload([__name__])
    rng, told, agents, kinds = random.Random(seed), Counter(), Counter(), Counter()
    until = None if minutes is None else time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="ends-") as root:
        for number, (agent, kind) in enumerate(pairs(rng) if only is None else only):
            if told["identical"] >= wanted or (until and time.monotonic() > until):
                break
            ends(agent, kind, at_a_time, Path(root) / str(number), rng, told)
            agents[agent] += at_a_time
            kinds[kind] += at_a_time
            print(f"{agent} on {kind}: {dict(told)}", flush=True)
    return told, agents, kinds


def main():
    """Tell how many ends there were."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ends", type=int, default=200)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    told, agents, kinds = run(options.ends, options.seed, options.minutes)
    for name, count in (*agents.items(), *kinds.items()):
        print(f"{name:<28} {count:>4}")
    print(
        f"{told['identical']} ends of {len(agents)} agents in {len(kinds)} kinds of "
        f"environments: {dict(told)}"
    )


if __name__ == "__main__":
    from tests.persistence.ends import main as imported  # its functions have to have a name

    imported()
