"""Runs on a real Ray cluster of two nodes: the same numbers, also when a worker or a node dies."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from result_tables import without_times
from tests.persistence.faulty_disk import FaultyDisk, Killed

from ottrpo.cli import main
from ottrpo.experiments import cluster
from ottrpo.experiments.jobs import jobs_of
from ottrpo.experiments.pool import News, run_jobs
from ottrpo.experiments.run import manifest
from ottrpo.experiments.study import Cell, Study
from ottrpo.reports.readme import markdown_table
from ottrpo.results.reading import read_study
from ottrpo.results.run_directory import RunDirectory

SHORT = """
description = "for tests"
protocol = "quick"
[[cells]]
environments = ["FrozenLake-v1"]
steps = 20_000
seeds = 2
audit = true
[[cells]]
environments = ["Pendulum-v1"]
steps = 4_096
"""
LONG = """
description = "for tests"
protocol = "quick"
[[cells]]
environments = ["Pendulum-v1"]
steps = 100_000
seeds = 2
"""


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)  # what an import of it then raises is real
    (tmp_path / "short.toml").write_text(SHORT)
    assert main(["reproduce", "short.toml", "--ray", "auto"]) == 2
    told = capsys.readouterr().err
    assert told == "ottrpo: --ray needs Ray, which is not installed: pip install 'ottrpo[ray]'\n"


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: ottrpo[ray]")
def test_a_cluster_that_is_not_there_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.toml").write_text(SHORT)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 4.0)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["reproduce", "short.toml", "--ray", address]) == 2
    told = capsys.readouterr().err
    assert told == (
        f"ottrpo: no Ray cluster at '{address}': it does not answer "
        "(`ray start --head` starts one)\n"
    )


def test_a_study_of_times_is_not_for_a_cluster(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.toml").write_text("workers = 1\n" + SHORT)
    assert main(["reproduce", "short.toml", "--ray", "auto"]) == 2
    assert "short measures time: it is run on one machine" in capsys.readouterr().err


def test_a_run_travels_as_bytes(tmp_path, counting):
    cell = Cell(environment="Taxi-v4", agent="counting")
    study = Study(name="s", description="d", cells=(cell,))
    (here,) = jobs_of(study, tmp_path / "here", seeds=None, steps=None)
    (there,) = jobs_of(study, tmp_path / "there", seeds=None, steps=None)
    (here.path / "checkpoints").mkdir(parents=True)
    (here.path / "checkpoints" / "7").write_bytes(b"\0\1")
    (here.path / "metrics.jsonl").write_text("{}\n")
    (here.path / ".lock").write_text("ours")
    here.log.write_text("x" * 100_000 + "the end")
    (there.path / "checkpoints").mkdir(parents=True)
    (there.path / "checkpoints" / "3").write_text("older")
    state = cluster.pack(here)
    cluster.unpack(state, there)
    found = {str(p.relative_to(there.path)) for p in there.path.rglob("*") if p.is_file()}
    assert found == {"checkpoints/7", "metrics.jsonl"}
    assert (there.path / "checkpoints" / "7").read_bytes() == b"\0\1"
    assert there.log.read_text().endswith("the end")
    assert there.log.stat().st_size == cluster.LOG_TAIL
    names = state.index(b"checkpoints/7"), state.index(b"metrics.jsonl")
    assert names[0] < names[1]  # a log that is read later knows all that the checkpoint knows


class StandIn:
    """What `Cluster` uses of Ray, without a cluster: every message is there at once."""

    class exceptions:
        class RayError(Exception):
            """Something was lost."""

    def __init__(self, messages):
        self.messages, self.given = messages, []

    def remote(self, task):
        assert task is cluster.run_there
        return self

    def options(self, *, num_cpus, max_retries, num_returns):
        assert (num_cpus, max_retries, num_returns) == (1, 0, "streaming")
        outer = self

        class Task:
            def remote(self, job, state, time_limit, version):
                outer.given.append(state)
                return iter([message(job) for message in outer.messages.pop(0)])

        return Task()

    def wait(self, tasks, timeout):
        return tasks[:1], tasks[1:]

    def get(self, message):
        if isinstance(message, Exception):
            raise message
        return message


class Ears:
    """A board that remembers."""

    def __init__(self):
        self.heard = []

    def tell(self, news, *, again):
        self.heard.append((news.kind, news.reason, again))

    def say(self, line):
        raise AssertionError(line)

    def tick(self):
        pass


def test_a_directory_that_comes_home_is_there_as_a_whole(tmp_path, counting):
    cell = Cell(environment="Taxi-v4", agent="counting")
    study = Study(name="s", description="d", cells=(cell,))

    def told(where, text):
        (job,) = jobs_of(study, tmp_path / where, seeds=None, steps=None)
        job.path.mkdir(parents=True)
        for name in "abc":
            (job.path / name).write_text(text)
        return job

    here = told("here", "new")
    here.log.write_text("log")
    state = cluster.pack(here)

    def points(at=None):
        there = told(f"killed at {at}", "old")
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            disk = FaultyDisk(patch, tmp_path / f"killed at {at}", "killed before", at)
            cluster.unpack(state, there)
        if there.path.exists():
            found = [(there.path / name).read_text() for name in "abc"]
            assert found in (["new"] * 3, ["old"] * 3)
        return len(disk.points)

    for at in range(points()):
        assert points(at) == at + 1


def state_of(job, folder, timestep, *, finished):
    """A run as it would come from elsewhere."""
    there = replace(job, path=folder / str(timestep) / "seed0")
    directory = RunDirectory.create(there.path, manifest(job.spec))
    directory.log_metrics({"timestep": timestep, "train_seconds": 1.0})
    if finished:
        (there.path / "agent.json").write_text("{}")
    return cluster.pack(there)


def test_a_run_that_is_lost_goes_on_from_what_came_home_and_the_last_word_counts(
    tmp_path, counting
):
    cell = Cell(environment="Taxi-v4", agent="counting")
    study = Study(name="s", description="d", cells=(cell,))
    (job,) = jobs_of(study, tmp_path / "home", seeds=None, steps=None)
    half = state_of(job, tmp_path, 300, finished=False)
    whole = state_of(job, tmp_path, 600, finished=True)
    began = lambda job: cluster.Message(News(job, "began"))  # noqa: E731
    lost = [began, lambda _: cluster.Message(None, half), lambda _: StandIn.exceptions.RayError()]
    done = [
        began,
        lambda _: cluster.Message(None, half),
        lambda job: cluster.Message(News(job, "finished"), whole),
        lambda _: cluster.Message(None, half),  # nobody hears it any more
    ]
    ray, ears = StandIn([lost, done]), Ears()
    place = cluster.Cluster(ray, 60.0)
    assert run_jobs([job], place, retries=1, board=ears) == {}
    assert ears.heard == [
        ("began", "", True),
        ("failed", "RayError()", True),
        ("began", "", True),
        ("finished", "", True),
    ]
    assert ray.given[0] is None
    archive = zipfile.ZipFile(io.BytesIO(ray.given[1]))
    assert b'"timestep": 300' in archive.read("run/metrics.jsonl")
    assert job.state() == "finished"
    assert job.standing().timestep == 600


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    command: list[bytes]


def processes():
    """Everything that runs on this machine."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            numbers = (entry / "stat").read_text().rpartition(")")[2].split()
            found.append(Process(int(entry.name), int(numbers[1]), int(numbers[3]), command))
    return found


