"""Settings are written once: constructor, help, files and attributes follow from one dataclass."""

import inspect

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import ppo
from stable_baselines3.common import torch_layers

import ottrpo.envs.toys  # noqa: F401  # registers the toys
from ottrpo import BGPG, OTTRPO, WNPG, WPPG, WPOGradient
from ottrpo.agents.checklist import CHECKS
from ottrpo.agents.policies import POLICIES
from ottrpo.agents.settings import NOT_SAVED, OTTRPOSettings
from ottrpo.agents.wnpg import WNPGSettings
from ottrpo.core.documented import documentation
from ottrpo.engine.schedules import Straight
from ottrpo.engine.spaces import FiniteActions

AGENTS = (OTTRPO, BGPG, WNPG, WPOGradient, WPPG)
each = pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: kind.__name__)
SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}}


def agent(**settings):
    return OTTRPO("MlpPolicy", "Pendulum-v1", seed=0, **SMALL | settings)


@each
def test_the_signature_shows_every_setting_with_sb3_s_first(kind):
    for shown in (inspect.signature(kind), inspect.signature(kind.__init__)):
        names = [name for name in shown.parameters if name != "self"]
        assert names[:8] == [
            *("policy", "env", "learning_rate", "n_steps", "batch_size", "n_epochs"),
            *("gamma", "gae_lambda"),
        ]
        assert names[-4:] == ["verbose", "seed", "device", "_init_setup_model"]
        assert set(names[2:-1]) == set(kind.settings_type.names())
        assert shown.parameters["max_grad_norm"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert shown.parameters["noise_color"].kind is inspect.Parameter.KEYWORD_ONLY


@each
def test_every_setting_is_documented_and_the_help_says_so(kind):
    told = documentation(kind.settings_type)
    assert set(told) - set(kind.settings_type.instead) == set(kind.settings_type.names())
    text = " ".join(kind.__doc__.split())
    for name in kind.settings_type.names():
        assert f"{name}: {told[name]}" in text


def test_documentation_of_an_agent_s_own_wins():
    assert "norm_rule" in documentation(WNPGSettings)["max_grad_norm"]
    assert "minibatch" in documentation(WNPGSettings)["normalize_advantage"]
    assert "rollout" in documentation(OTTRPOSettings)["normalize_advantage"]


def test_every_check_is_of_a_setting():
    known = {name for kind in AGENTS for name in kind.settings_type.names()}
    assert set(CHECKS) <= known


def test_by_position_as_in_sb3():
    made = OTTRPO("MlpPolicy", "Pendulum-v1", 1e-3, 16, 8, 2, 0.9, **{"policy_kwargs": None})
    assert (made.learning_rate, made.n_steps, made.batch_size) == (1e-3, 16, 8)
    assert (made.n_epochs, made.gamma) == (2, 0.9)


@pytest.mark.parametrize(
    ("arguments", "settings", "complaint"),
    [
        ((), {"raduis": 1.0}, "'raduis' is not a setting of OTTRPO; did you mean 'radius'"),
        ((), {"ent_coef": 0.01}, "OTTRPO has no 'ent_coef': exploration is set by noise_color"),
        ((), {"clip_range": 0.2}, "the trust region takes its place, see radius"),
        ((1e-3,), {"learning_rate": 1e-3}, "learning_rate is given twice"),
        (tuple(range(12)), {}, "takes 11 settings by position, got 12"),
    ],
)
def test_what_is_not_a_setting_is_told_in_one_line(arguments, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        OTTRPO("MlpPolicy", "Pendulum-v1", *arguments, **settings)


@pytest.mark.parametrize("kind", [BGPG, WNPG])
def test_none_where_it_means_something(kind):
    assert kind.settings_type(clip_range_vf=None).clip_range_vf is None
    with pytest.raises(ValueError, match="clip_range must be a number"):
        kind.settings_type(clip_range=None)


def test_plain_data_and_back():
    told = OTTRPOSettings(
        learning_rate={"start": 1e-3, "end": 0.0}, cost="squared-euclidean", radius="20%"
    )
    assert isinstance(told.learning_rate, Straight)
    data = told.data
    assert not set(NOT_SAVED) & set(data)
    assert OTTRPOSettings(**data).data == data


def test_a_setting_that_is_changed_takes_effect():
    trained = agent().learn(32)
    trained.radius = 1e-6
    trained.learn(32, reset_num_timesteps=False)
    assert trained.last_update["ot/radius"] == 1e-6
    assert trained.last_update["ot/spent"] <= 1e-6
    trained.radius = "5%"
    trained.gamma, trained.learning_rate, trained.n_epochs = 0.5, 0.0, 3
    trained.learn(32, reset_num_timesteps=False)
    assert trained.last_update["ot/radius"] > 1e-6
    assert trained.last_update["train/discount"] == 0.5
    assert trained.last_update["train/learning_rate"] == 0.0
    assert trained.algorithm.n_epochs == 3
    assert trained.settings()["radius"] == "5%"


def test_a_setting_that_can_t_change_any_more_is_refused():
    built = agent()
    for name, value in {"use_sde": True, "advantage": "network", "policy_kwargs": {}}.items():
        with pytest.raises(ValueError, match=f"{name} can't change once"):
            setattr(built, name, value)
    with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
        built.gamma = 2.0
    assert built.gamma == "auto"


@pytest.mark.parametrize("name", ["ent_coef", "clip_range", "target_kl", "rollout_buffer_class"])
def test_what_is_not_a_setting_can_t_be_assigned_either(name):
    """A callback that lowers PPO's ent_coef would believe that it did."""
    built = agent()
    with pytest.raises(ValueError, match=f"OTTRPO has no '{name}': "):
        setattr(built, name, 0.1)
    assert not hasattr(built, name)


@pytest.mark.parametrize(("name", "value"), [("ent_coef", 0.0), ("target_kl", None)])
def test_what_is_so_anyway_may_be_assigned_as_it_may_be_said(name, value):
    """A callback that takes PPO's ent_coef to 0 has what it asks for."""
    built = agent()
    setattr(built, name, value)
    assert not hasattr(built, name)


def test_sb3_s_spelling_of_the_size_of_features():
    kwargs = {"features_extractor_kwargs": {"features_dim": 16}, "net_arch": None}
    assert agent(policy_kwargs=kwargs).architecture.features_dim == 16
    kwargs = {"features_extractor_kwargs": {"cnn_output_dim": 8}}
    assert agent(policy_kwargs=kwargs).architecture.features_dim == 8
    with pytest.raises(ValueError, match="'depth' is not one of features_extractor_kwargs"):
        agent(policy_kwargs={"features_extractor_kwargs": {"depth": 1}})


@pytest.mark.parametrize(
    ("name", "seen"),
    [("MlpPolicy", "box"), ("CnnPolicy", "image"), ("MultiInputPolicy", "dict")],
)
def test_sb3_s_classes_of_policies_stand_for_ours_of_that_name(name, seen):
    env = gym.make("ottrpo/Match-v0", observations=seen)
    made = OTTRPO(getattr(ppo, name), env, seed=0, **SMALL)
    assert made.policy_class is POLICIES[name]
    with pytest.raises(ValueError, match="or SB3's of that name"):
        OTTRPO(type("Mine", (ppo.MlpPolicy,), {}), env)


@pytest.mark.parametrize(
    ("policy", "seen", "extractor", "other"),
    [
        ("MlpPolicy", "box", torch_layers.FlattenExtractor, torch_layers.NatureCNN),
        ("CnnPolicy", "image", torch_layers.NatureCNN, torch_layers.FlattenExtractor),
        ("MultiInputPolicy", "dict", torch_layers.CombinedExtractor, torch_layers.NatureCNN),
    ],
)
def test_sb3_s_own_extractor_may_be_named(policy, seen, extractor, other, tmp_path):
    """Its layers are those that there are; another one, or one derived from it, is refused."""
    env = gym.make("ottrpo/Match-v0", observations=seen)

    def made(named):
        nets = {"net_arch": [8], "features_dim": 4, "features_extractor_class": named}
        return OTTRPO(policy, env, seed=0, **SMALL | {"policy_kwargs": nets})

    made(extractor).save(tmp_path / "a")
    loaded = OTTRPO.load(tmp_path / "a")
    assert loaded.policy_kwargs["features_extractor_class"] == extractor.__name__
    for wrong in (other, type(extractor.__name__, (extractor,), {})):
        with pytest.raises(ValueError, match=f"or say {extractor.__name__}, which is had anyway"):
            made(wrong)


def test_sb3_s_words_for_what_is_so_anyway():
    so = {"use_expln": False, "squash_output": False, "share_features_extractor": False}
    assert agent(policy_kwargs=so | {"normalize_images": True, "full_std": True})
    with pytest.raises(ValueError, match="share_features_extractor must be False, got True: "):
        agent(policy_kwargs={"share_features_extractor": True})
    with pytest.raises(ValueError, match="can't have features_extractor_class: "):
        agent(policy_kwargs={"features_extractor_class": None})
    with pytest.warns(UserWarning, match="before 1.8"):
        made = agent(policy_kwargs={"net_arch": [{"pi": [4], "vf": [5]}]})
    assert made.policy.net_arch == {"pi": [4], "vf": [5]}
    assert agent(policy_kwargs={"net_arch": None}).policy.net_arch["pi"] == [64, 64]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ent_coef", 0.0), ("ent_coef", 0), ("target_kl", None), ("use_rms_prop", False)),
        *(("rollout_buffer_class", None), ("rollout_buffer_kwargs", None)),
    ],
)
def test_settings_of_sb3_that_say_what_is_so_anyway(name, value):
    """Files of RL-Zoo often say them: there is no entropy bonus, so one of weight 0 is had."""
    made = agent(**{name: value})
    assert name not in made.settings()
    assert not hasattr(made, name)
    with pytest.raises(ValueError, match=f"OTTRPO has no '{name}': "):
        agent(**{name: 0.5})


@pytest.mark.parametrize("radius", [1e-12, 9e-11])
def test_a_radius_that_would_be_raised_in_silence_is_refused(radius):
    with pytest.raises(ValueError, match="radius must be at least 1e-10"):
        agent(radius=radius)
    assert agent(radius=1e-10).radius == 1e-10


def test_nan_in_an_action_mask_allows_nothing():
    labels = FiniteActions((3,), np.array([0]), scalar=True)
    with pytest.raises(ValueError, match="action masks are made of True and False"):
        labels.pad_mask(np.array([[1.0, np.nan, 0.0]]))
    for mask in ([[True, False, True]], [[1, 0, 1]], [[1.0, 0.0, 1.0]]):
        assert labels.pad_mask(np.array(mask))[0, 0].tolist() == [True, False, True]
