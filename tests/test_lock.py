"""constraints.txt: all that the set-up installs, every file by its hash."""

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.lock import BUILDS, LOCK, ROOT, STAGES, TORCH, plain, read, written

TEXT = LOCK.read_text()
PINS = read(TEXT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def of(stage):
    return {pin.name: pin.version for pin in PINS if stage in pin.stages}


def test_every_version_is_exact_and_every_pin_has_a_hash():
    assert all(pin.hashes for pin in PINS)
    assert not [pin for pin in PINS if "+" in pin.version and pin.stages != ("cpu",)]
    assert of("cpu") == {"torch": "2.13.0+cpu"}
    assert of("cuda")["torch"] == "2.13.0"


def test_it_is_as_it_would_be_written_and_names_no_place():
    assert written(PINS) == TEXT
    assert "/" not in TEXT
    assert len(TEXT) < 400_000


@pytest.mark.parametrize("line", ["numpy>=2", "numpy", "-e .", "    --hash=md5:00", "--pre"])
def test_what_is_no_pin_is_noticed(line):
    with pytest.raises(ValueError, match="neither a pin nor a hash"):
        read(f"{TEXT}{line}\n")


def asked_for(requirement):
    """What a requirement asks for in turn; nothing of what is not installed."""
    if requirement.name == "ottrpo":
        extras = PROJECT["optional-dependencies"]
        texts = [text for extra in requirement.extras for text in extras[extra]]
        return [Requirement(text) for text in (*PROJECT["dependencies"], *texts)]
    try:
        texts = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    known = [{"extra": extra} for extra in (requirement.extras or {""})]
    asked = map(Requirement, texts)
    return [one for one in asked if not one.marker or any(map(one.marker.evaluate, known))]


@pytest.mark.parametrize("stage", STAGES)
def test_all_that_a_stage_needs_is_in_the_list(stage):
    left = [Requirement(f"ottrpo{STAGES[stage].removeprefix('.')}"), *map(Requirement, BUILDS)]
    seen, pinned = set(), of(stage) | ({} if stage == "core" else of("cpu"))
    while left:
        one = left.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        left += asked_for(one)
        if one.name != "ottrpo":
            assert plain(one.name) in pinned, f"{one} is needed: make lock"
            version = pinned[plain(one.name)]
            assert one.specifier.contains(version, prereleases=True), (
                f"{one} is pinned to {version}"
            )
    assert len(seen) > 10


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """What the Makefile would do for every stage, in a folder where nothing was done."""
    folder = tmp_path_factory.mktemp("dry")
    targets = [f"{folder}/.{stamp}" for stamp in ("core", "deep", "docs", "installed")]
    make = ["make", "--dry-run", "--no-print-directory", f"VENV={folder}", *targets]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
    return folder, done.stdout


def test_the_set_up_installs_nothing_without_a_hash_but_the_project(commands):
    installs = re.findall(r" install (.*?)(?: 2>|;| &&|$)", commands[1], re.MULTILINE)
    hashed = [
        re.search(r"/(\w+)\.txt$", line)[1] for line in installs if "--require-hashes" in line
    ]
    assert set(hashed) == {*STAGES, *TORCH}
    plainly = {line for line in installs if "--require-hashes" not in line}
    assert plainly == {"--quiet --no-deps --no-build-isolation --editable ."}


@pytest.mark.parametrize("stage", [*STAGES, *TORCH])
def test_the_set_up_takes_the_pins_of_its_stage(stage, commands):
    folder, told = commands
    taken = re.search(rf"awk -v stage={stage} .*? > \S+/{stage}.txt", told)[0]
    subprocess.run(taken, shell=True, check=True, cwd=ROOT)
    listed = read((folder / f"{stage}.txt").read_text())
    assert {pin.name: pin.version for pin in listed} == of(stage)
    assert sum(len(pin.hashes) for pin in listed) >= len(listed) > 0


@pytest.mark.slow
@pytest.mark.parametrize("tampered", [False, True])
def test_a_file_with_another_hash_is_not_installed(tampered, tmp_path):
    """With a package of our own, which no index has."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "one"\nversion = "1"\n')
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "."], check=True, cwd=tmp_path)
    (built,) = tmp_path.glob("*.whl")
    digest = hashlib.sha256(built.read_bytes() + b"!" * tampered).hexdigest()
    (tmp_path / "constraints.txt").write_text(
        f"# for core\none==1 \\\n    --hash=sha256:{digest}\n"
    )
    shutil.copy(ROOT / "Makefile", tmp_path)
    make = ["make", f"PYTHON={sys.executable}", ".venv/.core"]
    env = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = subprocess.run(make, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ("DO NOT MATCH THE HASHES" in done.stderr) == tampered
    assert len(list(tmp_path.glob(".venv/lib/*/site-packages/one-1.dist-info"))) == 1 - tampered
