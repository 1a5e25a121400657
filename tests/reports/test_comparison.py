"""Two sides compared by hand, and every way to name one."""

import json
import re

import numpy as np
import pytest

from ottrpo import TabularOTTRPO
from ottrpo.cli import main
from ottrpo.reports.comparison import compare, plot
from ottrpo.reports.sides import find_side
from ottrpo.results.layout import PUBLISHED
from ottrpo.results.run_directory import RunDirectory

from .synthetic import cell, write_study


@pytest.fixture
def results(tmp_path):
    root = tmp_path / "results"
    cells = [
        cell(resolved={"radius": 0.1, "policy_kwargs": {"depth": 2}}),
        cell(config="tuned", resolved={"radius": 0.2, "policy_kwargs": {"depth": 3}}),
        cell("Swimmer-v5"),
        cell("HalfCheetah-v5", trained_steps=None),
    ]
    write_study(root / "control", cells, score=[1000.0, 2000.0, 300.0, 0.0])
    baselines = [cell(agent="trpo"), cell("Swimmer-v5", agent="trpo"), cell("Ant-v5", agent="trpo")]
    write_study(root / "baselines", baselines, score=[500.0, 310.0, 0.0], seeds=5)
    return root


def make_run(path, seed, level, *, environment="Hopper-v5", last=1000, **settings):
    run = RunDirectory.create(
        path,
        {
            "environment": environment,
            "agent": "ottrpo",
            "config": "default",
            "seed": seed,
            "steps": 1000,
            "resolved": {"radius": 0.1, **settings},
        },
    )
    for mark in range(100, last + 1, 50):
        returns = [level - 1, level + 1]
        run.log_evaluation({"mark": mark, "deterministic": False, "returns": returns})
    return path


