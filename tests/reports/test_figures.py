"""Which curve looks how, and on which scale."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from ottrpo.experiments.published import Published
from ottrpo.reports import figures
from ottrpo.reports.figures import PALETTE, line_styles, run_panel, save_panels


def record(timestep, returns, deterministic=False):
    return {"timestep": timestep, "returns": returns, "deterministic": deterministic}


def drawn(panel):
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    figures._draw(axes, panel)
    figure.draw_without_rendering()
    return axes


def learnt(levels):
    """A run that is evaluated at every hundredth step."""
    return run_panel(
        [record(100 * t, [level - 1.0, level + 1.0]) for t, level in enumerate(levels)]
    )


def test_the_picture_shows_what_it_is_given(tmp_path):
    low = [record(t, [0.0, 1.0]) for t in (10, 20)]
    high = [record(t, [5.0, 9.0]) for t in (10, 20)]
    pictures = []
    for name, evaluations, paper in (
        ("a", low, None),
        ("b", high, None),
        ("c", low, Published(0.5, 0.1)),
    ):
        path = tmp_path / f"{name}.png"
        save_panels([run_panel(evaluations, paper)], path)
        pictures.append(matplotlib.image.imread(path))
    assert pictures[0].shape == pictures[1].shape
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])


def test_both_ways_to_act_are_drawn():
    panel = run_panel([record(t, [-14.0, t], way) for t in (1, 50) for way in (True, False)])
    assert [curve.label for curve in panel.curves] == ["deterministic actions", "sampled actions"]


def test_evaluations_that_fall_on_one_step_are_one_point():
    panel = run_panel([record(2048, [1.0, 2.0]), record(2048, [9.0, 8.0]), record(4096, [5.0])])
    (curve,) = panel.curves
    assert curve.x_t.tolist() == [2048, 4096]
    assert curve.y_bt.tolist() == [[5.0, 5.0], [1.0, 5.0], [9.0, 5.0]]  # mean, lowest, highest


@pytest.mark.parametrize(
    ("levels", "scale"),
    [
        (np.linspace(-1600, -150, 28), "linear"),  # Pendulum
        (np.linspace(-400, 5500, 28), "linear"),  # HalfCheetah
        ([-500.0] * 5 + [-90.0] * 23, "linear"),  # Acrobot
        ([0.0] * 3 + [93.0] * 25, "linear"),  # MountainCarContinuous
        (-5000.0 / np.arange(1, 101) ** 2 - 13.0, "symlog"),  # CliffWalking
        ([-800.0, -700.0, -300.0, -50.0] + [7.5] * 60, "symlog"),  # Taxi
    ],
)
def test_axes_are_linear_unless_orders_are_needed(levels, scale):
    axes = drawn(learnt(levels))
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    texts = [t.get_text() for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert len([text for text in texts if text]) >= 3


def test_an_agent_has_one_colour_in_every_figure_and_a_line_per_curve():
    few = line_styles(["ottrpo", "trpo"])
    many = line_styles(["bgpg", "trpo", "ottrpo", "trpo", "newcomer"])
    assert few[1] == many[1]
    assert few[0] == many[2]
    assert many[3][0] == many[1][0]
    assert len(set(many)) == 5
    assert len({colour for colour, _ in many}) == 4


def test_curves_of_one_agent_differ_in_colour():
    styles = line_styles(["ottrpo"] * (len(PALETTE) + 1))
    assert [colour for colour, _ in styles[:-1]] == list(PALETTE)
    assert len(set(styles)) == len(styles)
