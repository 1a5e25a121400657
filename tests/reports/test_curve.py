import matplotlib.image
import numpy as np

from ottrpo.reports.curve import draw_learning_curve


def record(timestep, returns, deterministic=False):
    return {"timestep": timestep, "returns": returns, "deterministic": deterministic}


def test_the_picture_shows_what_it_is_given(tmp_path):
    low = [record(t, [0.0, 1.0]) for t in (10, 20)]
    high = [record(t, [5.0, 9.0]) for t in (10, 20)]
    pictures = []
    for name, evaluations, paper in (("a", low, None), ("b", high, None), ("c", low, 0.5)):
        path = tmp_path / f"{name}.png"
        draw_learning_curve(evaluations, path, paper=paper)
        pictures.append(matplotlib.image.imread(path))
    assert pictures[0].shape == pictures[1].shape == (480, 768, 4)
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])


def test_both_ways_to_act_and_wide_ranges_are_drawn(tmp_path):
    evaluations = [record(t, [-5001.0 / t, -14.0], d) for t in (1, 50) for d in (True, False)]
    draw_learning_curve(evaluations, tmp_path / "wide.png", paper=-14.0)
    assert (tmp_path / "wide.png").stat().st_size > 1000
