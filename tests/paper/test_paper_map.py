"""The table that leads from the paper to the code is whole, and names what there is."""

import re
from importlib import import_module
from itertools import count, takewhile
from pathlib import Path

import pytest

from tests.test_docs import ROOT, named_in

# every \label of the paper's source, which is not kept here
LABELS = (Path(__file__).parent / "labels.txt").read_text().split()
PAGE = (ROOT / "docs" / "paper.md").read_text()
ROWS = [
    [field.strip() for field in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| in print")
]


def test_every_label_of_the_paper_has_one_line():
    labels = [row[1].strip("`") for row in ROWS if row[1] != "–"]
    assert sorted(labels) == sorted(LABELS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_a_line_names_exists(row):
    (function,) = re.fullmatch(r"`([\w.]+)`", row[3]).groups()
    parts = function.split(".")
    found = import_module("ottrpo")
    for i, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            import_module(".".join(parts[:i]))
        found = getattr(found, part)
    path, test = re.fullmatch(r"`(tests/[\w/]+\.py)::([\w:]+)`", row[4]).groups()
    assert test in named_in(path), f"{path} has no test {test}"


@pytest.mark.parametrize("kind", ["Equation (", "Table ", "Figure ", "Theorem ", "Corollary "])
def test_numbers_are_gapless(kind):
    found = {
        int(n) for n in re.findall(re.escape(kind) + r"(\d+)", "\n".join(r[0] + r[2] for r in ROWS))
    }
    assert found == set(takewhile(lambda n: n <= max(found), count(1)))
