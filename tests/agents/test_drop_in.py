"""What SB3's users do with an agent besides training it, done with ours."""

import copy
import os
import pickle
import subprocess
import sys

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, OTTRPO, WNPG
from ottrpo.agents.sb3 import PPO
from ottrpo.engine.spaces import actions_of

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0}
REACH, MATCH = "ottrpo/Reach-v0", "ottrpo/Match-v0"
OURS = [OTTRPO, BGPG, WNPG]


def small(kind=OTTRPO, env=REACH, policy="MlpPolicy", **settings):
    return kind(policy, env, **(SMALL | settings))


def many(count, env=REACH):
    return DummyVecEnv([lambda: gym.make(env)] * count)


# ---------------------------------------------------------------------- other environments


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", OURS)
def test_a_loaded_agent_takes_environments_of_any_number(kind, count, tmp_path):
    small(kind).learn(16).save(tmp_path / "a")
    agent = kind.load(tmp_path / "a")
    agent.set_env(many(count))
    assert agent.learn(96).num_timesteps == 96
    agent.save(tmp_path / "a")
    assert kind.load(tmp_path / "a").n_envs == count


def test_the_number_of_environments_changes_with_critics():
    agent = small(advantage="mixed")
    agent.set_env(many(2))
    assert agent.learn(64).num_timesteps == 64


def test_environments_that_do_not_fit_change_nothing():
    agent = small()
    with pytest.raises(ValueError, match="spaces do not match"):
        agent.set_env(many(2, "Pendulum-v1"))
    assert agent.n_envs == 1
    agent.learn(16)


def own_normalisation(agent):
    normaliser = agent.algorithm.estimate.normaliser
    return normaliser.observations, normaliser.rewards


@pytest.mark.parametrize("kind", OURS)
def test_vec_normalize_takes_over_whenever_it_comes(kind, tmp_path):
    on = {"normalize_obs": True, "normalize_reward": True}
    agent = small(kind, **on)
    assert own_normalisation(agent) == (True, True)
    agent.set_env(VecNormalize(many(2)))
    assert own_normalisation(agent) == (False, False)
    agent.learn(32).save(tmp_path / "a")
    agent.set_env(many(1))
    assert own_normalisation(agent) == (True, True)
    assert own_normalisation(small(kind, VecNormalize(many(1)), **on)) == (False, False)
    loaded = kind.load(tmp_path / "a", env=VecNormalize(many(1)))
    assert own_normalisation(loaded) == (False, False)
    loaded = kind.load(tmp_path / "a")
    loaded.set_env(VecNormalize(many(1)))
    assert own_normalisation(loaded) == (False, False)


class Taciturn(VecEnv):
    """Two environments in one that answer no question about themselves."""

    def __init__(self, observation_space):
        super().__init__(2, observation_space, spaces.Box(-1, 1, (1,)))

    def _seen(self):
        rows = [self.observation_space.sample() for _ in range(2)]
        if isinstance(self.observation_space, spaces.Dict):
            return {key: np.stack([row[key] for row in rows]) for key in self.observation_space}
        return np.stack(rows)

    def reset(self):
        return self._seen()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        return self._seen(), np.zeros(2), np.zeros(2, bool), [{}, {}]

    def close(self):
        pass

    def seed(self, seed=None):
        return [None, None]

    def get_attr(self, attr_name, indices=None):
        if attr_name == "render_mode":
            return [None, None]
        raise NotImplementedError

    set_attr = env_method = get_attr

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False, False]


@pytest.mark.parametrize("kind", OURS)
def test_environments_need_not_tell_their_name(kind, tmp_path):
    agent = small(kind, Taciturn(spaces.Box(-1, 1, (3,)))).learn(32)
    agent.save(tmp_path / "a")
    with pytest.raises(ValueError, match="pass one: evaluate"):
        agent.evaluate(1)


class OneKey(gym.Env):
    observation_space = spaces.Dict(obs=spaces.Box(-1, 1, (3,)))
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"obs": np.zeros(3, np.float32)}, {}

    def step(self, action):
        return {"obs": np.ones(3, np.float32)}, float(action[0]), False, True, {}


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_dict_may_have_a_single_vector(kind, count):
    agent = small(kind, DummyVecEnv([OneKey] * count), "MultiInputPolicy").learn(32)
    assert agent.predict({"obs": np.zeros(3)})[0].shape == (2,)
    assert agent.evaluate(2, env=OneKey()).shape == (2,)


# ---------------------------------------------------------------------- copies, seeds, processes


def fingerprint(agent):
    return np.concatenate([a.ravel() for a in agent.get_parameters().values()])


