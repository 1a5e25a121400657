"""Values come back as exactly what they were, types and bits."""

import json
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from ottrpo.persistence import strict_json
from ottrpo.persistence.strict_json import NotPlain, decode, encode

DTYPES = (np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64)
arrays_ = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=3))
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    arrays_,
    st.sampled_from(DTYPES).flatmap(lambda d: arrays_of.from_dtype(np.dtype(d))),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=12),
        st.lists(st.floats(), min_size=9, max_size=12),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5)),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=12,
)


def there_and_back(value):
    arrays = {}
    data = strict_json.loads(strict_json.dumps({"value": encode(value, arrays, "x")}))
    for array in arrays.values():
        assert np.isfinite(array).all(), "no bundle takes it"
    return decode(data["value"], arrays)


def same(left, right):
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (left != left and right != right)


@given(values)
def test_what_comes_back_is_what_went(value):
    assert same(there_and_back(value), value)


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64", "PCG64DXSM"])
def test_generators_draw_on(kind):
    generator = np.random.Generator(getattr(np.random, kind)(3))
    generator.random(7)
    again = there_and_back({"rng": generator})["rng"]
    np.testing.assert_array_equal(generator.random(50), again.random(50))


def test_deques_keep_their_limit():
    assert there_and_back(deque([1, 2], maxlen=2)).maxlen == 2


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, len, np.array(["a"]), np.array([None]), 1j, [b"x"]]
)
def test_what_is_no_data_is_refused(value):
    with pytest.raises(NotPlain):
        encode(value, {}, "x")


@pytest.mark.parametrize(
    "data",
    [
        {"@": "object"},
        {},
        {"@": ["array"]},
        {"@": "generator", "state": {"@": "dict", "items": [["bit_generator", "os"]]}},
    ],
)
def test_what_nobody_wrote_is_refused(data):
    with pytest.raises(ValueError, match="there is no"):
        decode(json.loads(json.dumps(data)), {})
