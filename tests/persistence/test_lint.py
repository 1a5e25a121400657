"""The lint of `make check` catches what it is for, and the package is clean."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.persistence import lint

ROOT = Path(__file__).parent.parent.parent
PLANTED = {
    "import pickle": "pickle",
    "import cloudpickle as c": "cloudpickle",
    "from dill import loads": "dill",
    "def f():\n    from joblib import load": "joblib",
    "import marshal, shelve": "marshal",
    "import yaml": "yaml",
    "import builtins": "builtins",
    "x = eval('1')": "eval",
    "exec(text)": "exec",
    "f = compile": "compile",
    "__import__('os')": "__import__",
    "import torch\ntorch.load(path)": "torch.load",
    "import torch as t\nread = t.load": "torch.load",
    "from torch import load as read": "torch.load",
    "import torch\ngetattr(torch, 'load')(path)": "torch.load",
    "import numpy as np\nnp.load(path)": "numpy.load",
    "from numpy import load": "numpy.load",
    "loader(path, allow_pickle=True)": "allow_pickle",
    "from importlib import import_module\nimport_module('pickle')": "pickle",
    "import importlib\nimportlib.import_module('dill')": "dill",
    "from stable_baselines3 import PPO\nPPO.load(path)": "stable_baselines3.PPO.load",
    "import sb3_contrib\nsb3_contrib.TRPO.load(path)": "sb3_contrib.TRPO.load",
    "from stable_baselines3.common.vec_env import VecNormalize as V\nV.load(a, b)": "V",
    "from stable_baselines3.common.save_util import load_from_pkl": "save_util",
    "class A(B):\n    def load(self, p):\n        return super().load(p)": "super().load",
    "class A:\n    def f(self):\n        return self.x.__reduce__()": "__reduce__",
    "import importlib.util\nimportlib.util.spec_from_file_location('a', p)": "spec_from_file",
}


@pytest.mark.parametrize("source", PLANTED)
def test_a_planted_violation_is_caught(source):
    found = lint.violations(source, "planted.py")
    assert found
    assert all(line.startswith("planted.py:") for line in found)
    assert any(PLANTED[source] in line for line in found)


@pytest.mark.parametrize(
    "source",
    [
        "import json, re\njson.loads(t)\nre.compile(p)",
        "import torch\ntorch.save\nmodel.load_state_dict(s)",
        "from ottrpo import OTTRPO\nOTTRPO.load(path)",
        "from safetensors.numpy import load\nload(content)",
        "from importlib import import_module\nimport_module(name)",
        "import numpy as np\nnp.frombuffer(b)\nnp.loadtxt(f)",
    ],
)
def test_what_reads_plain_data_is_left_alone(source):
    assert lint.violations(source) == []


def test_the_package_is_clean_but_for_the_module_that_asks_for_trust(tmp_path, capsys):
    assert lint.main([str(ROOT / "src")]) == 0
    foreign = (ROOT / "src" / lint.ALLOWED).read_text()
    assert lint.violations(foreign), "nothing there to allow"
    assert "pickle" not in "".join(  # it is the only one that even names the function
        path.read_text()
        for path in (ROOT / "src").rglob("*.py")
        if "pickle.load" in path.read_text() and not path.as_posix().endswith(lint.ALLOWED)
    )
    (tmp_path / "a.py").write_text("import pickle\n")
    assert lint.main([str(tmp_path)]) == 1
    assert "a.py:1: pickle" in capsys.readouterr().out
    assert lint.main([str(tmp_path / "nothing")]) == 1


def test_make_check_runs_both_lints():
    check = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    assert "python -m tests.persistence.lint src" in check
    assert "ruff check ." in check


def test_ruff_catches_the_plain_ways_too(tmp_path):
    planted = ROOT / "src" / "ottrpo" / "planted.py"  # only a name: it is read from a pipe
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename"]
    for source, rule in (
        ("import pickle\nx = pickle.loads(b'')\n", "S301"),
        ("import marshal\nx = marshal.loads(b'')\n", "S302"),
        ("x = eval(input())\n", "S307"),
        ("exec(input())\n", "S102"),
    ):
        done = subprocess.run(
            [*command, str(planted), "-"], input=source, capture_output=True, text=True, cwd=ROOT
        )
        assert rule in done.stdout
