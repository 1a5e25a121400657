import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from ottrpo.agents.ottrpo import OTTRPO
from ottrpo.collect.host import NonFiniteError
from ottrpo.engine.spaces import observation_layout


class Broken(gym.Env):
    """Counts its steps and returns ``value`` as ``quantity`` at one of them."""

    observation_space = spaces.Box(-10, 10, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, quantity, value, at=5, chokes=False):
        self.quantity, self.value, self.at, self.chokes = quantity, value, at, chokes
        self.steps = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        if self.chokes and not np.isfinite(action).all():
            raise RuntimeError("bad action")
        self.steps += 1
        observation, reward = np.full(2, 0.1), 0.0
        if self.steps == self.at:
            if self.quantity == "reward":
                reward = self.value
            else:
                observation[1] = self.value
        return observation, reward, False, self.steps % 10 == 0, {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantity", ["observation", "reward"])
@pytest.mark.parametrize("chokes", [False, True])
def test_what_is_not_finite_is_named_and_nothing_is_learnt(quantity, value, chokes, tmp_path):
    agent = OTTRPO("MlpPolicy", Broken(quantity, value, chokes=chokes), n_steps=16, seed=0)
    before = agent.get_parameters()
    with pytest.raises(NonFiniteError, match=f"environment 0 returned an? {quantity}.* step 5,"):
        agent.learn(16)
    for name, array in agent.get_parameters().items():
        np.testing.assert_array_equal(array, before[name])
    assert np.isfinite(agent.predict(np.zeros(2))[0]).all()
    agent.save(tmp_path / "agent")


def test_the_environment_among_many_is_named():
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv(
        [lambda: Broken("reward", 0.0), lambda: Broken("reward", np.nan), lambda: Broken("x", 0.0)]
    )
    with pytest.raises(NonFiniteError, match="environment 1 returned a reward of nan at step 15,"):
        OTTRPO("MlpPolicy", envs, n_steps=8, seed=0).learn(8)


def test_a_final_observation_that_is_not_finite_is_named():
    env = Broken("observation", np.nan, at=10)
    with pytest.raises(NonFiniteError, match=r"final observation.*step 10,"):
        OTTRPO("MlpPolicy", env, n_steps=16, seed=0).learn(16)


def test_an_environments_own_error_is_its_own():
    class Failing(Broken):
        def step(self, action):
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        OTTRPO("MlpPolicy", Failing("reward", 0.0), n_steps=4, seed=0).learn(4)


def test_one_environment_and_a_vector_of_one_see_the_same():
    """The direct path and SB3's VecEnv learn the same, but for rewards in float32."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    class AnyVecEnv(DummyVecEnv):
        """Not stepped directly: it could do anything."""

    def trained(kind):
        env = kind([lambda: gym.make("Pendulum-v1")])
        settings = {"n_steps": 250, "batch_size": 50, "n_epochs": 1, "seed": 3}
        # samples alone: where a step is lengthened until it spends enough, roundings decide how far
        agent = OTTRPO("MlpPolicy", env, advantage="gae", **settings)
        return agent.learn(500).get_parameters()

    direct, vector = trained(DummyVecEnv), trained(AnyVecEnv)
    for name, array in direct.items():
        np.testing.assert_allclose(array, vector[name], atol=1e-5)


def test_layouts_flatten_what_they_should():
    space = spaces.Dict(
        {
            "a": spaces.Box(0, 1, (2, 2), np.float32),
            "b": spaces.Discrete(3, start=5),
            "c": spaces.MultiDiscrete([2, 3]),
            "d": spaces.MultiBinary(2),
            "e": spaces.Box(0, 255, (3, 40, 40), np.uint8),
        }
    )
    layout = observation_layout(space, convolve=True)
    observation = {
        "a": np.arange(4.0).reshape(1, 2, 2),
        "b": np.array([6]),
        "c": np.array([[1, 2]]),
        "d": np.array([[0, 1]]),
        "e": np.full((1, 3, 40, 40), 7, np.uint8),
    }
    encoded = layout.encode(observation, 1)
    assert encoded.flat.tolist() == [[0, 1, 2, 3, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1]]
    assert layout.images == ((3, 40, 40),)
    assert encoded.images[0].shape == (1, 3, 40, 40)
    assert layout.measured.tolist() == [True] * 4 + [False] * 10
    assert observation_layout(space, convolve=False).features == 14 + 4800
    with pytest.raises(ValueError, match=r"Tuple.* is not supported; allowed: Box"):
        observation_layout(spaces.Tuple([spaces.Discrete(2)]), convolve=False)


@pytest.mark.parametrize("settings", [{"normalize_reward": False}, {"learning_rate": 1e38}])
def test_an_update_that_overflows_is_taken_back(settings):
    value = 1e300 if "normalize_reward" in settings else 1.0
    agent = OTTRPO(
        "MlpPolicy",
        Broken("reward", value),
        n_steps=16,
        seed=0,
        trust_region="paper",
        **settings,
    )
    before = agent.get_parameters()
    with pytest.raises(ValueError, match="finite"):
        agent.learn(64)
    for name, array in agent.get_parameters().items():
        assert np.isfinite(array).all(), name
    assert np.isfinite(agent.predict(np.zeros(2))[0]).all()
    if "normalize_reward" in settings:
        for name, array in agent.get_parameters().items():
            np.testing.assert_array_equal(array, before[name])
        assert agent.train_state.observations.moments.count == 0
