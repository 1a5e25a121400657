import pytest

from ottrpo.experiments.protocol import paper_protocol, score


def test_finite_problems_are_evaluated_100_times_with_sampled_actions():
    protocol = paper_protocol(finite=True)
    assert protocol.marks(200_000) == list(range(2_000, 200_001, 2_000))
    assert (protocol.episodes, protocol.deterministic) == (10, (False,))


def test_continuous_problems_are_evaluated_densely_in_the_last_tenth():
    protocol = paper_protocol(finite=False)
    marks = protocol.marks(1_000_000)
    assert marks[:3] == [50_000, 100_000, 150_000]
    assert marks[-11:] == list(range(900_000, 1_000_001, 10_000))
    assert (protocol.episodes, protocol.deterministic) == (10, (True, False))


@pytest.mark.parametrize("steps", [1, 7, 99, 101])
def test_short_runs_have_marks_too(steps):
    marks = paper_protocol(finite=True).marks(steps)
    assert marks[-1] == steps
    assert marks == sorted(set(marks))
    assert marks[0] >= 1


def test_the_score_is_the_mean_of_the_last_tenth_of_one_way_to_act():
    evaluations = [
        {"mark": 900, "deterministic": False, "returns": [100.0, 100.0]},  # not in the last tenth
        {"mark": 950, "deterministic": False, "returns": [1.0, 3.0]},
        {"mark": 1000, "deterministic": False, "returns": [4.0, 8.0]},
        {"mark": 1000, "deterministic": True, "returns": [-1.0, -1.0]},
    ]
    sampled = score(evaluations, 1000, deterministic=False)
    assert (sampled.mean, sampled.std_time, sampled.evaluations) == (4.0, 2.0, 2)
    assert score(evaluations, 1000, deterministic=True).mean == -1.0
    assert score(evaluations[:1], 1000, deterministic=False) is None
