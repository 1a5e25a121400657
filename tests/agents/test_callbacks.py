"""What SB3's callbacks see while our agents train, and what a policy answers when it is asked."""

import pickle
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, LogEveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger

from ottrpo import BGPG, OTTRPO, WNPG
from ottrpo.engine.spaces import observation_layout

SMALL = {"n_steps": 32, "batch_size": 16, "n_epochs": 1, "seed": 0}
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
VECTOR = spaces.Box(-3, 3, (2,), np.float32)
OBSERVATIONS = {
    "float32": VECTOR,
    "float64": spaces.Box(-3, 3, (2, 2), np.float64),
    "discrete": spaces.Discrete(5),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-binary": spaces.MultiBinary(3),
    "image": IMAGE,
    "dict": spaces.Dict(image=IMAGE, number=spaces.Discrete(4), vector=VECTOR),
}
ACTIONS = {
    "box": spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32)),
    "labels": spaces.Discrete(3),
    "factors": spaces.MultiDiscrete([3, 2]),
}


class Drawn(gym.Env):
    """Observations drawn from a space; episodes of five steps, every other one cut off."""

    def __init__(self, observed, actions="box"):
        self.observation_space = deepcopy(OBSERVATIONS[observed])
        self.action_space = ACTIONS[actions]
        self._step = self._episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._step, self._episode = 0, self._episode + 1
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._step += 1
        ended, cut = self._step == 5, self._episode % 2 == 0
        return self.observation_space.sample(), 1.0, ended and not cut, ended and cut, {}


def policy_for(observed):
    return {"image": "CnnPolicy", "dict": "MultiInputPolicy"}.get(observed, "MlpPolicy")


def agent_for(agent, observed="float32", actions="box", envs=1, **settings):
    env = make_vec_env(lambda: Drawn(observed, actions), envs, seed=0)
    return agent(policy_for(observed), env, **SMALL | settings)


class Diary(BaseCallback):
    """Keeps what it finds in ``locals``, at steps and at the ends of rollouts."""

    names = ("new_obs", "actions", "clipped_actions", "values", "log_probs", "rewards", "dones")
    fields = ("observations", "actions", "rewards", "episode_starts", "values", "log_probs")

    def __init__(self):
        super().__init__()
        self.steps, self.sizes, self.iterations = [], [], []

    def _on_step(self):
        self.steps.append({name: self.locals[name] for name in self.names})
        view = self.locals["rollout_buffer"]
        self.sizes.append(len(view.rewards))
        assert [len(getattr(view, name)) for name in self.fields[1:]] == [self.sizes[-1]] * 5
        assert len(view.advantages) == len(view.returns) == 0
        assert len(self.locals["infos"]) == self.model.n_envs
        assert not self.locals["infos"][0]["TimeLimit.truncated"] or self.locals["dones"][0]
        return True

    def _on_rollout_end(self):
        self.iterations.append(self.locals["iteration"])
        self.view = self.locals["rollout_buffer"]
        names = (*self.fields, "advantages", "returns")
        self.buffer = {name: getattr(self.view, name) for name in names}


def watched(agent, steps=64):
    diary = Diary()
    agent.learn(steps, callback=CallbackList([diary]))
    return diary


class Written(KVWriter):
    def __init__(self):
        self.steps, self.keys = [], set()

    def write(self, key_values, key_excluded, step=0):
        self.steps.append(step)
        self.keys |= set(key_values)

    def close(self):
        pass


every_agent = pytest.mark.parametrize("kind", [OTTRPO, BGPG, WNPG])


@every_agent
def test_logs_are_written_when_a_callback_says_so(kind):
    written = Written()
    agent = agent_for(kind)
    agent.set_logger(Logger(None, [written]))
    agent.learn(64, callback=LogEveryNTimesteps(10), log_interval=None)
    assert written.steps == [10, 20, 30, 40, 50, 60]
    assert {"rollout/ep_rew_mean", "time/total_timesteps"} <= written.keys
    agent.dump_logs()
    assert written.steps[-1] == 64


class Seen(BaseCallback):
    """Keeps the observations."""

    def __init__(self):
        super().__init__()
        self.observations = []

    def _on_step(self):
        self.observations.append((self.locals["obs_tensor"], self.locals["new_obs"]))
        return True