class Node:
    """A node of a cluster, in a session of its own: what is started here is ended here."""

    def __init__(self, folder, *arguments):
        self.log = folder / f"node-{arguments[0].strip('-').partition('=')[0]}.log"
        command = [Path(sys.executable).with_name("ray"), "start", *arguments]
        command += ["--num-cpus=1", "--object-store-memory=80000000", "--block"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )

    def wait(self):
        deadline = time.monotonic() + 90
        while "block forever" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)
        return self

    def kill(self):
        """All its processes at once, as when the machine is switched off."""
        for process in processes():
            if process.session == self.process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'ottrpo[ray]'")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    try:
        head = Node(tmp_path, "--head", f"--port={port}", "--include-dashboard=false")
        started.append(head)
        head.wait()
        other = Node(tmp_path, f"--address=127.0.0.1:{port}")
        started.append(other)
        other.wait()
        yield f"127.0.0.1:{port}", head, other
    finally:
        for node in reversed(started):
            node.kill()


def start(folder, *arguments):
    command = [sys.executable, "-m", "ottrpo", "reproduce", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    out, _ = process.communicate(timeout=400)
    return process.returncode, out


def runs_by_node(nodes):
    """For each node the processes of runs on it: (Ray's worker, the run)."""
    everybody = {process.pid: process for process in processes()}

    def parent(process):
        return everybody.get(process.parent)

    # a run is forked by a server, and looks like it; the server is a child of Ray's worker
    servers = [
        p for p in everybody.values() if b"multiprocessing.forkserver" in b" ".join(p.command)
    ]
    runs = [
        (worker, run)
        for run in servers
        if (server := parent(run)) in servers and (worker := parent(server)) is not None
    ]
    return [
        [(worker.pid, run.pid) for worker, run in runs if worker.session == node.process.pid]
        for node in nodes
    ]


def when_both_have_sent_a_checkpoint(nodes, process, store):
    deadline = time.monotonic() + 200
    while (
        not all(runs := runs_by_node(nodes)) or len(list(store.glob("*/seed*/checkpoints/*"))) < 2
    ):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return runs


@pytest.mark.slow
def test_one_worker_two_workers_and_ray_give_the_same_tables(tmp_path, two_nodes):
    (tmp_path / "short.toml").write_text(SHORT)
    tables, pages = [], []
    for place in (["--workers", "1"], ["--workers", "2"], ["--ray", two_nodes[0]]):
        folder = tmp_path / place[1].replace(":", "-")
        folder.mkdir()
        code, out = finish(start(folder, "../short.toml", *place))
        assert code == 0, out
        results = folder / "results" / "short"
        tables.append(without_times(results))
        pages.append(markdown_table(read_study(results).cells).encode())
        assert out.count("started") == 3
    assert tables[0] == tables[1] == tables[2]
    assert pages[0] == pages[1] == pages[2]
    assert len(tables[0]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["run", "worker", "node"])
def test_whatever_dies_the_runs_end_with_the_same_results(tmp_path, two_nodes, victim):
    address, head, other = two_nodes
    (tmp_path / "long.toml").write_text(LONG)
    process = start(tmp_path, "long.toml", "--ray", address)
    store = tmp_path / "runs" / "long"
    runs = when_both_have_sent_a_checkpoint((head, other), process, store)
    (_, ((worker, run),)) = runs
    if victim == "node":
        other.kill()
    else:
        os.kill(worker if victim == "worker" else run, signal.SIGKILL)
    code, out = finish(process)
    assert code == 0, out
    assert out.count("started") >= 3, out  # one of the two runs twice
    logs = [path.read_text() for path in store.glob("*/seed*.log")]
    assert sum("going on from step" in log for log in logs) == 1  # not from the beginning
    if victim == "run":
        assert "stopped, will be tried again: killed by SIGKILL" in out
    alone = tmp_path / "alone"
    alone.mkdir()
    code, out = finish(start(alone, "../long.toml", "--workers", "2"))
    assert code == 0, out
    assert without_times(tmp_path / "results" / "long") == without_times(alone / "results" / "long")


@pytest.mark.slow
def test_what_a_dead_driver_has_received_is_gone_on_with_without_the_cluster(tmp_path, two_nodes):
    address, head, other = two_nodes
    (tmp_path / "long.toml").write_text(LONG)
    process = start(tmp_path, "long.toml", "--ray", address)
    store = tmp_path / "runs" / "long"
    when_both_have_sent_a_checkpoint((head, other), process, store)
    process.kill()
    process.communicate()
    code, out = finish(start(tmp_path, "long.toml", "--workers", "2"))
    assert code == 0, out
    logs = [path.read_text() for path in store.glob("*/seed*.log")]
    assert sum("going on from step" in log for log in logs) == 2
    assert not any(runs_by_node((head, other)))  # nobody goes on for a driver that is gone
