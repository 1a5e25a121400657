"""`ottrpo train` in environments of JAX: ordinary runs, several seeds in one program."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from ottrpo import OTTRPO
from ottrpo.cli import main
from ottrpo.device import fleet
from ottrpo.envs.functional import adapters
from ottrpo.experiments import jobs, together, training
from ottrpo.experiments.study import Cell, Study
from ottrpo.results.run_directory import RunDirectory

from . import toy

SETTINGS = [
    *("n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2", "policy_kwargs.net_arch=[8]"),
]
UPDATE = 4 * 8
STEPS = 12 * UPDATE


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.setattr(adapters, "Toy", None, raising=False)
    toy.install(monkeypatch.setattr)


def train(env, out, *options):
    steps = ["--steps", str(STEPS), "--checkpoint-every", str(4 * UPDATE)]
    return main(["train", env, "--out", str(out), *steps, *options, "--set", *SETTINGS])


def timeless(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.endswith("seconds")} for r in records]


def same_runs(one, other):
    assert (one / "agent.zip").read_bytes() == (other / "agent.zip").read_bytes()
    for log in ("metrics.jsonl", "evaluations.jsonl"):
        assert timeless(one / log) == timeless(other / log)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapters, "Toy", None, raising=False)
        toy.install(patch.setattr)
        assert train("toy:Pendulum", out, "--seeds", "2") == 0
    return out


def test_each_seed_is_an_ordinary_run(trained, capsys):
    for seed in (0, 1):
        run = RunDirectory.open(trained / f"seed{seed}")
        assert run.finished
        assert (run.manifest["seed"], run.manifest["config"]) == (seed, "device")
        metrics = run.metrics()
        assert [record["timestep"] for record in metrics] == [UPDATE * i for i in range(1, 13)]
        assert all(record["ot/spent"] <= record["ot/radius"] for record in metrics)
        evaluations = run.evaluations()
        assert len(evaluations) == 2 * len(run.manifest["protocol"]["percents"])
        assert all(len(record["returns"]) == 64 for record in evaluations)
        assert not run.checkpoint_folder.exists()
    seeds = [trained / f"seed{seed}" for seed in (0, 1)]
    assert RunDirectory.open(seeds[0]).metrics() != RunDirectory.open(seeds[1]).metrics()
    assert main(["compare", *map(str, seeds)]) == 0
    agent = OTTRPO.load(seeds[0])
    assert agent.num_timesteps == STEPS
    action, _ = agent.predict(np.zeros((5, 3)), deterministic=True)
    assert action.shape == (5, 1)


def test_the_host_evaluates_what_the_device_has_trained(trained, capsys):
    """The same policy in the same environment, a step at a time: about the same returns."""
    assert main(["evaluate", str(trained / "seed0"), "--episodes", "40", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    last = [r for r in RunDirectory.open(trained / "seed0").evaluations() if r["deterministic"]][-1]
    spread = np.hypot(told["std"] / 40**0.5, np.std(last["returns"]) / 8)
    assert abs(told["mean"] - np.mean(last["returns"])) < 4 * spread


def test_killed_and_resumed_it_ends_in_the_same_bits(trained, tmp_path, capsys):
    out = tmp_path / "killed"
    command = [sys.executable, "-m", toy.__name__, "2", "train", "toy:Pendulum", "--out", str(out)]
    command += ["--steps", str(STEPS), "--checkpoint-every", str(4 * UPDATE), "--seeds", "2"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, "--set", *SETTINGS], capture_output=True, text=True, env=os.environ | path
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with open(out / "seed1" / "metrics.jsonl", "ab") as file:
        file.write(b'{"timestep": 12')  # and the disk was slow
    assert main(["resume", str(out / "seed1")]) == 0
    told = capsys.readouterr().out
    assert "metrics.jsonl ends in the middle of a line, which is dropped" in told
    assert f"going on from step {8 * UPDATE:,} of {STEPS:,}" in told
    for seed in ("seed0", "seed1"):
        same_runs(trained / seed, out / seed)


def test_what_is_no_number_ends_its_own_run_by_name(tmp_path, capsys):
    assert train("toy:Breaking", tmp_path / "runs", "--seeds", "4") == 1
    told = capsys.readouterr().err
    ended = [path.parent.name for path in sorted((tmp_path / "runs").glob("*/agent.zip"))]
    broken = [seed for seed in range(4) if f"seed{seed}" not in ended]
    assert 0 < len(broken) < 4
    for seed in broken:
        assert f"toy:Breaking, seed {seed}: reward that is not finite in the update" in told
        run = RunDirectory.open(tmp_path / "runs" / f"seed{seed}")
        assert len(run.metrics()) < 12


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fleet, "memory_of", lambda device: 1000)
    assert train("toy:Pendulum", tmp_path / "run") == 2
    assert "fewer n_envs" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["toy:Pendulum", "--agent", "ppo"],
            "'ppo' is not an agent that is trained in environments of JAX",
        ),
        (["toy:Pendulum", "--seeds", "0"], "seeds"),
        (["Pendulum-v1", "--seeds", "2"], "--seeds is for environments of JAX"),
        (["toy:Nothing", "--steps", "100"], "toy:Nothing"),
    ],
)
def test_mistakes_are_one_line(arguments, told, tmp_path, capsys):
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert told in line
    assert not (tmp_path / "run").exists()


def test_runs_that_belong_together_stay_together(trained, tmp_path):
    run = RunDirectory.open(trained / "seed0")
    assert [each.path.name for each in together.found(run)] == ["seed0", "seed1"]
    for name, names in (("away", ["seed0", "seed1"]), ("hostile", ["seed0", "../seed1"])):
        manifest = dict(run.manifest) | {together.TOGETHER: names}
        with pytest.raises(ValueError, match=r"not there|does not say"):
            together.found(RunDirectory(tmp_path / name, manifest))


def test_a_study_places_the_seeds_of_a_cell_as_one_program(tmp_path, trained, capsys):
    from ottrpo.experiments.spec import parse_overrides

    cell = Cell(
        environment="toy:Pendulum",
        config="device",
        protocol="device",
        steps=STEPS,
        seeds=2,
        settings=parse_overrides(SETTINGS),
    )
    study = Study(name="toys", description="pendulums", cells=(cell,), batch="seeds")
    asked = jobs.jobs_of(study, tmp_path)
    (job,) = jobs.batched(asked)
    assert [each.spec.seed for each in (job, *job.others)] == [0, 1]
    specs, paths = [each.spec for each in asked], [each.path for each in asked]
    training.begin_or_go_on(specs, paths)
    assert [each.state() for each in asked] == ["finished", "finished"]
    assert "GiB" in capsys.readouterr().out
    training.begin_or_go_on(specs, paths)  # finished: left alone
    with pytest.raises(ValueError, match="holds another run"):
        training.begin_or_go_on([replace(each, steps=1) for each in specs], paths)
    for seed in ("seed0", "seed1"):
        same_runs(trained / seed, job.path.parent / seed)
    with pytest.raises(ValueError, match="batch is for environments of JAX"):
        Study(name="host", description="x", cells=(Cell(environment="Hopper-v5"),), batch="seeds")
