"""Someone who has the first steps only gets where they lead: every step of the page, shortened.

Install, train, watch, an environment and a cost of one's own, save, load, resume, tune, export, ten
seeds, compare two settings, a figure as PDF. `test_package` does the installing.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "first_steps.md").read_text()
FILES = {
    re.match(r"# (\S+)", text)[1]: text
    for text in re.findall(r"```\w+\n(# \S+\n.*?)```", PAGE, re.S)
}
pytestmark = pytest.mark.slow


def python(folder, *arguments):
    # films are drawn without a screen
    environment = {"MUJOCO_GL": "egl"} | dict(os.environ)
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# as the installed command does it: `python -m` would find the modules of the folder by itself
COMMAND = ("-P", "-c", "import sys; from ottrpo.cli import main; sys.exit(main())")


def ottrpo(folder, *arguments):
    process = python(folder, *COMMAND, *arguments)
    told, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return told


def commands(verb, about=""):
    """What the page says after ``ottrpo VERB``, without what it is for."""
    lines = re.findall(rf"^ottrpo {verb} (.*)$", PAGE, re.M)
    return [re.split(r"\s{3,}", line)[0].split() for line in lines if about in line]


@pytest.fixture
def folder(tmp_path):
    """An empty one, but for the files that the page shows."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_page_shows_every_file_that_it_names():
    assert set(FILES) == {"corridor.py", "sides.py", "regions.toml"}


def test_a_table_is_trained(folder):
    told = ottrpo(folder, "train", *commands("train", "Cliff")[0], "--out", "cliff")
    assert "score -13.00" in told
    assert json.loads(ottrpo(folder, "evaluate", "cliff", "--json"))["mean"] == -13.0


def test_hopper_is_trained_interrupted_resumed_watched_and_deployed(folder):
    (_, *options), *_ = commands("train", "Hopper-v5 --seed")
    training = python(
        folder,
        *COMMAND,
        "train",
        "Hopper-v5",
        *options,
        "--steps",
        "12288",
    )
    metrics = folder / "hopper" / "metrics.jsonl"
    while training.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    training.send_signal(signal.SIGINT)
    told, complaint = training.communicate()
    assert training.returncode == 0, complaint
    assert "ottrpo resume hopper" in told
    assert not (folder / "hopper" / "agent.zip").exists()  # else it was over before
    assert "learning curve:" in ottrpo(folder, "resume", "hopper")

    (evaluate,) = commands("evaluate", "hopper")
    evaluate[evaluate.index("100")] = "2"
    assert json.loads(ottrpo(folder, "evaluate", *evaluate, "--json"))["episodes"] == 2
    (watch,) = commands("watch")
    ottrpo(folder, "watch", *watch, "--steps", "20")
    assert (folder / "hopper.gif").read_bytes().startswith(b"GIF8")
    (export,) = commands("export")
    told = ottrpo(folder, "export", *export)
    assert float(re.search(r"differs from predict by at most (\S+)", told)[1]) < 1e-3

    import onnxruntime

    from ottrpo import OTTRPO

    agent = OTTRPO.load(folder / "hopper" / "agent.zip")
    seen = np.random.default_rng(0).normal(size=(1000, 11))
    (action,) = onnxruntime.InferenceSession(folder / export[1]).run(None, {"observation": seen})
    assert action == pytest.approx(agent.predict(seen, deterministic=True)[0], abs=1e-4)


def test_the_program_on_the_page_trains_saves_loads_and_acts(folder):
    (program,) = re.findall(r"```python\n(from ottrpo import OTTRPO\n.*?)```", PAGE, re.S)
    begin = "import numpy\nobservation = numpy.zeros(11)\n"
    shorter = program.replace("1_000_000", "2048")
    assert shorter != program
    process = python(folder, "-c", f"{begin}{shorter}print(action.shape)")
    told, complaint = process.communicate()
    assert process.returncode == 0, complaint
    assert told.endswith("(3,)\n")
    assert (folder / "hopper.zip").exists()


def test_an_environment_and_a_cost_of_one_s_own(folder):
    (train,) = commands("train", "--out corridor-run")
    ottrpo(folder, "train", *train)
    (evaluate,) = commands("evaluate", "corridor-run")
    learnt = json.loads(ottrpo(folder, "evaluate", *evaluate, "--json"))["mean"]
    assert learnt > -5  # who stands still has about -16, the best about -1.5
    process = python(folder, "sides.py")
    told, complaint = process.communicate()
    assert (process.returncode, told) == (0, "[-13.]\n"), complaint


def test_settings_are_searched_for_and_used(folder):
    (tune,) = commands("tune")
    shorter = {"20": "2", "2e4": "2048"}
    tune = [shorter.get(word, word) for word in tune]
    ottrpo(folder, "tune", *tune)
    assert "2 done before" in ottrpo(folder, "tune", *tune)
    (train,) = commands("train", "--config corridor.toml")
    train = [shorter.get(word, word) for word in train]
    ottrpo(folder, "train", *train, "--out", "tuned")
    assert json.loads((folder / "tuned" / "manifest.json").read_text())["config"] == "corridor"


def test_ten_seeds_of_two_settings_become_a_figure(folder):
    ((name, *options),) = commands("reproduce")
    assert name == "regions.toml"
    study = folder / name
    study.write_text(f'protocol = "quick"\n{study.read_text()}')  # evaluated less often
    told = ottrpo(folder, "reproduce", name, *options, "--steps", "2048")
    assert "[20/20, " in told  # ten seeds of each
    for verb in ("compare", "plot", "report"):
        (arguments,) = commands(verb)
        assert ottrpo(folder, verb, *arguments)
    assert (folder / "radius.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / "report.html").stat().st_size > 10_000
