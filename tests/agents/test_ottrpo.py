import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
from gymnasium import spaces

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import OTTRPO
from ottrpo.agents.ottrpo import Radius
from ottrpo.core import Binary, Mahalanobis, PNorm, SquaredEuclidean, StateCost, TableCost

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "seed": 0}
REACH, MATCH = "ottrpo/Reach-v0", "ottrpo/Match-v0"


def agent(env=REACH, **settings):
    return OTTRPO("MlpPolicy", env, **(SMALL | settings))


def gaussian(trained, raw):
    """The policy as a function of raw observations."""
    state = trained.train_state
    flat = trained.algorithm.estimate.normaliser(state.observations, raw)
    return state.networks.policy.gaussian(flat)


def fingerprint(trained):
    return np.concatenate([a.ravel() for a in trained.get_parameters().values()])


@pytest.fixture(scope="module")
def plain():
    return {env: fingerprint(agent(env).learn(128)) for env in (REACH, MATCH)}


BOX_OPTIONS = {
    "radius": 0.01,
    "scheduled radius": {"radius": {"start": 0.5, "end": 0.001}},
    "sample": {"model": "sample"},
    "antithetic": {"model": "antithetic"},
    "ascent": {"model": "sample", "update": "ascent"},
    "network": {"advantage": "network"},
    "network ascent": {"advantage": "network", "update": "ascent"},
    "network slope": {"advantage": "network", "model": "linear"},
    "more candidates": {"advantage": "network", "n_candidates": 16},
    "sampled sources": {"advantage": "network", "n_sources": 3},
    "learnt std": {"learn_std": True},
    "annealed std": {"log_std_final": -2.0},
    "gSDE": {"use_sde": True},
    "gSDE often": {"use_sde": True, "sde_sample_freq": 4},
    "coloured noise": {"noise_color": 1.0},
    "cost": {"cost": Mahalanobis(np.diag([1.0, 5.0]))},
    "other cost": {"model": "sample", "cost": PNorm(1)},
    "raw observations": {"normalize_obs": False},
    "raw rewards": {"normalize_reward": False},
    "raw advantages": {"normalize_advantage": False},
    "gamma": {"gamma": 0.5},
    "scheduled gamma": {"gamma": {"start": 0.9, "end": 0.5}},
    "lambda": {"gae_lambda": 0.1},
    "scheduled lambda": {"gae_lambda": lambda left: 0.5 * left},
    "vf_coef": {"vf_coef": 1e-3},  # a larger one counts for nothing where all gradients are clipped
    "max_grad_norm": {"max_grad_norm": 0.01},
    "learning rate": {"learning_rate": 1e-3},
    "learning rate schedule": {"learning_rate": lambda left: 1e-3 * left},
    "activation": {"policy_kwargs": {"activation_fn": "relu"}},
    "log_std_init": {"policy_kwargs": {"log_std_init": 0.0}},
    "ortho_init": {"policy_kwargs": {"ortho_init": False}},
    "clip_obs": {"clip_obs": 0.5},
    "clip_reward": {"clip_reward": 0.1},
}


@pytest.mark.parametrize("name", BOX_OPTIONS)
def test_every_option_changes_something(name, plain):
    option = BOX_OPTIONS[name]
    settings = option if isinstance(option, dict) else {name: option}
    trained = agent(**settings).learn(128)
    result = fingerprint(trained)
    assert np.isfinite(result).all()
    if len(result) == len(plain[REACH]):
        assert not np.array_equal(result, plain[REACH])
    assert trained.last_update["ot/violation"] == 0.0


FINITE_OPTIONS = {
    "regression": {"update": "regression"},
    "sample": {"model": "sample"},
    "network": {"advantage": "network"},
    "radius": {"radius": 0.003},
    "table": {"cost": TableCost([[0, 1, 2], [3, 0, 1], [1, 5, 0]])},
    "state table": {
        "cost": TableCost(np.ones((3, 3, 3)) * (1 - np.eye(3)) * [[[1]], [[2]], [[9]]])
    },
}


@pytest.mark.parametrize("name", FINITE_OPTIONS)
def test_every_option_of_finite_actions_changes_something(name, plain):
    trained = agent(MATCH, **FINITE_OPTIONS[name]).learn(128)
    assert not np.array_equal(fingerprint(trained)[: len(plain[MATCH])], plain[MATCH])
    assert trained.last_update["ot/violation"] == 0.0


