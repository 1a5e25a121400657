import io
import json
import pickletools
import zipfile

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import ottrpo.envs.toys  # noqa: F401
from ottrpo import OTTRPO
from ottrpo.agents.sb3 import PPO
from ottrpo.core import Mahalanobis, StateCost
from ottrpo.engine.schedules import as_schedule, schedule_to_data
from ottrpo.engine.spaces import space_from_data, space_to_data

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "seed": 0}
OBSERVATIONS = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def trained():
    settings = {"advantage": "network", "learn_std": True, "n_sources": 2, "noise_color": 0.5}
    return OTTRPO("MlpPolicy", "ottrpo/Reach-v0", **SMALL, **settings).learn(64)


def same_parameters(left, right):
    left, right = left.get_parameters(), right.get_parameters()
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name])


def test_a_loaded_agent_is_the_saved_one(trained, tmp_path):
    trained.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent")
    same_parameters(trained, loaded)
    assert loaded.settings() == trained.settings()
    assert loaded.num_timesteps == 64
    np.testing.assert_array_equal(
        trained.predict(OBSERVATIONS, deterministic=True)[0],
        loaded.predict(OBSERVATIONS, deterministic=True)[0],
    )
    assert loaded.train_state.observations.moments.count == 64


@pytest.mark.parametrize("advantage", ["gae", "network"])
def test_training_goes_on_as_if_it_had_not_stopped(advantage, tmp_path):
    """Two runs from the same reset: one straight on, one through a file."""
    first = OTTRPO("MlpPolicy", "ottrpo/Reach-v0", advantage=advantage, **SMALL).learn(64)
    first.save(tmp_path / "agent.zip")
    second = OTTRPO.load(tmp_path / "agent.zip", env="ottrpo/Reach-v0")
    for agent in (first, second):
        agent.get_env().seed(5)
        agent._last_obs = None
        agent.learn(64, reset_num_timesteps=False)
    assert first.num_timesteps == second.num_timesteps == 128
    same_parameters(first, second)


def test_a_file_is_safetensors_and_json_only(trained, tmp_path):
    trained.save(tmp_path / "agent")
    with zipfile.ZipFile(tmp_path / "agent.zip") as bundle:
        assert bundle.namelist() == ["bundle.json", "data.json", "arrays.safetensors"]
        assert bundle.testzip() is None
        assert json.loads(bundle.read("bundle.json"))["kind"] == "OTTRPO"
        data = json.loads(bundle.read("data.json"))
        with pytest.raises(ValueError, match=r".*"):
            pickletools.dis(bundle.read("arrays.safetensors"), out=io.StringIO())
    assert data["settings"]["n_sources"] == 2
    assert not list(tmp_path.glob(".*")), "a draft was left behind"


