"""Whatever becomes NaN or infinite is named, and reaches neither parameters nor checkpoints."""

from types import SimpleNamespace

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import ConvertCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from ottrpo import BGPG, OTTRPO, WNPG, TabularOTTRPO
from ottrpo.agents.sb3 import A2C, PPO, TRPO
from ottrpo.agents.watching import CheckpointEvery
from ottrpo.core.checks import NonFiniteError
from ottrpo.engine.state import Learner
from ottrpo.persistence.checkpoints import Checkpoints, checkpoint_kind

from . import hostile

QUICK = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "seed": 0}


class Spoilt(gym.Env):
    """Gives ``value`` in place of a quantity at a certain step."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, quantity="", at=-1, value=np.nan, *, dictionary=False):
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = spaces.Dict({"a": box, "b": box}) if dictionary else box
        # an object of its own: who goes on in another one gets that one's troubles, not these
        self._trouble = SimpleNamespace(quantity=quantity, at=at, value=value)
        self._dictionary, self._steps = dictionary, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(0.5), {}

    def step(self, action):
        self._steps += 1
        trouble = self._trouble
        now = trouble.quantity if 0 < trouble.at <= self._steps else ""
        seen = trouble.value if now == "observation" else 0.1
        reward = trouble.value if now == "reward" else float(action[0])
        return self._seen(seen), reward, False, self._steps % 10 == 0, {}

    def _seen(self, value):
        seen = np.array([0.0, value])
        return {"a": seen, "b": seen} if self._dictionary else seen


def parameters(agent):
    return {key: np.array(value) for key, value in agent.get_parameters().items()}


def assert_unspoilt(agent, before):
    for key, value in parameters(agent).items():
        np.testing.assert_array_equal(value, before[key])


def learnt_until(agent, complaint, *callbacks):
    """Learn until something is refused; the parameters are those after the last good update."""
    kept = []

    def note(seen, _):
        kept.append(parameters(agent))
        return True

    with pytest.raises(NonFiniteError, match=complaint):
        agent.learn(400, callback=[ConvertCallback(note), *callbacks])
    assert_unspoilt(agent, kept[-1])


@pytest.mark.parametrize("quantity", ["observation", "reward"])
def test_what_the_environment_returns(quantity):
    agent = OTTRPO("MultiInputPolicy", Spoilt(quantity, 77, dictionary=True), **QUICK)
    learnt_until(agent, f"environment 0 returned an? {quantity} of nan at step 77, step 13 of the")


def test_one_of_several_environments():
    envs = DummyVecEnv([lambda i=i: Spoilt("reward", 70 if i == 2 else -1) for i in range(3)])
    complaint = "environment 2 returned a reward of nan at step 210, step 6 of the rollout"
    learnt_until(OTTRPO("MlpPolicy", envs, **QUICK), complaint)


@pytest.mark.parametrize("normalize", [False, True])
def test_advantages_that_overflow(normalize):
    env = Spoilt("reward", 40, 1e308)
    agent = OTTRPO("MlpPolicy", env, normalize_reward=normalize, **QUICK)
    object.__setattr__(agent.algorithm.estimate.normaliser, "clip_reward", np.inf)
    quantity = "running variance of the rewards" if normalize else "advantage"
    learnt_until(agent, f"Spoilt.*{quantity}.*(step 64|environment 0)")


@pytest.mark.parametrize(("advantage", "fit"), [("gae", "descend"), ("mixed", "fit_value")])
@pytest.mark.parametrize(
    ("part", "complaint"), [("networks", "a parameter of 'agent'"), ("moments", "a gradient of")]
)
def test_parameters_and_gradients(part, complaint, advantage, fit, monkeypatch):
    agent = OTTRPO("MlpPolicy", Spoilt(), advantage=advantage, **QUICK)
    plain = getattr(agent.algorithm, fit)

    def spoilt(learner, *rest):
        learner, terms = plain(learner, *rest)
        if agent._n_updates < 2:
            return learner, terms
        bad = jax.tree.map(
            lambda leaf: leaf * jnp.nan if eqx.is_inexact_array(leaf) else leaf,
            getattr(learner, part),
        )
        return Learner(**(learner._asdict() | {part: bad})), terms

    monkeypatch.setitem(vars(agent.algorithm), fit, spoilt)
    # else the region is what complains
    monkeypatch.setitem(vars(agent.algorithm), "spent", lambda *_: 0.0)
    learnt_until(agent, f"Spoilt: {complaint}.*at step 96")


@pytest.mark.parametrize(
    ("advantage", "fit", "term"), [("gae", "descend", "value_loss"), ("mixed", "fit_value", "loss")]
)
def test_losses(advantage, fit, term, monkeypatch):
    agent = OTTRPO("MlpPolicy", Spoilt(), advantage=advantage, **QUICK)
    plain = getattr(agent.algorithm, fit)

    def spoilt(*arguments):
        learner, terms = plain(*arguments)
        return learner, terms | {term: jnp.array(jnp.inf)}

    monkeypatch.setitem(vars(agent.algorithm), fit, spoilt)
    learnt_until(agent, "train/value_loss is inf, not finite, at step 32")


def test_the_last_checkpoint_stays_good_and_resumes(tmp_path):
    agent = OTTRPO("MlpPolicy", Spoilt("reward", 100), **QUICK)
    learnt_until(agent, "reward of nan", CheckpointEvery(32, tmp_path))
    resumed = OTTRPO.resume(tmp_path, env=Spoilt())
    assert resumed.num_timesteps == 96
    resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)
    assert all(np.isfinite(value).all() for value in parameters(resumed).values())


class SpoiltLake(gym.Wrapper):
    def __init__(self, at, value):
        super().__init__(gym.make("FrozenLake-v1"))
        self._steps, self._at, self._value = 0, at, value

    def __deepcopy__(self, memo):
        return SpoiltLake(self._at, self._value)

    def step(self, action):
        self._steps += 1
        seen, reward, *rest = self.env.step(action)
        return seen, self._value if self._steps >= self._at else reward, *rest


@pytest.mark.parametrize(
    ("value", "quantity"), [(np.nan, "reward of nan at step 50"), (1.7e308, r"value Q\(s, a\)")]
)
def test_tables(value, quantity):
    agent = TabularOTTRPO(
        SpoiltLake(51, value), radius=0.1, learning_rate=1.0, sweeps=3, steps_per_update=20, seed=0
    )
    kept = []
    with pytest.raises(NonFiniteError, match=f"FrozenLake-v1: environment 0 led to a {quantity}"):
        agent.learn(10_000, callback=lambda agent: kept.append(agent.get_parameters()))
    for key, table in agent.get_parameters().items():
        np.testing.assert_array_equal(table, kept[-1][key])


FAMILIES = {
    OTTRPO: QUICK,
    BGPG: QUICK | {"n_actions": 2, "n_features": 4, "dual_steps": 2},
    WNPG: QUICK | {"n_actions": 2, "n_features": 4, "dual_steps": 2},
    PPO: QUICK,
    TRPO: {"n_steps": 32, "batch_size": 32, "seed": 0},
    A2C: {"n_steps": 32, "seed": 0},
}
each = pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
imported = pytest.mark.parametrize("kind", [PPO, TRPO, A2C], ids=lambda kind: kind.__name__)


def spoilt(kind, *arguments, **settings):
    return kind("MlpPolicy", Spoilt(*arguments), **FAMILIES[kind] | settings)


@each
@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("quantity", ["observation", "reward"])
def test_every_agent_refuses_it_by_name(kind, quantity, value, tmp_path):
    settings = {} if kind in (PPO, TRPO, A2C) else {"normalize_reward": True}
    agent = spoilt(kind, quantity, 99, value, **settings)
    complaint = f"environment 0 returned an? {quantity} of {value} at step 99"
    learnt_until(agent, complaint, CheckpointEvery(32, tmp_path))
    last = kind.resume(tmp_path, env=Spoilt())
    assert last.num_timesteps == 96
    last.learn(last.remaining_timesteps, reset_num_timesteps=False)
    assert all(np.isfinite(value).all() for value in parameters(last).values())


@imported
def test_imported_agents_of_several_normalised_environments(kind):
    envs = DummyVecEnv([lambda i=i: Spoilt("reward", 70 if i == 2 else -1) for i in range(3)])
    agent = kind("MlpPolicy", envs, **FAMILIES[kind], normalize_obs=True, normalize_reward=True)
    told = []
    with (
        agent.telling(lambda agent: told.append(agent._learnt()[0])),
        pytest.raises(NonFiniteError, match="environment 2 returned a reward of nan at step 210"),
    ):
        agent.learn(1000)
    for key, value in agent._learnt()[0].items():
        np.testing.assert_array_equal(value, told[-1][key])


@imported
def test_imported_agents_undo_an_update_that_loses_its_numbers(kind, monkeypatch):
    agent = spoilt(kind)
    agent.learn(64)
    before, updates = agent._learnt()[0], agent._n_updates

    def spoil(policy):
        with torch.no_grad():
            next(policy.parameters()).fill_(np.nan)

    library = kind.__bases__[1]
    monkeypatch.setattr(library, "train", lambda self: spoil(self.policy))
    with pytest.raises(NonFiniteError, match="Spoilt: a parameter is not finite at step 96"):
        agent.learn(32, reset_num_timesteps=False)
    assert agent._n_updates == updates
    for key, value in agent._learnt()[0].items():
        np.testing.assert_array_equal(value, before[key])


@imported
def test_imported_agents_name_estimates_that_overflow(kind):
    agent = spoilt(kind, "reward", 40, 3e38)
    learnt_until(agent, "Spoilt: the advantage of environment 0 at step \\d+ is")


@imported
@pytest.mark.parametrize("value", [1e200, -1e39])
def test_imported_agents_name_what_single_floats_can_t_hold(kind, value):
    """It is finite where it comes from, and infinite in torch's networks."""
    agent = spoilt(kind, "observation", 42, value)
    learnt_until(agent, f"environment 0 returned an observation of {value}".replace("+", r"\+"))
    scaled = spoilt(kind, "observation", 42, -1e39, normalize_obs=True)
    assert scaled.learn(64).num_timesteps == 64, "who scales them has no need of it"


@pytest.mark.parametrize("kind", [OTTRPO, PPO], ids=lambda kind: kind.__name__)
def test_a_spoilt_checkpoint_is_passed_over_for_the_good_one_before_it(kind, tmp_path):
    agent = spoilt(kind).learn(96, callback=CheckpointEvery(32, tmp_path))
    arrays, data = agent.snapshot()
    name = next(iter(agent.get_parameters())) if kind is PPO else next(iter(arrays))
    arrays |= {name: np.full_like(arrays[name], np.nan)}
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        Checkpoints(tmp_path, checkpoint_kind(kind.__name__)).write(96, arrays, {"agent": data})
    whole = {"step": 96, "state": {"agent": data}}
    newest = tmp_path / "step-000000000000096.zip"
    newest.write_bytes(hostile.forged(checkpoint_kind(kind.__name__), arrays, whole))
    with pytest.warns(UserWarning, match="holds NaN or infinity; using the one of step 64"):
        last = kind.resume(tmp_path, env=Spoilt())
    assert last.num_timesteps == 64
