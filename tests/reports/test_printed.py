"""Figures for papers, by the command that writes them."""

import re

import matplotlib.image
import numpy as np
import pytest

from ottrpo.cli import main
from ottrpo.reports import printed
from ottrpo.reports.figures import Curve, Panel
from ottrpo.reports.sides import find_side
from ottrpo.results.layout import PUBLISHED

OURS, PPO = "control:Hopper-v5__ottrpo__default", "baselines-control:Hopper-v5__ppo__tuned"


def plot(*arguments):
    return main(["plot", *map(str, arguments), "--results", str(PUBLISHED)])


def test_a_pdf_has_text_that_can_be_searched(tmp_path, capsys):
    assert plot(OURS, PPO, "-o", tmp_path / "figure.pdf", "--labels", "cost $5", "_b") == 0
    assert b"/FontFile2" in (tmp_path / "figure.pdf").read_bytes()  # TrueType, not type 3
    assert "figure.pdf (Hopper-v5; mean over seeds" in capsys.readouterr().out


def test_an_svg_has_letters_and_the_labels(tmp_path):
    assert plot(OURS, PPO, "-o", tmp_path / "new" / "figure.svg", "--labels", "cost $5", "_b") == 0
    text = (tmp_path / "new" / "figure.svg").read_text()
    assert "cost $5</text>" in text
    assert "_b</text>" in text
    assert "Hopper-v5</text>" in text


@pytest.mark.parametrize(("asked", "inches"), [([], printed.COLUMN_INCHES), (["--width", "7"], 7)])
def test_a_picture_is_as_wide_as_asked(tmp_path, asked, inches):
    assert plot(OURS, "-o", tmp_path / "figure.png", *asked) == 0
    picture = matplotlib.image.imread(tmp_path / "figure.png")
    assert picture.shape[1] == pytest.approx(300 * inches, abs=1)


@pytest.mark.parametrize("steps", [4096, 12_000, 40_000, 150_000, 1_000_000])
def test_steps_have_three_numbers_at_least(tmp_path, steps):
    curve = Curve("ours", "ottrpo", np.linspace(0, steps, 5), np.ones((3, 5)))
    printed.save_figure([Panel(title="", curves=(curve,))], ["ours"], tmp_path / "a.svg", 3.25)
    ticks = re.findall(r">(0|[\d.]+[kM])</text>", (tmp_path / "a.svg").read_text())
    assert len(ticks) >= 3


def test_there_is_a_panel_for_every_environment_that_all_have():
    sides = [find_side(text, PUBLISHED) for text in ("control:tuned", "control:default")]
    titles = [panel.title for panel in printed.panels_of(sides)]
    assert titles == ["Hopper-v5", "HalfCheetah-v5", "Swimmer-v5"]  # MountainCar has no tuned one
    (panel,) = printed.panels_of(sides, ["Swimmer-v5"])
    assert [curve.label for curve in panel.curves] == ["control:tuned", "control:default"]


def test_no_two_curves_look_alike_without_their_colours():
    looks = [(str(look["linestyle"]), look["marker"]) for look in printed._LOOKS]
    assert len({dash for dash, _ in looks}) == len({mark for _, mark in looks}) == len(looks)
    assert len(looks) == printed.AT_MOST


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([OURS, "-o", "figure.gif"], "must end in .pdf, .svg, .png"),
        (["-o", "figure.pdf"], "nothing to draw"),
        ([OURS], "--out"),
        ([OURS, "-o", "/dev/null/figure.pdf"], "Not a directory"),
        ([OURS, "-o", "a.pdf", "--labels", "a", "b"], "--labels needs 1 names, got 2"),
        ([OURS, "-o", "a.pdf", "--width", "0"], "--width must be between 1 and 40"),
        ([OURS, "-o", "a.pdf", "--env", "Taxi-v4"], "not all have results of 'Taxi-v4'"),
        ([OURS, "tabular-default:default", "-o", "a.pdf"], "no environment that all of them have"),
        ([OURS] * 9 + ["-o", "a.pdf"], "at most 8 curves"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plot(*arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
