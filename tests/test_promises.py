"""Whatever promises name as their tests is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# first the promises in short, each with files, then every behaviour with its test
_, SHORT, *LONG = (ROOT / "docs" / "promises.md").read_text().split("\n## ")
TABLES = re.findall(r"^\|.*\|$", "\n".join(LONG), re.MULTILINE)
HELD = [row for row in TABLES if not row.startswith(("| behaviour", "|---"))]


@pytest.mark.parametrize("row", HELD)
def test_a_promise_has_a_test(row):
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
    assert len(named) == 1
    for file, test in named:
        functions = ast.parse((ROOT / file).read_text()).body
        assert test in [f.name for f in functions if isinstance(f, ast.FunctionDef)]


def test_files_that_the_promises_in_short_name_are_there():
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", SHORT)
    assert len(named) > 5
    for name in named:
        assert (ROOT / name).exists()
