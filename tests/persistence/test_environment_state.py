"""What is captured of an environment makes another one go on exactly as the first."""

import copy
import functools
import json
import random

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo.agents.snapshots import VectorWorld
from ottrpo.envs import make_vec
from ottrpo.persistence.environments import Capturable

MUJOCO = ["Hopper-v5", "Swimmer-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "Reacher-v5"]
CLASSIC = ["Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "Acrobot-v1", "MountainCar-v0"]
TOY_TEXT = ["CliffWalking-v1", "Taxi-v4", "FrozenLake-v1"]
OURS = ["ottrpo/Reach-v0", "ottrpo/Match-v0"]


def played(env, actions):
    """Observations, rewards, endings and episodes' statistics, in one list."""
    seen = []
    for action in actions:
        observation, reward, done, infos = env.step(action)
        episodes = [(i["episode"]["r"], i["episode"]["l"]) for i in infos if "episode" in i]
        seen.append((_copied(observation), reward.copy(), done.copy(), episodes))
    return seen


def _copied(observation):
    if isinstance(observation, dict):
        return {key: leaf.copy() for key, leaf in observation.items()}
    return np.copy(observation)


def assert_same(left, right):
    for (seen_a, *a), (seen_b, *b) in zip(left, right, strict=True):
        leaves_a = seen_a if isinstance(seen_a, dict) else {"": seen_a}
        leaves_b = seen_b if isinstance(seen_b, dict) else {"": seen_b}
        for key, leaf in leaves_a.items():
            np.testing.assert_array_equal(leaf, leaves_b[key])
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])
        assert a[2] == b[2]


def goes_on(make, *, before=137, after=260, past=11):
    """Play, capture through JSON, restore into one that has played a little, play on in both."""
    first, second = make(), make()
    try:
        space = copy.deepcopy(first.action_space)  # an environment may draw from its own
        space.seed(0)

        def actions(steps):
            return [np.array([space.sample() for _ in range(first.num_envs)]) for _ in range(steps)]

        first.seed(3)
        first.reset()
        played(first, actions(before))
        arrays = {}
        data, reason = VectorWorld(first).capture(arrays)
        assert reason is None
        second.seed(99)
        second.reset()
        if past:
            played(second, actions(past))
            second.reset()
        VectorWorld(second).restore(json.loads(json.dumps(data)), arrays)
        later = actions(after)
        assert_same(played(first, later), played(second, later))
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("name", MUJOCO + CLASSIC + TOY_TEXT + OURS)
def test_known_environments_go_on_exactly(name):
    cap = {"max_episode_steps": 60} if name in TOY_TEXT + MUJOCO else {}
    goes_on(lambda: DummyVecEnv([lambda: Monitor(gym.make(name, **cap))]))


@pytest.mark.parametrize("name", [*MUJOCO, "HumanoidStandup-v5", "CartPole-v1"])
@pytest.mark.filterwarnings("ignore:.*settotalmass:UserWarning")
def test_batched_environments_go_on_exactly(name):
    cap = {"max_episode_steps": 60}
    goes_on(lambda: make_vec(name, 5, threads=2, **cap), before=71, after=100)
    goes_on(lambda: VecNormalize(make_vec(name, 2, **cap)), before=11, after=20)


def test_a_batch_of_other_simulations_is_refused():
    env, arrays = make_vec("Hopper-v5", 3, seed=0), {}
    env.reset()
    data, _ = VectorWorld(env).capture(arrays)
    for other, told in (
        (make_vec("Hopper-v5", 2), "simulations of shape"),
        (make_vec("Walker2d-v5", 3), "simulations of shape"),
    ):
        other.reset()
        with pytest.raises(ValueError, match=told):
            VectorWorld(other).restore(data, arrays)


def test_several_environments_and_wrappers_of_the_vector():
    def make():
        inner = DummyVecEnv([lambda: gym.make("Hopper-v5")] * 3)
        return VecNormalize(VecMonitor(inner), gamma=0.9)

    goes_on(make)
    goes_on(lambda: VecFrameStack(DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 2), 3))


