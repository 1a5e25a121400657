import os
import shutil
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


NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """A real one."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next((path for name in NAMES if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser found; looked for {', '.join(NAMES)}")
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # root can't have one
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()
