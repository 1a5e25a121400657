"""Random states from a file: NumPy believes positions in them, and reads beyond its buffers."""

import numpy as np
import pytest

from ottrpo.persistence.strict_json import decode, encode, global_randomness, set_global_randomness


@pytest.mark.parametrize("kind", ["MT19937", "Philox", "PCG64", "PCG64DXSM", "SFC64"])
def test_generators_go_on_where_they_were(kind):
    generator = np.random.Generator(getattr(np.random, kind)(3))
    generator.integers(10, size=7)
    arrays = {}
    again = decode(encode(generator, arrays, "g"), arrays)
    np.testing.assert_array_equal(generator.random(2000), again.random(2000))


@pytest.mark.parametrize("position", [-1, 700, 10**8, 2**40, "1", None, 1.5])
@pytest.mark.parametrize("kind", ["MT19937", "Philox"])
def test_positions_beyond_the_buffer_are_refused(kind, position):
    state = getattr(np.random, kind)(3).state
    if kind == "Philox":
        state["buffer_pos"] = position
    else:
        state["state"]["pos"] = position
    arrays = {}
    tampered = {"@": "generator", "state": encode(state, arrays, "g")}
    with pytest.raises(ValueError, match=r"position in a random generator must lie in 0\.\."):
        decode(tampered, arrays)


@pytest.mark.parametrize("position", [-1, 700, 10**8, None])
def test_the_global_ones_too_and_nothing_is_changed(position):
    before = global_randomness()
    kind, keys, _, *rest = before["numpy"]
    with pytest.raises(ValueError, match="position in NumPy's old generator must lie in"):
        set_global_randomness(before | {"numpy": (kind, keys, position, *rest)})
    after = global_randomness()
    assert after["python"] == before["python"]
    assert after["numpy"][2] == before["numpy"][2]
    set_global_randomness(before)