def test_the_same_agent_gives_the_same_bytes(trained, tmp_path):
    for name in ("a", "b"):
        trained.save(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_files_in_memory_and_run_directories(trained, tmp_path):
    buffer = io.BytesIO()
    trained.save(buffer)
    buffer.seek(0)
    same_parameters(trained, OTTRPO.load(buffer))
    trained.save(tmp_path / "run" / "agent")
    same_parameters(trained, OTTRPO.load(tmp_path / "run"))


def test_damage_is_noticed(trained, tmp_path):
    path = tmp_path / "agent.zip"
    trained.save(path)
    whole = path.read_bytes()
    for error in (ValueError, FileNotFoundError):  # the latter as of SB3
        with pytest.raises(error, match="no saved agent at"):
            OTTRPO.load(tmp_path / "nothing")
    for damaged in (whole[: len(whole) // 2], b"", b"PK nonsense", _flipped(whole)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            OTTRPO.load(path)


def test_other_contents_are_refused(trained, tmp_path):
    from stable_baselines3 import PPO

    path = tmp_path / "agent.zip"
    PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu").save(path)
    with pytest.raises(ValueError, match="is no bundle of ours"):
        OTTRPO.load(path)
    trained.save(path)
    with zipfile.ZipFile(path) as bundle:
        content = {name: bundle.read(name) for name in bundle.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, member in content.items():
            bundle.writestr(name, member)
    with pytest.raises(ValueError, match="compressed"):
        OTTRPO.load(path)


def test_settings_can_be_replaced_on_loading(trained, tmp_path):
    trained.save(tmp_path / "agent")
    assert OTTRPO.load(tmp_path / "agent", gamma=0.5).gamma == 0.5
    zoo = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0}  # what RL-Zoo hands over
    assert OTTRPO.load(tmp_path / "agent", custom_objects=zoo).lr_schedule(1.0) == 0.0
    logs = str(tmp_path / "logs")  # so does RL-Zoo when it goes on with a trained agent
    assert OTTRPO.load(tmp_path / "agent", tensorboard_log=logs).tensorboard_log == logs
    with pytest.raises(ValueError, match="'clip_range' is not a setting"):
        OTTRPO.load(tmp_path / "agent", clip_range=0.2)
    with pytest.raises(ValueError, match="spaces do not match"):
        OTTRPO.load(tmp_path / "agent", env="Pendulum-v1")


def test_parameters_are_replaced_whole_or_not_at_all(trained, tmp_path):
    other = OTTRPO("MlpPolicy", "ottrpo/Reach-v0", **SMALL | {"seed": 9}, advantage="network")
    other.set_parameters(trained.get_parameters())
    same_parameters(trained, other)
    trained.save(tmp_path / "agent")
    other.set_parameters(tmp_path / "agent")
    same_parameters(trained, other)
    seen = np.array([[3.0, -1.0]])  # the normalisation is part of the policy
    expected = trained.predict(seen, deterministic=True)[0]
    np.testing.assert_array_equal(other.predict(seen, deterministic=True)[0], expected)
    some = {"agent.policy.log_std": np.zeros(2)}
    with pytest.raises(ValueError, match="has no array"):
        other.set_parameters(some)
    same_parameters(trained, other)
    other.set_parameters(some, exact_match=False)
    assert (other.get_parameters()["agent.policy.log_std"] == 0).all()
    for wrong in ({"unknown": np.zeros(2)}, {"agent.policy.log_std": np.zeros(3)}):
        with pytest.raises(ValueError, match=r"no parameter|has shape"):
            other.set_parameters(wrong, exact_match=False)
    with pytest.raises(ValueError, match="NaN"):
        other.set_parameters({"agent.policy.log_std": np.full(2, np.nan)}, exact_match=False)


@pytest.mark.parametrize(
    ("schedule", "data"),
    [
        (3e-4, 3e-4),
        (LinearSchedule(1.0, 0.5, 1.0), {"start": 1.0, "end": 0.5}),
        (lambda left: 0.2, 0.2),
        (lambda left: 2.0 * left, {"start": 2.0, "end": 0.0}),
    ],
)
def test_schedules_survive(schedule, data):
    assert schedule_to_data(schedule) == pytest.approx(data)


def test_crooked_schedules_survive_as_tables():
    again = as_schedule(schedule_to_data(lambda left: left**2))
    for left in (1.0, 0.7, 0.31, 0.0):
        assert again(left) == pytest.approx(left**2, abs=1e-6)


def test_costs_and_schedules_are_saved(tmp_path):
    agent = OTTRPO(
        "MlpPolicy",
        "ottrpo/Reach-v0",
        **SMALL,
        cost=Mahalanobis(np.diag([1.0, 2.0])),
        radius={"start": 0.3, "end": 0.1},
        learning_rate=lambda left: 1e-3 * left,
    )
    agent.save(tmp_path / "agent")
    loaded = OTTRPO.load(tmp_path / "agent")
    assert loaded.settings() == agent.settings()
    assert loaded.lr_schedule(0.5) == pytest.approx(5e-4)
    unsaveable = OTTRPO(
        "MlpPolicy",
        "ottrpo/Reach-v0",
        **SMALL,
        model="sample",
        cost=StateCost(lambda a, b, s: ((a - b) ** 2).sum(-1)),
    )
    with pytest.raises(ValueError, match="use a table"):
        unsaveable.save(tmp_path / "other")
    assert not (tmp_path / "other.zip").exists()


def test_spaces_survive():
    from gymnasium import spaces

    space = spaces.Dict(
        {
            "box": spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, 2.0]), dtype=np.float64),
            "number": spaces.Box(-1, 1, ()),
            "image": spaces.Box(0, 255, (3, 4, 5), np.uint8),
            "label": spaces.Discrete(4, start=2),
            "labels": spaces.MultiDiscrete([2, 3]),
            "bits": spaces.MultiBinary(3),
        }
    )
    data = json.loads(json.dumps(space_to_data(space)))
    assert space_from_data(data) == space
    with pytest.raises(ValueError, match="not a kind of space"):
        space_from_data({"kind": "tuple"})


def _flipped(content):
    where = content.index(b"arrays.safetensors") + 4000
    return content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :]


@pytest.mark.parametrize("name", ["OTTRPO", "PPO"])
def test_a_loaded_agent_evaluates_itself_where_it_was_trained(tmp_path, name):
    kind = {"OTTRPO": OTTRPO, "PPO": PPO}[name]
    agent = kind("MlpPolicy", "Pendulum-v1", seed=0)
    agent.save(tmp_path / "agent")
    loaded = kind.load(tmp_path / "agent")
    assert loaded.env is None
    assert loaded.evaluate(2, seed=3).tolist() == agent.evaluate(2, seed=3).tolist()
    loaded.save(tmp_path / "again")  # and still knows where
    assert kind.load(tmp_path / "again").fresh_env().spec.id == "Pendulum-v1"


@pytest.mark.parametrize("kind", [OTTRPO, PPO])
@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.make("Pendulum-v1", g=3.0),
        lambda: gym.make("Pendulum-v1", max_episode_steps=7),
        lambda: gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda r: 10.0 * r),
    ],
)
def test_but_not_in_another_one_of_the_same_name(tmp_path, kind, make):
    """Numbers of an environment with other keywords or without its wrappers would mislead."""
    kind("MlpPolicy", make(), seed=0).save(tmp_path / "agent")
    loaded = kind.load(tmp_path / "agent")
    loaded.save(tmp_path / "again")
    for agent in (loaded, kind.load(tmp_path / "again")):
        with pytest.raises(ValueError, match="Pendulum-v1 alone is not what it was trained in"):
            agent.evaluate(1)
    assert kind.load(tmp_path / "agent", env=make()).evaluate(1).shape == (1,)


def test_how_it_was_shown_is_no_matter(tmp_path):
    env = gym.make("Pendulum-v1", render_mode="rgb_array")
    OTTRPO("MlpPolicy", env, seed=0).save(tmp_path / "agent")
    assert OTTRPO.load(tmp_path / "agent").evaluate(1).shape == (1,)


def test_statistics_that_are_not_in_the_file_are_missed(tmp_path):
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    OTTRPO("MlpPolicy", env, seed=0).save(tmp_path / "agent")
    with pytest.raises(ValueError, match="alone is not what it was trained in"):
        OTTRPO.load(tmp_path / "agent").evaluate(1)


def test_every_episode_is_told(tmp_path):
    told = []
    OTTRPO("MlpPolicy", "Pendulum-v1", seed=0).evaluate(3, after_episode=lambda: told.append(1))
    PPO("MlpPolicy", "Pendulum-v1", seed=0).evaluate(12, after_episode=lambda: told.append(1))
    assert len(told) == 15