def leaves_of(observation):
    return observation.values() if isinstance(observation, dict) else [observation]


@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize("observed", OBSERVATIONS)
def test_callbacks_see_the_observations_that_ppo_s_see(observed, envs):
    seen = []
    for kind in (OTTRPO, PPO):
        callback = Seen()
        agent_for(kind, observed, envs=envs).learn(32 * envs, callback=callback)
        seen.append(callback.observations)
    for told in zip(*seen, strict=True):
        for ours, theirs in zip(*told, strict=True):  # answered to, and seen next
            for a, b in zip(leaves_of(ours), leaves_of(theirs), strict=True):
                assert (type(a), a.dtype) == (type(b), b.dtype)
                np.testing.assert_array_equal(a, b)  # what is drawn does not depend on the actions


@pytest.mark.parametrize(
    "space", [spaces.Discrete(5, start=2), spaces.MultiDiscrete([3, 2], start=[-1, 4])]
)
def test_labels_that_do_not_start_at_0_are_found_again(space):
    rows = np.stack([space.sample() for _ in range(20)])
    layout = observation_layout(space, convolve=False)
    found = layout.decode(layout.encode(rows, 20))
    np.testing.assert_array_equal(found, rows)
    assert found.dtype == rows.dtype


@every_agent
def test_callbacks_see_what_was_done_and_thought(kind):
    agent = agent_for(kind, envs=2)
    known = agent.predict_values, agent.evaluate_actions
    diary = Diary()

    class Asking(BaseCallback):
        def _on_step(self):
            view, now = self.locals["rollout_buffer"], self.locals
            obs, actions = view.observations[-1], view.actions[-1]
            values, log_probs, _ = known[1](obs, actions)
            np.testing.assert_array_equal(actions, now["actions"])
            np.testing.assert_array_equal(values, now["values"])
            np.testing.assert_allclose(log_probs, now["log_probs"], rtol=1e-5)
            box = self.model.action_space
            inside = np.clip(actions, box.low, box.high)
            np.testing.assert_allclose(now["clipped_actions"], inside, atol=1e-5)
            return True

    agent.learn(128, callback=CallbackList([diary, Asking()]))
    assert diary.sizes == [*range(1, 33)] * 2
    assert diary.iterations == [0, 1]
    shapes = {name: array.shape[2:] for name, array in diary.buffer.items()}
    assert shapes == dict.fromkeys(shapes, ()) | {"observations": (2,), "actions": (2,)}
    steps = diary.steps[32:]
    for name in ("actions", "log_probs", "rewards"):
        np.testing.assert_allclose(diary.buffer[name], [step[name] for step in steps], rtol=1e-5)
    started = np.stack([step["dones"] for step in diary.steps[31:-1]])
    np.testing.assert_array_equal(diary.buffer["episode_starts"], started)


@every_agent
def test_the_advantages_that_callbacks_see_are_those_of_the_update(kind, monkeypatch):
    agent = agent_for(kind)
    learnt = []
    improve = type(agent.algorithm).improve

    def improve_and_tell(self, before, state, batch, *rest):
        learnt.append((batch, self.estimate.normaliser.reward_unit(state.rewards)))
        return improve(self, before, state, batch, *rest)

    monkeypatch.setattr(type(agent.algorithm), "improve", improve_and_tell)
    diary = Diary()
    agent.learn(64, callback=diary)
    for field, name in (("advantages", "advantage"), ("returns", "target"), ("values", "value")):
        seen, (batch, unit) = diary.buffer[field], learnt[-1]
        assert unit != 1.0
        np.testing.assert_array_equal(seen.reshape(-1), getattr(batch, name) * unit)
    assert agent.rollout_buffer is diary.view
    assert diary.view.full
    assert pickle.loads(pickle.dumps(agent)).rollout_buffer is None
    assert deepcopy(agent).rollout_buffer is None


@every_agent
def test_watching_changes_nothing(kind):
    ends = [
        agent_for(kind).learn(64, callback=callback).get_parameters()
        for callback in (None, Diary())
    ]
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name])


def test_a_callback_with_locals_of_its_own_is_told_as_well():
    class Alone(BaseCallback):
        def on_training_start(self, locals_, globals_):
            self.locals = {}

        def _on_step(self):
            self.shapes = {name: self.locals[name].shape for name in Diary.names}
            return True

    alone = Alone()
    agent_for(OTTRPO, "discrete", "labels", envs=2).learn(64, callback=alone)
    assert alone.shapes == dict.fromkeys(Diary.names, (2,)) | {"values": (2, 1)}