def test_statistics_of_dict_observations():
    def make():
        one = [lambda: gym.make("ottrpo/Match-v0", observations="dict")] * 2
        return VecNormalize(DummyVecEnv(one), norm_obs_keys=["first"])

    goes_on(make)


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.RecordEpisodeStatistics,
        wrappers.TimeAwareObservation,
        wrappers.NormalizeObservation,
        lambda env: wrappers.FrameStackObservation(env, 3),
        lambda env: wrappers.StickyAction(env, 0.4),
        lambda env: wrappers.RescaleAction(env, np.float32(-1), np.float32(1)),
        lambda env: wrappers.NormalizeReward(env),
        lambda env: Halved(env),
        lambda env: Capturable(env),
        lambda env: Monitor(Capturable(wrappers.ClipAction(env))),
    ],
)
def test_wrappers(wrap):
    goes_on(lambda: DummyVecEnv([lambda: wrap(gym.make("Pendulum-v1", max_episode_steps=40))]))


def test_a_captured_environment_can_be_made_again():
    """Evaluations play in an environment like the one that is trained in."""
    env = Capturable(gym.make("Pendulum-v1"))
    again = gym.make(env.spec, disable_env_checker=True)
    assert isinstance(again, Capturable)
    np.testing.assert_array_equal(env.reset(seed=1)[0], again.reset(seed=1)[0])


def test_subprocesses():
    def make():
        return SubprocVecEnv([lambda: Capturable(Monitor(gym.make("Pendulum-v1")))] * 2)

    goes_on(make, before=40, after=60)


class Halved(gym.ObservationWrapper):
    """Converts, and remembers how often: a plain attribute."""

    calls = 0

    def __init__(self, env):
        super().__init__(env)
        self.calls = 0

    def observation(self, observation):
        self.calls += 1
        return observation / 2 + (self.calls % 2)


class Counter:
    def __init__(self):
        self.count = 0


class Strange(gym.Env):
    """Nothing is known about it."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return self.np_random.random(1).astype(np.float32), 0.0, False, False, {}


class Own(Strange):
    """Says how it is captured."""

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset(seed=seed)
        self._counter = Counter()
        return seen, info

    def step(self, action):
        self._counter.count += 1
        seen, *rest = super().step(action)
        return seen * self._counter.count, *rest

    def capture_state(self):
        return {"count": self._counter.count, "rng": self.np_random}

    def restore_state(self, state):
        self._counter.count, self.np_random = state["count"], state["rng"]


class Held(gym.Wrapper):
    """Its state is an object of its own."""

    def __init__(self, env):
        super().__init__(env)
        self._counter = Counter()


class Odd(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


class Careless(Strange):
    def capture_state(self):
        return {"there": self._not_there}

    def restore_state(self, state):
        pass


class Large(Strange):
    def __init__(self):
        self.past = np.zeros(10_000_000)


class Single(Strange):
    def __deepcopy__(self, memo):
        raise RuntimeError("there can be but one")


MODULE_RNG = np.random.default_rng(0)


class Hiding(Strange):
    """Keeps the step's number where no attribute shows it, and tells it."""

    def step(self, action):
        seen, *rest = super().step(action)
        return seen * 0 + np.float32(self._next() % 97), *rest


class InClass(Hiding):
    steps = 0

    def _next(self):
        InClass.steps += 1
        return InClass.steps


class InModule(Hiding):
    def _next(self):
        return MODULE_RNG.integers(97)


class InClosure(Hiding):
    def __init__(self):
        self._calls = functools.lru_cache(maxsize=None)(lambda: [0])

    def _next(self):
        self._calls()[0] += 1
        return self._calls()[0]


class InDefault(Hiding):
    def _next(self, kept=[0]):  # noqa: B006  # that is the point
        kept[0] += 1
        return kept[0]


