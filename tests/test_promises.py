"""Whatever promises name as their tests is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLES = re.findall(r"^\|.*\|$", (ROOT / "docs" / "promises.md").read_text(), re.MULTILINE)
HELD = [row for row in TABLES if not row.startswith(("| behaviour", "|---"))]


@pytest.mark.parametrize("row", HELD)
def test_a_promise_has_a_test(row):
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
    assert len(named) == 1
    for file, test in named:
        functions = ast.parse((ROOT / file).read_text()).body
        assert test in [f.name for f in functions if isinstance(f, ast.FunctionDef)]


def test_files_that_the_readme_names_are_there():
    (table,) = re.findall(r"## Promises\n(.*?)\n## ", (ROOT / "README.md").read_text(), re.DOTALL)
    for name in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", table):
        assert (ROOT / name).exists()
