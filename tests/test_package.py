"""The package as a user meets it: quick to import, honest names, a wheel that works."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import ottrpo
from tests.installs import extras
from tests.lock import write_versions

ROOT = Path(__file__).parent.parent
HEAVY = ("numpy", "scipy", "jax", "torch", "numba", "gymnasium", "matplotlib", "tyro", "rich")


def quickest(*programs):
    """Seconds of the quickest of five runs of each, in turns, as others use the machine too."""
    seconds = []
    for _ in range(5):
        for program in programs:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
    return [min(seconds[i :: len(programs)]) for i in range(len(programs))]


@pytest.mark.parametrize(
    "program", ["import ottrpo", "from ottrpo.cli import main; main(['--help'])"]
)
def test_importing_and_asking_for_help_load_nothing_heavy(program):
    check = f"{program}; import sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    ours, numpy_and_gymnasium = quickest(program, "import numpy, gymnasium")
    assert ours < numpy_and_gymnasium


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


def test_the_sizes_that_pages_tell_are_those_that_were_measured():
    page = (ROOT / "docs" / "first_steps.md").read_text()
    measured = json.loads((ROOT / "results" / "measurements" / "install.json").read_text())
    assert set(extras()) == set(measured["installs"])
    for extra, found in measured["installs"].items():
        size = found["bytes"] / 1e6
        told = f"{size:.0f} MB" if size < 1000 else f"{size / 1000:.1f} GB"
        name = "none" if extra == "core" else f"`{extra}`"
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert row.endswith(f" | {told} | {found['seconds']:.0f} |")
    core = measured["installs"]["core"]["bytes"] / 1e6
    assert f"report; {core:.0f} MB" in (ROOT / "README.md").read_text()
    assert core < 400


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, and a clean environment of the Python that WHEEL_PYTHON names."""
    folder = tmp_path_factory.mktemp("wheel")
    # a copy: building leaves a folder behind, which a later build would take for source
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    (source / "docs").mkdir()
    for name in ("pyproject.toml", "docs/package.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder / "dist")]
    run(folder, *build, str(source))
    (built,) = (folder / "dist").glob("*.whl")
    run(folder, os.environ.get("WHEEL_PYTHON", sys.executable), "-m", "venv", str(folder / "venv"))
    return built


def run(folder, *command, fails=False):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean)
    assert bool(done.returncode) == fails, done.stderr
    return done.stdout + done.stderr


def install(wheel, extras=""):
    """Install the wheel and return the command to run what it brought."""
    binaries = wheel.parent.parent / "venv" / "bin"
    # the exact versions are those of one Python; others take what there is, and CPU torch as there
    pinned = run(wheel.parent, str(binaries / "python"), "-c", "import sys; print(sys.version)")
    pins = wheel.parent / "versions.txt"
    pins.write_text("torch==2.13.0\n")
    if pinned.startswith("3.11"):
        write_versions(pins)
    pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "-c", str(pins)]
    run(wheel.parent, *pip, f"{wheel}{extras}")
    return str(binaries / "ottrpo")


def disk_use(folder):
    """Bytes of an environment, pip and all that is compiled included."""
    found = run(folder, "du", "--summarize", "--block-size=1", str(folder))
    return int(found.split()[0])


@pytest.mark.slow
def test_the_wheel_alone_trains_reports_and_says_what_it_lacks(wheel, tmp_path):
    ottrpo_command = install(wheel)
    assert "solve" in run(tmp_path, ottrpo_command, "--help")
    assert "Taxi-v4" in run(tmp_path, ottrpo_command, "list")
    problem = tmp_path / "problem.json"
    problem.write_text(
        '{"weight_r": [1], "gain_rk": [[0, 1]], "cost_rk": [[0, 1]], "radius": 0.25}'
    )
    assert "0.75" in run(tmp_path, ottrpo_command, "solve", str(problem))
    told = run(tmp_path, ottrpo_command, "train", "CliffWalking-v1", "--steps", "1e5")
    assert "score -13.00" in told
    assert "paper -14" in told
    assert "Hopper-v5" in run(tmp_path, ottrpo_command, "report", "control")
    run(tmp_path, ottrpo_command, "report", "--html", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1e6
    assert disk_use(Path(ottrpo_command).parent.parent) < 400e6
    told = run(tmp_path, ottrpo_command, "train", "Hopper-v5", fails=True)
    assert "pip install 'ottrpo[deep]'" in told


@pytest.mark.slow
def test_the_wheel_with_the_deep_agents_trains_hopper(wheel, tmp_path):
    ottrpo_command = install(wheel, "[deep]")
    told = run(tmp_path, ottrpo_command, "train", "Hopper-v5", "--steps", "4096")
    assert "learning curve:" in told
    run(tmp_path, ottrpo_command, "doctor")
