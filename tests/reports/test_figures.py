"""Which curve looks how, and on which scale."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from ottrpo.experiments.published import Published
from ottrpo.reports.drawing import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, panel_svg, save_panels
from ottrpo.reports.figures import PALETTE, Curve, Panel, line_styles, run_panel
from ottrpo.reports.scales import Scale, scale_of, steps_of

SVG = "{http://www.w3.org/2000/svg}"


def record(timestep, returns, deterministic=False):
    return {"timestep": timestep, "returns": returns, "deterministic": deterministic}


def lines_of(picture):
    """The points of every line that is no band, mark or axis."""
    paths = [path for path in picture.iter(SVG + "path") if path.get("stroke-width") == "1.2"]
    return [np.array(re.findall(r"[-\d.]+", path.get("d")), float).reshape(-1, 2) for path in paths]


def texts_of(picture):
    return [text.text for text in picture.iter(SVG + "text")]


def learnt(levels):
    """A run that is evaluated at every hundredth step."""
    return run_panel(
        [record(100 * t, [level - 1.0, level + 1.0]) for t, level in enumerate(levels)]
    )


def test_the_picture_shows_what_it_is_given(tmp_path):
    path = tmp_path / "curve.svg"
    evaluations = [record(10, [0.0, 2.0]), record(20, [3.0]), record(40, [5.0, 9.0])]
    save_panels([run_panel(evaluations, Published(4.0, 0.1))], path)
    picture = ElementTree.parse(path).getroot()
    (points,) = lines_of(picture)
    across, up = points.T
    assert np.diff(across) == pytest.approx(
        [(across[2] - across[0]) / 3, 2 / 3 * np.ptp(across)], 1e-2
    )
    assert (up[0] - up[1]) / (up[0] - up[2]) == pytest.approx((3 - 1) / (7 - 1), abs=0.01)
    assert {"environment steps", "return of an episode", "sampled actions"} <= set(
        texts_of(picture)
    )
    assert "printed score" in texts_of(picture)
    assert "var(" not in path.read_text()  # a file has no page that would say what colours are
    save_panels([run_panel(evaluations)], path)
    assert "printed score" not in path.read_text()


def test_everything_stands_inside_its_panel():
    rng = np.random.default_rng(0)
    curves = tuple(
        Curve(
            f"curve {i}",
            "ottrpo",
            np.arange(1, 9) * 1e5,
            np.sort(rng.normal(size=(3, 8)), 0)[[1, 0, 2]],
        )
        for i in range(9)
    )
    picture = ElementTree.fromstring(panel_svg(Panel(title="a", curves=curves)))
    assert len(lines_of(picture)) == 9
    for points in lines_of(picture):
        assert ((points >= [LEFT, TOP]) & (points <= [RIGHT, BOTTOM])).all()
    _, _, width, height = map(float, picture.get("viewBox").split())
    assert (width, height > HEIGHT) == (WIDTH, True)  # the legend of many stands below
    for text in picture.iter(SVG + "text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height


def test_a_legend_does_not_lie_on_lines_where_there_is_room():
    # a curve along the lower edge, a printed score along the upper one
    flat = Curve("flat", "ottrpo", np.array([0, 1000]), np.full((3, 2), 10.0))
    panel = Panel(title="a", curves=(flat,), paper=Published(3000.0, 1.0))
    picture = ElementTree.fromstring(panel_svg(panel))
    (label,) = [text for text in picture.iter(SVG + "text") if text.text == "flat"]
    (line,) = lines_of(picture)
    assert TOP + 20 < float(label.get("y")) < line[:, 1].min() - 20


def test_labels_are_text_whatever_they_say():
    curve = Curve('<script>"&\x07', "a", np.array([1, 2]), np.ones((3, 2)))
    picture = ElementTree.fromstring(panel_svg(Panel(title="$5 < 6 $", curves=(curve,))))
    assert '<script>"&?' in texts_of(picture)
    assert picture.get("aria-label") == "$5 < 6 $"


@pytest.mark.parametrize("curves", [(), (Curve("none", "a", np.array([]), np.zeros((3, 0))),)])
def test_a_panel_without_runs_is_empty_and_no_error(curves):
    assert lines_of(ElementTree.fromstring(panel_svg(Panel(title="a", curves=curves)))) == []


@pytest.mark.parametrize("width", [1e-9, 0.3, 7.0, 40.0, 999.0, 3e7])
def test_ticks_are_few_and_round(width):
    for low in (-0.7 * width, 0.0, 3 * width):
        ticks = steps_of(low, low + width, 5)
        assert 3 <= len(ticks) <= 7
        assert all(low - 1e-9 * width <= tick <= low + 1.000001 * width for tick in ticks)


def test_a_scale_of_orders_keeps_the_order_and_the_sign():
    scale = Scale(-20_000.0, 15.0, near=10.0)
    values = [-20_000, -1_000, -100, -10, -9, -1, 0, 1, 10, 15]
    places = [scale.place(value) for value in values]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert places[2] - places[1] == pytest.approx(places[3] - places[2])  # a decade is a decade


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
    drawn = scale_of(learnt(levels))
    assert ("linear" if drawn.near is None else "symlog") == scale
    assert 3 <= len(drawn.ticks(6)) <= 9
    assert {0.0, 1.0} >= {drawn.place(drawn.low), drawn.place(drawn.high)}


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
