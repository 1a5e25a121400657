"""Each write, fsync, rename and append of the store and of checkpoints fails, one after another.

Whatever happens at whichever of them: what was acknowledged is there, and nothing torn is believed.
``pytest -s`` tells every point by its name.
"""

import json
import os
import warnings

import numpy as np
import pytest

from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Checkpoints
from ottrpo.results.layout import METRICS
from ottrpo.results.reading import read_study
from ottrpo.results.run_directory import RunDirectory
from ottrpo.results.study_folder import StudyFolder, heal

from .faulty_disk import FAULTS, FaultyDisk, Killed

CELL = "Taxi-v4__ottrpo__default"


class Story:
    """Something that is done step by step; ``acknowledged`` is what was said to be done."""

    def __init__(self, root):
        self.root, self.acknowledged = root, []

    def acknowledge(self, step):
        self.acknowledged.append(step)

    @property
    def last(self):
        return self.acknowledged[-1] if self.acknowledged else 0


class SavingCheckpoints(Story):
    """A training that saves itself; two are kept."""

    def __init__(self, root):
        super().__init__(root)
        self.kept = Checkpoints(root / "checkpoints", "run")

    def act(self):
        for step in (1, 2, 3):
            self.kept.write(step, {"w": np.full(500, float(step))}, {"was": step})
            self.acknowledge(step)

    def check(self, disk):
        found = self.kept.newest(lambda saved: saved)
        step = 0 if found is None else found.step
        # a name that is there though its directory was not synced is as good as acknowledged
        assert self.last <= step <= self.last + 1
        if found is not None:
            assert (found.arrays["w"] == step).all()
            assert found.data == {"was": step}
        self.kept.write(9, {}, {})
        assert self.kept.newest(lambda saved: saved).step == 9
        assert not [path for path in self.kept.folder.iterdir() if path.name.startswith(".")]


class SavingAnAgent(Story):
    """An agent that is saved over an older one."""

    def act(self):
        for step in (1, 2):
            bundle.write(self.root / "agent", "agent", {"w": np.full(9, float(step))}, {"n": step})
            self.acknowledge(step)

    def check(self, disk):
        if not (self.root / "agent.zip").exists():
            assert self.last == 0
            return
        arrays, data = bundle.read(self.root / "agent", "agent")
        assert self.last <= data["n"] <= self.last + 1
        assert (arrays["w"] == data["n"]).all()


class BeginningARun(Story):
    """The manifest of a run, which is there once and whole."""

    def act(self):
        RunDirectory.create(self.root / "run", {"seed": 1})
        self.acknowledge(1)

    def check(self, disk):
        path = self.root / "run"
        if (path / "manifest.json").exists():
            assert RunDirectory.open(path).manifest == {"seed": 1}
        else:
            assert self.last == 0
            RunDirectory.create(path, {"seed": 2})
            assert RunDirectory.open(path).manifest == {"seed": 2}


class Logging(Story):
    """A run that logs, and whose checkpoints say how much of the logs belongs to them."""

    def act(self):
        run = RunDirectory.create(self.root / "run", {})
        self.kept = Checkpoints(run.checkpoint_folder, "run")
        for step in (1, 2, 3):
            run.log_metrics({"step": step, "text": "x" * 100})
            self.acknowledge(step)
            run.sync_logs()
            self.kept.write(step, {}, {"sizes": run.log_sizes()})
            self.acknowledge(-step)

    def check(self, disk):
        if not (self.root / "run" / "manifest.json").exists():
            assert not self.acknowledged
            return
        run = RunDirectory.open(self.root / "run")
        said = [step for step in self.acknowledged if step > 0]
        saved = max((-step for step in self.acknowledged if step < 0), default=0)
        found = [record["step"] for record in run.metrics()]
        # without power, what is logged is safe once a checkpoint speaks of it
        sure = range(1, saved + 1) if disk.fault == "power cut" else said
        assert found[: len(sure)] == list(sure)
        assert found == list(range(1, len(found) + 1))
        self._go_on(run, saved, found)

    def _go_on(self, run, saved, found):
        """As `resume` does: back to what the checkpoint speaks of."""
        last = Checkpoints(run.checkpoint_folder, "run").newest(lambda saved: saved)
        step = 0 if last is None else last.step
        assert saved <= step <= saved + 1
        assert step <= len(found)
        run.cut_logs({} if last is None else last.data["sizes"])
        assert not run.torn_lines()
        run.log_metrics({"step": step + 1})
        assert [record["step"] for record in run.metrics()] == [*range(1, step + 2)]


