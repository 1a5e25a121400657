"""The tabular studies, on a tiny grid: resumable, audited, told from their files alone."""

import csv
import json

import numpy as np
import pytest

from ottrpo.cli import main
from ottrpo.core import update_policy
from ottrpo.core.costs import Binary, TableCost
from ottrpo.experiments import registry, tabular_studies
from ottrpo.experiments.grid import read_study
from ottrpo.experiments.tabular_studies import Auditor, TabularStudy, pot_discrepancy
from ottrpo.reports.tabular import study_audits, study_table
from ottrpo.tabular import WPO, TabularOTTRPO
from ottrpo.tabular.base import Improvement

GRID = """
description = "for tests"
seeds = 2
[[cells]]
environments = ["FrozenLake-v1"]
steps = 6000
[[cells]]
environments = ["FrozenLake-v1"]
agent = "wpo"
label = "default move"
steps = 6000
settings = { tie = "move" }
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(GRID)
    return TabularStudy(grid=read_study(tmp_path / "tiny.toml"))


def in_this_process(jobs, workers):
    return [error for job in jobs if (error := tabular_studies._train_one(job)) is not None]


def test_a_study_resumes_and_its_files_tell_everything(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tabular_studies, "_run_all", in_this_process)
    out = tmp_path / "results"
    assert tiny.run(seeds=None, workers=1, out=out, steps=None) == 0
    assert "4 runs, 0 finished" in capsys.readouterr().out
    assert tiny.run(seeds=None, workers=1, out=out, steps=None) == 0
    assert "4 runs, 4 finished" in capsys.readouterr().out
    (tmp_path / "runs/tiny/FrozenLake-v1__ottrpo__default/seed1/audit.json").unlink()
    tiny.run(seeds=None, workers=1, out=out, steps=None)
    assert "4 runs, 3 finished" in capsys.readouterr().out

    folder = out / "tiny"
    audits = study_audits(folder)
    ours = audits["FrozenLake-v1__ottrpo__default"]
    theirs = audits["FrozenLake-v1__wpo__default-move"]
    assert ours.violations == ours.pot_violations == 0
    assert ours.audited == ours.updates > 0
    assert theirs.violations > 0
    assert 0 < ours.exact_return < 1
    table = study_table(folder)
    assert "| FrozenLake-v1 | ottrpo | default | 2 |" in table
    assert "| FrozenLake-v1 | wpo | default move | 2 |" in table
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["cells"]["FrozenLake-v1__wpo__default-move"]["resolved"]["tie"] == "move"


def test_other_steps_are_another_run(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tabular_studies, "_run_all", in_this_process)
    tiny.run(seeds=1, workers=1, out=tmp_path / "short", steps=3000)
    tiny.run(seeds=1, workers=1, out=tmp_path / "long", steps=None)
    assert capsys.readouterr().out.count("2 runs, 0 finished") == 2
    with open(tmp_path / "long/tiny/runs.csv") as file:
        assert all(int(row["steps"]) >= 6000 for row in csv.DictReader(file))


def test_a_run_that_fails_is_told_and_the_others_go_on(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tabular_studies, "_run_all", in_this_process)
    whole = tabular_studies.build_agent

    def build(spec):
        if spec.agent == "wpo":
            raise ValueError("no")
        return whole(spec)

    monkeypatch.setattr(tabular_studies, "build_agent", build)
    assert tiny.run(seeds=1, workers=1, out=tmp_path / "results", steps=3000) == 1
    told = capsys.readouterr()
    assert "FrozenLake-v1__wpo__default-move seed 0 failed: ValueError: no" in told.err
    assert (tmp_path / "results/tiny/FrozenLake-v1__ottrpo__default.csv").is_file()


@pytest.mark.slow
def test_processes_and_figures_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--seeds", "1", "--workers", "2", "--steps", "20000", "--out", "kept"]
    assert main(["reproduce", "taxi-radius", *options]) == 0
    assert "radius-0.003" in capsys.readouterr().out
    assert (tmp_path / "kept/taxi-radius/curves.png").stat().st_size > 10_000
    assert "0.0 % of" in (tmp_path / "kept/taxi-radius/table.md").read_text()


def test_the_studies_hold_what_the_paper_varies():
    studies = registry.studies()
    assert studies.keys() >= {"tabular-default", "tabular-readings", "taxi-radius", "taxi-costs"}
    for name in ("tabular-default", "tabular-readings", "taxi-radius", "taxi-costs"):
        assert studies[name].grid.seeds == 30
    costs = {
        tuple(np.array(cell.settings["cost"])[[0, 4], [4, 0]])
        for cell in studies["taxi-costs"].grid.cells
    }
    gaps = sorted(round(there - back, 9) for there, back in costs)
    # each of ±0.2 and ±0.5 with either of the two costs equal to 1, and the equal costs
    assert gaps == [-0.5, -0.5, -0.2, -0.2, 0.0, 0.2, 0.2, 0.5, 0.5]
    assert all(1.0 in pair for pair in costs)
    ties = [
        cell.settings.get("tie")
        for cell in studies["tabular-readings"].grid.cells
        if cell.agent == "wpo"
    ]
    assert {"lowest", "stay", "move"} <= set(ties)


def test_pot_and_the_audit_measure_the_same_thing():
    rng = np.random.default_rng(0)
    policy_sa, occupancy_s = rng.dirichlet(np.ones(4), size=20), rng.dirichlet(np.ones(20))
    for cost in (Binary(), TableCost(rng.uniform(0.2, 2, (4, 4)) * (1 - np.eye(4)))):
        update = update_policy(policy_sa, occupancy_s, rng.normal(size=(20, 4)), cost, 0.1)
        improvement = Improvement(
            update.problem, update.policy_sa, update.solution.multiplier, 0.1, 0.0, 0.0, 0.0
        )
        assert pot_discrepancy(improvement) == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize(("agent", "settings"), [(TabularOTTRPO, {}), (WPO, {"tie": "move"})])
def test_the_auditor_counts_what_the_agent_reports(agent, settings):
    lake = agent("FrozenLake-v1", seed=0, steps_per_update=200, initial_q=1.0, **settings)
    auditor, reported = Auditor(lake), []

    def after(one):
        auditor.update(one.num_timesteps)
        reported.append(one.last_update["ot/violation"] > 0)

    lake.learn(10_000, callback=after)
    found = auditor.found
    assert found.updates == found.audited == len(reported)
    assert found.violations == sum(reported)
    assert found.pot_checked == -(-len(reported) // 10)
    assert found.pot_worst_difference < 1e-9
    assert (found.violations > 0) == (agent is WPO)


def test_a_general_cost_is_checked_by_pot_alone():
    cost = [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
    lake = TabularOTTRPO("FrozenLake-v1", steps_per_update=200, initial_q=1.0, cost=cost)
    auditor = Auditor(lake)
    lake.learn(3_000, callback=lambda one: auditor.update(one.num_timesteps))
    assert auditor.found.audited == 0
    assert auditor.found.pot_checked > 0
    assert auditor.found.pot_violations == 0
    assert auditor.found.pot_worst_difference < 1e-9
