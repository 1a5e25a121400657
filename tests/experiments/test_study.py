"""Studies: files are closed and become cells; whatever ships can be run."""

import os

import pytest

from ottrpo.experiments.jobs import jobs_of
from ottrpo.experiments.study import STUDIES, Cell, Study, load_study

STUDY = """
description = "for tests"
paper = ["tab:trained:scores"]
seeds = 2
[[cells]]
environments = ["Hopper-v5", "Swimmer-v5"]
config = "tuned"
steps = 10
[[cells]]
environments = ["Hopper-v5"]
label = "wide region"
seeds = 3
settings = { radius = "50%", policy_kwargs = { log_std_init = -1.0 } }
[[cells]]
environments = ["Hopper-v5"]
settings = { gamma = 0.9 }
vary = { radius = [0.1, "30%"], normalize_obs = [true, false] }
"""


def write(folder, text):
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_cells(tmp_path):
    study = load_study(write(tmp_path, STUDY))
    assert (study.name, study.paper) == ("mine", ("tab:trained:scores",))
    assert [cell.name for cell in study.cells] == [
        "Hopper-v5__ottrpo__tuned",
        "Swimmer-v5__ottrpo__tuned",
        "Hopper-v5__ottrpo__wide-region",
        "Hopper-v5__ottrpo__default-radius-0.1-normalize_obs-true",
        "Hopper-v5__ottrpo__default-radius-0.1-normalize_obs-false",
        "Hopper-v5__ottrpo__default-radius-30pc-normalize_obs-true",
        "Hopper-v5__ottrpo__default-radius-30pc-normalize_obs-false",
    ]
    assert [cell.seeds for cell in study.cells] == [2, 2, 3, 2, 2, 2, 2]
    assert study.cells[2].settings == {"radius": "50%", "policy_kwargs": {"log_std_init": -1.0}}
    assert study.cells[2].spec().settings["policy_kwargs"] == {"log_std_init": -1.0}
    assert study.cells[4].settings == {"gamma": 0.9, "radius": 0.1, "normalize_obs": False}


