"""The example programs run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
LESSONS = Path(__file__).parent.parent / "docs" / "lessons"


def run(name, *arguments, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", EXAMPLES / name, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "svg"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_solve_a_dual(tmp_path):
    told = run("solve_a_dual.py", folder=tmp_path)
    assert "spent 0.2000 of 0.2" in told
    assert "violation 0.0" in told


def test_train_on_tables(tmp_path):
    told = run("train_on_tables.py", folder=tmp_path)
    assert " 0 of them outside the trust region" in told
    assert "returns [-13.0, -13.0, -13.0, -13.0, -13.0]" in told


def test_shape_the_region(tmp_path):
    expert, binary, kept = run("shape_the_region.py", folder=tmp_path).splitlines()
    way, better = "15 steps ↑↑→→→→→→→→→→→↓↓;", "elsewhere -7.3"
    assert way in expert
    assert better not in expert
    assert "13 steps" in binary
    assert binary.endswith(better)
    assert way in kept
    assert kept.endswith(better)


@pytest.mark.slow
def test_train_with_callbacks(tmp_path):
    told = run("train_with_callbacks.py", "4000", folder=tmp_path)
    assert "'ot/violation': 0.0" in told


def test_every_example_is_run_and_listed():
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    here = Path(__file__).read_text()
    listed = (EXAMPLES / "README.md").read_text()
    assert programs
    assert all(f'"{name}"' in here and f"({name})" in listed for name in programs)


def test_simulate_a_task(tmp_path):
    assert " in the last (1 is upright)" in run("simulate_a_task.py", "2048", folder=tmp_path)


@pytest.mark.parametrize(
    ("lesson", "told"),
    [
        ("lesson_1_one_state.py", "violation 0.0"),
        ("lesson_2_the_cliff.py", "updates outside the region: 0"),
        pytest.param("lesson_3_deep.py", "the same action", marks=pytest.mark.slow),
    ],
)
def test_the_tutorials_run(lesson, told, tmp_path):
    assert told in run(LESSONS / lesson, folder=tmp_path)


def test_every_tutorial_is_run():
    here = Path(__file__).read_text()
    assert all(f'"{path.name}"' in here for path in LESSONS.glob("*.py"))


def test_deploy_a_policy(tmp_path):
    from ottrpo import OTTRPO
    from ottrpo.agents.export import export

    agent = OTTRPO("MlpPolicy", "Pendulum-v1", seed=0).learn(2048)
    export(agent, tmp_path / "policy.onnx")
    told = run("deploy_a_policy.py", "policy.onnx", "Pendulum-v1", folder=tmp_path)
    returned = agent.evaluate(1, deterministic=True, seed=0)[0]
    assert float(told.split()[1].replace(",", "")) == pytest.approx(returned, abs=1.0)


def test_train_on_a_device(tmp_path):
    told = run("train_on_a_device.py", "4096", folder=tmp_path)
    assert "   4,096 steps: return" in told
    assert (tmp_path / "swing.zip").exists()
