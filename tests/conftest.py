import gc
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ottrpo.experiments import registry

# What a shell without job control starts in the background ignores Ctrl-C, and so does everything
# started from there; tests that send it would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CONFIG = """
description = "for tests"
steps = 1000
[settings]
stride = 7
[environments."Taxi-v4"]
stride = 30
steps = 600
"""


@pytest.fixture(autouse=True, scope="module")
def _programs_are_let_go():
    """Every compiled program holds some of the memory maps that the system lets a process have.

    Thousands of tests in one process compile more of them than that (65,530 by default), and then
    XLA aborts; no training comes near it.
    """
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
        gc.collect()


@pytest.fixture
def counting(monkeypatch, tmp_path):
    """The registry with nothing in it but the counting agent and its configurations."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "experiments"))
    configs = tmp_path / "configs" / "counting"
    configs.mkdir(parents=True)
    (configs / "default.toml").write_text(CONFIG)
    (configs / "slow.toml").write_text('extends = "default"\n[settings]\nstride = 3\n')
    entry = registry.AgentEntry(
        key="counting",
        name="counting",
        module="counting_agent",
        class_name="CountingAgent",
        finite=True,
        description="counts",
    )
    monkeypatch.setattr(registry, "_AGENTS", (entry,))
    monkeypatch.setattr(registry, "CONFIGS", tmp_path / "configs")
    yield entry
    sys.modules.pop("counting_agent", None)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """A real one."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser found; looked for {', '.join(BROWSERS)}")
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # root can't have one
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()