def told_by(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_cells_by_name_and_by_configuration(results, capsys):
    sides = ("control:tuned", "control:Hopper-v5__ottrpo__default")
    code, out, _ = told_by(capsys, *sides, "--results", results, "--json")
    assert code == 0
    data = json.loads(out)
    assert (data["actions"], data["probability"]) == ("deterministic", 1.0)
    hopper = data["environments"]["Hopper-v5"]
    assert hopper["a"]["seeds"] == hopper["b"]["seeds"] == 10
    assert hopper["difference"] == pytest.approx(1000, abs=60)
    low, high = hopper["difference_interval"]
    assert low < hopper["difference"] < high
    assert hopper["probability_interval"] == [1.0, 1.0]
    assert hopper["settings"] == {
        "config": ["tuned", "default"],
        "radius": [0.2, 0.1],
        "policy_kwargs.depth": [3, 2],
    }


def test_cells_by_their_files(results, capsys):
    cell_names = ("Hopper-v5__ottrpo__tuned", "Hopper-v5__ottrpo__default")
    files = [results / "control" / f"{name}.csv" for name in cell_names]
    # where the results are is told by the files
    code, out, _ = told_by(capsys, *files, "--results", results / "elsewhere", "--json")
    by_name = told_by(capsys, "control:tuned", files[1], "--results", results, "--json")[1]
    assert code == 0
    assert json.loads(out)["environments"] == json.loads(by_name)["environments"]


def test_agents_over_all_environments_that_both_have(results, capsys):
    code, out, _ = told_by(capsys, "ottrpo", "trpo", "--results", results)
    assert code == 0
    assert "over all environments, P(a > b) = " in out
    assert "on one side only: Ant-v5" in out
    comparison = compare(find_side("ottrpo", results), find_side("trpo", results))
    assert [duel.environment for duel in comparison.duels] == ["Hopper-v5", "Swimmer-v5"]
    hopper, swimmer = comparison.duels
    assert (hopper.a.seeds, hopper.b.seeds) == (10, 5)
    assert comparison.chance.value == pytest.approx(
        (hopper.chance.value + swimmer.chance.value) / 2
    )


def test_of_studies_with_the_same_cell_the_newest_of_full_length_counts(results, capsys):
    write_study(results / "again", [cell()], seeds=3, collected="2026-02-01T00:00:00+00:00")
    write_study(results / "older", [cell()], collected="2026-01-01T00:00:00+00:00")
    short = cell(trained_steps=30_000)
    write_study(results / "short", [short], collected="2026-03-01T00:00:00+00:00")
    assert find_side("ottrpo", results).cells["Hopper-v5"].study == "again"
    _, out, _ = told_by(capsys, "ottrpo", "trpo", "--results", results)
    first, second, *_ = out.splitlines()
    assert first.endswith(
        "ottrpo/default, the newest of full length: again, control "
        "(others, by STUDY:CELL: older, short)"
    )
    assert second == "b  trpo/default"  # one study has it
    _, out, _ = told_by(capsys, "ottrpo", "trpo", "--results", results, "--json")
    hopper = json.loads(out)["environments"]["Hopper-v5"]
    assert (hopper["a"]["study"], hopper["a"]["steps"]) == ("again", 1_000_000)


def test_without_a_date_the_study_with_more_seeds_counts(results):
    write_study(results / "again", [cell()], score=7.0, seeds=3)
    assert len(find_side("ottrpo", results).cells["Hopper-v5"].runs) == 10


def test_the_published_agents_are_those_of_today():
    published = find_side("ottrpo", PUBLISHED).cells
    assert {published[name].study for name in ("Hopper-v5", "Swimmer-v5")} == {"suite"}
    assert published["CliffWalking-v1"].study == "tabular-default"
    tuned = find_side("ppo/tuned", PUBLISHED).cells
    assert tuned["Hopper-v5"].study == "baselines-control"  # `training-time` has short ones


def test_directories_of_runs(tmp_path, capsys):
    for seed, level in enumerate((10.0, 12.0, 14.0)):
        make_run(tmp_path / "a" / f"seed{seed}", seed, level)
        make_run(tmp_path / "b" / "cell" / f"seed{seed}", seed, level - 5, radius=0.2)
    code, out, _ = told_by(capsys, tmp_path / "a", tmp_path / "b", "--json")
    assert code == 0
    hopper = json.loads(out)["environments"]["Hopper-v5"]
    assert (hopper["difference"], hopper["a"]["mean"], hopper["a"]["std_seeds"]) == (5, 12, 2)
    # the same seeds, each of them 5 better: that is known exactly
    assert (hopper["difference_interval"], hopper["paired"]) == ([5.0, 5.0], True)
    # 9 pairs: 10, 12, 14 against 5, 7, 9
    assert hopper["probability"] == 1.0
    assert hopper["settings"] == {"radius": [0.1, 0.2]}


def test_sides_of_different_seeds_are_compared_by_their_spreads(tmp_path, capsys):
    for seed, level in enumerate((10.0, 12.0, 14.0)):
        make_run(tmp_path / "a" / f"seed{seed}", seed, level)
        make_run(tmp_path / "b" / f"seed{seed}", seed + 7, level - 5)
    hopper = json.loads(told_by(capsys, tmp_path / "a", tmp_path / "b", "--json")[1])
    hopper = hopper["environments"]["Hopper-v5"]
    # Welch with equal variances of 4, three seeds each: 5 ± t(4) 2 √(2/3)
    assert hopper["difference_interval"] == pytest.approx([0.4662, 9.5338], abs=1e-3)
    assert hopper["paired"] is False


def test_runs_that_did_the_same_are_identical(results, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for side in "ab":
        for seed, level in enumerate((10.0, 300.0, 14.0)):
            make_run(tmp_path / side / f"seed{seed}", seed, level, radius=0.1 + (side == "b"))
    hopper = json.loads(told_by(capsys, tmp_path / "a", tmp_path / "b", "--json")[1])
    hopper = hopper["environments"]["Hopper-v5"]
    assert (hopper["identical"], hopper["difference"]) == (True, 0.0)
    code, out, _ = told_by(capsys, tmp_path / "a", tmp_path / "b")
    assert code == 0
    row = next(line for line in out.splitlines() if line.strip().startswith("Hopper-v5 "))
    assert "identical" in row
    assert " to " not in row
    apart = told_by(
        capsys, "control:tuned", "control:Hopper-v5__ottrpo__default", "--results", results
    )
    assert "identical" not in apart[1]


def test_an_agent_without_default_results_is_known_by_its_tuned_ones(results, capsys):
    write_study(results / "others", [cell(agent="ppo", config=c) for c in ("odd", "tuned")])
    code, out, _ = told_by(capsys, "ottrpo", "ppo", "--results", results)
    assert code == 0
    assert "b  ppo/tuned\n" in out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"returns": [9.0, 11.0]', '"returns": "abc"'),
        ('"returns": [9.0, 11.0]', '"returns": []'),
        ('"returns": [9.0, 11.0]', '"returns": [[1.0], 2.0]'),
        ('"mark": 100', '"mark": "x"'),
        ('"deterministic": false', '"deterministic": 7'),
        ('"mark"', '"nark"'),
        ("{", '["a list"]\n{'),
    ],
)
def test_what_no_evaluation_writes_is_told_in_one_line(tmp_path, capsys, old, new):
    path = make_run(tmp_path / "a", 0, 10.0)
    log = path / "evaluations.jsonl"
    assert old in log.read_text()
    log.write_text(log.read_text().replace(old, new, 1))
    code, out, err = told_by(capsys, path, path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(
        r"an evaluation can't be \{|line 1 is no JSON object|some finite returns, got", err
    )


@pytest.mark.parametrize("key", ["environment", "agent", "config", "seed", "steps", "resolved"])
@pytest.mark.parametrize("value", [None, [1]])
def test_a_manifest_that_is_no_run_s_is_told_in_one_line(tmp_path, capsys, key, value):
    path = make_run(tmp_path / "a", 0, 10.0)
    about = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(about | {key: value}))
    code, out, err = told_by(capsys, path, path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"is not a run, by its {key}; results are named STUDY:CELL" in err


def test_two_single_runs_have_no_interval(tmp_path, capsys):
    a, b = make_run(tmp_path / "a", 0, 10.0), make_run(tmp_path / "b", 1, 12.0)
    code, out, _ = told_by(capsys, a, b)
    assert code == 0
    assert "a side with one run has no interval" in out
    assert "-2.00" in out
    assert "the same settings" in out
    data = json.loads(told_by(capsys, a, b, "--json")[1])
    assert data["environments"]["Hopper-v5"]["difference_interval"] is None
    assert data["probability"] == 0.0


def test_the_plot_shows_both_curves(tmp_path):
    sides = [
        find_side(str(make_run(tmp_path / x, 0, y)), tmp_path)
        for x, y in (("a", 10.0), ("b", 20.0))
    ]
    (duel,) = compare(*sides).duels
    a, b = duel.a, duel.b
    lines = plot(a, b)
    assert lines[0].startswith("20 |")
    assert set(lines[0][4:]) == {" ", "b"}
    assert lines[11].startswith("10 |")
    assert set(lines[11][4:]) == {" ", "a"}
    assert "*" in "".join(plot(a, a))
    assert lines[-1].endswith("1,000 steps")
    assert len({len(line) for line in lines}) == 1


def test_saved_agents_play(results, tmp_path, capsys):
    agent = TabularOTTRPO("FrozenLake-v1", seed=0)
    agent.learn(20_000)
    agent.save(tmp_path / "agent")
    (path,) = tmp_path.glob("agent*")
    code, out, _ = told_by(capsys, path, path, "--episodes", 5, "--json")
    assert code == 0
    data = json.loads(out)
    lake = data["environments"]["FrozenLake-v1"]
    assert (lake["difference"], lake["a"]["seeds"], lake["settings"]) == (0.0, 1, {})
    assert told_by(capsys, path, path, "--episodes", 0)[0] == 2
    assert "no interval" in told_by(capsys, path, path)[1]


MISTAKES = {
    "nothing": ("nothing", "ottrpo", "'nothing' is no directory, no STUDY:CELL and no agent"),
    "a study misspelt": ("contrl:tuned", "ottrpo", "did you mean 'control'?"),
    "a cell misspelt": ("control:Hopper-v5__ottrpo__tund", "ottrpo", "did you mean 'Hopper-v5"),
    "no such configuration": ("trpo/tuned", "ottrpo", "write trpo/CONFIGURATION, known: default"),
    "a cell without runs": ("control:HalfCheetah-v5__ottrpo__default", "ottrpo", "no finished run"),
    "nothing in common": (
        "control:tuned",
        "control:Swimmer-v5__ottrpo__default",
        "no environment in common: Hopper-v5 against Swimmer-v5",
    ),
    "an empty directory": ("{tmp}/empty", "ottrpo", "holds no run"),
    "a study's folder": ("{tmp}/results/control", "ottrpo", "results are named STUDY:CELL"),
    "an unfinished run": ("{tmp}/short", "{tmp}/short", "a run has to finish first"),
    "two configurations": ("{tmp}/mixed", "ottrpo", "holds runs of 2 configurations on Hopper-v5"),
    "a seed twice": ("{tmp}/twice", "ottrpo", "two runs of seed 0 on Hopper-v5"),
    "another way to act": ("{tmp}/short", "{tmp}/mode", "evaluated in different ways"),
    "a table of something else": ("{tmp}/x.csv", "ottrpo", "there is no manifest beside it"),
    "a file of no cell": ("{tmp}/results/control/x.csv", "ottrpo", "holds no cell of control"),
    "a file that is no agent": ("{tmp}/file.zip", "ottrpo", "file.zip"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_line(results, tmp_path, capsys, mistake):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.zip").write_bytes(b"")
    for place in (tmp_path, results / "control"):
        (place / "x.csv").write_text("a,b\n")
    make_run(tmp_path / "short", 0, 1.0, last=500)
    make_run(tmp_path / "mixed" / "1", 0, 1.0)
    make_run(tmp_path / "mixed" / "2", 1, 1.0, radius=0.3)
    make_run(tmp_path / "twice" / "1", 0, 1.0)
    make_run(tmp_path / "twice" / "2", 0, 1.0)
    mode = make_run(tmp_path / "mode", 0, 1.0)
    log = mode / "evaluations.jsonl"
    log.write_text(log.read_text().replace("false", "true"))
    a, b, message = MISTAKES[mistake]
    sides = (a.format(tmp=tmp_path), b.format(tmp=tmp_path))
    code, out, err = told_by(capsys, *sides, "--results", results)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_names_in_brackets_are_not_markup(tmp_path, capsys):
    path = make_run(tmp_path / "[bold]x", 0, 1.0, environment="[red]Env")
    code, out, _ = told_by(capsys, path, path)
    assert code == 0
    assert "[red]Env" in out
    assert "[bold]x" in out


def test_statistics_of_resampled_runs_are_repeatable(results):
    first, second = (
        compare(find_side("ottrpo", results), find_side("trpo", results)) for _ in range(2)
    )
    assert first.chance == second.chance
    assert np.array_equal(first.duels[0].a.score_n, second.duels[0].a.score_n)
