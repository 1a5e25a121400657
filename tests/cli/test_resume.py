"""`ottrpo resume`, and what `ottrpo train` leaves behind for it."""

import errno
import json
import os
import signal
import sys
import threading
import types
from dataclasses import replace

import numpy as np
import pytest

from ottrpo.cli import main
from ottrpo.experiments import run as runner
from ottrpo.persistence.checkpoints import Checkpoints

STEPS, EVERY = 60_000, 4_000
UPDATES = "steps_per_update=1000"


def train(out, *arguments):
    asked = ["--steps", str(STEPS), "--seed", "2", "--set", UPDATES, "--out", str(out)]
    return main(["train", "Taxi-v4", *asked, "--checkpoint-every", str(EVERY), *arguments])


def logs(folder):
    return [
        [
            {k: v for k, v in json.loads(line).items() if not k.endswith("_seconds")}
            for line in (folder / name).read_text().splitlines()
        ]
        for name in ("metrics.jsonl", "evaluations.jsonl")
    ]


def assert_same(left, right):
    assert logs(left) == logs(right)
    assert (left / "agent.zip").read_bytes() == (right / "agent.zip").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert train(out) == 0
    return out


class Interrupted(BaseException):
    """Nothing catches it: as good as a kill, in one process."""


def interrupted(monkeypatch, work, after=40):
    """Do the work, but die right after that many updates have been recorded."""
    plain, seen = runner.Recorder.after_update, []

    def after_update(self, agent):
        plain(self, agent)
        seen.append(agent)
        if len(seen) == after:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(runner.Recorder, "after_update", after_update)
        with pytest.raises(Interrupted):
            work()


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_checkpoints_do_not_change_a_run_and_go_when_it_is_finished(whole, tmp_path):
    assert train(tmp_path / "plain", "--checkpoint-every", "0") == 0
    assert_same(tmp_path / "plain", whole)
    assert not (whole / "checkpoints").exists()
    assert not (whole / ".lock").exists()
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["checkpoints"] == {"every": EVERY, "mode": "exact", "reason": None}


