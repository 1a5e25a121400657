"""Damage of every sort is noticed; a run's checkpoints fall back to the one before and say so."""

import io
import random
import shutil

import numpy as np
import pytest

from ottrpo.persistence import bundle
from ottrpo.persistence.checkpoints import Checkpoints

from . import hostile

NOISE = np.random.default_rng(1)
ARRAYS = {"weights": NOISE.normal(size=(60, 60)), "moments": NOISE.normal(size=60)}
DATA = {"settings": {"radius": 0.4, "net_arch": [64, 64]}, "rng": {"state": 2**100 + 7}}


@pytest.fixture
def checkpoints(tmp_path):
    made = Checkpoints(tmp_path / "checkpoints", hostile.KIND)
    for step in (100, 200):
        made.write(step, ARRAYS, DATA | {"made at": step})
    return made


def refused(content):
    with pytest.raises(bundle.BundleError, match=r"^[^\n]+$"):
        bundle.read(io.BytesIO(content), hostile.KIND)


def test_every_single_bit_of_a_small_bundle_matters():
    whole = hostile.honest(arrays={"a": np.arange(3)}, data={"b": 1})
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            refused(bytes(flipped))


def test_every_length_of_a_small_bundle_but_the_right_one_is_refused():
    whole = hostile.honest(arrays={"a": np.arange(3)}, data={"b": 1})
    for length in range(len(whole)):
        refused(whole[:length])


def damaged(whole, draw):
    """One kind of damage or another."""
    content = bytearray(whole)
    kind = draw.randrange(6)
    if kind == 0:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == 1:
        for _ in range(draw.randrange(2, 100)):
            content[draw.randrange(len(content))] = draw.randrange(256)
    elif kind == 2:
        del content[draw.randrange(len(content)) :]
    elif kind == 3:  # a block that never arrived
        start = draw.randrange(0, len(content), 4096)
        content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    elif kind == 4:
        at = draw.randrange(len(content))
        content[at:at] = draw.randbytes(draw.randrange(1, 50))
    else:
        start = draw.randrange(len(content))
        del content[start : start + draw.randrange(1, 50)]
    return bytes(content)


def test_a_thousand_damages_fall_back_to_the_checkpoint_before(checkpoints):
    draw = random.Random(5)
    newest = checkpoints.folder / "step-000000000000200.zip"
    whole = newest.read_bytes()
    for _ in range(1000):
        content = damaged(whole, draw)
        if content == whole:
            continue
        newest.write_bytes(content)
        with pytest.warns(UserWarning, match=r"is damaged: .*; using the one of step 100") as told:
            found = checkpoints.newest(lambda saved: saved)
        assert found.step == 100
        assert found.data["made at"] == 100
        np.testing.assert_array_equal(found.arrays["weights"], ARRAYS["weights"])
        assert len(told) == 1
        assert "\n" not in str(told[0].message)


def test_an_empty_a_missing_and_a_foreign_newest_one_fall_back_too(checkpoints):
    newest = checkpoints.folder / "step-000000000000200.zip"
    for content in (b"", hostile.honest(), hostile.honest(kind="Other")):
        newest.write_bytes(content)
        with pytest.warns(UserWarning, match="using the one of step 100"):
            assert checkpoints.newest(lambda saved: saved).step == 100
    newest.unlink()
    assert checkpoints.newest(lambda saved: saved).step == 100


def test_swapped_checkpoints_are_noticed(checkpoints):
    first, second = sorted(checkpoints.folder.iterdir())
    shutil.copy(first, second)
    with pytest.warns(UserWarning, match="not hold the checkpoint that its name says; using"):
        assert checkpoints.newest(lambda saved: saved).step == 100
    first.unlink()
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be used: .*its name says"):
        checkpoints.newest(lambda saved: saved)


def test_one_that_can_t_be_used_falls_back_too(checkpoints):
    def use(checkpoint):
        if checkpoint.step == 200:
            raise KeyError("weights")
        return checkpoint.step

    with pytest.warns(UserWarning, match=r"not hold what it should: KeyError.*of step 100") as told:
        assert checkpoints.newest(use) == 100
    assert len(told) == 1
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be used: .* ZeroDivisionError"):
        checkpoints.newest(lambda checkpoint: 1 / 0)


def test_swapped_members_are_noticed():
    one, two = (
        hostile.members(hostile.honest(arrays={"a": np.full(3, x)}, data={"b": x}))
        for x in (1.0, 2.0)
    )
    for name in one:
        refused(bundle.pack(one | {name: two[name]}))


def test_all_damaged_is_an_error_and_none_at_all_is_none(checkpoints, tmp_path):
    for path in checkpoints.folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no checkpoint in .*it is empty$"):
        checkpoints.newest(lambda saved: saved)
    assert Checkpoints(tmp_path / "new", hostile.KIND).newest(lambda saved: saved) is None


def test_a_damaged_one_never_counts_as_one_of_the_two_that_are_kept(checkpoints):
    """Else the next write would remove the only good one before it."""
    (checkpoints.folder / "step-000000000000200.zip").write_bytes(b"")
    checkpoints.write(300, ARRAYS, DATA)
    steps = sorted(path.name for path in checkpoints.folder.iterdir())
    assert steps == ["step-000000000000100.zip", "step-000000000000300.zip"]


def test_going_on_from_an_earlier_one_forgets_the_abandoned_later_ones(checkpoints):
    checkpoints.write(150, ARRAYS, DATA)
    assert checkpoints.newest(lambda saved: saved).step == 150
    assert len(list(checkpoints.folder.iterdir())) == 2


def test_other_files_in_the_folder_are_left_alone(checkpoints):
    for name in ("notes.txt", "step-1.zip", "step-000000000000300.zip.bak"):
        (checkpoints.folder / name).write_text("mine")
    checkpoints.write(300, ARRAYS, DATA)
    assert (checkpoints.folder / "notes.txt").exists()
    assert checkpoints.newest(lambda saved: saved).step == 300


def test_what_comes_back_is_what_was_written(tmp_path):
    arrays = {
        f"{kind}{size}": np.zeros(shape, f"{kind}{size}")
        for kind, sizes in {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}.items()
        for size in sizes
        for shape in [(2, 3)]
    }
    arrays |= {"b": np.array([True, False]), "scalar": np.float32(2), "none": np.zeros((0, 3))}
    arrays |= {"odd": np.arange(10)[::-2], "turned": np.arange(6).reshape(2, 3).T}
    bundle.write(tmp_path / "deep" / "down", "k", arrays, {"inf": np.inf, "n": np.int64(3)})
    found, data = bundle.read(tmp_path / "deep" / "down.zip", "k")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        found[name] += 1 if found[name].dtype != bool else True  # they can be written to
    assert data == {"inf": np.inf, "n": 3}


@pytest.mark.parametrize(
    "wrong",
    [
        *(np.array(["a"]), np.array([object()]), np.array([1j]), np.array(1, "M8[s]")),
        *(np.array([0.0, np.nan]), np.float16(np.inf)),
    ],
)
def test_what_is_no_number_is_not_saved(wrong, tmp_path):
    with pytest.raises(ValueError, match="the array 'a' can't be saved"):
        bundle.write(tmp_path / "a.zip", "k", {"a": wrong}, {})
    assert not list(tmp_path.iterdir())
