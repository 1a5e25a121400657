"""Reading results: all that is there, and one clear line about what is damaged."""

import pytest

from ottrpo.cli import main
from ottrpo.results.reading import read_study, study_names
from tests.reports.synthetic import cell, name_of, seal, write_study

CELL = cell()
TABLE = f"{name_of(CELL)}.csv"


@pytest.fixture
def folder(tmp_path):
    cells = [CELL, cell("Swimmer-v5", trained_steps=None, planned_seeds=10)]
    return write_study(tmp_path / "control", cells, seeds=3, paper=["tab:trained:scores"])


def test_everything_is_read(folder):
    study = read_study(folder)
    hopper, swimmer = study.cells
    assert (study.name, hopper.study, hopper.title) == ("control", "control", "default")
    assert hopper.answers == ("tab:trained:scores",)
    assert list(hopper.curves) == [True, False]
    curves = hopper.curves[True]
    assert curves.seed_n == (0, 1, 2)
    assert curves.return_nt.shape == (3, len(curves.mark_t)) == (3, 28)
    assert [run.train_seconds for run in hopper.runs] == [60, 61, 62]
    assert (swimmer.curves, swimmer.runs, swimmer.planned) == ({}, (), 10)
    write_study(folder.parent / ".control.x1", [CELL], seeds=1)  # a collection that was killed
    assert study_names(folder.parent) == ["control"]


def test_a_mark_that_one_seed_lacks_is_left_out_of_the_common_curve(folder):
    path = folder / TABLE
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:1] + lines[3:]) + "\n")  # seed 0 at 5 %, both ways to act
    seal(folder)
    curves = read_study(folder).cells[0].curves[True]
    assert curves.return_nt.shape == (3, 28)
    mark_t, return_nt = curves.common()
    assert (mark_t[0], return_nt.shape) == (100_000, (3, 27))


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


RUNS, MANIFEST = "runs.csv", "manifest.json"
# what happened -> file, what stood there (None: all of it), what stands there now, what is said
DAMAGES = {
    "a word for a number": (TABLE, "0,50000,", "0,x,", "line 2: invalid literal"),
    "a word among returns": (TABLE, "1.5,", "1.5,good ", "line 2: could not convert"),
    "not a number": (TABLE, "1.5,", "1.5,nan ", "line 2: seed 0 at 50000"),
    "an evaluation twice": (TABLE, "0,100000,", "0,50000,", "line 4: seed 0 at 50000"),
    "a torn line": (TABLE, "\n2,50000,50000,1,1.5,", "\n2,50000,5\n2,", "line 114 is torn"),
    "a column gone": (TABLE, "returns", "return", "lacks the columns returns"),
    "another file": (TABLE, None, "\udcff\udcfe", "is not a table"),
    "no end of a field": (TABLE, None, "x" * 200_000, "is not a table"),
    "a null byte": (TABLE, "1.5,", "\0", "line 2 is torn"),
    "an empty file": (TABLE, None, "", "lacks the columns seed"),
    "a seed renamed": (TABLE, "\n2,5000", "\n7,5000", r"holds the seeds \[0, 1, 2, 7\]"),
    "a run's seconds": (RUNS, ",60", ",long", "runs.csv, line 2"),
    "half a manifest": (MANIFEST, None, '{"cells": {', "is not valid JSON"),
    "a list for a manifest": (MANIFEST, None, "[]", "must hold one JSON object"),
    "a cell without agent": (MANIFEST, '"agent"', '"agnet"', "lacks agent"),
    "a word for steps": (MANIFEST, "1000000", '"long"', "trained_steps of Hopper"),
    "seeds as words": (MANIFEST, "[0, 1, 2]", '["0"]', "seeds of Hopper"),
    "settings as a list": (MANIFEST, '{"radius": "30%"}', "[1]", "resolved of Hopper"),
    "checksums as a list": (MANIFEST, '"sha256": {', '"sha256": [], "x": {', "an object sha256"),
    "no checksums": (MANIFEST, '"sha256"', '"sha255"', "must hold an object sha256"),
    "an escape": (
        MANIFEST,
        '"Hopper-v5"',
        '"\\u001b[2J"',
        "environment of .* must be words",
    ),
    "an escape in a name": (MANIFEST, f'"{name_of(CELL)}"', '"\\u001b[2J"', "no name of a file"),
    "a name that climbs": (MANIFEST, f'"{name_of(CELL)}"', '"../../secret"', "no name of a file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_in_one_line(folder, damage, capsys):
    file, old, new, message = DAMAGES[damage]
    if old is None:
        (folder / file).write_bytes(new.encode("utf-8", "surrogateescape"))
    else:
        edit(folder / file, old, new)
    if file != MANIFEST:
        seal(folder)
    with pytest.raises(ValueError, match=message):
        read_study(folder)
    for options in ([], ["--json"], ["--html", str(folder.parent / "page.html")]):
        assert main(["report", "--results", str(folder.parent), *options]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert len(told.err.strip().splitlines()) == 1
    assert not (folder.parent / "page.html").exists()


def test_a_number_changed_by_hand_is_seen_by_its_checksum(folder):
    read_study(folder)
    edit(folder / TABLE, "0,50000,50000,1,1.5,", "0,50000,50000,1,1.5,9")
    with pytest.raises(ValueError, match=f"{TABLE} .*collected"):
        read_study(folder)
    (folder / TABLE).unlink()
    with pytest.raises(ValueError, match=f"{TABLE} is missing"):
        read_study(folder)