class CarryingOn(Story):
    """An append that failed, in a process that lives on: the next one is a line of its own."""

    def act(self):
        run = RunDirectory(self.root, {})
        for step in (1, 2, 3):
            try:
                run.log_metrics({"step": step})
            except OSError:
                continue
            self.acknowledge(step)

    def check(self, disk):
        if not disk.dead:
            assert [r["step"] for r in RunDirectory(self.root, {}).metrics()] == self.acknowledged
            assert len(self.acknowledged) >= 2
        text = (self.root / METRICS).read_text() if (self.root / METRICS).exists() else ""
        whole = [json.loads(line)["step"] for line in text.split("\n")[:-1]]
        sure = [] if disk.fault == "power cut" else self.acknowledged
        assert whole[: len(sure)] == sure


class ReplacingResults(Story):
    """The folder of a study, which is replaced as a whole."""

    def act(self):
        for number in (1, 2):
            held = StudyFolder.read(self.root / "s") if number > 1 else self._none()
            held.replace(*self._content(number))
            self.acknowledge(number)

    def _none(self):
        return StudyFolder(self.root / "s", {"cells": {}, "sha256": {}}, {})

    def _content(self, number):
        seeds = list(range(number))
        cell = {
            **{"environment": "Taxi-v4", "agent": "ottrpo", "config": "default", "label": ""},
            **{"trained_steps": 10, "seeds": seeds},
        }
        rows = [
            {"seed": s, "mark": 10, "timestep": 10, "deterministic": 0, "returns": "1 2"}
            for s in seeds
        ]
        manifest = {"study": "s", "description": "d", "cells": {CELL: cell}}
        return manifest, {f"{CELL}.csv": rows}

    def check(self, disk):
        heal(self.root / "s")
        if not (self.root / "s" / "manifest.json").exists():
            assert self.last == 0
            return
        found = read_study(self.root / "s").cells[0]
        assert self.last <= len(found.curves[False].seed_n) <= self.last + 1


# how many points each has: one that is new is noticed
STORIES = {
    SavingCheckpoints: 18,
    SavingAnAgent: 10,
    BeginningARun: 10,
    Logging: 37,
    CarryingOn: 6,
    ReplacingResults: 35,
}


def told(story, root, fault=None, at=None):
    """The disk after the story, or as much of it as there was."""
    root.mkdir(parents=True)
    tale = story(root)
    with pytest.MonkeyPatch.context() as patch:
        disk = FaultyDisk(patch, root, fault, at)
        try:
            tale.act()
        except (OSError, Killed):
            assert disk.reached
    return tale, disk


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_every_point_may_fail(story, tmp_path):
    tale, undisturbed = told(story, tmp_path / "undisturbed")
    tale.check(undisturbed)
    points = undisturbed.points
    print(f"\n{story.__name__}: {len(points)} points, {len(FAULTS)} faults each")
    print("\n".join(f"  {number:3} {point}" for number, point in enumerate(points)))
    assert len(points) == STORIES[story]
    for at, point in enumerate(points):
        for fault in FAULTS:
            tale, disk = told(story, tmp_path / f"{at} {fault}", fault, at)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # no damaged checkpoint is ever left
                try:
                    tale.check(disk)
                except BaseException as error:
                    raise AssertionError(f"{point} (point {at}) {fault}") from error
            assert disk.reached


def test_a_writer_that_does_not_wait_for_the_disk_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr("ottrpo.persistence.bundle.sync_directory", lambda folder: None)
    monkeypatch.setitem(STORIES, SavingCheckpoints, 14)
    with pytest.raises(AssertionError, match="power cut"):
        test_every_point_may_fail(SavingCheckpoints, tmp_path)


def test_a_writer_that_believes_a_short_write_is_found_out(tmp_path, monkeypatch):
    def careless(handle, content):
        os.write(handle, content)

    monkeypatch.setattr("ottrpo.results.run_directory.write_all", careless)
    with pytest.raises(AssertionError, match="cut short"):
        test_every_point_may_fail(CarryingOn, tmp_path)
