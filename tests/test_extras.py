"""What the core can do alone, and how what it lacks is told."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ottrpo.extras import EXTRA_OF, load, remedy

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# as if nothing but the core were installed
CORE_ALONE = f"""
import sys
from importlib.machinery import PathFinder

def core_only(name, path=None, target=None):
    hidden = name.partition(".")[0] in {set(EXTRA_OF)}
    return None if hidden else everything(name, path, target)

everything, PathFinder.find_spec = PathFinder.find_spec, core_only
"""


def core(program, folder):
    return subprocess.run(
        [sys.executable, "-c", CORE_ALONE + program], capture_output=True, text=True, cwd=folder
    )


def core_command(folder, *arguments):
    program = f"from ottrpo.cli import main; sys.exit(main({list(arguments)!r}))"
    return core(program, folder)


def test_every_extra_that_is_named_exists():
    assert set(EXTRA_OF.values()) <= set(PROJECT["optional-dependencies"])


def test_the_core_asks_for_nothing_that_is_large_but_numba():
    names = [requirement.partition(">")[0] for requirement in PROJECT["dependencies"]]
    heavy = {"jax", "torch", "stable-baselines3", "mujoco", "scipy", "matplotlib"}
    assert not heavy & set(names)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "CliffWalking-v1", "--steps", "2000", "--out", "run"],
        ["report", "tabular-default"],
        ["report", "tabular-default", "--html", "report.html"],
        ["compare", "ottrpo", "ppo"],
        ["list"],
    ],
)
def test_the_core_alone_trains_on_finite_problems_and_reports(arguments, tmp_path):
    done = core_command(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_doctor_finds_the_core_alone_healthy(tmp_path):
    done = core_command(tmp_path, "doctor")
    assert done.returncode == 0, done.stderr
    assert "jax is not installed: pip install 'ottrpo[deep]'" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "Hopper-v5"], "mujoco is not installed: pip install 'ottrpo[deep]'"),
        (["train", "CartPole-v1"], "jax is not installed: pip install 'ottrpo[deep]'"),
        (["train", "brax:ant"], "brax is not installed: pip install 'ottrpo[jaxenvs]'"),
        (
            ["train", "playground:CheetahRun"],
            "mujoco_playground is not installed: pip install 'ottrpo[playground]'",
        ),
        (
            ["train", "Taxi-v4", "--agent", "ppo"],
            "sb3_contrib is not installed: pip install 'ottrpo[sb3]'",
        ),
        (
            ["plot", "ottrpo", "ppo/tuned", "-o", "figure.pdf"],
            "matplotlib is not installed: pip install 'ottrpo[plot]'",
        ),
        (["list", "--agent", "ottrpo"], "jax is not installed: pip install 'ottrpo[deep]'"),
    ],
)
def test_what_is_missing_is_named_with_its_extra_in_one_line(arguments, told, tmp_path):
    done = core_command(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr


def test_a_setting_that_needs_more_than_the_core_says_so(tmp_path):
    setting = ["--agent", "wpo", "--set", "multiplier=scalar", "--out", "run"]
    done = core_command(tmp_path, "train", "CliffWalking-v1", *setting)
    assert done.returncode == 2
    assert done.stderr == "ottrpo: scipy is not installed: pip install 'ottrpo[scipy]'\n"


@pytest.mark.parametrize(
    "program",
    [
        "from ottrpo import OTTRPO",
        "from ottrpo.envs import Task",
        "from ottrpo.device import make_train",
    ],
)
def test_so_it_is_in_python(program, tmp_path):
    last = core(program, tmp_path).stderr.splitlines()[-1]
    assert "is not installed: pip install 'ottrpo[deep]'" in last


@pytest.mark.parametrize("agent", ["ottrpo.OTTRPO", "ottrpo.agents.sb3.PPO"])
def test_tensorboard_is_asked_for_before_training(agent, tmp_path):
    module, _, name = agent.rpartition(".")
    program = f"""
import sys
from importlib.machinery import PathFinder
hidden, everything = "tensorboard", PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: (
    None if name.partition(".")[0] == hidden else everything(name, path, target)
)
from {module} import {name}
{name}("MlpPolicy", "Pendulum-v1", tensorboard_log="logs")
"""
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path)
    told = "tensorboard is not installed: pip install 'ottrpo[tensorboard]'"
    assert done.stderr.splitlines()[-1] == f"ImportError: {told}"


def test_what_no_extra_brings_is_left_as_it_is():
    assert remedy(ModuleNotFoundError("No module named 'x'", name="x")) is None
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load("no_such_module", "name")
