import pytest

from ottrpo.experiments.protocol import protocol_named
from ottrpo.reports.statistics import trained_scores
from ottrpo.results.reading import run_curves
from ottrpo.results.run_directory import RunDirectory


def test_finite_problems_are_evaluated_100_times_with_sampled_actions():
    protocol = protocol_named("paper", finite=True)
    assert protocol.marks(200_000) == list(range(2_000, 200_001, 2_000))
    assert (protocol.episodes, protocol.deterministic) == (10, (False,))


def test_continuous_problems_are_evaluated_densely_in_the_last_tenth():
    protocol = protocol_named("paper", finite=False)
    marks = protocol.marks(1_000_000)
    assert marks[:3] == [50_000, 100_000, 150_000]
    assert marks[-11:] == list(range(900_000, 1_000_001, 10_000))
    assert (protocol.episodes, protocol.deterministic) == (10, (True, False))


@pytest.mark.parametrize("steps", [1, 7, 99, 101])
def test_short_runs_have_marks_too(steps):
    marks = protocol_named("paper", finite=True).marks(steps)
    assert marks[-1] == steps
    assert marks == sorted(set(marks))
    assert marks[0] >= 1


def test_the_score_is_the_mean_of_the_last_tenth_of_one_way_to_act(tmp_path):
    run = RunDirectory.create(tmp_path, {"seed": 3, "environment": "Hopper-v5"})
    for mark, way, returns in (
        (900, False, [100.0, 100.0]),  # not in the last tenth
        (950, False, [1.0, 3.0]),
        (1000, False, [4.0, 8.0]),
        (1000, True, [-1.0, -1.0]),
    ):
        run.log_evaluation({"mark": mark, "deterministic": way, "returns": returns})
    curves = run_curves([run])
    assert list(curves) == [True, False]
    assert curves[False].seed_n == (3,)
    sampled = trained_scores(curves[False].mark_t, curves[False].return_nt, 1000)
    assert (sampled.score_n.tolist(), sampled.std_time) == ([4.0], 2.0)
    assert trained_scores(curves[True].mark_t, curves[True].return_nt, 1000).score_n == [-1.0]
    with pytest.raises(ValueError, match="no evaluation in the last tenth"):
        trained_scores(curves[False].mark_t[:1], curves[False].return_nt[:, :1], 1000)
