"""Which code made a run."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from ottrpo.experiments import provenance


def git(folder, *arguments):
    me = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    done = subprocess.run(["git", *me, *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def copied(tmp_path):
    """The module in a package of its own; where that package is kept, and how to ask it."""
    path = tmp_path / "src/ottrpo/experiments" / Path(provenance.__file__).name
    path.parent.mkdir(parents=True)
    shutil.copy(provenance.__file__, path)
    spec = importlib.util.spec_from_file_location("copied_provenance", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tmp_path, module.commit


def test_a_change_of_the_package_is_marked_and_no_other(copied):
    folder, commit = copied
    assert commit() is None
    engine, table = folder / "src/ottrpo/engine.py", folder / "results/table.csv"
    table.parent.mkdir()
    engine.write_text("a = 1\n")
    table.write_text("1\n")
    git(folder, "init")
    git(folder, "add", "results", "src/ottrpo/engine.py")
    git(folder, "commit", "-m", "without the module itself")
    assert commit() is None
    git(folder, "add", ".")
    git(folder, "commit", "-m", "whole")
    head = git(folder, "rev-parse", "HEAD")
    assert commit() == head
    table.write_text("2\n")
    assert commit() == head
    engine.write_text("a = 2\n")
    assert commit() == head + "+"