class AtReset(Strange):
    """Only a new episode tells."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        AtReset.episodes += 1
        seen, info = super().reset(seed=seed)
        return seen + np.float32(AtReset.episodes % 97), info


class Unlike(Strange):
    """Every one is another, whatever its seed."""

    def __init__(self):
        self._mass = Counter.__new__(Counter)
        self._mass.count = MODULE_RNG.random()

    def __deepcopy__(self, memo):
        return Unlike()

    def capture_state(self):
        return {"rng": self.np_random}

    def restore_state(self, state):
        self.np_random = state["rng"]

    def step(self, action):
        seen, *rest = super().step(action)
        return seen * np.float32(self._mass.count), *rest


@pytest.mark.parametrize(
    "kind", [InClass, InModule, InDefault, AtReset, Unlike], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("count", [1, 2])
def test_state_that_nobody_sees_is_found_out_by_a_trial(kind, count):
    env = DummyVecEnv([kind] * count)
    assert (
        f"{kind.__name__} does not go on from what is captured" in VectorWorld(env).why_not_exact()
    )


def test_state_in_a_cache_is_found_out_too():
    assert "_calls is a _lru_cache_wrapper" in VectorWorld(DummyVecEnv([InClosure])).why_not_exact()


class Slotted(Strange):
    __slots__ = ("__secret", "steps")

    def __init__(self):
        self.steps, self.__secret = 0, 0

    def step(self, action):
        self.steps += 1
        self.__secret += 2
        seen, *rest = super().step(action)
        return seen * self.steps + self.__secret, *rest


class Counted(Strange):
    """Its count stands in the class until the first step, and what was done last nowhere."""

    count = 0

    def step(self, action):
        self.count += 1
        before, self.last = getattr(self, "last", action), action
        seen, *rest = super().step(action)
        return seen + np.float32(self.count) + np.float32(np.sum(before)), *rest


class EmptySlot(Strange):
    """A slot that is filled in the first step."""

    __slots__ = ("filled",)

    def step(self, action):
        self.filled = getattr(self, "filled", 0) + 1
        seen, *rest = super().step(action)
        return seen + np.float32(self.filled), *rest


class Sampling(gym.ActionWrapper):
    """Now and then does something of its own."""

    def action(self, action):
        own = self.action_space.sample()
        return own if own[0] > 0.5 else action


class Global(Strange):
    def step(self, action):
        seen, *rest = super().step(action)
        return seen + np.float32(random.random()) + np.float32(np.random.random()), *rest  # noqa: NPY002


@pytest.mark.parametrize(
    "make",
    [
        *(Strange, Slotted, Counted, EmptySlot),
        lambda: Stepping(gym.make("Pendulum-v1")),
        lambda: Sampling(gym.make("Pendulum-v1")),
        lambda: wrappers.RescaleAction(
            Sampling(gym.make("Pendulum-v1")), np.float32(-1), np.float32(1)
        ),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("past", [0, 11])
def test_environments_of_one_s_own_go_on_exactly_if_they_do_in_a_trial(make, count, past):
    env = DummyVecEnv([lambda: Monitor(make())] * count)
    assert VectorWorld(env).why_not_exact() is None
    goes_on(lambda: DummyVecEnv([lambda: Monitor(make())] * count), before=37, after=60, past=past)


def test_generators_that_a_checkpoint_keeps_are_no_hidden_state():
    before = random.getstate(), np.random.get_state()[2]  # noqa: NPY002
    assert VectorWorld(DummyVecEnv([Global])).why_not_exact() is None
    assert (random.getstate(), np.random.get_state()[2]) == before  # noqa: NPY002


def test_a_trial_does_not_touch_the_environment(monkeypatch):
    env = DummyVecEnv([lambda: gym.make("Pendulum-v1")])
    inner = env.envs[0].unwrapped
    for name in ("reset", "step"):
        monkeypatch.setattr(inner, name, None)
    monkeypatch.setattr(type(inner), "__deepcopy__", lambda *_: 1 / 0, raising=False)
    assert VectorWorld(env).why_not_exact() is None


class Stepping(gym.ActionWrapper):
    def action(self, action):
        return action

    def step(self, action):
        return super().step(action)


def test_an_environment_may_say_how_it_is_captured():
    goes_on(lambda: DummyVecEnv([lambda: Monitor(wrappers.TimeLimit(Own(), 30))]))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: DummyVecEnv([lambda: Held(Strange())]), "in Held, _counter is a Counter"),
        (lambda: Odd(DummyVecEnv([lambda: gym.make("Pendulum-v1")])), "Odd is none of the vector"),
        (lambda: DummyVecEnv([Careless]), "capture_state of Careless failed: AttributeError"),
        (lambda: DummyVecEnv([Large]), "the state of Large has 80,"),
        (lambda: DummyVecEnv([Single]), "a copy of Single to try it with failed: RuntimeError"),
        (
            lambda: DummyVecEnv(
                [lambda: wrappers.TransformReward(gym.make("Pendulum-v1"), lambda r: 2 * r)]
            ),
            "TransformReward, func is a function",
        ),
        (lambda: SubprocVecEnv([lambda: Monitor(Capturable(Strange()))]), "Capturable"),
        (lambda: SubprocVecEnv([lambda: Capturable(Held(Strange()))]), "_counter is a Counter"),
        (lambda: SubprocVecEnv([lambda: Capturable(InModule())]), "does not go on from what"),
    ],
)
def test_it_says_why_something_is_not_captured(make, reason):
    env = make()  # it has never been reset
    try:
        assert reason in VectorWorld(env).why_not_exact()
    finally:
        env.close()


def test_a_state_of_other_parts_is_refused():
    def made(make):
        env = DummyVecEnv([make])
        env.reset()
        return env

    arrays = {}
    data, _ = VectorWorld(made(lambda: gym.make("Pendulum-v1"))).capture(arrays)
    with pytest.raises(ValueError, match="made of"):
        VectorWorld(made(lambda: gym.make("MountainCar-v0"))).restore(data, arrays)
    with pytest.raises(ValueError, match="made of"):
        VectorWorld(VecMonitor(made(lambda: gym.make("Pendulum-v1")))).restore(data, arrays)
    lake, other = [], {}
    for seed in (1, 2):
        from gymnasium.envs.toy_text.frozen_lake import generate_random_map

        desc = generate_random_map(size=4, seed=seed)
        lake.append(made(lambda desc=desc: gym.make("FrozenLake-v1", desc=desc)))
    data, _ = VectorWorld(lake[0]).capture(other)
    with pytest.raises(ValueError, match="another 'desc'"):
        VectorWorld(lake[1]).restore(data, other)
    # a forged state has the shapes of an honest one, and can't touch what is no state
    data, _ = VectorWorld(made(lambda: gym.make("Pendulum-v1"))).capture(arrays)
    name = data["environments"][0][-1]["state"]["attributes"]["state"]["name"]
    with pytest.raises(ValueError, match=r"PendulumEnv.state was saved with shape \(7,\)"):
        VectorWorld(made(lambda: gym.make("Pendulum-v1"))).restore(
            data, arrays | {name: np.zeros(7)}
        )
    data, _ = VectorWorld(made(lambda: gym.make("Pendulum-v1"))).capture(arrays)
    data["environments"][0][-1]["state"]["attributes"]["action_space"] = 1
    with pytest.raises(ValueError, match="no state 'action_space'"):
        VectorWorld(made(lambda: gym.make("Pendulum-v1"))).restore(data, arrays)
    for name in ("step", "unwrapped", "np_random", "spec", "__class__", "__dict__", "not a name"):
        data, _ = VectorWorld(made(lambda: gym.make("Pendulum-v1"))).capture(arrays)
        data["environments"][0][-1]["state"]["attributes"][name] = 1
        with pytest.raises(ValueError, match=f"no state '{name}'"):
            VectorWorld(made(lambda: gym.make("Pendulum-v1"))).restore(data, arrays)


def test_what_checkpoints_name_stays_where_it_is():
    # a checkpoint names the classes and the attributes that it is of: one that moves can't go on
    asked = {
        "ottrpo.envs.lean.LeanVecEnv": "MountainCarContinuous-v0",
        "ottrpo.envs.batched.sb3.BatchedVecEnv": "Hopper-v5",
    }
    for name, env_id in asked.items():
        env = make_vec(env_id, 2, seed=0)
        env.reset()
        assert VectorWorld(env).capture({})[0]["base"] == name
    assert f"{Capturable.__module__}.Capturable" == (
        "ottrpo.persistence.environments.capturable.Capturable"
    )
    world = VectorWorld(DummyVecEnv([lambda: gym.make("ottrpo/Match-v0")]))
    world.reseed(0)
    toy = world.capture({})[0]["environments"][0][-1]
    assert toy["class"] == "ottrpo.envs.toys.Match"
    kept = {"_counts", "_observations", "_scalar", "_steps", "_shown", "_forbidden"}
    assert kept <= set(toy["state"]["attributes"])
