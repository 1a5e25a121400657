"""Which curve looks how."""

from ottrpo.reports.figures import PALETTE, line_styles


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