def test_net_arch_by_list_and_by_part():
    trained = agent(policy_kwargs={"net_arch": {"pi": [8], "vf": [16, 16]}}).learn(64)
    shapes = {name: array.shape for name, array in trained.get_parameters().items()}
    assert shapes["agent.policy.body.layers[0].weight"] == (2, 8)
    assert shapes["agent.value.body.layers[1].weight"] == (16, 16)
    assert agent(policy_kwargs={"net_arch": []}).learn(64).num_timesteps == 64


@pytest.mark.parametrize("update", ["regression", "ascent"])
def test_costs_that_depend_on_the_state(update):
    cost = StateCost(lambda a, b, s: (1.0 + s[..., 0] ** 2) * ((a - b) ** 2).sum(-1))
    trained = agent(model="sample", cost=cost, update=update).learn(128)
    other = agent(model="sample", update=update).learn(128)
    assert not np.array_equal(fingerprint(trained), fingerprint(other))


@pytest.mark.parametrize(
    "radius", [{"start": "50%", "end": "0%"}, {"start": 0.3, "end": 0.0}, lambda left: 0.1 * left]
)
def test_a_radius_may_end_at_nothing(radius):
    trained = agent(radius=radius).learn(150)  # the last rollout ends beyond the total
    assert trained.last_update["ot/radius"] == pytest.approx(0, abs=1e-9)
    assert trained.last_update["ot/violation"] == 0


def test_relative_schedules():
    radius = Radius({"start": "50%", "end": "10%"})
    assert radius.relative
    assert radius.schedule(1.0) == pytest.approx(0.5)
    assert radius.schedule(0.0) == pytest.approx(0.1)
    assert (Radius(0.4).relative, Radius(0.4).schedule) == (False, 0.4)


