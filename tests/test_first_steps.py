"""Someone who has the first steps only gets where they lead: every step of the page, shortened."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "first_steps.md").read_text()
pytestmark = pytest.mark.slow

OWN_ENVIRONMENT = """
import gymnasium


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 1).astype("float32")
        return self.at, {}

    def step(self, action):
        self.at = (self.at + 0.2 * action).clip(-1, 1).astype("float32")
        return self.at, -float(abs(self.at[0])), False, False, {}


gymnasium.register("Corridor-v0", Corridor, max_episode_steps=32)
"""


def ottrpo(folder, *arguments):
    command = [sys.executable, "-m", "ottrpo.cli", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(verb):
    """What the page says after ``ottrpo VERB``, without what it is for."""
    return [
        re.split(r"\s{3,}", line)[0].split()
        for line in re.findall(rf"^ottrpo {verb} (.*)$", PAGE, re.M)
    ]


def test_the_page_s_steps_lead_where_they_say(tmp_path):
    told = ottrpo(tmp_path, "train", *commands("train")[0], "--out", "cliff")
    assert "score -13.00" in told
    assert json.loads(ottrpo(tmp_path, "evaluate", "cliff", "--json"))["mean"] == -13.0
    (tmp_path / "my_module.py").write_text(OWN_ENVIRONMENT)
    ottrpo(tmp_path, "train", "my_module:Corridor-v0", "--steps", "4096", "--out", "own")
    assert (tmp_path / "own" / "agent.zip").exists()


def test_two_settings_become_a_figure(tmp_path):
    (study,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "regions.toml").write_text(study)
    ((name, *options),) = commands("reproduce")
    assert name == "regions.toml"
    ottrpo(tmp_path, "reproduce", name, *options, "--seeds", "2", "--steps", "4096")
    for verb in ("compare", "plot", "report"):
        (arguments,) = commands(verb)
        assert ottrpo(tmp_path, verb, *arguments)
    assert (tmp_path / "radius.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "report.html").stat().st_size > 10_000
