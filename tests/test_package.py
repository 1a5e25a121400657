"""The package as a user meets it: quick to import, honest names, a wheel that works."""

import shutil
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import ottrpo

ROOT = Path(__file__).parent.parent
HEAVY = ("numpy", "scipy", "jax", "torch", "numba", "gymnasium", "matplotlib", "tyro", "rich")


def best_of_three(program):
    """Seconds of the quickest run, the interpreter's own start taken off."""

    def seconds(code):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return time.perf_counter() - began

    return min(seconds(program) for _ in range(3)) - min(seconds("pass") for _ in range(3))


@pytest.mark.parametrize(
    "program", ["import ottrpo", "from ottrpo.cli import main; main(['--help'])"]
)
def test_importing_and_asking_for_help_load_nothing_heavy(program):
    check = f"{program}; import sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert best_of_three(program) < 0.25  # well under half a second, on a busy machine too


def test_the_version_stands_in_one_place_and_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == ottrpo.__version__
    assert f"version: {ottrpo.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_public_names_load_when_used():
    for name, home in ottrpo._HOME.items():
        assert getattr(ottrpo, name) is getattr(import_module(home), name)
    assert set(dir(ottrpo)) == set(ottrpo.__all__)


def test_an_unknown_name_is_refused_with_what_there_is():
    with pytest.raises(AttributeError, match="no attribute 'Ottrpo'; known: "):
        ottrpo.Ottrpo  # noqa: B018


def test_constraints_are_exact_and_name_no_place():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(pin.count("==") == 1 and "/" not in pin and "+" not in pin for pin in pins)
    assert "torch==2.13.0" in pins


@pytest.mark.slow
def test_the_wheel_installs_into_a_clean_environment_and_answers(tmp_path):
    def run(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)

    # a copy: building leaves a folder behind, which a later build would take for source
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(source))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python, ottrpo_command = (tmp_path / "venv" / "bin" / name for name in ("python", "ottrpo"))
    constraints = ROOT / "constraints.txt"
    run(str(python), "-m", "pip", "install", "--quiet", "-c", str(constraints), str(wheel))
    assert "solve" in run(str(ottrpo_command), "--help").stdout
    assert "Taxi-v4" in run(str(ottrpo_command), "list").stdout
    problem = tmp_path / "problem.json"
    problem.write_text(
        '{"weight_r": [1], "gain_rk": [[0, 1]], "cost_rk": [[0, 1]], "radius": 0.25}'
    )
    assert "0.75" in run(str(ottrpo_command), "solve", str(problem)).stdout
    assert (
        "-14"
        in run(
            str(python),
            "-c",
            "from ottrpo.experiments.published import trained_score as t;"
            "print(t('CliffWalking-v1', 'ottrpo').score)",
        ).stdout
    )