def test_a_policy_that_has_become_certain_goes_on():
    """Logits so far apart that probabilities are exactly 0 and 1."""
    certain = agent(MATCH)
    parameters = certain.get_parameters()
    parameters["agent.policy.head.bias"] = np.array([500.0, 0.0, -500.0])
    certain.set_parameters(parameters)
    certain.learn(128)
    assert np.isfinite(fingerprint(certain)).all()
    assert certain.last_update["ot/violation"] == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"model": "cubic"}, "model must be one of linear, sample, antithetic"),
            ({"model": "candidates"}, "model must be one of linear, sample, antithetic"),
            ({"advantage": "network", "model": "sample"}, "one of candidates, linear"),
            ({"update": "hop"}, "update must be one of"),
            ({"trust_region": "loose"}, "trust_region must be one of exact, paper"),
            ({"advantage": "oracle"}, "advantage must be one of"),
            ({"radius": -1.0}, "radius must be a positive number"),
            ({"radius": "a lot"}, 'a share such as "30%"'),
            ({"radius": "x%"}, 'a share such as "30%"'),
            ({"cost": Binary()}, "is for labels"),
            ({"cost": PNorm(1)}, "needs a quadratic cost"),
            ({"learn_std": True, "model": "sample"}, "moves the mean only"),
            ({"gamma": 1.5}, "gamma must lie between 0 and 1"),
            ({"n_steps": 0}, "n_steps must be an integer of at least 1"),
            ({"batch_size": 2.5}, "batch_size must be an integer"),
            ({"clip_obs": -1.0}, "clip_obs must be a positive number"),
            ({"clip_obs": 0}, "clip_obs must be a positive number"),
            ({"clip_reward": None}, "clip_reward must be a number"),
            ({"n_steps": "many"}, "n_steps must be a number"),
            ({"batch_size": None}, "batch_size must be a number"),
            ({"n_epochs": np.inf}, "n_epochs must be an integer"),
            ({"vf_coef": "half"}, "vf_coef must be a number"),
            ({"max_grad_norm": 0}, "max_grad_norm must be a positive number"),
            ({"learning_rate": -1e-3}, "learning_rate must not be negative"),
            ({"learning_rate": lambda left: left - 0.5}, "learning_rate must not be negative"),
            ({"learning_rate": "linear"}, "learning_rate must be a number, a schedule"),
            ({"noise_color": {"start": 1.0, "end": -1.0}}, "noise_color must not be negative"),
            ({"noise_color": 1.0, "use_sde": True}, "no meaning with use_sde"),
            ({"sde_sample_freq": "often", "use_sde": True}, "sde_sample_freq must be a number"),
            ({"stats_window_size": 0}, "stats_window_size must be an integer of at least 1"),
            ({"normalize_obs": "no"}, "normalize_obs must be True or False"),
            ({"normalize_advantage": None}, "normalize_advantage must be True or False"),
            ({"learn_std": "yes"}, "learn_std must be True or False"),
            ({"log_std_final": "small"}, "log_std_final must be a number"),
            ({"log_std_final": np.nan}, "log_std_final must be finite"),
            ({"learn_std": True, "log_std_final": -2.0}, "exclude each other"),
            ({"radius": np.inf}, "radius must be finite"),
            ({"radius": True}, "radius must be a number"),
            ({"radius": [0.1, 0.2]}, "radius must be a number, a schedule"),
            ({"radius": {"start": 1.0, "end": -1.0}}, "radius must not be negative"),
            ({"radius": {"start": "10%", "end": 1.0}}, "mixes percentages and numbers"),
            ({"radius": lambda left: -1.0}, "radius must not be negative"),
            ({"update": "ascent"}, "'linear' knows its targets"),
            ({"n_candidates": 4}, "n_candidates needs advantage 'network'"),
            ({"n_sources": 3}, "n_sources needs advantage 'network'"),
            ({"advantage": "network", "model": "linear", "n_sources": 3}, "n_sources needs"),
            ({"policy_kwargs": "deep"}, "policy_kwargs must be a dict"),
            ({"policy_kwargs": {"net_arch": 64}}, "net_arch must be a list"),
            ({"policy_kwargs": {"net_arch": [64, "a"]}}, "every layer of net_arch"),
            ({"policy_kwargs": {"log_std_init": "low"}}, "log_std_init must be a number"),
            ({"policy_kwargs": {"features_dim": 0}}, "features_dim must be an integer"),
            ({"device": "quantum"}, "device must be auto, cpu"),
            ({"policy_kwargs": {"depth": 3}}, "'depth' is not one of policy_kwargs"),
            ({"policy_kwargs": {"net_arch": {"q": [3]}}}, "keys 'pi' and 'vf'"),
            ({"policy_kwargs": {"net_arch": [0]}}, "every layer of net_arch"),
            ({"policy_kwargs": {"activation_fn": "abs"}}, "is unknown; allowed: tanh"),
            ({"learning_rate": {"from": 1}}, "'start' and 'end'"),
        ],
    )
    def test_bad_settings(self, settings, message):
        with pytest.raises(ValueError, match=message):
            agent(**settings)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"cost": SquaredEuclidean()}, "is for points"),
            ({"model": "antithetic"}, "needs actions in a Box"),
            ({"learn_std": True}, "need actions in a Box"),
            ({"noise_color": 1.0}, "need actions in a Box"),
            ({"use_sde": True}, "gSDE.*continuous actions"),
            ({"advantage": "network", "model": "linear"}, "needs actions in a Box"),
        ],
    )
    def test_settings_for_boxes_only(self, settings, message):
        with pytest.raises(ValueError, match=message):
            agent(MATCH, **settings)

    @pytest.mark.parametrize(
        ("observation", "action", "message"),
        [
            (spaces.Box(-1, 1, (2,)), spaces.Box(-np.inf, np.inf, (1,)), "must be bounded"),
            (spaces.Box(-1, 1, (2,)), spaces.Dict({}), "action space is not supported"),
            (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (0,)), "at least one entry"),
            (spaces.Tuple([]), spaces.Discrete(2), "observation space .* is not supported"),
            (
                spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}),
                spaces.Discrete(2),
                "not supported",
            ),
        ],
    )
    def test_spaces(self, observation, action, message):
        class Odd(gym.Env):
            observation_space, action_space = observation, action

        with pytest.raises(ValueError, match=message):
            agent(Odd())

    def test_an_unbounded_box_can_be_given_bounds_as_the_message_says(self):
        class Unbounded(gym.Env):
            observation_space = spaces.Box(-1, 1, (1,))
            action_space = spaces.Box(-np.inf, np.inf, (1,))

            def reset(self, seed=None, options=None):
                return np.zeros(1, np.float32), {}

            def step(self, action):
                assert abs(action) <= 3
                return np.zeros(1, np.float32), float(action[0]), True, False, {}

        with pytest.raises(ValueError, match=r"TransformAction\(env, lambda action: action, Box"):
            agent(Unbounded())
        bounds = spaces.Box(-3, 3, (1,))
        env = gym.wrappers.TransformAction(Unbounded(), lambda action: action, bounds)
        assert agent(env).learn(64).num_timesteps == 64

    def test_nothing_to_observe(self):
        class Blind(gym.Env):
            observation_space, action_space = spaces.Dict({}), spaces.Discrete(2)

        with pytest.raises(ValueError, match="nothing to observe"):
            OTTRPO("MultiInputPolicy", Blind())

    def test_unknown_policies_and_environments(self):
        with pytest.raises(ValueError, match="LstmPolicy"):
            OTTRPO("LstmPolicy", REACH)
        with pytest.raises(ValueError, match="can't be made"):
            OTTRPO("MlpPolicy", "Hoper-v5")
        with pytest.raises(ValueError, match="MultiInputPolicy"):
            agent(gym.make(MATCH, observations="dict"))
        with pytest.raises(ValueError, match="policy must be one of MlpPolicy"):
            OTTRPO(stable_baselines3.dqn.MlpPolicy, REACH)
        with pytest.raises(ValueError, match="CnnPolicy needs an image"):
            OTTRPO("CnnPolicy", REACH)
        with pytest.raises(ValueError, match="env must be an id"):
            OTTRPO("MlpPolicy", 5)
        with pytest.raises(ValueError, match="needs an environment"):
            OTTRPO("MlpPolicy", None)

    def test_a_single_step_has_no_advantage_over_itself(self):
        with pytest.raises(ValueError, match="must be above 1"):
            agent(n_steps=1, batch_size=1)
        raw = agent(n_steps=1, batch_size=1, normalize_advantage=False).learn(2)
        assert raw.last_update["ot/spent"] > 0

    def test_learning_without_an_environment(self):
        loose = agent()
        loose.env = None
        with pytest.raises(ValueError, match="set_env"):
            loose.learn(1)


