"""What the fuzzers share: strategies, edits, counting, and rounds until the time is over."""

import atexit
import os
import random
import shutil
import struct
import tempfile
import time
import warnings
from collections import Counter
from functools import cache, wraps
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as random_seed
from hypothesis import strategies as st

BULK = 20  # plain random edits for each that Hypothesis draws
SLOW_ONES = ("agents", "resumed")
SLOW = 10.0  # seconds; no input of this size may take as long
TOKENS = [
    *(b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"bundle.json", b"data.json", b"../x", b"\0"),
    *(b"NaN", b"-Infinity", b"1e999", b"[", b"{", b"}", b'"', b'"a":', b",", b"\\ud800", b"\xff"),
    *(b'{"__float__":"inf"}', b'"__metadata__"', b"9" * 200, b"F64", b"BF16", b"data_offsets"),
    *(struct.pack("<Q", 2**63), struct.pack("<I", 2**32 - 1), struct.pack("<H", 8), bytes(64)),
]
COUNTS: Counter[str] = Counter()
TARGETS = {}

numbers = st.integers(-(2**130), 2**130) | st.floats()
leaves = st.none() | st.booleans() | numbers | st.text(max_size=20)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
pieces = st.sampled_from(TOKENS) | st.binary(max_size=12)
edits = st.lists(
    st.tuples(
        st.sampled_from("xrid"), st.floats(0, 1, exclude_max=True), pieces, st.integers(0, 40)
    ),
    min_size=1,
    max_size=6,
)


def fuzzed(*strategies):
    """Something to be tried with inputs of the strategies."""

    def register(function):
        TARGETS[function.__name__] = function, strategies
        return function

    return register


def edited(content, plan):
    """The content after flips, replacements, insertions and deletions."""
    result = bytearray(content)
    for kind, place, piece, length in plan:
        at = int(place * len(result))
        if kind == "x" and result:
            result[at] ^= 1 << (length % 8)
        elif kind == "r":
            result[at : at + len(piece)] = piece
        elif kind == "i":
            result[at:at] = piece
        elif kind == "d":
            del result[at : at + length]
    return bytes(result)


def require_one_line(refusal):
    text = str(refusal)
    assert text, "a refusal without words"
    assert "\n" not in text
    assert len(text) < 1000


@cache
def folder():
    made = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def run(seconds, examples=2000, seed=None, only=None, shrink=True):
    """Fuzz until the time is over, at least one round; the number of inputs per target."""
    COUNTS.clear()
    end = time.monotonic() + seconds
    number = os.getpid() if seed is None else seed
    first = True
    while first or time.monotonic() < end:
        for name in only or TARGETS:
            if first or time.monotonic() < end:
                # an agent takes a hundred times as long as a file
                _round(
                    name, max(1, examples // 20) if name in SLOW_ONES else examples, number, shrink
                )
            number += 1
        first = False
    return {name: COUNTS[name] for name in TARGETS if COUNTS[name]}


def _round(name, examples, number, shrink):
    function, strategies = TARGETS[name]

    @wraps(function)
    def counted(**drawn):
        COUNTS[name] += 1
        return function(**drawn)

    options = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        suppress_health_check=list(HealthCheck),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        random_seed(number)(options(given(*strategies)(counted)))()
        if strategies == (edits,):
            rng = random.Random(number)
            for _ in range(BULK * examples):
                counted(plan=_plan(rng))


def _plan(rng):
    """Edits as the strategy draws them, thirty times as fast."""
    return [
        (
            rng.choice("xrid"),
            rng.random(),
            rng.choice(TOKENS) if rng.random() < 0.5 else rng.randbytes(rng.randrange(12)),
            rng.randrange(40),
        )
        for _ in range(rng.randrange(1, 7))
    ]
