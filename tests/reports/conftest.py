from pathlib import Path

import pytest

from ottrpo.cli import main


@pytest.fixture(scope="session")
def kept_page(tmp_path_factory):
    """The report of the results that are kept, as the command line writes it."""
    results = Path(__file__).parents[2] / "results"
    path = tmp_path_factory.mktemp("kept") / "report.html"
    assert main(["report", "--results", str(results), "--html", str(path)]) == 0
    return path
