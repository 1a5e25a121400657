"""A training that was interrupted ends, bit for bit, where it would have ended without."""

import io
import multiprocessing
import os
import signal

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, OTTRPO, WNPG, WPO, WPPG, ClippedPPO, TabularOTTRPO, WPOGradient
from ottrpo.agents.sb3 import A2C, PPO, TRPO
from ottrpo.agents.watching import CheckpointEvery
from ottrpo.persistence import strict_json
from ottrpo.persistence.checkpoints import Checkpoints, StopSignals, checkpoint_kind
from ottrpo.persistence.environments import Capturable

# workers of subprocess environments start from a process that has imported what they need
multiprocessing.set_forkserver_preload(["stable_baselines3", "ottrpo.persistence.environments"])
STEPS, EVERY = 320, 100
SMALL = {
    "n_steps": 64,
    "batch_size": 32,
    "n_epochs": 2,
    "seed": 3,
    "policy_kwargs": {"net_arch": [8]},
}


class Stop(Exception):
    pass


class StopAt(BaseCallback):
    """Interrupts in the middle of a rollout, as no signal would dare to."""

    def __init__(self, step):
        super().__init__()
        self._step = step

    def _on_step(self):
        if self.num_timesteps >= self._step:
            raise Stop
        return True


class Drifting(gym.Env):
    """An environment that nothing is known about, with memory and randomness of its own."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    class Hidden:
        position = 0.0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._own = np.random.default_rng(seed)
        self._hidden = self.Hidden()
        self._hidden.position = self._own.normal()
        return self._seen(), {}

    def step(self, action):
        self._hidden.position += float(action[0]) + 0.1 * self._own.normal()
        over = abs(self._hidden.position) > 5
        return self._seen(), -abs(self._hidden.position), over, False, {}

    def _seen(self):
        return np.array([self._hidden.position, 1.0], np.float32)


def gym_env(name, **kwargs):
    return lambda: gym.make(name, **kwargs)


CASES = {
    "pendulum": (OTTRPO, gym_env("Pendulum-v1", max_episode_steps=50), {}),
    "mountain car": (OTTRPO, gym_env("MountainCarContinuous-v0"), {"use_sde": True}),
    "hopper": (
        OTTRPO,
        gym_env("Hopper-v5"),
        {"learning_rate": {"start": 1e-3, "end": 0.0}, "advantage": "network"},
    ),
    "mixed": (
        OTTRPO,
        gym_env("Pendulum-v1", max_episode_steps=50),
        {"advantage": "mixed", "buffer_size": 300},
    ),
    "paced": (OTTRPO, gym_env("Hopper-v5"), {"adapt_pace": True, "std_step": 0.01}),
    "natural": (OTTRPO, gym_env("Hopper-v5"), {"region": "kl", "update": "natural"}),
    "kl": (OTTRPO, gym_env("Hopper-v5"), {"region": "kl", "learn_std": True}),
    "sinkhorn": (OTTRPO, gym_env("Hopper-v5"), {"region": "sinkhorn", "advantage": "network"}),
    "spo": (
        OTTRPO,
        gym_env("CartPole-v1"),
        {"region": "sinkhorn", "entropy": 0.02, "multiplier": 1.0},
    ),
    "step": (OTTRPO, gym_env("CartPole-v1"), {"step": 0.1}),
    "clipped": (ClippedPPO, gym_env("Hopper-v5"), {}),
    "priced": (OTTRPO, gym_env("Hopper-v5"), {"multiplier": {"start": 10.0, "end": 20.0}}),
    "labels": (OTTRPO, gym_env("CartPole-v1"), {}),
    "bins": (OTTRPO, gym_env("Hopper-v5"), {"policy_kwargs": {"bins": 9}}),
    "mixture": (OTTRPO, gym_env("Hopper-v5"), {"policy_kwargs": {"mixture": 3}}),
    "flow": (OTTRPO, gym_env("Hopper-v5"), {"policy_kwargs": {"flow": 2}}),
    "bgpg": (BGPG, gym_env("Pendulum-v1"), {"n_actions": 2, "n_features": 4, "dual_steps": 2}),
    "wnpg": (WNPG, gym_env("Pendulum-v1"), {"n_actions": 2, "n_features": 4, "dual_steps": 2}),
    "wpo gradient": (
        WPOGradient,
        gym_env("Pendulum-v1", max_episode_steps=50),
        {"buffer_size": 300},
    ),
    "wppg": (WPPG, gym_env("Hopper-v5"), {"buffer_size": 300}),
    "dictionary": (
        OTTRPO,
        gym_env("ottrpo/Match-v0", observations="dict"),
        {"policy": "MultiInputPolicy"},
    ),
    "two": (OTTRPO, lambda: DummyVecEnv([gym_env("Hopper-v5")] * 2), {"n_steps": 32}),
    "normalised": (
        OTTRPO,
        lambda: VecNormalize(DummyVecEnv([gym_env("Pendulum-v1", max_episode_steps=30)] * 2)),
        {"n_steps": 32},
    ),
    "subprocesses": (
        OTTRPO,
        lambda: SubprocVecEnv([lambda: Capturable(gym.make("Pendulum-v1"))] * 2),
        {"n_steps": 32},
    ),
    "segments": (OTTRPO, lambda: wrappers.TimeLimit(Drifting(), 30), {}),
    "segments, normalised": (
        OTTRPO,
        lambda: VecNormalize(DummyVecEnv([lambda: wrappers.TimeLimit(Drifting(), 30)] * 2)),
        {"n_steps": 32},
    ),
}
SEGMENTS = [name for name in CASES if "segments" in name]


def made(kind, env, settings):
    settings = SMALL | settings
    return kind(settings.pop("policy", "MlpPolicy"), env(), **settings)


def content(agent):
    """The saved agent, every byte of it."""
    file = io.BytesIO()
    agent.save(file)
    return file.getvalue()


def close(agent):
    agent.get_env().close()


@pytest.mark.parametrize("name", CASES)
def test_it_ends_where_it_would_have_ended(name, tmp_path, capsys):
    kind, env, settings = CASES[name]
    whole = made(kind, env, settings).learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path / "a"))
    broken = made(kind, env, settings)
    with pytest.raises(Stop):
        broken.learn(STEPS, callback=[CheckpointEvery(EVERY, tmp_path / "b"), StopAt(230)])
    rest = kind.resume(tmp_path / "b", env=env())
    assert 0 < rest.num_timesteps < 230
    assert rest.num_timesteps + rest.remaining_timesteps == STEPS
    callback = CheckpointEvery(EVERY, tmp_path / "b")
    rest.learn(rest.remaining_timesteps, reset_num_timesteps=False, callback=callback)
    assert content(rest) == content(whole)
    assert rest.last_update == whole.last_update
    said = "seeded anew" in capsys.readouterr().out
    assert said is (name in SEGMENTS)
    for agent in (whole, broken, rest):
        close(agent)


@pytest.mark.parametrize("name", ["hopper", "normalised"])
def test_checkpoints_leave_an_exact_training_as_it_is(name, tmp_path):
    kind, env, settings = CASES[name]
    plain = made(kind, env, settings).learn(STEPS)
    kept = made(kind, env, settings).learn(STEPS, callback=CheckpointEvery(64, tmp_path))
    assert content(plain) == content(kept)


@pytest.mark.parametrize("name", ["pendulum", "segments"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_obeyed_when_nothing_is_lost(name, number, tmp_path):
    kind, env, settings = CASES[name]
    whole = made(kind, env, settings).learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path / "a"))
    asked = []
    handler = signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    try:
        agent = made(kind, env, settings)
        callbacks = [CheckpointEvery(EVERY, tmp_path / "b"), _Signal(150, number)]
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                agent.learn(STEPS, callback=callbacks)
            # the rollout was finished and learnt from; in segment mode no new segment may start
            assert agent.num_timesteps == 192
            last = kind.resume(tmp_path / "b", env=env())
            assert last.num_timesteps == (128 if name == "segments" else 192)
        else:
            agent.learn(STEPS, callback=callbacks)  # our own handler lets it go on
            assert asked == [True]
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, handler)
    rest = kind.resume(tmp_path / "b", env=env())
    callback = CheckpointEvery(EVERY, tmp_path / "b")
    rest.learn(rest.remaining_timesteps, reset_num_timesteps=False, callback=callback)
    assert content(rest) == content(whole)


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        agent = made(*CASES["pendulum"])
        agent.learn(STEPS, callback=[CheckpointEvery(EVERY, tmp_path), _Signal(9, signal.SIGINT)])
    finally:
        signal.signal(signal.SIGINT, handler)
    assert agent.num_timesteps == STEPS


def test_asking_twice_is_obeyed_at_once():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


class _Signal(BaseCallback):
    def __init__(self, step, number):
        super().__init__()
        self._step, self._number = step, number

    def _on_step(self):
        if self.num_timesteps == self._step:
            os.kill(os.getpid(), self._number)
        return True


TABLES = {
    "table": (TabularOTTRPO, lambda: "Taxi-v4", {"radius": {"start": 0.1, "end": 0.01}}),
    "sinkhorn": (TabularOTTRPO, lambda: "FrozenLake-v1", {"region": "sinkhorn"}),
    "price": (TabularOTTRPO, lambda: "Taxi-v4", {"region": "kl", "step": {"start": 2, "end": 1}}),
    "wpo": (WPO, lambda: "FrozenLake-v1", {"radius": 0.1, "multiplier": "original"}),
    "stepped": (
        TabularOTTRPO,
        lambda: Capturable(gym.make("FrozenLake-v1")),
        {"radius": 0.1},
    ),
    "segments": (
        TabularOTTRPO,
        lambda: wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda reward: 2 * reward),
        {"radius": 0.1},
    ),
}


@pytest.mark.filterwarnings("ignore:all .* episodes of")  # so few steps need not reach an end
@pytest.mark.parametrize("name", TABLES)
def test_agents_on_tables(name, tmp_path):
    kind, env, settings = TABLES[name]
    steps, every = 12_000, 2_500

    def agent():
        return kind(env(), seed=1, steps_per_update=300, **settings)

    whole = agent().learn(steps, callback=CheckpointEvery(every, tmp_path / "a"))
    keep = CheckpointEvery(every, tmp_path / "b")

    class Interrupted:
        start = staticmethod(keep.start)

        def __call__(self, agent):
            keep(agent)
            if agent.num_timesteps > 8_300:
                raise Stop

    with pytest.raises(Stop):
        agent().learn(steps, callback=Interrupted())
    rest = kind.resume(tmp_path / "b", env=env())
    assert 7_500 <= rest.num_timesteps < 8_300
    rest.learn(rest.remaining_timesteps, callback=CheckpointEvery(every, tmp_path / "b"))
    whole.save(tmp_path / "whole")
    rest.save(tmp_path / "rest")
    assert (tmp_path / "whole.zip").read_bytes() == (tmp_path / "rest.zip").read_bytes()
    assert whole.last_update == rest.last_update
    exact = agent().learn(steps)
    same = np.array_equal(exact.policy_sa, whole.policy_sa)
    assert same is (name != "segments")


def test_a_checkpoint_says_what_it_needs(tmp_path):
    env = gym_env("Pendulum-v1", g=9.0)
    agent = OTTRPO("MlpPolicy", env(), **SMALL, learning_rate=lambda left: 1e-3 * left)
    agent.learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path))
    with pytest.raises(ValueError, match="learning_rate was a function"):
        OTTRPO.resume(tmp_path, env=env())
    resumed = OTTRPO.resume(tmp_path, env=env(), learning_rate=lambda left: 1e-3 * left)
    assert resumed.num_timesteps == 256
    with pytest.raises(ValueError, match="pass one like it"):
        OTTRPO.resume(tmp_path, learning_rate=1e-3)
    with pytest.raises(ValueError, match="of 1 environments, there are 2"):
        OTTRPO.resume(tmp_path, env=DummyVecEnv([env] * 2), learning_rate=1e-3)
    with pytest.raises(ValueError, match="made of"):
        OTTRPO.resume(tmp_path, env=wrappers.TimeLimit(env(), 9), learning_rate=1e-3)
    with pytest.raises(ValueError, match="not a checkpoint of BGPG"):
        BGPG.resume(tmp_path, env=env())
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        OTTRPO.resume(tmp_path / "nothing", env=env())


def test_an_environment_is_made_again_by_its_id(tmp_path):
    agent = OTTRPO("MlpPolicy", "Pendulum-v1", **SMALL)
    agent.learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path))
    resumed = OTTRPO.resume(tmp_path)
    resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)
    assert content(resumed) == content(agent)


def test_an_environment_that_does_not_repeat_is_told(tmp_path):
    class Moody(Drifting):
        def reset(self, *, seed=None, options=None):
            self._own = np.random.default_rng()
            return super().reset()

    agent = OTTRPO("MlpPolicy", Moody(), **SMALL)
    agent.learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path))
    with pytest.warns(UserWarning, match="does not start alike"):
        OTTRPO.resume(tmp_path, env=Moody())


def test_two_trainings_do_not_share_a_folder(tmp_path):
    env = CASES["pendulum"][1]
    tmp_path.joinpath(".lock").write_text("")

    class Second(BaseCallback):
        def _on_step(self):
            with pytest.raises(ValueError, match="is in use by process"):
                OTTRPO("MlpPolicy", env(), **SMALL).learn(
                    10, callback=CheckpointEvery(EVERY, tmp_path)
                )
            return False

    OTTRPO("MlpPolicy", env(), **SMALL).learn(10, callback=[CheckpointEvery(9, tmp_path), Second()])


def test_the_data_of_a_checkpoint_is_plain(tmp_path):
    agent = made(*CASES["hopper"]).learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path))
    arrays, data = agent.snapshot()
    strict_json.dumps(data)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert data["training"]["mode"] == "exact"


LIBRARY = {
    PPO: {"n_steps": 32, "batch_size": 16, "n_epochs": 2},
    TRPO: {"n_steps": 32, "batch_size": 16},
    A2C: {"n_steps": 32},
}


@pytest.mark.parametrize("kind", LIBRARY, ids=lambda kind: kind.__name__)
def test_imported_agents_go_on_too(kind, tmp_path):
    def agent():
        return kind("MlpPolicy", "Pendulum-v1", n_envs=2, seed=3, use_sde=True, **LIBRARY[kind])

    whole = agent().learn(STEPS, callback=CheckpointEvery(EVERY, tmp_path / "a"))
    with pytest.raises(Stop):
        agent().learn(STEPS, callback=[CheckpointEvery(EVERY, tmp_path / "b"), StopAt(230)])
    rest = kind.resume(tmp_path / "b")
    assert 0 < rest.num_timesteps < 230
    agent().learn(64)  # draws from the same generators
    rest.learn(rest.remaining_timesteps, reset_num_timesteps=False)
    assert content(rest) == content(whole)


def test_imported_agents_ask_for_what_a_file_can_t_say(tmp_path):
    settings = LIBRARY[PPO] | {"seed": 3}
    rate = lambda left: 1e-4 * left**3  # noqa: E731
    agent = PPO("MlpPolicy", gym.make("Pendulum-v1", g=9.0), learning_rate=rate, **settings)
    agent.learn(96, callback=CheckpointEvery(32, tmp_path))
    with pytest.raises(ValueError, match="learning_rate was a function"):
        PPO.resume(tmp_path)
    with pytest.raises(ValueError, match="pass one like it"):
        PPO.resume(tmp_path, learning_rate=rate)
    rest = PPO.resume(tmp_path, env=gym.make("Pendulum-v1", g=9.0), learning_rate=rate)
    rest.learn(rest.remaining_timesteps, reset_num_timesteps=False)
    assert content(rest) == content(agent)


@pytest.mark.parametrize("kind", [PPO, OTTRPO], ids=lambda kind: kind.__name__)
def test_going_on_imports_nothing_that_a_file_names(kind, tmp_path, monkeypatch):
    (tmp_path / "planted_module.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = kind("MlpPolicy", "Pendulum-v1", n_steps=32, batch_size=16, seed=0)
    arrays, data = agent.learn(96).snapshot()
    data["environment"] = "planted_module:Pendulum-v1"
    Checkpoints(tmp_path, checkpoint_kind(kind.__name__)).write(96, arrays, {"agent": data})
    with pytest.raises(ValueError, match="must not import 'planted_module'"):
        kind.resume(tmp_path)


AGENTS = {
    OTTRPO: lambda: made(OTTRPO, gym_env("Pendulum-v1"), {}),
    PPO: lambda: PPO("MlpPolicy", "Pendulum-v1", **LIBRARY[PPO]),
    TabularOTTRPO: lambda: TabularOTTRPO("FrozenLake-v1", radius=0.1, steps_per_update=50),
}
each_family = pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: kind.__name__)


@each_family
def test_who_listens_is_told_after_every_update_and_may_end_training(kind):
    agent, told = AGENTS[kind](), []

    def listener(agent):
        told.append((agent.num_timesteps, dict(agent.last_update)))
        return len(told) < 2

    with agent.telling(listener):
        agent.learn(100_000)
    steps = [step for step, _ in told]
    assert steps == sorted(set(steps))
    assert agent.num_timesteps == steps[-1]
    assert told[-1][1] == agent.last_update != told[0][1]
    agent.learn(10)
    assert len(told) == 2, "it is told no more"


@each_family
def test_an_environment_is_captured_once_for_a_checkpoint(kind, tmp_path, monkeypatch):
    agent, captured = AGENTS[kind](), []
    world = type(agent._world())
    plain = world.capture
    monkeypatch.setattr(
        world, "capture", lambda self, arrays: captured.append(1) or plain(self, arrays)
    )
    agent.learn(200)
    agent.why_not_exact()
    captured.clear()
    agent.checkpoint()
    assert len(captured) == 1


@each_family
def test_a_checkpoint_of_another_version_is_refused_by_its_number(kind, tmp_path):
    agent = AGENTS[kind]().learn(200)
    arrays, data = agent.snapshot()
    for version in (3, None):
        training = {"version": version} if version else {}  # whatever else there may be
        Checkpoints(tmp_path, checkpoint_kind(kind.__name__)).write(
            1, arrays, {"agent": data | {"training": training}}
        )
        with pytest.raises(ValueError, match=f"has version {version or 1}, .*from version 2"):
            kind.resume(tmp_path)
