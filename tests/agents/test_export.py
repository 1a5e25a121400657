"""An exported policy does what `predict` does, whatever is observed and done."""

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import stable_baselines3
import torch
from gymnasium import spaces

from ottrpo import BGPG, OTTRPO, TabularOTTRPO
from ottrpo.agents import export
from ottrpo.agents.sb3 import A2C, PPO, TRPO
from ottrpo.cli import main
from ottrpo.engine.state import Learner

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float64)
IMAGE = spaces.Box(0, 255, (40, 36, 3), np.uint8)  # channels last, as environments give them
CASES = {
    "box": ("MlpPolicy", VECTOR, spaces.Box(-1, 1, (2,))),
    "wide box": ("MlpPolicy", VECTOR, spaces.Box(-2, 5, (2, 2), np.float64)),
    "discrete": ("MlpPolicy", spaces.Box(-1, 1, (2, 2)), spaces.Discrete(4, start=-1)),
    "labels": ("MlpPolicy", spaces.Discrete(5, start=2), spaces.Box(-1, 1, (1,))),
    "ragged": ("MlpPolicy", spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([2, 4])),
    "switches": ("MlpPolicy", spaces.MultiBinary(4), spaces.MultiBinary(3)),
    "image": ("CnnPolicy", IMAGE, spaces.Discrete(3)),
    "dict": (
        "MultiInputPolicy",
        spaces.Dict(eye=IMAGE, arm=VECTOR, room=spaces.Discrete(3)),
        spaces.Box(0, 10, (2,)),
    ),
    "squashed": ("MlpPolicy", VECTOR, spaces.Box(-2, 5, (2,))),
    "mixture": ("MlpPolicy", VECTOR, spaces.Box(-2, 5, (2,))),
    "bins": ("MlpPolicy", VECTOR, spaces.Box(-2, 5, (1, 2), np.float64)),
    "floats": ("CnnPolicy", spaces.Box(-1, 1, (1, 36, 36)), spaces.Discrete(3)),
}
SETTINGS = {
    "squashed": {"use_sde": True, "policy_kwargs": {"squash_output": True}},
    "mixture": {"policy_kwargs": {"mixture": 3}},
    "bins": {"policy_kwargs": {"bins": 9}},
    "floats": {"policy_kwargs": {"normalize_images": False}},
}


class Somewhere(gym.Env):
    """Random observations of any space."""

    def __init__(self, observed, done):
        self.observation_space, self.action_space = observed, done

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(self.np_random.normal()), False, False, {}


gym.register("Somewhere-v0", Somewhere, max_episode_steps=16)


def trained(kind, name, **settings):
    policy, observed, done = CASES[name]
    env = gym.make("Somewhere-v0", observed=observed, done=done)
    agent = kind(policy, env, n_steps=64, seed=1, **settings).learn(128)
    head = agent.train_state.networks.policy.head  # else actions would hardly differ from 0
    agent.set_parameters({"agent.policy.head.weight": np.asarray(40 * head.weight)}, False)
    return agent


@pytest.mark.parametrize("name", CASES)
def test_on_a_thousand_observations_it_does_as_predict(name, monkeypatch):
    agent = trained(OTTRPO, name, **SETTINGS.get(name, {}))
    content = export.to_onnx(agent).SerializeToString()
    assert export.largest_difference(agent, content, rows=1000, seed=3) < 1e-5
    model = onnxruntime.InferenceSession(content)
    given = export._raw_space(agent)
    names = list(given) if isinstance(given, spaces.Dict) else ["observation"]
    assert [entry.name for entry in model.get_inputs()] == names
    if name == "image":
        assert model.get_inputs()[0].shape == ["n", 40, 36, 3]


def test_what_normalises_is_inside():
    agent = trained(OTTRPO, "box")
    content = export.to_onnx(agent).SerializeToString()
    played = agent.train_state.learners["played"].networks
    moved = Learner(played._replace(mean=played.mean + 1), ())
    agent.train_state = agent.train_state.with_learner("played", moved)
    agent._predictors = {}
    assert export.largest_difference(agent, content) > 1e-3


@pytest.mark.parametrize("name", ["tanh", "relu", "leakyrelu", "elu", "sigmoid", "silu", "gelu"])
def test_every_activation(name):
    agent = trained(BGPG, "box", policy_kwargs={"activation_fn": name, "net_arch": [8]})
    assert export.largest_difference(agent, export.to_onnx(agent).SerializeToString()) < 1e-5