class TestTrustRegion:
    @pytest.mark.parametrize(
        ("env", "settings"),
        [
            (REACH, {"radius": 1e-4, "learning_rate": 3e-3}),
            (REACH, {"radius": 1e-4, "learn_std": True, "learning_rate": 3e-3}),
            (REACH, {"radius": 1e-3, "use_sde": True}),
            (REACH, {"radius": 1e-3, "log_std_final": -3.0}),
            (REACH, {"radius": 1e-3, "model": "sample", "cost": PNorm(1)}),
            (MATCH, {"radius": 1e-3}),
            (MATCH, {"radius": 1e-3, "cost": TableCost([[0, 1, 2], [3, 0, 1], [1, 5, 0]])}),
        ],
    )
    def test_it_is_kept_by_default_and_left_in_the_papers_way(self, env, settings):
        spent = {}
        for mode in ("exact", "paper"):
            trained = agent(env, trust_region=mode, **settings)
            seen = []
            trained.train = _listening(trained, seen)
            trained.learn(320)
            spent[mode] = [update["ot/spent"] / update["ot/radius"] for update in seen]
            assert all(
                u["ot/violation"] == pytest.approx(max(u["ot/spent"] - u["ot/radius"], 0))
                for u in seen
            )
        assert max(spent["exact"]) <= 1.0
        assert max(spent["paper"]) > 1.0

    def test_spent_is_what_predict_shows(self):
        """The logged discrepancy, measured again from outside on the visited observations.

        Running normalisation is part of the policy, and of what is measured.
        """
        trained = agent(radius=2e-3, learning_rate=3e-3)
        rollouts = []
        collect = trained.collect_rollout
        trained.collect_rollout = lambda callback: (
            rollouts.append(collect(callback)) or rollouts[-1]
        )
        for _ in range(4):
            trained.learn(64, reset_num_timesteps=False)
            rollout = rollouts[-1]
            raw = rollout.flat[:-1].reshape(-1, 2)
            after = np.concatenate(gaussian(trained, raw), 1)  # means, and σ that moves too
            before = np.concatenate([rollout.drawn[x].reshape(-1, 2) for x in ("mean", "std")], 1)
            measured = ((after - before) ** 2).sum(1).mean()
            assert measured <= 2e-3
            assert measured == pytest.approx(trained.last_update["ot/spent"], rel=1e-3)

    @pytest.mark.parametrize("settings", [{"log_std_final": -3.0}, {"use_sde": True}])
    @pytest.mark.parametrize("cost", [PNorm(1), PNorm(2, power=0.5)])
    def test_it_is_kept_when_no_formula_tells_what_is_spent(self, cost, settings):
        """The cost of moving every point by its quantile, measured again from many draws."""
        trained = agent(model="sample", cost=cost, learning_rate=1e-2, **settings)
        rollouts, train = [], trained.train
        trained.train = lambda rollout: (rollouts.append(rollout), train(rollout))[1]
        rng = np.random.default_rng(1)
        for _ in range(4):
            trained.learn(64, reset_num_timesteps=False)
            drawn = {key: array.reshape(-1, 2) for key, array in rollouts[-1].drawn.items()}
            raw = rollouts[-1].flat[:-1].reshape(-1, 2)
            mean, std = gaussian(trained, raw)
            z = rng.standard_normal((4000, 1, 2))
            spent = cost(drawn["mean"] + drawn["std"] * z, mean + std * z).mean()
            assert spent <= trained.last_update["ot/spent"] <= trained.last_update["ot/radius"]
            assert trained.last_update["ot/spent"] <= 1.2 * spent

    def test_a_huge_radius_does_not_freeze(self):
        """With the paper's candidates and ascent a radius that never binds has multiplier 0."""
        linear = {"model": "linear", "update": "regression"}
        for settings in (
            {"model": "sample", "update": "ascent"},
            {"model": "antithetic", "update": "ascent"},
            linear | {"advantage": "gae"},
            linear | {"advantage": "mixed"},
        ):
            trained = agent(radius=1e6, **settings)
            before = fingerprint(trained)
            trained.learn(64)
            if settings.get("advantage") != "mixed":  # there it is what was gained, 0 if nothing
                assert trained.last_update["ot/multiplier"] > 0
            assert trained.last_update["ot/inactive"] == 1
            policy = trained.get_parameters()["agent.policy.head.weight"]
            assert np.abs(policy).max() > 0
            assert not np.array_equal(before, fingerprint(trained))

    def test_a_slope_is_not_believed_beyond_what_was_tried(self):
        huge, largest = agent(radius=1e6).learn(128), agent(radius="400%").learn(128)
        np.testing.assert_array_equal(fingerprint(huge), fingerprint(largest))
        assert huge.last_update["ot/inactive"] == 1
        assert largest.last_update["ot/inactive"] == 0
        as_told = agent(radius=1e6, trust_region="paper").learn(128)
        assert as_told.last_update["ot/radius"] == 1e6

    def test_the_papers_way_freezes_and_says_so(self):
        trained = agent(model="sample", update="ascent", radius=1e6, trust_region="paper")
        before = trained.get_parameters()["agent.policy.head.weight"]
        with pytest.warns(UserWarning, match="too large to bind"):
            trained.learn(64)
        assert trained.last_update["ot/multiplier"] == 0
        assert trained.last_update["ot/inactive"] == 1
        np.testing.assert_array_equal(before, trained.get_parameters()["agent.policy.head.weight"])

    def test_rewards_that_never_differ_are_no_reason_to_fail(self):
        class Flat(gym.Env):
            observation_space = spaces.Box(-1, 1, (1,))
            action_space = spaces.Box(-1, 1, (1,))

            def reset(self, seed=None, options=None):
                return np.zeros(1, np.float32), {}

            def step(self, action):
                return np.zeros(1, np.float32), 0.0, True, False, {}

        for update in ("regression", "ascent"):
            trained = agent(Flat(), update=update, model="sample", normalize_advantage=False)
            trained.learn(128)
            assert np.isfinite(fingerprint(trained)).all()


