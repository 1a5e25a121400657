"""A few seconds of what `python -m tests.persistence.fuzz --minutes 10` does at length."""

import pytest

from ottrpo.persistence import bundle, strict_json

from . import fuzz, fuzz_texts

# a checkpoint of a deep agent takes a training, and that some seconds of compiling
QUICK = [name for name in fuzz.TARGETS if name != "resumed"]


@pytest.mark.parametrize("target", [*QUICK, pytest.param("resumed", marks=pytest.mark.slow)])
def test_a_reader_refuses_or_understands(target):
    counts = fuzz.run(0, examples=50, seed=1, only=[target])
    assert counts[target] >= (2 if target in fuzz.SLOW_ONES else 50)


def test_the_texts_that_are_edited_are_honest():
    """Else every edit would be refused for another reason."""
    fuzz.COUNTS.clear()
    for target in ("manifests", "logs", "studies", "problems"):
        getattr(fuzz_texts, target)([])
    fuzz_texts.results([], "manifest")
    assert {name.split()[-1] for name in fuzz.COUNTS} == {"accepted"}


def test_the_fuzzer_notices_readers_that_are_too_kind(monkeypatch):
    honest = bundle.pack
    monkeypatch.setattr(bundle, "pack", lambda members: Anything(honest(members)))
    with pytest.raises(AssertionError):
        fuzz.run(0, examples=300, seed=1, only=["whole_files"], shrink=False)


def test_the_fuzzer_notices_readers_that_fail_in_their_own_way(monkeypatch):
    monkeypatch.setattr(strict_json, "_constant", {}.__getitem__)
    with pytest.raises(KeyError, match=r"NaN|Infinity"):
        fuzz.run(0, examples=500, seed=1, only=["edited_data"], shrink=False)


def test_time_is_linear_in_the_size_of_json():
    """Counted, not clocked: the last of many keys is doubled, and each key is compared seldom."""

    class Counted(str):
        __slots__ = ()
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Counted.compared += 1
            return str.__eq__(self, other)

    keys = [Counted(f"{i:06}") for i in range(20_000)]
    with pytest.raises(ValueError, match="'019999' twice"):
        strict_json._object([*((key, 0) for key in keys), (Counted("019999"), 0)])
    assert Counted.compared < 100_000


class Anything(bytes):
    """Equal to whatever was read."""

    __hash__ = bytes.__hash__

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False