def test_a_setting_inside_a_table_can_vary(tmp_path):
    text = STUDY.replace("normalize_obs = [true, false]", '"policy_kwargs.log_std_init" = [-1.0]')
    cell = load_study(write(tmp_path, text)).cells[3]
    assert cell.name == "Hopper-v5__ottrpo__default-radius-0.1-policy_kwargs.log_std_init--1.0"
    assert cell.spec().settings["policy_kwargs"] == {"log_std_init": -1.0}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds", "sedes", r"mine.toml: unknown keys \['sedes'\]"),
        ("label", "labels", r"mine.toml: unknown keys \['labels'\]"),
        ('label = "wide region"', 'config = "tuned"', "two cells have the name Hopper-v5__ottrpo"),
        ('description = "for tests"', "", "description is missing"),
        ('environments = ["Hopper-v5", "Swimmer-v5"]', "", "a cell says no environments"),
        ("seeds = 2", "seeds = 0", "mine.toml: seeds must be a whole number from 1 on, got 0"),
        ("steps = 10", "steps = 1e6", "steps must be a whole number from 1 on, got 1000000.0"),
        ("seeds = 2", "seeds 2", "not valid TOML"),
        ('label = "wide region"', "label = 7", "mine.toml: label must be words, got 7"),
        ('label = "wide region"', 'label = "a\\u001b[31m"', r"label must be words, got 'a\\x1b\["),
        ('"for tests"', '"a\\u001b[31m"', r"mine.toml: description must be words, got 'a\\x1b"),
        ('"for tests"', '"' + "a" * 100_000 + '"', "description must be words, got 'aaa"),
        ("seeds = 2", 'workers = "many"', "workers must be a whole number from 1 on, got 'many'"),
        ('paper = ["tab:trained:scores"]', "paper = 7", "paper is a list, got 7"),
        ("seeds = 2", 'seeds = "two"', "seeds must be a whole number from 1 on, got 'two'"),
        ('["Hopper-v5", "Swimmer-v5"]', '"Hopper-v5"', "environments is a list"),
        ('["Hopper-v5", "Swimmer-v5"]', "[5]", "environment must be words, got 5"),
        ('[0.1, "30%"]', "0.1", "vary has a list of values"),
        ('settings = { radius = "50%", policy_', "settings = 3 #", "settings is a table, got 3"),
        ("seeds = 3", 'audit = "yes"', "audit must be true or false, got 'yes'"),
        ("seeds = 2", "seeds = 1_000_000_000", r"asks for 6,000,000,003 runs.*--max-runs"),
        ('"Hopper-v5", "Sw', '"this:Foo-v0", "Sw', "must not import 'this'.*--trust"),
    ],
)
def test_bad_files_are_refused(tmp_path, old, new, message):
    path = write(tmp_path, STUDY.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        load_study(path)


@pytest.mark.parametrize(
    ("environment", "settings", "message"),
    [
        ("Hopper-v5", "radius = nan", "radius .*nan"),
        ("Hopper-v5", "radius = 2020-01-01", "radius .*2020"),
        ("Hopper-v5", 'cost = { kind = "mahalanobis", matrix = 3 }', "matrix"),
        ("Taxi-v4", "discount = 2.0", "discount .*2.0"),
    ],
)
def test_a_value_that_no_agent_would_take_is_refused_before_a_run_starts(
    tmp_path, environment, settings, message
):
    text = f"""description = "for tests"
environments = ["{environment}"]
[[cells]]
settings = {{ {settings} }}
"""
    with pytest.raises(ValueError, match=message):
        [cell.spec() for cell in load_study(write(tmp_path, text)).cells]


def test_a_file_of_a_few_lines_that_asks_for_millions_of_cells_is_refused_at_once(tmp_path):
    vary = ", ".join(f"{letter} = [1, 2, 3, 4, 5, 6, 7, 8, 9]" for letter in "abcdefgh")
    text = STUDY.replace("settings = { gamma = 0.9 }\n", "")
    text = text[: text.index("vary")] + f"vary = {{ {vary} }}\n"
    with pytest.raises(ValueError, match="asks for 86,093,449 runs"):  # 2 * 9 ** 8, and 7 others
        load_study(write(tmp_path, text))


def test_the_limit_can_be_raised_and_holds_for_seeds_from_the_command_line_too(tmp_path):
    path = write(tmp_path, STUDY)
    with pytest.raises(ValueError, match=r"asks for 15 runs, more than 14; .* raise --max-runs"):
        load_study(path, max_runs=14)
    study = load_study(path, max_runs=15)
    with pytest.raises(ValueError, match="asks for 7,000,000,000 runs, more than 10,000"):
        jobs_of(study, tmp_path, seeds=1_000_000_000)


def test_a_module_is_imported_only_on_trust(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted.py").write_text("raise SystemExit('it ran')")
    path = write(tmp_path, STUDY.replace('"Hopper-v5", "Sw', '"planted:Foo-v0", "Sw'))
    with pytest.raises(ValueError, match="must not import 'planted'"):
        load_study(path)
    with pytest.raises(SystemExit, match="it ran"):
        load_study(path, trust=True)


@pytest.mark.parametrize("name", ["...toml", ".toml", "..toml"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text(STUDY)
    with pytest.raises(ValueError, match="a study's name begins with a letter or a digit"):
        load_study(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mine.toml")
    with pytest.raises(ValueError, match="it is not a regular file"):
        load_study(tmp_path / "mine.toml")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"can't read the study .*nothing.toml: No such file"):
        load_study(tmp_path / "nothing.toml")


def test_jobs_take_turns_so_that_every_cell_has_its_first_seed_early(tmp_path, counting):
    cells = (
        Cell(environment="Taxi-v4", agent="counting", seeds=2, first_seed=5),
        Cell(environment="CliffWalking-v1", agent="counting", seeds=1),
    )
    study = Study(name="s", description="d", cells=cells)
    jobs = jobs_of(study, tmp_path, seeds=None, steps=None)
    told = [(job.spec.environment, job.spec.seed, job.spec.steps) for job in jobs]
    assert told == [("Taxi-v4", 5, 600), ("CliffWalking-v1", 0, 1000), ("Taxi-v4", 6, 600)]
    assert jobs[0].path == tmp_path / "Taxi-v4__counting__default" / "seed5"
    shortened = jobs_of(study, tmp_path, seeds=1, steps=70)
    assert [(job.spec.seed, job.spec.steps) for job in shortened] == [(5, 70), (0, 70)]


def test_a_cell_that_cannot_be_run_is_named_before_anything_starts(tmp_path, counting):
    cell = Cell(environment="Taxi-v4", agent="counting", settings={"strid": 3})
    with pytest.raises(ValueError, match="Taxi-v4__counting__default: 'strid' is not a setting"):
        jobs_of(Study(name="s", description="d", cells=(cell,)), tmp_path, seeds=None, steps=None)


@pytest.mark.parametrize("name", STUDIES)
def test_shipped_studies_can_be_planned(name, tmp_path):
    study = STUDIES[name]
    jobs = jobs_of(study, tmp_path, seeds=1, steps=None)
    assert len(jobs) == len(study.cells) > 0
    assert study.description


def test_the_tabular_studies_hold_what_the_paper_varies():
    for name in ("tabular-default", "tabular-readings", "taxi-radius", "taxi-costs"):
        assert {(cell.seeds, cell.audit) for cell in STUDIES[name].cells} == {(30, True)}
    costs = {
        (cell.settings["cost"][0][4], cell.settings["cost"][4][0])
        for cell in STUDIES["taxi-costs"].cells
    }
    gaps = sorted(round(there - back, 9) for there, back in costs)
    # each of ±0.2 and ±0.5 with either of the two costs equal to 1, and the equal costs
    assert gaps == [-0.5, -0.5, -0.2, -0.2, 0.0, 0.2, 0.2, 0.5, 0.5]
    assert all(1.0 in pair for pair in costs)
    ties = {c.settings.get("tie") for c in STUDIES["tabular-readings"].cells if c.agent == "wpo"}
    assert ties >= {"lowest", "stay", "move"}
