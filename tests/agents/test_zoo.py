"""RL-Zoo's tables and commands. The Zoo is no dependency: a stand-in holds its tables, and where it
is installed the slow test trains, enjoys, goes on and tunes with the Zoo's own commands."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from ottrpo import BGPG, OTTRPO, WNPG
from ottrpo.agents import zoo


class Trial:
    """Answers like an Optuna trial: with the first choice, or the lower end."""

    def suggest_float(self, name, low, high, *, log=False):
        return low

    def suggest_int(self, name, low, high):
        return low

    def suggest_categorical(self, name, choices):
        return choices[0]


@pytest.fixture
def tables(monkeypatch):
    package, options = ModuleType("rl_zoo3"), ModuleType("rl_zoo3.hyperparams_opt")
    train, enjoy = ModuleType("rl_zoo3.train"), ModuleType("rl_zoo3.enjoy")
    package.ALGOS, package.hyperparams_opt = {}, options
    package.train, package.enjoy = train, enjoy
    options.HYPERPARAMS_SAMPLER, options.HYPERPARAMS_CONVERTER = {}, {}
    for module in (package, options, train, enjoy):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return package


def test_it_enters_the_tables(tables):
    zoo.register()
    assert tables.ALGOS == {"ottrpo": OTTRPO}
    drawn = tables.hyperparams_opt.HYPERPARAMS_SAMPLER["ottrpo"](Trial(), 1, 1, {})
    agent = OTTRPO("MlpPolicy", "Pendulum-v1", **drawn)
    assert agent.n_steps == 256
    assert agent.radius == "3.0%"
    assert agent.architecture.log_std_init == -2.0
    assert "ottrpo" in tables.hyperparams_opt.HYPERPARAMS_CONVERTER


@pytest.mark.parametrize(
    ("given", "handed_over"),
    [
        ("train --algo ottrpo", "--algo ottrpo -conf ottrpo.agents.zoo"),
        ("train --algo ottrpo -conf mine.yml", "--algo ottrpo -conf mine.yml"),
        ("train --algo ppo", "--algo ppo"),
        ("enjoy --algo ottrpo", "--algo ottrpo"),
    ],
)
def test_the_commands_are_handed_over_with_our_settings(tables, monkeypatch, given, handed_over):
    seen = []
    tables.train.train = tables.enjoy.enjoy = lambda: seen.append(" ".join(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["zoo", *given.split()])
    zoo.main()
    assert seen == [handed_over]


def test_what_a_file_may_not_hold_ends_the_command_in_one_line(tables, monkeypatch):
    tables.train.train = tables.enjoy.enjoy = lambda: OTTRPO(
        "MlpPolicy", "Pendulum-v1", ent_coef=0.01
    )
    monkeypatch.setattr(sys, "argv", ["zoo", "train", "--algo", "ottrpo"])
    with pytest.raises(SystemExit) as end:
        zoo.main()
    assert str(end.value).startswith("OTTRPO has no 'ent_coef': exploration is set by")
    assert "\n" not in str(end.value)


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ("rl_zoo3", r"RL-Zoo is not installed: pip install 'ottrpo\[zoo\]'"),
        ("requests", "RL-Zoo can't be imported without requests: pip install requests"),
    ],
)
def test_it_says_what_to_install(monkeypatch, tmp_path, lacking, told):
    (tmp_path / "rl_zoo3.py").write_text("import requests.sessions")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rl_zoo3", raising=False)
    for name in (lacking, f"{lacking}.sessions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=told):
        zoo.register()
    with pytest.raises(SystemExit, match=told):  # one line, no traceback
        zoo.main()


class Extreme(Trial):
    """Answers with the last choice, or the upper end."""

    def suggest_float(self, name, low, high, *, log=False):
        return high

    def suggest_int(self, name, low, high):
        return high

    def suggest_categorical(self, name, choices):
        return choices[-1]


@pytest.mark.parametrize("trial", [Trial(), Extreme()])
@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1"])
def test_what_is_drawn_trains_with_normalize(trial, name):
    drawn = zoo.sample(trial, 1, 2, {})
    env = VecNormalize(make_vec_env(name, 2, seed=0), gamma=drawn["gamma"])  # as the Zoo does
    agent = OTTRPO("MlpPolicy", env, **drawn | {"n_steps": 64}, seed=0).learn(128)
    assert agent.num_timesteps == 128
    assert 0 < env.gamma < 1


@pytest.mark.parametrize("kind", [OTTRPO, BGPG, WNPG])
@pytest.mark.parametrize("stacked", [False, True])
def test_a_discount_that_follows_the_episodes_trains_with_normalize(kind, stacked):
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0), gamma="auto")
    wrapped = VecFrameStack(env, 2) if stacked else env
    agent = kind("MlpPolicy", wrapped, n_steps=64, batch_size=32, n_epochs=1, gamma="auto", seed=0)
    assert agent.learn(128).num_timesteps == 128
    assert agent.gamma == "auto"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("ent_coef", "exploration is set by"),
        ("clip_range", "radius"),
        ("n_critic_updates", "n_epochs"),
        ("cg_damping", "no conjugate gradient"),
        ("use_rms_prop", "Adam"),
    ],
)
def test_keys_of_other_agents_are_refused_with_what_to_use_instead(key, told):
    with pytest.raises(ValueError, match=f"OTTRPO has no '{key}': .*{told}") as refusal:
        OTTRPO("MlpPolicy", "Pendulum-v1", **{key: 0.1})
    assert "\n" not in str(refusal.value)


def said_by(folder, *words):
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_checkpoint_and_a_film_as_the_documentation_has_it(tmp_path):
    for module in ("rl_zoo3", "moviepy", "pygame"):
        pytest.importorskip(module)
    page = (Path(__file__).parents[2] / "docs/ottrpo.md").read_text()
    script = page.split('python -c "')[1].split('"')[0]
    cart = ["--algo", "ottrpo", "--env", "CartPole-v1"]
    zoo_s = ("-m", "ottrpo.agents.zoo")
    said_by(tmp_path, *zoo_s, "train", *cart, "-n", "2100", "--save-freq", "2048")
    seen = ["-f", "logs", "-n", "50"]
    said = said_by(
        tmp_path, *zoo_s, "enjoy", *cart, *seen, "--no-render", "--load-checkpoint", "2048"
    )
    assert "rl_model_2048_steps" in said
    said_by(tmp_path, "-c", script, *cart, *seen)
    assert list(tmp_path.glob("logs/ottrpo/CartPole-v1_1/videos/*.mp4"))


@pytest.mark.slow
def test_train_enjoy_go_on_and_tune(tmp_path):
    pytest.importorskip("rl_zoo3")
    pytest.importorskip("pandas")  # for the Zoo's report of a search

    def run(*words):
        return said_by(tmp_path, "-m", "ottrpo.agents.zoo", *words)

    pendulum = ["--algo", "ottrpo", "--env", "Pendulum-v1"]
    several = ["--vec-env", "subproc", "--hyperparams", "n_envs:2", "n_steps:256"]
    run("train", *pendulum, "-n", "1024", *several)
    trained = tmp_path / "logs/ottrpo/Pendulum-v1_1/Pendulum-v1.zip"
    assert OTTRPO.load(trained).num_timesteps == 1024
    assert "Mean reward" in run("enjoy", *pendulum, "-f", "logs", "--no-render", "-n", "250")
    run("train", *pendulum, "-n", "512", "-i", str(trained), "--hyperparams", "n_steps:256")
    normalised = ["--hyperparams", "n_steps:256", "normalize:True", "gamma:'auto'"]
    run("train", *pendulum, "-n", "512", *normalised)
    told = run("train", *pendulum, "-n", "512", *normalised, "-optimize", "--n-trials", "1")
    assert "Best trial" in told