def test_tables(tmp_path, capsys):
    TabularOTTRPO("Taxi-v4", seed=0).learn(5_000).save(tmp_path / "taxi")
    path = tmp_path / "taxi.onnx"
    assert main(["export", str(tmp_path / "taxi.zip"), str(path)]) == 0
    assert "on 1,000 observations it differs from predict by at most 0" in capsys.readouterr().out
    (action,) = onnxruntime.InferenceSession(path).run(None, {"observation": np.arange(500)})
    agent = TabularOTTRPO.load(tmp_path / "taxi")
    assert action.tolist() == agent.predict(np.arange(500), deterministic=True)[0].tolist()


def test_nothing_is_written_that_does_otherwise(tmp_path, monkeypatch):
    agent = trained(OTTRPO, "box")
    wrong = export.to_onnx(trained(OTTRPO, "box", gamma=0.9))
    monkeypatch.setattr(export, "to_onnx", lambda agent: wrong)
    with pytest.raises(ValueError, match="does not do as predict does: actions differ by"):
        export.export(agent, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_flow_is_refused_in_one_line():
    settings = {"policy_kwargs": {"flow": 2}, "n_steps": 32, "batch_size": 32, "n_epochs": 1}
    with pytest.raises(ValueError, match="a flow can't be exported"):
        export.to_onnx(OTTRPO("MlpPolicy", "Pendulum-v1", seed=0, **settings))


FROM_0 = {  # as SB3's networks count labels
    "discrete": ("MlpPolicy", spaces.Box(-1, 1, (2, 2)), spaces.Discrete(4)),
    "labels": ("MlpPolicy", spaces.Discrete(5), spaces.Box(-1, 1, (1,))),
}


def imported(kind, name, **settings):
    policy, observed, done = FROM_0.get(name) or CASES[name]
    observed.seed(0)  # what is seen in training is drawn from it
    env = gym.make("Somewhere-v0", observed=observed, done=done)
    agent = kind(policy, env, n_steps=64, seed=1, **settings).learn(128)
    head = agent.get_parameters()["policy.action_net.weight"]
    agent.set_parameters({"policy.action_net.weight": 40 * head}, exact_match=False)
    if name in ("image", "switches"):  # one noise looks much like another, and a bias would win
        _centre(agent.policy, np.stack([observed.sample() for _ in range(32)]))
    return agent


def _centre(policy, seen):
    with torch.no_grad():
        features = policy.extract_features(policy.obs_to_tensor(seen)[0])
        logits = policy.action_net(policy.mlp_extractor.forward_actor(features))
        policy.action_net.bias -= logits.mean(dim=0)


# but for images that are no bytes, which the imported agents refuse
@pytest.mark.parametrize("name", [name for name in CASES if name != "floats"])
def test_imported_agents_too(name):
    agent = imported(PPO, name)
    content = export.to_onnx(agent).SerializeToString()
    assert export.largest_difference(agent, content, rows=1000, seed=3) < 1e-5
    drawn = export._raw_space(agent)
    drawn.seed(3)
    seen = [drawn.sample() for _ in range(100)]
    told = {str(agent.predict(x, deterministic=True)[0]) for x in seen}
    assert len(told) > 1  # it is no comparison of constants


@pytest.mark.parametrize("kind", [PPO, TRPO, A2C])
def test_what_normalises_an_imported_agent_is_inside(kind):
    agent = imported(kind, "box", normalize_obs=True, normalize_reward=True)
    content = export.to_onnx(agent).SerializeToString()
    assert export.largest_difference(agent, content) < 1e-5
    agent._statistics["observations"].mean += 1.0
    assert export.largest_difference(agent, content) > 1e-3


@pytest.mark.parametrize("name", ["elu", "leakyrelu", "gelu", "silu", "sigmoid"])
def test_their_activations_with_noise_that_depends_on_the_state(name):
    settings = {"policy_kwargs": {"activation_fn": name, "net_arch": [8]}, "use_sde": True}
    agent = imported(PPO, "wide box", **settings)
    assert export.largest_difference(agent, export.to_onnx(agent).SerializeToString()) < 1e-5


def test_who_can_not_be_exported_is_told_in_one_line(tmp_path, capsys):
    agent = PPO("MlpPolicy", "Pendulum-v1", seed=0)
    assert main(["export", "ppo.zip", "policy.pt"]) == 2
    assert "policy.pt must end in .onnx" in capsys.readouterr().err
    agent.policy.mlp_extractor.policy_net.append(torch.nn.Softsign())
    with pytest.raises(ValueError, match="a network with a Softsign can't be exported"):
        export.to_onnx(agent)
    theirs = stable_baselines3.PPO("MlpPolicy", "Pendulum-v1")
    with pytest.raises(ValueError, match=r"stable_baselines3\.ppo\.ppo\.PPO is no agent of this"):
        export.to_onnx(theirs)
