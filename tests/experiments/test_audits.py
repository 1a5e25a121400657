"""Audited runs: every update of a tabular agent checked from outside, in its process."""

import csv
import json
from contextlib import suppress

import numpy as np
import pytest
from tests.persistence.faulty_disk import FaultyDisk, Killed

from ottrpo.cli import main
from ottrpo.core import update_policy
from ottrpo.core.costs import Binary, TableCost
from ottrpo.experiments.audits import Auditor, pot_discrepancy, run_audited
from ottrpo.experiments.run import plan_run
from ottrpo.reports.readme import study_table
from ottrpo.results.layout import AUDIT
from ottrpo.results.reading import read_study
from ottrpo.tabular import WPO, TabularOTTRPO
from ottrpo.tabular.problem import Improvement

GRID = """
description = "for tests"
seeds = 2
steps = 6000
audit = true
[[cells]]
environments = ["FrozenLake-v1"]
[[cells]]
environments = ["FrozenLake-v1"]
agent = "wpo"
label = "default move"
settings = { tie = "move" }
"""


def test_a_study_is_audited_in_its_processes_and_its_files_tell_everything(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(GRID)
    assert main(["reproduce", "tiny.toml", "--workers", "1"]) == 0
    assert "4 runs of 2 cells, 0 finished, 4 to do" in capsys.readouterr().out
    (tmp_path / "runs/tiny/FrozenLake-v1__ottrpo__default/seed1/audit.json").unlink()
    assert main(["reproduce", "tiny.toml", "--collect"]) == 1  # it is not finished without

    folder = tmp_path / "results" / "tiny"
    audits = {cell.name: cell.audit for cell in read_study(folder).cells}
    ours = audits["FrozenLake-v1__ottrpo__default"]
    theirs = audits["FrozenLake-v1__wpo__default-move"]
    assert ours.violations == ours.pot_violations == 0
    assert ours.audited == ours.updates > 0
    assert theirs.violations > 0
    assert 0 < ours.exact_return < 1
    table = study_table(folder)
    assert "| FrozenLake-v1 | ottrpo | default | 2 |" in table
    assert "| FrozenLake-v1 | wpo | default move | 2 |" in table
    assert (folder / "table.md").read_text() == table
    with open(folder / "audits.csv") as file:
        assert [(row["cell"].split("__")[1], row["seed"]) for row in csv.DictReader(file)] == [
            ("ottrpo", "0"),
            ("ottrpo", "1"),
            ("wpo", "0"),
            ("wpo", "1"),
        ]


def test_only_tabular_agents_can_be_audited(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text(GRID.replace("FrozenLake-v1", "Pendulum-v1", 1))
    assert main(["reproduce", "bad.toml"]) == 2
    assert "only the tabular agents can be audited" in capsys.readouterr().err


def test_what_an_audit_found_is_there_as_a_whole_or_not_at_all(tmp_path):
    def points(at=None):
        path = tmp_path / str(at)
        path.mkdir()
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            disk = FaultyDisk(patch, path, "killed before", at)
            run_audited(plan_run("FrozenLake-v1", seed=0, steps=300), path)
        if (path / AUDIT).exists():
            assert json.loads((path / AUDIT).read_text())["updates"] > 0
        return disk.points

    writing = [at for at, point in enumerate(points()) if f".{AUDIT}" in point]
    assert len(writing) == 4  # open, write, fsync and replace
    for at in writing:
        assert f".{AUDIT}" in points(at)[-1]


@pytest.mark.slow
def test_processes_and_figures_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--seeds", "1", "--workers", "2", "--steps", "20000", "--out", "kept"]
    assert main(["reproduce", "taxi-radius", *options]) == 0
    assert "radius-0.003" in capsys.readouterr().out
    assert (tmp_path / "kept/taxi-radius/curves.svg").stat().st_size > 10_000
    assert "0.0 % of" in (tmp_path / "kept/taxi-radius/table.md").read_text()


def test_pot_and_the_audit_measure_the_same_thing():
    rng = np.random.default_rng(0)
    policy_sa, occupancy_s = rng.dirichlet(np.ones(4), size=20), rng.dirichlet(np.ones(20))
    for cost in (Binary(), TableCost(rng.uniform(0.2, 2, (4, 4)) * (1 - np.eye(4)))):
        update = update_policy(policy_sa, occupancy_s, rng.normal(size=(20, 4)), cost, 0.1)
        improvement = Improvement(
            update.problem, update.policy_sa, update.solution.multiplier, 0.1, 0.0, 0.0, 0.0, 0.1
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
