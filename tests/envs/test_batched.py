"""Batched physics: what Gymnasium's own environments give, bit for bit."""

import os

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv

from ottrpo.envs import Outcome, Task, make_vec, make_vector_env
from ottrpo.envs.batched.environments import RunningSum
from ottrpo.envs.batched.sb3 import BatchedVecEnv
from ottrpo.envs.lean import LeanVecEnv

from .gymnasium_twin import TASKS, Twins, random_actions, require_equal

pytestmark = [
    # Gymnasium's own models and arithmetic: deprecated attributes, squares that overflow
    pytest.mark.filterwarnings("ignore:.*settotalmass:UserWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),
]

# settings far from the defaults, every keyword that changes a number at least once
WALKING = {
    "forward_reward_weight": 0.7,
    "ctrl_cost_weight": 0.03,
    "reset_noise_scale": 0.02,
    "exclude_current_positions_from_observation": False,
    "frame_skip": 3,
    "max_episode_steps": 7,
}
STANDING = {"healthy_reward": 2, "terminate_when_unhealthy": False}
BODY = {f"include_{name}_in_observation": False for name in ("cinert", "cvel", "qfrc_actuator")}
OTHERWISE = {
    "Ant-v5": {
        **(WALKING | STANDING),
        "contact_cost_weight": 0.1,
        "contact_force_range": (-5.0, 0.5),
        "healthy_z_range": (0.3, 0.6),
        "main_body": "torso",
        "include_cfrc_ext_in_observation": False,
    },
    "HalfCheetah-v5": WALKING,
    "Hopper-v5": {
        **(WALKING | STANDING),
        "healthy_state_range": (-1.0, 1.0),
        "healthy_z_range": (1.2, 1.3),
        "healthy_angle_range": (-0.01, 0.02),
    },
    "Humanoid-v5": {
        **(WALKING | STANDING | BODY),
        "contact_cost_weight": 1e-3,
        "contact_cost_range": (0.01, 0.5),
        "healthy_z_range": (1.35, 1.41),
    },
    "HumanoidStandup-v5": {
        "uph_cost_weight": 2,
        "ctrl_cost_weight": 0.2,
        "impact_cost_weight": 1e-3,
        "impact_cost_range": (0.01, 0.5),
        "reset_noise_scale": 0.05,
        "exclude_current_positions_from_observation": False,
        "include_cfrc_ext_in_observation": False,
        "max_episode_steps": 5,
    },
    "InvertedDoublePendulum-v5": {"healthy_reward": 3.3, "reset_noise_scale": 0.3, "frame_skip": 2},
    "InvertedPendulum-v5": {"reset_noise_scale": 0.15, "frame_skip": 1, "max_episode_steps": 3},
    "Pusher-v5": {
        "reward_near_weight": 0.3,
        "reward_dist_weight": 0.9,
        "reward_control_weight": 0.7,
        "max_episode_steps": 4,
    },
    "Reacher-v5": {"reward_dist_weight": 0.3, "reward_control_weight": 0.7, "frame_skip": 5},
    "Swimmer-v5": WALKING,
    "Walker2d-v5": {
        **(WALKING | STANDING),
        "healthy_z_range": (1.2, 1.3),
        "healthy_angle_range": (-0.01, 0.02),
    },
}


@pytest.mark.parametrize("env_id", TASKS)
def test_equals_gymnasium_bit_for_bit(env_id):
    rng = np.random.default_rng(TASKS.index(env_id))
    for threads, count, steps in ((1, 5, 60), (2, 4, 90), (4, 7, 60)):
        twins = Twins(env_id, count, threads=threads, seed=int(rng.integers(2**31)))
        twins.run(steps, rng)


@pytest.mark.parametrize("env_id", TASKS)
def test_equals_gymnasium_with_other_settings(env_id):
    rng = np.random.default_rng(7)
    twins = Twins(env_id, 3, threads=2, seed=40, **OTHERWISE[env_id])
    twins.run(25, rng)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", TASKS)
def test_equals_gymnasium_for_many_steps(env_id):
    """OTTRPO_TWIN_STEPS environment steps per task, by default 24,000, at 1, 2 and 4 threads."""
    rng = np.random.default_rng(100 + TASKS.index(env_id))
    each = int(os.environ.get("OTTRPO_TWIN_STEPS", "24000")) // 3
    steps = episodes = 0
    for threads in (1, 2, 4):
        twins = Twins(env_id, 8, threads=threads, seed=int(rng.integers(2**31)))
        twins.run(-(-each // 8), rng)
        steps += twins.steps * 8
        episodes += twins.episodes
    print(f"{env_id}: {steps} steps, {episodes} episodes ended, all equal")


@pytest.mark.parametrize("env_id", ["Ant-v5", "HalfCheetah-v5", "Humanoid-v5", "Hopper-v5"])
def test_a_simulation_that_diverges_does_as_gymnasiums_does(env_id, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log of its warnings where it runs
    twins = Twins(env_id, 3, threads=2, seed=5)
    twins.reset()
    shape = (3, *twins.batch.action_space.shape)
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore", over="ignore"):
        for t in range(12):
            action = rng.uniform(-1, 1, shape).astype(np.float32)
            if t in (3, 5):
                action[1] = np.nan if t == 3 else np.inf
            if t in (7, 9):  # velocities that no simulation survives
                state = twins.singles[2].unwrapped.data
                qvel = np.full_like(state.qvel, 1e300 if t == 7 else np.nan)
                twins.singles[2].unwrapped.set_state(state.qpos.copy(), qvel)
                twins.batch.env_method("set_state", state.qpos.copy(), qvel, indices=2)
            twins.step(action)
    twins.close()


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Humanoid-v5", "InvertedPendulum-v5"])
def test_gymnasiums_vector_interface(env_id):
    ours = make_vector_env(env_id, 4, threads=2, seed=3, max_episode_steps=15)
    fns = [lambda: gym.make(env_id, max_episode_steps=15, disable_env_checker=True)] * 4
    theirs = SyncVectorEnv(fns, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    first, expected = ours.reset(), theirs.reset(seed=3)
    _require_equal_told(first[1], expected[1])
    require_equal("first observations", first[0], expected[0])
    rng = np.random.default_rng(0)
    for t in range(40):
        action = random_actions(rng, ours.single_action_space, 4)
        found, expected = ours.step(action), theirs.step(action)
        for part in range(4):
            require_equal(f"{part} of step {t}", found[part], expected[part])
        _require_equal_told(found[4], expected[4])


def _require_equal_told(found, expected):
    assert set(found) == set(expected)
    for key, value in expected.items():
        if key == "final_info":
            _require_equal_told(found[key], value)
        elif key == "final_obs":
            for mine, its in zip(found[key], value, strict=True):
                assert (mine is None) == (its is None)
                if its is not None:
                    require_equal(key, mine, its)
        else:
            require_equal(key, found[key], value)


PENDULUM = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="pole">
      <joint name="hinge" type="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.05"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-1 1" gear="2"/></actuator>
</mujoco>
"""


class SwingUp(Task):
    """A task of one's own, as the documentation shows it."""

    fields = ("cfrc_int", "xipos")

    def __init__(self):
        super().__init__(PENDULUM, frame_skip=2, max_episode_steps=20)

    def observe(self, s):
        return np.concatenate((np.cos(s.qpos), np.sin(s.qpos), s.qvel), axis=1)

    def remember(self, s):
        return s.xipos[:, 1, 2].copy()

    def score(self, s, before, action):
        height = s.xipos[:, 1, 2]
        force = s.cfrc_int[:, 1].copy()
        return Outcome(height, np.abs(s.qvel[:, 0]) > 4.0, {"rise": height - before, "f": force})

    def draw(self, rng):
        return rng.uniform(-0.5, 0.5, 1), np.zeros(1)


def test_a_task_of_ones_own():
    import mujoco

    env = make_vec(SwingUp(), 3, threads=2, seed=1)
    observation = env.reset()
    model = mujoco.MjModel.from_xml_string(PENDULUM)
    data = mujoco.MjData(model)
    data.qpos[:] = np.random.Generator(np.random.PCG64(2)).uniform(-0.5, 0.5, 1)  # seed 1 + 1
    mujoco.mj_forward(model, data)
    require_equal("start", observation[1], [*np.cos(data.qpos), *np.sin(data.qpos), *data.qvel])
    for _ in range(20):
        observation, reward, done, infos = env.step(np.full((3, 1), 0.4))
        before = data.xipos[1, 2]
        data.ctrl[:] = 0.4
        mujoco.mj_step(model, data, nstep=2)
        mujoco.mj_rnePostConstraint(model, data)
        require_equal("reward", reward[1], data.xipos[1, 2])
        require_equal("info", infos[1]["rise"], data.xipos[1, 2] - before)
        require_equal("forces", infos[1]["f"], data.cfrc_int[1])
    assert done.all()
    assert infos[0]["TimeLimit.truncated"] is True


def test_other_environments_are_stepped_one_by_one(capsys):
    env = make_vec("CartPole-v1", 3, seed=1)
    assert isinstance(env, LeanVecEnv)
    told = "CartPole-v1: there is no batched physics for it; its environments are stepped one after"
    assert told in capsys.readouterr().out
    singles = [gym.make("CartPole-v1") for _ in range(3)]
    observation = env.reset()
    for i, single in enumerate(singles):
        require_equal("start", observation[i], single.reset(seed=1 + i)[0])
    for _ in range(60):
        observation, _, done, infos = env.step(np.ones(3, np.int64))
        for i, single in enumerate(singles):
            expected, _, terminated, _, _ = single.step(1)
            assert done[i] == terminated
            if terminated:
                require_equal("end", infos[i]["terminal_observation"], expected)
                assert infos[i]["episode"]["l"] > 0
                expected, _ = single.reset()
            require_equal("observation", observation[i], expected)
    env.close()


def test_subprocesses_where_asked():
    with pytest.raises(ValueError, match="an id and no threads"):
        make_vec("Hopper-v5", 2, subprocesses=True, threads=2)
    env = make_vec("Hopper-v5", 2, seed=3, subprocesses=True)
    assert isinstance(env, SubprocVecEnv)
    batch = make_vec("Hopper-v5", 2, seed=3)
    require_equal("start", env.reset(), batch.reset())
    action = np.zeros((2, 3), np.float32)
    require_equal("step", env.step(action)[0], batch.step(action)[0])
    env.close()


@pytest.mark.parametrize(
    ("arguments", "keywords", "told"),
    [
        (("Hopper-v5", 0), {}, "n_envs must be an integer of at least 1, got 0"),
        (("Hopper-v5", 2.5), {}, "n_envs must be an integer of at least 1, got 2.5"),
        (("Hopper-v5", 2), {"threads": 0}, "threads must be an integer of at least 1, got 0"),
        (("Hopper-v5", 2), {"bounce": 1}, "unexpected keyword argument 'bounce'"),
        (("Hopper-v5", 2), {"xml_file": "/nowhere.xml"}, "/nowhere.xml does not exist"),
        (("Hoppper-v5", 2), {}, "Hoppper"),
    ],
)
@pytest.mark.parametrize("make", [make_vec, make_vector_env])
def test_mistakes_are_one_clear_line(make, arguments, keywords, told):
    with pytest.raises(ValueError, match=told) as raised:
        make(*arguments, **keywords)
    assert "\n" not in str(raised.value)


def test_an_mjcf_that_does_not_load(tmp_path):
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco><worldbody><body></mujoco>")
    with pytest.raises(ValueError, match=r"can't be made: .*XML") as raised:
        make_vec("Ant-v5", 2, xml_file=str(broken))
    assert "\n" not in str(raised.value)

    class Broken(SwingUp):
        def __init__(self):
            Task.__init__(self, broken)

    with pytest.raises(ValueError, match="the MJCF can't be loaded"):
        Broken()


def test_actions_of_another_shape_and_steps_before_a_reset_are_refused():
    env = make_vec("Hopper-v5", 2)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros((2, 3)))
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 3\), got \(3,\)"):
        env.step(np.zeros(3))


def test_attributes_and_methods_of_the_environments():
    env = make_vec("Hopper-v5", 3, seed=2)
    env.reset()
    assert isinstance(env, BatchedVecEnv)
    assert [spec.id for spec in env.get_attr("spec")] == ["Hopper-v5"] * 3
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert not env.has_attr("action_masks")
    vectors = env.env_method("state_vector")
    singles = [gym.make("Hopper-v5") for _ in range(3)]
    for i, single in enumerate(singles):
        single.reset(seed=2 + i)
        require_equal("state", vectors[i], single.unwrapped.state_vector())
        require_equal("data", env.get_attr("data")[i].qpos, single.unwrapped.data.qpos)
    env.set_attr("_healthy_reward", 5.0)
    assert env.step(np.zeros((3, 3)))[3][0]["reward_survive"] == 5.0
    with pytest.raises(ValueError, match="for all of them only"):
        env.set_attr("_healthy_reward", 6.0, indices=[1])
    with pytest.raises(ValueError, match="stepped together"):
        env.env_method("reset")


@pytest.mark.parametrize("compensated", [False, True])
def test_returns_add_up_as_pythons_sum_does(compensated, monkeypatch):
    import math
    import sys

    monkeypatch.setattr(RunningSum, "compensated", compensated)
    term_tn = np.random.default_rng(0).standard_normal((500, 4)) * 10.0 ** np.arange(-4, 12, 4)
    sums = RunningSum(4)
    for term in term_tn:
        sums.add(term)
    found = sums.value(np.arange(4))
    if compensated == (sys.version_info >= (3, 12)):
        assert found.tolist() == [sum(column) for column in term_tn.T.tolist()]
    if compensated:
        assert found == pytest.approx([math.fsum(column) for column in term_tn.T], rel=1e-15)
