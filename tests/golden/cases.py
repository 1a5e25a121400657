"""Short trainings of every agent and every way of each, and what they come to.

Only the public interface is looked at: parameters (with the normalisation that the policy acts
with), what the last update logged, the returns of the training's episodes and of evaluation.
"""

import hashlib
import json
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, OTTRPO, WNPG, WPO, TabularOTTRPO
from ottrpo.agents.sb3 import A2C, PPO, TRPO
from ottrpo.core import Mahalanobis, PNorm, TableCost
from ottrpo.experiments import provenance

VALUES = Path(__file__).parent / "values.json"
# what the last bit of a result may depend on
PACKAGES = ("equinox", "gymnasium", "jax", "jaxlib", "mujoco", "numba", "numpy", "optax")
PACKAGES += ("sb3-contrib", "scipy", "stable-baselines3", "torch")
NETS = {"net_arch": [16]}
SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 3, "policy_kwargs": NETS}
GUIDED = SMALL | {"n_actions": 3, "n_features": 8, "dual_steps": 3}
LINE = [[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]  # of three labels


class Case(NamedTuple):
    """An agent, what it is trained in, and how."""

    agent: type
    env: Callable[[], Any]
    settings: dict[str, Any]
    steps: int = 192


def _env(name: str, **kwargs: Any) -> Callable[[], Any]:
    return lambda: gym.make(name, **kwargs)


def _several(name: str, count: int, *, normalised: bool = False) -> Callable[[], Any]:
    def make() -> Any:
        envs = DummyVecEnv([_env(name, max_episode_steps=25)] * count)
        return VecNormalize(envs) if normalised else envs

    return make


PENDULUM = _env("Pendulum-v1", max_episode_steps=40)  # cut off within a rollout
CAR = _env("MountainCarContinuous-v0")
CART, MATCH = _env("CartPole-v1"), _env("ottrpo/Match-v0")
CLIFF = _env("CliffWalking-v1")
REACH = _env("ottrpo/Reach-v0", low=-2.0, high=1.0)
HOPPER, CHEETAH = _env("Hopper-v5"), _env("HalfCheetah-v5")


def _deep(env: Callable[[], Any], agent: type = OTTRPO, steps: int = 192, **settings: Any) -> Case:
    known = {"advantage": "gae"} if agent is OTTRPO else {}  # the default when these were made
    return Case(agent, env, SMALL | known | settings, steps)


def _network(env: Callable[[], Any], **settings: Any) -> Case:
    return _deep(env, advantage="network", **settings)


CASES: dict[str, Case] = {
    "samples and critics": _deep(PENDULUM, advantage="mixed"),
    "samples and critics, falls": _deep(HOPPER, advantage="mixed", buffer_size=128),
    "linear": _deep(PENDULUM),
    "linear, learnt sigma": _deep(PENDULUM, learn_std=True),
    "linear, annealed sigma": _deep(PENDULUM, log_std_final=-1.5),
    "linear, gSDE": _deep(CAR, use_sde=True, sde_sample_freq=16),
    "linear, gSDE, learnt sigma": _deep(REACH, use_sde=True, learn_std=True),
    "linear, Mahalanobis": _deep(REACH, cost=Mahalanobis([[2.0, 0.5], [0.5, 1.0]]), learn_std=True),
    "linear, pink noise": _deep(CAR, noise_color=1.0),
    "linear, white noise": _deep(CAR, noise_color=0.0, gamma=0.98, gae_lambda=0.9),
    "linear, schedules": _deep(
        PENDULUM,
        radius={"start": "40%", "end": "10%"},
        learning_rate={"start": 1e-3, "end": 1e-4},
        gamma={"start": 0.95, "end": 0.99},
    ),
    "linear, not normalised": _deep(
        PENDULUM,
        normalize_obs=False,
        normalize_reward=False,
        normalize_advantage=False,
        radius=0.05,
        batch_size=24,
        policy_kwargs={"net_arch": {"pi": [16], "vf": []}, "activation_fn": "silu"},
    ),
    "linear, paper's region": _deep(PENDULUM, trust_region="paper", learning_rate=1e-2),
    "linear, radius beyond reach": _deep(REACH, radius="600%", learning_rate=1e-2),
    "sample": _deep(PENDULUM, model="sample"),
    "sample, ascent": _deep(PENDULUM, model="sample", update="ascent"),
    "sample, p-norm, gSDE": _deep(REACH, model="sample", cost=PNorm(1), use_sde=True),
    "antithetic": _deep(REACH, model="antithetic", cost=PNorm(2, power=1.5)),
    "candidates": _network(PENDULUM),
    "candidates, sources": _network(REACH, n_sources=2, n_candidates=4, learn_std=True),
    "candidates, ascent": _network(REACH, n_candidates=3, update="ascent"),
    "network slope": _network(REACH, model="linear"),
    "labels": _deep(CART),
    "labels, sample": _deep(CART, model="sample", update="regression"),
    "labels, network": _network(MATCH),
    "labels, table": _deep(MATCH, cost=TableCost(LINE), radius="20%"),
    "labels, table of states": _deep(MATCH, cost=TableCost([LINE, np.transpose(LINE), LINE])),
    "labels, too large a radius": _deep(MATCH, radius=5.0),
    "factors": _deep(  # as the default was when these were made
        _env("ottrpo/Match-v0", actions="multi-discrete", observations="box"),
        update="ascent",
    ),
    "masks": _deep(_env("ottrpo/Match-v0", masked=True)),
    "bits, network": _network(_env("ottrpo/Match-v0", actions="multi-binary", observations="box")),
    "dictionary": _deep(_env("ottrpo/Match-v0", observations="dict"), policy="MultiInputPolicy"),
    "image": _deep(
        _env("ottrpo/Match-v0", observations="image"),
        policy="CnnPolicy",
        n_steps=32,
        n_epochs=2,
        steps=64,
        policy_kwargs=NETS | {"features_dim": 8},
    ),
    "several": _deep(_several("Pendulum-v1", 3), n_steps=32),
    "several, VecNormalize": _deep(_several("Pendulum-v1", 2, normalised=True), n_steps=32),
    "Hopper": Case(OTTRPO, HOPPER, {"advantage": "gae", "n_steps": 512, "n_epochs": 3}, 1024),
    # few steps: it never begins anew, and what differs by rounding goes apart
    "HalfCheetah": Case(OTTRPO, CHEETAH, {"advantage": "gae", "n_steps": 48, "n_epochs": 3}, 96),
    "BGPG": Case(BGPG, PENDULUM, GUIDED),
    "BGPG, by sample": Case(
        BGPG, REACH, GUIDED | {"test_functions": "sample", "dual_decay": True, "batch_size": 24}
    ),
    "WNPG": Case(WNPG, PENDULUM, GUIDED),
    "WNPG, two-sided": Case(
        WNPG,
        REACH,
        GUIDED
        | {"damping_rule": "two-sided", "norm_rule": "clip", "optimizer": "adam"}
        | {"time_limits": "bootstrap", "kernel_bandwidth": "root"},
    ),
    "PPO": _deep(PENDULUM, PPO, normalize_obs=True, normalize_reward=True),
    "TRPO": Case(TRPO, CART, {"n_steps": 64, "batch_size": 32, "policy_kwargs": NETS}, 192),
    "A2C": Case(A2C, PENDULUM, {"n_steps": 8, "n_envs": 1, "policy_kwargs": NETS}, 96),
    "TabularOTTRPO": Case(TabularOTTRPO, MATCH, {"estimator": "td", "steps_per_update": 500}, 2000),
    "TabularOTTRPO, cliff": Case(TabularOTTRPO, CLIFF, {"estimator": "td", "radius": 0.05}, 2000),
    "TabularOTTRPO, model": Case(TabularOTTRPO, CLIFF, {}, 20_000),
    "WPO": Case(WPO, CLIFF, {"estimator": "td", "radius": 0.05}, 2000),
    "WPO, ties move": Case(
        WPO, MATCH, {"estimator": "td", "tie": "move", "steps_per_update": 500}, 2000
    ),
}


class Outcome(NamedTuple):
    """What a training came to.

    Attributes:
        digests: of the bits, by what they are of.
        norms: Euclidean norm of every parameter array, to see on another machine that the
            training is the same but for rounding.
    """

    digests: dict[str, str]
    norms: dict[str, float]


def outcome(case: Case) -> Outcome:
    """Train as the case says."""
    settings = {"seed": 7} | case.settings
    policy = settings.pop("policy", "MlpPolicy")
    tables = case.agent in (TabularOTTRPO, WPO)
    env = case.env()
    agent: Any = case.agent(env, **settings) if tables else case.agent(policy, env, **settings)
    agent.learn(case.steps)
    arrays = {key: np.asarray(array) for key, array in sorted(agent.get_parameters().items())}
    episodes = [float(episode["r"]) for episode in getattr(agent, "ep_info_buffer", None) or ()]
    evaluated = [] if isinstance(env, VecEnv) else agent.evaluate(2, seed=5)
    found = {
        "parameters": hashlib.sha256(),
        "logged": hashlib.sha256(json.dumps(agent.last_update, sort_keys=True).encode()),
        "episodes": hashlib.sha256(np.array(episodes).tobytes()),
        "evaluated": hashlib.sha256(np.array(evaluated, np.float64).tobytes()),
    }
    for key, array in arrays.items():
        found["parameters"].update(f"{key} {array.dtype} {array.shape}".encode())
        found["parameters"].update(np.ascontiguousarray(array).tobytes())
    norms = {key: float(f"{np.linalg.norm(array):.6g}") for key, array in arrays.items()}
    return Outcome({name: digest.hexdigest()[:16] for name, digest in found.items()}, norms)


def machine() -> dict[str, str]:
    """The processor and the versions that the bits depend on."""
    told = provenance.arithmetic()
    return {
        **{name: told[name] for name in ("processor", "instructions", "blas")},
        "python": platform.python_version(),
    } | {package: version(package) for package in PACKAGES}
