"""SB3's words that mean something here: that they do, and not only that they are accepted."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from ottrpo import BGPG, OTTRPO, ClippedPPO
from ottrpo.core.checks import NonFiniteError
from ottrpo.engine.networks import sde_deviation, sde_variance

SMALL = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "seed": 0}


class Watched(gym.ActionWrapper):
    """Keeps the actions that reach the environment."""

    def __init__(self, env):
        super().__init__(env)
        self.taken = []

    def action(self, action):
        self.taken.append(np.array(action))
        return action


class Floats(gym.Env):
    """Images that are no bytes."""

    observation_space = spaces.Box(-10, 10, (1, 36, 36), np.float32)
    action_space = spaces.Discrete(2)
    spoilt = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), float(action), self.np_random.random() < 0.1, False, {}

    def _seen(self):
        drawn = self.np_random.uniform(-1, 1, (1, 36, 36)).astype(np.float32)
        return np.full_like(drawn, np.nan) if self.spoilt else drawn


def agent(kind=OTTRPO, env="Pendulum-v1", policy="MlpPolicy", nets=None, **settings):
    nets = {"net_arch": [8]} | (nets or {})
    return kind(policy, env, **SMALL | {"policy_kwargs": nets} | settings)


def weights(trained):
    return {name: array.numpy() for name, array in trained.state_dict().items()}


def test_squashed_actions_stay_inside_without_being_clipped(tmp_path):
    env = Watched(gym.make("Pendulum-v1"))
    nets = {"squash_output": True, "log_std_init": -0.5}
    trained = agent(env=Monitor(env), nets=nets, use_sde=True).learn(64)
    taken = np.abs(np.array(env.taken))
    assert taken.max() < 2.0, "a tangent never reaches the bound"
    assert taken.max() > 1.0
    # as SB3 keeps them: in [-1, 1], the environment's are twice that
    np.testing.assert_allclose(
        2 * trained.rollout_buffer.actions[:, 0], np.array(env.taken)[-32:], rtol=1e-5
    )
    trained.save(tmp_path / "a")
    seen = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 3.0]], np.float32)
    loaded = OTTRPO.load(tmp_path / "a")
    mode = trained.predict(seen, deterministic=True)[0]
    np.testing.assert_array_equal(loaded.predict(seen, deterministic=True)[0], mode)
    np.testing.assert_allclose(trained.policy.get_distribution(seen).mode(), mode, rtol=1e-5)


def test_the_density_of_squashed_actions_is_a_density():
    trained = agent(nets={"squash_output": True}, use_sde=True)
    seen, at = np.zeros((1, 3), np.float32), np.linspace(-2, 2, 4001)[1:-1]
    distribution = trained.policy.get_distribution(np.repeat(seen, len(at), 0))
    density = np.exp(distribution.log_prob(at[:, None].astype(np.float64)))
    assert np.trapezoid(density, at) == pytest.approx(1.0, abs=1e-3)
    assert distribution.entropy() is None
    assert np.abs(distribution.sample()).max() < 2.0


def test_expln_grows_like_a_logarithm():
    log_std = np.array([-2.0, 0.0, 3.0], np.float32)
    expected = [np.exp(-2.0), 1.0, 1.0 + np.log(4.0)]
    np.testing.assert_allclose(sde_deviation(log_std, expln=True), expected, rtol=1e-6)
    np.testing.assert_allclose(sde_variance(log_std, expln=True), np.square(expected), rtol=1e-6)
    seen = np.ones((1, 3), np.float32)
    plain, slow = (
        agent(nets={"log_std_init": 1.0, "use_expln": told}, use_sde=True) for told in (False, True)
    )
    ratio = (1.0 + np.log(2.0)) / np.e
    first, second = (x.policy.get_distribution(seen)._std for x in (plain, slow))
    np.testing.assert_allclose(second, ratio * first, rtol=1e-5)
    assert slow.learn(32).last_update["ot/violation"] == 0


@pytest.mark.parametrize("name", ["squash_output", "use_expln"])
def test_what_goes_with_gsde_alone_is_refused_without_it(name):
    with pytest.raises(ValueError, match="use_sde=True"):
        agent(nets={name: True})
    with pytest.raises(AssertionError, match="use_sde=True"):  # as SB3 puts it
        agent(nets={name: True})


def test_images_that_are_no_bytes(tmp_path):
    env = VecNormalize(DummyVecEnv([Floats]))
    nets = {"normalize_images": False, "features_dim": 4}
    with pytest.raises(AssertionError, match="normalize_images=False"):
        agent(env=env, policy="CnnPolicy")
    trained = agent(env=env, policy="CnnPolicy", nets=nets).learn(32)
    assert trained.layout.images == ((1, 36, 36),)
    assert not trained.train_state.networks.policy.body.encoders[0].scaled
    trained.save(tmp_path / "a")
    seen = env.reset()
    np.testing.assert_array_equal(
        OTTRPO.load(tmp_path / "a").predict(seen, deterministic=True)[0],
        trained.predict(seen, deterministic=True)[0],
    )


def test_nan_in_such_an_image_is_told():
    env = Floats()
    trained = agent(env=env, policy="CnnPolicy", nets={"normalize_images": False})
    env.spoilt = True
    with pytest.raises(NonFiniteError, match="observation of nan"):
        trained.learn(32)


def test_adamw_makes_weights_smaller():
    told = {"advantage": "gae", "learning_rate": 1e-2}
    plain, same, decayed = (
        agent(nets=nets, **told).learn(32)
        for nets in (
            {},
            {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.0}},
            {"optimizer_class": "AdamW", "optimizer_kwargs": {"weight_decay": 0.5}},
        )
    )
    first, second, third = map(weights, (plain, same, decayed))
    value = "agent.value.body.layers[0].weight"
    np.testing.assert_array_equal(first[value], second[value])
    kept = (1 - 1e-2 * 0.5) ** 4  # in each of four steps
    assert np.linalg.norm(third[value]) / np.linalg.norm(first[value]) == pytest.approx(kept, 2e-3)
    assert decayed.settings()["policy_kwargs"]["optimizer_class"] == "AdamW"
    assert decayed.algorithm.weight_decay == 0.5
    assert agent(nets={"optimizer_class": "AdamW"}).algorithm.weight_decay == 0.01
    assert agent(nets={"optimizer_class": "AdamW"}).estimator == "gae"


@pytest.mark.parametrize(
    ("nets", "complaint"),
    [
        ({"optimizer_class": torch.optim.SGD}, "must be one of Adam, AdamW"),
        ({"optimizer_kwargs": {"weight_decay": 0.1}}, "needs optimizer_class AdamW"),
        ({"optimizer_kwargs": {"eps": 1e-3}}, "eps of optimizer_kwargs must be 1e-05"),
        ({"optimizer_kwargs": {"betas": (0.5, 0.9)}}, "betas of optimizer_kwargs must be"),
        ({"optimizer_kwargs": {"momentum": 0.9}}, "not one of optimizer_kwargs"),
    ],
)
def test_other_optimisers_are_refused(nets, complaint):
    with pytest.raises(ValueError, match=complaint):
        agent(nets=nets)


def test_adam_as_it_is_may_be_said():
    said = {"optimizer_class": torch.optim.Adam}
    said["optimizer_kwargs"] = {"eps": 1e-5, "betas": [0.9, 0.999], "weight_decay": 0.0}
    assert agent(nets=said).algorithm.weight_decay == 0.0
    with pytest.raises(ValueError, match="BGPG has no weight_decay"):
        agent(BGPG, nets={"optimizer_class": "AdamW"})
    assert agent(ClippedPPO, nets={"optimizer_class": "AdamW"}).learn(32).num_timesteps == 32


def test_a_clipped_value_stays_near_what_it_was():
    moved, raw = {}, {"normalize_obs": False, "normalize_reward": False}
    for clip in (None, 1e-3):
        told = {"clip_range_vf": clip, "learning_rate": 1e-2, "n_epochs": 20}
        trained = agent(advantage="gae", **raw, **told).learn(32)
        view = trained.rollout_buffer
        now = trained.policy.predict_values(view.observations[:, 0])
        moved[clip] = np.abs(now - view.values).mean()
    # nothing pulls at a value that is beyond its bound, but momentum carries it on
    assert moved[1e-3] < 0.3 * moved[None]
    assert agent(clip_range_vf=0.2).estimator == "gae"
    assert agent(clip_range_vf=None).estimator == "mixed"
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match="clip_range_vf must be a positive number"):
            agent(clip_range_vf=-0.2)
    with pytest.raises(ValueError, match="'mixed' has no clip_range_vf"):
        agent(clip_range_vf=0.2, advantage="mixed")


def test_a_setting_that_needs_another_estimate_can_t_come_later():
    built = agent()
    with pytest.raises(ValueError, match="clip_range_vf can't change once an agent is built"):
        built.clip_range_vf = 0.2
    assert built.clip_range_vf is None
    assert built.learn(32).num_timesteps == 32
    clipped = agent(advantage="gae")
    clipped.clip_range_vf = 0.2
    assert clipped.algorithm.clip_range_vf == 0.2


def test_the_weights_as_torch_has_them():
    first, second = agent(seed=1), agent(seed=2)
    told = first.policy.state_dict()
    assert all(isinstance(array, torch.Tensor) for array in told.values())
    next(iter(told.values())).zero_()  # a copy
    assert any(array.abs().sum() for array in first.policy.state_dict().values())
    second.policy.load_state_dict(first.policy.state_dict())
    for name, array in first.policy.state_dict().items():
        torch.testing.assert_close(second.policy.state_dict()[name], array, rtol=0, atol=0)
    missing = dict(list(told.items())[:-1])
    with pytest.raises(ValueError, match="has no array"):
        second.policy.load_state_dict(missing)
    second.policy.load_state_dict(missing, strict=False)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_who_asks_with_tensors_is_answered_with_tensors(env):
    policy = agent(env=env).policy
    seen = np.array([policy.observation_space.sample() for _ in range(4)])
    taken = np.array([policy.action_space.sample() for _ in range(4)])
    batch, vectorised = policy.obs_to_tensor(seen)
    assert vectorised
    assert not policy.obs_to_tensor(seen[0])[1]
    told = policy.evaluate_actions(batch, torch.tensor(taken))
    for tensor, array in zip(told, policy.evaluate_actions(seen, taken), strict=True):
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), array)
    actions, values, log_probs = policy.forward(batch, deterministic=True)
    assert {type(x) for x in (actions, values, log_probs)} == {torch.Tensor}
    torch.testing.assert_close(policy.get_distribution(batch).log_prob(actions), log_probs)


class Choosing(gym.Env):
    """Every action is as good as another."""

    observation_space = spaces.Box(-1, 1, (2,))

    def __init__(self, space):
        self.action_space = space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32)),
        spaces.Discrete(3),
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiBinary(2),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_distribution_of_torch_s_is_there_of_the_kind_that_ppo_has(space):
    policy, theirs = (kind("MlpPolicy", Choosing(space)).policy for kind in (OTTRPO, PPO))
    batch, _ = policy.obs_to_tensor(np.ones((4, 2), np.float32))
    asked, other = (each.get_distribution(batch) for each in (policy, theirs))
    taken = asked.sample()
    columns = taken.reshape(4, -1).T
    told, known = (
        x if isinstance(x, list) else [x] for x in (asked.distribution, other.distribution)
    )
    assert [(type(x), x.batch_shape) for x in told] == [(type(x), x.batch_shape) for x in known]
    if len(told[0].batch_shape) == 2:  # all coordinates in one
        columns = [columns.T.float()]
    log_prob = sum(
        x.log_prob(column).reshape(4, -1).sum(1) for x, column in zip(told, columns, strict=True)
    )
    torch.testing.assert_close(log_prob, asked.log_prob(taken), check_dtype=False)


def test_torch_has_no_distribution_that_is_a_mixture():
    policy = agent(nets={"mixture": 2}).policy
    batch, _ = policy.obs_to_tensor(np.zeros((1, 3), np.float32))
    asked = policy.get_distribution(batch)
    assert not hasattr(asked, "distribution")
    assert asked.sample().shape == (1, 1)


def test_the_last_rollout_can_be_seen_without_a_callback():
    seen, unseen = agent(), agent()
    seen.learn(64, callback=lambda *_: True)
    unseen.learn(64)
    for name in ("observations", "actions", "rewards", "episode_starts", "values", "advantages"):
        first, second = (getattr(x.rollout_buffer, name) for x in (seen, unseen))
        np.testing.assert_array_equal(first, second)
    assert unseen.rollout_buffer.full
    assert unseen.rollout_buffer.size() == 32


def test_a_policy_is_put_to_use_in_torch_s_words():
    policy = agent().policy
    seen = np.zeros(3, np.float32)
    assert policy.eval().to("cpu").to(torch.device("cpu")) is policy
    with pytest.raises(ValueError, match="device must be auto, cpu"):
        policy.to("mps")
    assert policy.is_vectorized_observation(seen[None])
    assert not policy.is_vectorized_observation(seen)
    np.testing.assert_allclose(policy.scale_action(np.array([2.0])), [1.0])
    np.testing.assert_allclose(policy.unscale_action(np.array([-0.5])), [-1.0])
    assert not policy.squash_output
    assert agent(nets={"squash_output": True}, use_sde=True).policy.squash_output


@pytest.mark.parametrize("name", ["parameters", "optimizer", "features_extractor", "log_std"])
def test_what_only_torch_s_policies_have_is_told_with_what_there_is(name):
    """Copies in its place would take changes that go nowhere."""
    policy = agent().policy
    assert not hasattr(policy, name)
    with pytest.raises(
        AttributeError, match=rf"OTTRPO has no '{name}': .*state_dict\(\) has copies"
    ):
        getattr(policy, name)
    with pytest.raises(ValueError, match=f"OTTRPO has no '{name}'"):
        setattr(policy, name, None)


NAMES = ("observations", "actions", "values", "log_probs", "advantages", "returns")


class Batches(BaseCallback):
    """Takes the rollout in batches, as callbacks that measure something on it do."""

    def _on_step(self):
        if self.n_calls == 1:
            with pytest.raises(AssertionError):
                next(self.locals["rollout_buffer"].get(24))
        return True

    def _on_rollout_end(self):
        buffer = self.locals["rollout_buffer"]
        self.batches, (self.whole,) = list(buffer.get(24)), list(buffer.get())
        self.kept = [getattr(buffer, name).reshape(64, -1) for name in NAMES]


@pytest.mark.parametrize("kind", [OTTRPO, PPO])
@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_rollout_comes_in_batches_of_tensors(kind, env):
    """Each row once, and what belongs together in the same place."""
    taking = Batches()
    agent(kind, DummyVecEnv([lambda: gym.make(env)] * 2)).learn(64, callback=taking)
    assert [len(batch.actions) for batch in taking.batches] == [24, 24, 16]
    assert {x.dtype for x in taking.whole} == {torch.float32}
    assert [x.ndim for x in taking.whole] == [2, 2, 1, 1, 1, 1]
    for given in (taking.batches, [taking.whole]):
        columns = [np.concatenate(x).reshape(64, -1) for x in zip(*given, strict=True)]
        rows, kept = (np.hstack(x).astype(np.float32) for x in (columns, taking.kept))
        assert not np.array_equal(rows, kept)
        np.testing.assert_array_equal(*(x[np.lexsort(x.T)] for x in (rows, kept)))


class Pairs(Floats):
    """A Dict."""

    observation_space = spaces.Dict(x=spaces.Box(-1, 1, (2,)), y=spaces.Discrete(3))

    def _seen(self):
        return {"x": self.np_random.uniform(-1, 1, 2).astype(np.float32), "y": 1}


def test_dicts_come_in_batches_of_dicts():
    trained = agent(env=Pairs(), policy="MultiInputPolicy").learn(32)
    (batch,) = trained.rollout_buffer.get()
    assert {key: tuple(x.shape) for key, x in batch.observations.items()} == {
        "x": (32, 2),
        "y": (32, 1),
    }
