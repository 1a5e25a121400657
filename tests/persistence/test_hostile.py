"""Opening what a stranger sent: refused in one clear line, nothing runs, nothing is written."""

import io
import os
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ottrpo.persistence import bundle, strict_json
from ottrpo.persistence.checkpoints import Checkpoints

from . import hostile

ONE_LINE = r"^[^\n\x1b]+$"
TRICKS = list(hostile.corpus("nowhere"))


def everything_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    marker = tmp_path_factory.mktemp("marker") / "ran"
    return marker, hostile.corpus(marker)


@pytest.mark.parametrize("trick", TRICKS)
def test_every_trick_is_refused(built, trick, tmp_path, monkeypatch):
    marker, corpus = built
    content = corpus[trick]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.zip").write_bytes(content)
    places = (tmp_path, tmp_path / "agent.zip", str(tmp_path / "agent"), io.BytesIO(content))
    for place in places:
        with pytest.raises(bundle.BundleError, match=ONE_LINE) as refusal:
            bundle.read(place, hostile.KIND)
        assert len(str(refusal.value)) < 400
    assert not marker.exists(), "code ran"
    assert everything_under(tmp_path) == ["agent.zip"], "something was written"


def test_the_corpus_would_run_if_it_were_unpickled(tmp_path):
    pickle.loads(hostile.corpus(tmp_path / "ran")["pickle"])
    assert (tmp_path / "ran").exists()


def test_the_corpus_differs_from_an_honest_bundle_by_its_trick_only():
    for content in (hostile.honest(), hostile.assembled()):
        arrays, data = bundle.read(io.BytesIO(content), hostile.KIND)
        assert data == hostile.DATA
        assert arrays.keys() == hostile.ARRAYS.keys()


def test_the_format_before_this_one_is_refused_by_name():
    with pytest.raises(ValueError, match=r"its format is 'ottrpo-agent-1', and this version reads"):
        bundle.read(io.BytesIO(hostile.assembled(format="ottrpo-agent-1")), hostile.KIND)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device", "nothing", "sparse"])
def test_what_lies_in_a_directory_must_be_a_plain_file(kind, tmp_path):
    (tmp_path / "good").write_bytes(hostile.honest())
    place = tmp_path / "run" / "agent.zip"
    place.parent.mkdir()
    if kind == "link":
        place.symlink_to(tmp_path / "good")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "sparse":
        with place.open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(ValueError, match=ONE_LINE):
        bundle.read(place.parent, hostile.KIND)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    if kind != "nothing":
        place.rename(folder / "step-000000000000001.zip")
        with pytest.raises(ValueError, match="no checkpoint in"):
            Checkpoints(folder, hostile.KIND).newest(lambda saved: saved)


def test_a_pipe_and_a_device_that_are_named_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match="not a regular file"):
            bundle.read(place, hostile.KIND)
    (tmp_path / "good.zip").write_bytes(hostile.honest())
    (tmp_path / "link.zip").symlink_to(tmp_path / "good.zip")
    bundle.read(tmp_path / "link.zip", hostile.KIND)  # who names a link means it


def test_a_folder_of_checkpoints_that_leads_elsewhere_is_not_written_to(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="not a link"):
        Checkpoints(tmp_path / "checkpoints", hostile.KIND)
    fine = Checkpoints(tmp_path / "later", hostile.KIND)
    (tmp_path / "later").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="not a link"):
        fine.write(1, hostile.ARRAYS, {})
    assert not list((tmp_path / "elsewhere").iterdir())


def test_writing_replaces_a_link_and_not_what_it_points_to(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "agent.zip").symlink_to(tmp_path / "precious")
    bundle.write(tmp_path / "agent.zip", hostile.KIND, hostile.ARRAYS, hostile.DATA)
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "agent.zip").is_symlink()


def test_limits_hold_for_files_in_memory_too():
    class Endless(io.BufferedIOBase):
        def read(self, size=-1):
            assert 0 <= size <= bundle.MAX_BYTES + 1
            return bytes(10**6)

    with pytest.raises(ValueError, match="no zip archive"):
        bundle.read(Endless(), hostile.KIND)


def test_names_from_a_file_are_shown_harmless(tmp_path):
    content = hostile.assembled(kind="<b>\x1b[31m\nred")
    with pytest.raises(ValueError, match=r"holds a '<b>\\x1b\[31m\\nred', not a Thing"):
        bundle.read(io.BytesIO(content), hostile.KIND)
    place = tmp_path / "two\nlines\x1b[31m"
    with pytest.raises(ValueError, match=ONE_LINE):
        bundle.read(place, hostile.KIND)


def test_json_that_we_write_is_what_we_read():
    data = {"a": [1, -2.5, None, True, {"b": (1, 2)}], "é": float("-inf"), "big": -(2**128)}
    content = strict_json.dumps(data)
    assert strict_json.loads(content) == data | {"a": [1, -2.5, None, True, {"b": [1, 2]}]}
    for wrong in ({1: 2}, {"a": {1, 2}}, {"a": object()}, {"__float__": "inf"}, {"a": b"x"}):
        with pytest.raises(ValueError, match=r"data.* can't be saved"):
            strict_json.dumps(wrong)


def test_any_unzip_program_opens_a_bundle(tmp_path):
    with zipfile.ZipFile(io.BytesIO(hostile.honest())) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    assert everything_under(tmp_path) == ["arrays.safetensors", "bundle.json", "data.json"]


def test_what_could_not_be_read_is_not_written(tmp_path):
    deep = []
    for _ in range(70):
        deep = [deep]
    for data in ({"a": "x" * strict_json.MAX_BYTES}, {"a": deep}, {"a": 10**200}):
        with pytest.raises(ValueError, match="the data can't be saved: its JSON"):
            bundle.write(tmp_path / "a", hostile.KIND, {}, data)
    with pytest.raises(ValueError, match="has the shape"):
        bundle.write(tmp_path / "a", hostile.KIND, {"a": np.zeros([1] * 20)}, {})
    assert not list(tmp_path.iterdir())


def test_the_limits_are_those_that_the_page_tells():
    page = (Path(__file__).parent.parent.parent / "docs" / "checkpoints.md").read_text()
    table = page.split("| of | limit |")[1].split("\n\n")[0]
    limits = (bundle.MAX_ARRAYS, bundle.MAX_AXES, bundle.MAX_ARRAYS_HEADER)
    limits += (strict_json.MAX_BYTES, strict_json.MAX_DEPTH, strict_json.MAX_DIGITS)
    assert re.findall(r"[\d,]*\d", table) == [f"{limit:,}" for limit in limits]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_arrays_that_no_honest_writer_makes_are_not_read(value):
    forged = hostile.forged(hostile.KIND, {"w": np.array([1.0, value])}, hostile.DATA)
    with pytest.raises(bundle.BundleError, match="the array 'w' holds NaN or infinity"):
        bundle.read(io.BytesIO(forged), hostile.KIND)
