"""A cost that transitions teach, against systems whose answer is known."""

import numpy as np
import pytest

from ottrpo.core import SquaredEuclidean, sensitivity_cost

CASES = 1_000


def transitions(rng, features, size, rows=60):
    """s' = As + Ba + b, and B."""
    steer = rng.standard_normal((size, features)) * 10.0 ** rng.uniform(-1, 1, (size, 1))
    advance, offset = rng.standard_normal((features, features)), rng.standard_normal(features)
    seen, action = rng.standard_normal((rows, features)), rng.uniform(-1, 1, (rows, size))
    return seen, action, seen @ advance + action @ steer + offset, steer


def test_of_linear_systems_it_is_the_distance_of_what_follows():
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        features, size = rng.integers(1, 6), rng.integers(1, 4)
        seen, action, after, steer = transitions(rng, features, size)
        floor = rng.uniform(0.01, 1.0)
        cost = sensitivity_cost(seen, action, after, floor)
        one, other = rng.uniform(-1, 1, (2, size))
        apart = (((one - other) @ steer / seen.std(0)) ** 2).sum()
        unit = ((steer / seen.std(0)) ** 2).sum(1).mean()
        plain = SquaredEuclidean()(one, other)
        assert cost(one, other) == pytest.approx((1 - floor) * apart / unit + floor * plain)
        assert np.trace(cost.metric) == pytest.approx(size)


def test_units_of_observations_do_not_matter_and_noise_averages_out():
    rng = np.random.default_rng(1)
    seen, action, after, _ = transitions(rng, 3, 2, rows=20_000)
    known = sensitivity_cost(seen, action, after).metric
    unit = np.array([1e-3, 1.0, 1e6])
    np.testing.assert_allclose(
        sensitivity_cost(seen * unit, action, after * unit).metric, known, rtol=1e-8
    )
    blurred = after + rng.standard_normal(after.shape)
    np.testing.assert_allclose(
        sensitivity_cost(seen, action, blurred).metric, known, atol=0.05 * np.abs(known).max()
    )
    still = np.column_stack([seen, np.ones(len(seen))])  # an entry that never changes has no say
    same = sensitivity_cost(still, action, np.column_stack([after, np.ones(len(seen))])).metric
    np.testing.assert_allclose(same, known, rtol=1e-8)


def test_entries_that_follow_from_others_do_no_harm():
    """As of Pusher-v5, whose joints and tips say the same thing twice."""
    rng = np.random.default_rng(3)
    seen, action, after, _ = transitions(rng, 3, 2)
    known = sensitivity_cost(seen, action, after).metric
    twice, then = (np.column_stack([x, x]) for x in (seen, after))
    np.testing.assert_allclose(sensitivity_cost(twice, action, then).metric, known, rtol=1e-8)


def test_what_tells_nothing_is_refused():
    rng = np.random.default_rng(2)
    seen, action, after, _ = transitions(rng, 3, 2)
    with pytest.raises(ValueError, match="do not tell what actions do"):
        sensitivity_cost(seen, seen[:, :2], after)  # a policy without noise
    with pytest.raises(ValueError, match="do not tell what actions do"):
        sensitivity_cost(np.ones_like(seen), action, np.ones_like(seen))
    with pytest.raises(ValueError, match="more than 6 transitions"):
        sensitivity_cost(seen[:6], action[:6], after[:6])
    with pytest.raises(ValueError, match="floor must be from 0 to 1"):
        sensitivity_cost(seen, action, after, floor=2.0)