WAYS = {
    "pickle": lambda agent: pickle.loads(pickle.dumps(agent)),
    "cloudpickle": lambda agent: pickle.loads(cloudpickle.dumps(agent)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OURS)
def test_a_copy_goes_on_as_the_agent_would(kind, way):
    agent = small(kind).learn(32)
    again = WAYS[way](agent)
    assert again is not agent
    assert again.policy is not agent.policy
    assert np.array_equal(fingerprint(again), fingerprint(agent))
    seen = np.zeros((5, *agent.observation_space.shape))
    assert np.array_equal(again.predict(seen)[0], agent.predict(seen)[0])
    for one in (agent, again):
        one.set_env(many(1))
        one.env.seed(0)
        one.learn(32, reset_num_timesteps=False)
    assert np.array_equal(fingerprint(again), fingerprint(agent))
    assert again.num_timesteps == agent.num_timesteps == 64


def test_a_copy_takes_its_environments_along_if_they_can_be_copied():
    assert copy.deepcopy(small().learn(16)).learn(16).num_timesteps == 16
    env = gym.make(REACH)
    env.unwrapped.held = open(os.devnull)  # noqa: SIM115
    agent = small(env=env)
    again = copy.deepcopy(agent)
    env.unwrapped.held.close()
    with pytest.raises(ValueError, match="set_env"):
        again.learn(16)


@pytest.mark.parametrize("kind", OURS)
def test_a_seed_decides_what_is_sampled(kind):
    agent = small(kind)
    seen = np.zeros((4, *agent.observation_space.shape))
    agent.set_random_seed(3)
    drawn = [agent.predict(seen)[0] for _ in range(2)]
    agent.set_random_seed(3)
    assert np.array_equal([agent.predict(seen)[0] for _ in range(2)], drawn)
    assert not np.array_equal(drawn[0], drawn[1])
    agent.set_random_seed(4)
    assert not np.array_equal(agent.predict(seen)[0], drawn[0])


FORK = """
import os, sys
import numpy as np
import ottrpo.envs.toys
from ottrpo import OTTRPO

def made():
    return OTTRPO("MlpPolicy", "ottrpo/Reach-v0", n_steps=16, batch_size=16, n_epochs=1, seed=0)

def refused(what):
    try:
        what()
    except RuntimeError as error:
        return "forkserver" in str(error)

def in_child(what):
    pid = os.fork()
    if pid == 0:
        sys.exit(0 if what() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

codes = [in_child(lambda: made().learn(16))]  # nothing has started yet
agent = made().learn(16)
seen = np.zeros(agent.observation_space.shape)
action = agent.predict(seen, deterministic=True)[0]
codes += [in_child(lambda: refused(made)), in_child(lambda: refused(lambda: agent.learn(16)))]
codes += [in_child(lambda: (agent.predict(seen, deterministic=True)[0] == action).all())]
agent.learn(16)
print(codes)
"""


def test_a_forked_child_predicts_and_says_why_it_does_not_train():
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], timeout=150, capture_output=True, text=True
    )
    assert told.stdout == "[0, 0, 0, 0]\n", told.stderr


# ---------------------------------------------------------------------- stopping, acting, saving


class Counter(gym.Env):
    """What it shows is how many steps it has taken."""

    observation_space = spaces.Box(0, 1000, (1,))
    action_space = spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert action.dtype == np.float64
        self.taken += 1
        return np.full(1, self.taken, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("count", [1, 2])
def test_who_stops_in_mid_rollout_goes_on_from_there(kind, count):
    agent = small(kind, DummyVecEnv([Counter] * count))
    agent.learn(64, callback=lambda told, _: agent.num_timesteps < 21 * count)
    assert np.array_equal(agent._last_obs, np.full((count, 1), 21))


def test_a_sample_is_drawn_for_the_rows_asked_for_and_nothing_is_kept():
    agent = small()
    shape = agent.observation_space.shape
    expected = copy.deepcopy(agent._predict_rng)
    expected.standard_normal((3, *agent.action_space.shape), dtype=np.float32)
    agent.predict(np.zeros((3, *shape)))
    assert agent._predict_rng.bit_generator.state == expected.bit_generator.state
    for rows in range(1, 20):
        for deterministic in (False, True):
            agent.predict(np.zeros((rows, *shape)), deterministic=deterministic)
    assert len(agent._predictors) == 1


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_label_is_an_array_without_axes(deterministic):
    agent = small(env="CartPole-v1")
    action, _ = agent.predict(np.zeros(4), deterministic=deterministic)
    assert isinstance(action, np.ndarray)
    assert action.shape == ()
    assert agent.predict(np.zeros((2, 4)), deterministic=deterministic)[0].shape == (2,)
    assert agent.action_space.contains(int(action))


class Typed(Counter):
    """Takes only what is in its box, the type included."""

    def __init__(self, dtype):
        self.action_space = spaces.Box(0, 3, (2,), dtype)

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action.astype(np.float64))


@pytest.mark.parametrize("more", [{}, {"policy_kwargs": {"bins": 4}}])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8"])
def test_a_box_gets_what_it_contains(dtype, more):
    agent = small(env=Typed(np.dtype(dtype)), advantage="gae", **more).learn(16)
    for deterministic in (False, True):
        action, _ = agent.predict(np.zeros(1), deterministic=deterministic)
        assert agent.action_space.contains(action)


def test_labels_of_a_box_of_bytes_are_the_nearest():
    actions = actions_of(spaces.Box(0, 200, (1,), np.uint8), bins=5)
    assert actions.labels_of(np.array([[0], [60], [190]], np.uint8)).ravel().tolist() == [0, 1, 4]


def test_what_reset_returns_is_no_observation():
    with pytest.raises(ValueError, match="observation, info ="):
        small().predict(gym.make(REACH).reset())


def test_the_folder_of_tensorboard_has_the_name_of_the_agent(tmp_path):
    small(tensorboard_log=str(tmp_path)).learn(16)
    assert [path.name for path in tmp_path.iterdir()] == ["OTTRPO_1"]


def test_ppo_plays_where_observations_are_dicts():
    agent = small(PPO, DummyVecEnv([OneKey]), "MultiInputPolicy")
    assert agent.evaluate(3, env=OneKey()).shape == (3,)
