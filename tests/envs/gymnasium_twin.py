"""n of Gymnasium's own environments beside a batch: everything must agree, bit for bit."""

import gymnasium as gym
import numpy as np

from ottrpo.envs import make_vec

TASKS = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5"),
    *("InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5"),
    *("Swimmer-v5", "Walker2d-v5"),
)


def random_actions(rng, space, count):
    """In the box, at its edges, or far outside of it; in single and in double precision."""
    shape = (count, *space.shape)
    scale = rng.choice([0.3, 1.0, 10.0, 1e4])
    action = rng.uniform(space.low, space.high, shape) * scale
    if rng.random() < 0.1:
        action = np.sign(action) * space.high
    return action.astype(rng.choice([np.float32, np.float32, np.float64]))


class Twins:
    """A batch, and as many of Gymnasium's environments with the same seeds."""

    def __init__(self, env_id, count, *, threads, seed, **kwargs):
        self.batch = make_vec(env_id, count, threads=threads, seed=seed, **kwargs)
        self.singles = [gym.make(env_id, disable_env_checker=True, **kwargs) for _ in range(count)]
        self.seeds = [seed + i for i in range(count)]
        self.episodes = self.steps = 0

    def reset(self):
        observation = self.batch.reset()
        for i, env in enumerate(self.singles):
            expected, info = env.reset(seed=self.seeds[i])
            require_equal(f"first observation of {i}", observation[i], expected)
            require_equal_infos(f"environment {i}", self.batch.reset_infos[i], info)
        self.seeds = [None] * len(self.singles)
        self.returns = [[] for _ in self.singles]

    def step(self, action):
        observation, reward, done, infos = self.batch.step(action)
        assert reward.dtype == np.float64
        for i, env in enumerate(self.singles):
            name = f"step {self.steps} of environment {i}"
            expected, its_reward, terminated, truncated, its_info = env.step(action[i])
            require_equal(f"reward, {name}", reward[i], its_reward)
            assert done[i] == (terminated or truncated), name
            self.returns[i].append(float(its_reward))
            its_info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                its_info["terminal_observation"] = expected
                episode = infos[i].pop("episode")
                assert episode["r"] == round(sum(self.returns[i]), 6)
                assert episode["l"] == len(self.returns[i])
                self.returns[i] = []
                expected, start = env.reset()
                require_equal_infos(f"restart, {name}", self.batch.reset_infos[i], start)
                self.episodes += 1
            require_equal_infos(name, infos[i], its_info)
            require_equal(f"observation, {name}", observation[i], expected)
        self.steps += 1

    def run(self, steps, rng):
        self.reset()
        for _ in range(steps):
            self.step(random_actions(rng, self.batch.action_space, len(self.singles)))
        self.close()

    def close(self):
        self.batch.close()
        for env in self.singles:
            env.close()


def require_equal(name, found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, name
    # as bytes, so that a zero's sign and a NaN count as well; a flag may count as a number
    same = found.astype(np.float64).tobytes() == expected.astype(np.float64).tobytes()
    assert same, (name, found, expected)


def require_equal_infos(name, found, expected):
    assert set(found) == set(expected), name
    for key, value in expected.items():
        require_equal(f"{key}, {name}", found[key], value)