def test_the_standard_deviation_goes_where_it_is_told():
    fixed = agent(advantage="gae").learn(256).get_parameters()["agent.policy.log_std"]
    np.testing.assert_allclose(fixed, -0.7)
    annealed = agent(log_std_final=-2.0, radius=10.0).learn(256)
    np.testing.assert_allclose(annealed.get_parameters()["agent.policy.log_std"], -2.0, rtol=1e-5)
    learnt = agent(learn_std=True, learning_rate=1e-2, n_epochs=10).learn(1024)
    assert (learnt.get_parameters()["agent.policy.log_std"] < -0.8).all()  # noise only costs here


def test_the_last_batch_may_be_smaller_and_this_is_said():
    with pytest.warns(UserWarning, match="does not divide the 50 steps"):
        trained = agent(n_steps=50, batch_size=32)
    assert trained.learn(100).num_timesteps == 100


def test_masks_are_obeyed_in_training_evaluation_and_prediction():
    env = gym.make(MATCH, masked=True)  # raises when a masked action is taken
    trained = agent(env, learning_rate=1e-3).learn(640)
    assert trained.evaluate(3, deterministic=False, seed=1).shape == (3,)
    mask = np.array([False, True, False])
    for deterministic in (True, False):
        assert trained.predict(0, deterministic=deterministic, action_masks=mask)[0] == 1


