"""RL-Zoo's tables and commands. The Zoo is no dependency: a stand-in holds its tables, and where it
is installed the slow test trains, enjoys, goes on and tunes with the Zoo's own commands."""

import subprocess
import sys
from types import ModuleType

import pytest

from ottrpo import OTTRPO
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


def test_without_the_zoo_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rl_zoo3", None)
    with pytest.raises(ImportError, match="pip install rl_zoo3"):
        zoo.register()


@pytest.mark.slow
def test_train_enjoy_go_on_and_tune(tmp_path):
    pytest.importorskip("rl_zoo3")
    pytest.importorskip("pandas")  # for the Zoo's report of a search

    def run(*words):
        command = [sys.executable, "-m", "ottrpo.agents.zoo", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pendulum = ["--algo", "ottrpo", "--env", "Pendulum-v1"]
    several = ["--vec-env", "subproc", "--hyperparams", "n_envs:2", "n_steps:256"]
    run("train", *pendulum, "-n", "1024", *several)
    trained = tmp_path / "logs/ottrpo/Pendulum-v1_1/Pendulum-v1.zip"
    assert OTTRPO.load(trained).num_timesteps == 1024
    assert "Mean reward" in run("enjoy", *pendulum, "-f", "logs", "--no-render", "-n", "250")
    run("train", *pendulum, "-n", "512", "-i", str(trained), "--hyperparams", "n_steps:256")
    told = run("train", *pendulum, "-n", "512", "-optimize", "--n-trials", "1")
    assert "Best trial" in told