def test_it_goes_on_from_the_last_checkpoint(whole, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    interrupted(monkeypatch, lambda: train(out))
    with open(out / "metrics.jsonl", "ab") as file:
        file.write(b'{"timestep": 12')  # and the disk was slow
    last = int(checkpoints(out)[-1][5:-4])
    capsys.readouterr()
    assert main(["resume", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"ottrpo (default) on Taxi-v4, seed 2, {STEPS:,} steps -> {out}" in told
    assert "metrics.jsonl ends in the middle of a line, which is dropped" in told
    assert f"going on from step {last:,} of {STEPS:,}" in told
    assert "score" in told
    assert_same(out, whole)
    assert main(["resume", str(out)]) == 0
    assert "finished, 60,000 steps; nothing to do" in capsys.readouterr().out


def test_a_run_can_be_gone_on_with_in_python(whole, tmp_path, monkeypatch):
    from ottrpo import TabularOTTRPO

    interrupted(monkeypatch, lambda: train(tmp_path / "run"))
    agent = TabularOTTRPO.resume(tmp_path / "run")
    agent.learn(agent.remaining_timesteps).save(tmp_path / "agent.zip")
    assert (tmp_path / "agent.zip").read_bytes() == (whole / "agent.zip").read_bytes()


def test_without_a_checkpoint_it_starts_again(whole, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    interrupted(monkeypatch, lambda: train(out), after=1)
    assert main(["resume", str(out)]) == 0
    assert "no checkpoint: it starts again from the beginning" in capsys.readouterr().out
    assert_same(out, whole)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    interrupted(monkeypatch, lambda: train(out))
    before, last = checkpoints(out)
    damaged = out / "checkpoints" / last
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="using the one of step"):
        assert main(["resume", str(out)]) == 0
    assert f"going on from step {int(before[5:-4]):,} of" in capsys.readouterr().out
    assert_same(out, whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(number, whole, tmp_path, monkeypatch, capsys):
    out, sent = tmp_path / "run", threading.Event()
    plain = Checkpoints.write

    def write(self, *arguments):
        path = plain(self, *arguments)
        if not sent.is_set():
            sent.set()
            os.kill(os.getpid(), number)
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", write)
        assert train(out) == 0
    told = capsys.readouterr().out
    assert f"to go on: ottrpo resume {out}" in told
    assert "score" not in told
    assert main(["resume", str(out)]) == 0
    assert_same(out, whole)


def test_a_full_disk_is_told_in_one_line_and_loses_nothing(whole, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    plain, written = Checkpoints.write, []

    def write(self, *arguments):
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoints/step-x.zip")
        written.append(plain(self, *arguments))
        return written[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", write)
        assert train(out) == 1
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "No space left on device" in complaint
    assert f"ottrpo resume {out}" in complaint
    assert main(["resume", str(out)]) == 0
    assert_same(out, whole)


def test_what_becomes_nan_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    from ottrpo.tabular.mdp import TableSimulator

    plain, played = TableSimulator.rollout, []

    def rollout(self, *arguments):
        batch = plain(self, *arguments)
        played.append(batch)
        batch.reward_t[-1] = np.nan if len(played) == 30 else batch.reward_t[-1]
        return batch

    with monkeypatch.context() as patch:
        patch.setattr(TableSimulator, "rollout", rollout)
        assert train(tmp_path / "run") == 1
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "Taxi-v4: environment 0 led to a reward of nan at step" in complaint
    assert main(["resume", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (lambda out: None, "there is no directory"),
        (lambda out: out.mkdir(), "is not a run"),
        (lambda out: _with_manifest(out, "{"), "not valid JSON"),
        (lambda out: _with_manifest(out, '{"agent": "ottrpo"}'), "does not describe a run"),
    ],
)
def test_what_is_no_run_is_refused(prepare, complaint, tmp_path, capsys):
    prepare(tmp_path / "run")
    assert main(["resume", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert complaint in told
    assert told.count("\n") == 1


def _with_manifest(out, text):
    out.mkdir()
    (out / "manifest.json").write_text(text)


def test_logs_that_were_changed_are_refused(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    interrupted(monkeypatch, lambda: train(out))
    (out / "metrics.jsonl").write_text("")
    assert main(["resume", str(out)]) == 2
    assert "somebody has changed it" in capsys.readouterr().err


def test_one_process_at_a_time(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    interrupted(monkeypatch, lambda: train(out))
    from ottrpo.persistence.lock import DirectoryLock

    with DirectoryLock(out):
        assert main(["resume", str(out)]) == 2
    assert f"is in use by process '{os.getpid()}'" in capsys.readouterr().err.replace(
        str(os.getpid()), f"'{os.getpid()}'"
    )


def test_negative_numbers_of_steps_are_refused(tmp_path, capsys):
    assert train(tmp_path / "run", "--checkpoint-every", "-1") == 2
    assert "--checkpoint-every must not be negative, got -1" in capsys.readouterr().err


def test_a_job_goes_on_where_it_was(whole, tmp_path, monkeypatch):
    from ottrpo.experiments.training import begin_or_go_on

    out = tmp_path / "run"
    spec = runner.plan_run("Taxi-v4", seed=2, steps=STEPS, settings={"steps_per_update": 1000})
    interrupted(monkeypatch, lambda: begin_or_go_on([spec], [out], EVERY))
    assert checkpoints(out)
    begin_or_go_on([spec], [out], EVERY)
    assert_same(out, whole)
    when = (out / "agent.zip").stat().st_mtime_ns
    begin_or_go_on([spec], [out], EVERY)  # finished: left alone
    assert (out / "agent.zip").stat().st_mtime_ns == when
    with pytest.raises(ValueError, match="holds another run"):
        begin_or_go_on([replace(spec, seed=9)], [out], EVERY)


def test_other_arithmetic_than_when_it_began_is_told(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    interrupted(monkeypatch, lambda: train(out))
    capsys.readouterr()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert main(["resume", str(out)]) == 0
    told = capsys.readouterr().out
    assert "other arithmetic than when it began, so numbers may differ: XLA_FLAGS  -> --xla" in told


def test_what_changes_arithmetic_stands_in_the_manifest(monkeypatch):
    from ottrpo.experiments import provenance

    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16")
    monkeypatch.delitem(sys.modules, "jax", raising=False)  # once loaded, it has read them
    plain = provenance.arithmetic()
    assert plain["JAX_ENABLE_X64"] == "False"
    assert plain["JAX_DEFAULT_MATMUL_PRECISION"] == "bfloat16"
    jax = types.SimpleNamespace(config=types.SimpleNamespace(jax_enable_x64=True))
    monkeypatch.setitem(sys.modules, "jax", jax)  # as if a program had said so
    assert provenance.arithmetic()["JAX_ENABLE_X64"] == "True"


@pytest.mark.parametrize("loaded", [False, True])
def test_what_changes_arithmetic_is_the_same_before_and_after_jax_is_loaded(monkeypatch, loaded):
    from ottrpo.experiments import provenance

    for name in provenance.JAX_ARITHMETIC:
        monkeypatch.delenv(name, raising=False)
    if not loaded:
        monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert provenance.arithmetic().items() >= provenance.JAX_ARITHMETIC.items()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_DISABLE_JIT", "1"),  # what is not compiled whole rounds otherwise
        ("ATEN_CPU_CAPABILITY", "default"),
        ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2"),
        ("NUMBA_DISABLE_JIT", "1"),
    ],
)
def test_what_libraries_are_told_from_outside_stands_there_too(monkeypatch, name, value):
    from ottrpo.experiments import provenance

    monkeypatch.delitem(sys.modules, "jax", raising=False)  # as in a process that begins
    before = provenance.arithmetic()
    monkeypatch.setenv(name, value)
    changed = {key for key, told in provenance.arithmetic().items() if told != before[key]}
    assert changed == {name}


def test_processors_of_one_name_are_told_apart_by_their_instructions(tmp_path, monkeypatch, capsys):
    from ottrpo.experiments import provenance

    cpu = "processor : 0\nmodel name : One\nflags : fpu {} sse\nmodel name : Two\n"
    told = cpu.format("avx2 fma")
    monkeypatch.setattr(provenance.Path, "read_text", lambda *_, **__: told)
    narrow = provenance.arithmetic()
    assert (narrow["processor"], narrow["instructions"]) == ("One", "avx2 fma")
    monkeypatch.undo()
    out = tmp_path / "run"
    monkeypatch.setattr(provenance, "arithmetic", lambda: narrow)
    interrupted(monkeypatch, lambda: train(out))
    capsys.readouterr()
    monkeypatch.setattr(
        provenance, "arithmetic", lambda: narrow | {"instructions": "avx2 avx512f fma"}
    )
    assert main(["resume", str(out)]) == 0
    assert "so numbers may differ: instructions avx2 fma -> avx2 avx512f" in capsys.readouterr().out
