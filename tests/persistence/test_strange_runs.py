"""The directory of a run, as a stranger may have prepared it: resuming and evaluating are safe."""

import json
import os
import shutil

import pytest

from ottrpo.cli import main
from ottrpo.experiments import run as runner
from ottrpo.results.run_directory import RunDirectory


class Enough(Exception):
    """Training has gone on for long enough."""


class Impatient:
    """Stops a training in the hard way once it has two checkpoints."""

    def __init__(self, folder):
        self.folder = folder

    def update(self, timestep):
        if len(list(self.folder.glob("step-*.zip"))) == 2:
            raise Enough

    def evaluation(self, record):
        pass


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "honest"
    spec = runner.plan_run("FrozenLake-v1", steps=60_000)
    agent = runner.build_agent(spec)
    directory = RunDirectory.create(path, runner.manifest(spec, agent, 5_000))
    with pytest.raises(Enough):
        runner.train(spec, agent, directory, Impatient(directory.checkpoint_folder))
    return path


@pytest.fixture
def run(interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "run")
    return tmp_path / "run"


def told(verb, run, capsys, *options):
    """The one line that the verb says before it exits with 2."""
    capsys.readouterr()
    assert main([verb, str(run), *options]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.strip().isprintable()
    assert err.startswith("ottrpo: ")
    return err


def rewritten(run, **changes):
    path = run / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in manifest.items() if value is not ...}
    path.write_text(json.dumps(kept))


MANIFESTS = [
    {"agent": "\x1b[2J"},
    {"config": "\x1b]0;title\x07"},
    {"steps": True},
    {"environment": 5},
    {"environment": "Nonsense-v0"},
    {"environment": "evil_module:Env-v0"},
    {"agent_key": "os.system"},
    {"agent_key": ["ottrpo"]},
    {"settings": ...},
    {"settings": [1]},
    {"settings": {"evil": 1}},
    {"settings": {"radius": {"start": "import os"}}},
    {"steps": "many"},
    {"steps": None},
    {"seed": -1},
    {"seed": [1]},
    {"protocol": {"evil": 1}},
    {"protocol": None},
    {"checkpoints": [1]},
    {"checkpoints": {"every": "x", "mode": "exact", "reason": None}},
    {"checkpoints": {"every": 0, "mode": "exact", "reason": None}},
    {"versions": 3},
]


@pytest.mark.parametrize("changes", MANIFESTS, ids=str)
def test_a_manifest_that_was_tampered_with(changes, run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    rewritten(run, **changes)
    told("resume", run, capsys)
    told("evaluate", run, capsys)
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert before.keys() == after.keys()
    assert all(after[path] == before[path] for path in before if path.name != "manifest.json")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[" * 100_000, '{"steps": NaN}', '{"a": 1, "a": 2}', "\0"]
)
def test_a_manifest_that_is_none(text, run, capsys):
    (run / "manifest.json").write_text(text)
    told("resume", run, capsys)
    told("evaluate", run, capsys)


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl", "agent.png", "checkpoints"])
def test_links_don_t_let_a_resumed_run_write_elsewhere(name, run, tmp_path, capsys):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(precious)
    assert "is a symbolic link" in told("resume", run, capsys)
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("name", ["manifest.json", "metrics.jsonl", "evaluations.jsonl", "pipe"])
def test_a_pipe_does_not_hold_us_up(name, run, capsys):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    told("resume", run, capsys)


def test_damaged_checkpoints_and_logs(run, capsys):
    older, newer = sorted((run / "checkpoints").iterdir())
    newer.write_bytes(newer.read_bytes()[:1000])
    step = int(older.name[5:-4])
    with pytest.warns(UserWarning, match=f"ends too early; using the one of step {step:,} before"):
        assert main(["resume", str(run)]) == 0
    assert f"going on from step {step:,}" in capsys.readouterr().out


def test_no_good_checkpoint_is_an_error_and_not_a_new_start(run, capsys):
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"")
    assert "no checkpoint in" in told("resume", run, capsys)


def test_the_module_of_an_environment_is_imported_on_trust_only(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "trusted_module.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Lake-v0', 'gymnasium.envs.toy_text:FrozenLakeEnv',"
        " max_episode_steps=100)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rewritten(run, environment="trusted_module:Lake-v0")
    assert "must not import 'trusted_module'" in told("resume", run, capsys)
    assert main(["resume", str(run), "--trust"]) == 0
    assert main(["evaluate", str(run), "--trust", "--json"]) == 0


def test_results_and_configurations_that_are_nested_deeply(tmp_path, capsys):
    study = tmp_path / "results" / "control"
    study.mkdir(parents=True)
    (study / "manifest.json").write_text("[" * 100_000)
    assert main(["report", "control", "--results", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["train", "FrozenLake-v1", "--set", "radius=" + "[" * 100_000]) == 2
    assert capsys.readouterr().err.count("\n") == 1