def test_nothing_is_computed_that_no_callback_asks_for(monkeypatch):
    def never(*_):
        raise AssertionError("nobody asked")

    monkeypatch.setattr(OTTRPO, "values_of", never)
    monkeypatch.setattr("ottrpo.agents.watching.distribution_of", never)
    monkeypatch.setattr("ottrpo.engine.spaces.ObservationLayout.decode", never)

    class Idle(BaseCallback):
        def _on_step(self):
            return "values" in self.locals

    agent = agent_for(OTTRPO).learn(64, callback=CallbackList([Idle()]))
    assert agent.num_timesteps == 64


@pytest.mark.parametrize(
    ("actions", "use_sde"), [("box", False), ("box", True), ("labels", False), ("factors", False)]
)
@pytest.mark.parametrize("observed", ["float32", "discrete", "image", "dict"])
def test_a_policy_answers_as_sb3_s_do(observed, actions, use_sde):
    agent = agent_for(OTTRPO, observed, actions, envs=3, use_sde=use_sde)
    policy, seen = agent.policy, agent.env.reset()
    values = policy.predict_values(seen)
    assert values.shape == (3, 1)
    distribution = policy.get_distribution(seen)
    space = agent.action_space
    for deterministic in (True, False):
        drawn, value, log_prob = policy.forward(seen, deterministic=deterministic)
        np.testing.assert_array_equal(value, values)
        assert drawn.shape == (3, *space.shape)
        again = policy.evaluate_actions(seen, drawn)
        np.testing.assert_array_equal(again[0], values)
        np.testing.assert_allclose(again[1], log_prob, rtol=1e-5)
        np.testing.assert_allclose(again[2], distribution.entropy(), rtol=1e-5)
    mode = distribution.mode()
    np.testing.assert_allclose(policy.predict(seen, deterministic=True)[0], mode, atol=1e-5)
    assert (distribution.log_prob(mode) >= distribution.log_prob(distribution.sample())).all()
    # entropy is what is expected of the log-probability
    told = np.mean([-distribution.log_prob(distribution.sample()) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(told, distribution.entropy(), atol=0.1)


def test_forbidden_actions_have_no_probability():
    agent = agent_for(OTTRPO, actions="factors")
    seen, mask = np.zeros((1, 2), np.float32), [[True, False, False, True, True]]
    distribution = agent.policy.get_distribution(seen, mask)
    assert {distribution.sample()[0, 0] for _ in range(50)} == {0}
    _, log_prob, entropy = agent.policy.evaluate_actions(seen, [[1, 0]], mask)
    assert log_prob < -1e8
    assert 0 < entropy <= np.log(2) + 1e-6


class Mover(BaseCallback):
    """Sets other environments at some moment, once."""

    def __init__(self, moment, count):
        super().__init__()
        self.moment, self.count, self.told = moment, count, []

    def _at(self, moment):
        if moment == self.moment:
            self.moment = None
            self.model.set_env(make_vec_env(lambda: Drawn("float32"), self.count, seed=1))

    def _on_rollout_start(self):
        self._at("start")

    def _on_step(self):
        self.told.append(self.locals["env"].num_envs)
        self._at("step")
        return True

    def _on_rollout_end(self):
        self._at("end")


@pytest.mark.parametrize("advantage", ["gae", "mixed"])
@pytest.mark.parametrize(("moment", "count"), [("start", 2), ("start", 1), ("end", 1)])
def test_a_callback_may_set_other_environments_between_rollouts(moment, count, advantage):
    agent, mover = agent_for(OTTRPO, advantage=advantage), Mover(moment, count)
    agent.learn(128, callback=mover)
    assert mover.moment is None
    assert agent.num_timesteps == 128
    assert mover.told[-1] == agent.n_envs == count


@pytest.mark.parametrize(("moment", "count"), [("step", 1), ("step", 2), ("end", 2)])
def test_but_not_within_one(moment, count):
    agent = agent_for(OTTRPO)
    with pytest.raises(ValueError, match="other environments than those of the rollout"):
        agent.learn(128, callback=Mover(moment, count))
    assert agent.learn(64).n_envs == count