def test_a_mask_must_leave_something(monkeypatch):
    env = gym.make(MATCH, masked=True)
    trained = agent(env)
    with pytest.raises(ValueError, match="environment 0 allows no action"):
        trained.predict(0, action_masks=np.zeros(3, bool))
    monkeypatch.setattr(env.unwrapped, "action_masks", lambda: np.zeros(3, bool))
    with pytest.raises(ValueError, match="environment 0 allows no action"):
        trained.learn(64)


def test_actions_stay_inside_bounds_that_float32_does_not_have():
    class Narrow(gym.Env):
        observation_space = spaces.Box(-1, 1, (1,))
        action_space = spaces.Box(-0.1, 0.1, (2,), np.float64)  # 0.1 as float32 is larger

        def reset(self, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            assert self.action_space.contains(action)
            return np.zeros(1, np.float32), float(action.sum()), True, False, {}

    trained = agent(Narrow(), policy_kwargs={"log_std_init": 1.0}).learn(64)
    assert Narrow.action_space.contains(trained.predict(np.zeros(1))[0])


def test_retired_ids_are_translated_aloud(capsys):
    agent("Hopper-v3")
    assert "Hopper-v3 is retired; using Hopper-v5" in capsys.readouterr().out


def _listening(trained, seen):
    train = trained.train

    def listening(rollout):
        seen.append(train(rollout))
        return seen[-1]

    return listening


def test_discount_and_trace_follow_their_schedules_and_are_saved_with_them(tmp_path):
    trained = agent(gamma={"start": 0.9, "end": 0.99, "end_fraction": 0.5}, gae_lambda=0.5)
    assert trained.discount == pytest.approx(0.9)
    trained.learn(64)
    assert trained.discount == pytest.approx(0.99)
    trained.save(tmp_path / "a.zip")
    loaded = OTTRPO.load(tmp_path / "a.zip")
    assert [loaded.gamma(left) for left in (1.0, 0.75, 0.0)] == pytest.approx([0.9, 0.945, 0.99])
    assert loaded.gae_lambda == 0.5


@pytest.mark.parametrize("name", ["gamma", "gae_lambda"])
@pytest.mark.parametrize("value", [1.5, {"start": 0.9, "end": 1.1}, lambda left: -left, "often"])
def test_discounts_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must (lie between 0 and 1|be a number)"):
        agent(**{name: value})


def test_defaults_differ_by_the_kind_of_action():
    sampled = agent(MATCH, advantage="gae")
    box, labels = agent(REACH).learn(64), sampled.learn(64)
    assert (agent(REACH).trace_decay, box.trace_decay) == pytest.approx((0.98, 0.92))
    assert (agent(MATCH).trace_decay, labels.trace_decay) == pytest.approx((0.98, 0.95))
    assert agent(MATCH, gae_lambda=0.5).trace_decay == 0.5
    # two coordinates whose variances add up to 0.49: the mean cost; at the end 1 % of it
    assert box.last_update["ot/radius"] == pytest.approx(0.01 * 0.49, rel=0.3)
    # three labels, nearly uniform: two draws differ two times in three
    assert labels.last_update["ot/radius"] == pytest.approx(0.1 * 2 / 3, rel=0.05)
    # with critics 10 % at first, 1 % at the end
    critical = agent(MATCH).learn(64)
    assert critical.last_update["ot/radius"] == pytest.approx(0.01 * 2 / 3, rel=0.05)
