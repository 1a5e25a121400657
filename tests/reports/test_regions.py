"""Transport against KL: what is compared with what, and how often the intervals are right."""

import tomllib

import numpy as np
import pytest

from ottrpo.experiments.study import STUDIES_FOLDER
from ottrpo.reports.readme import markdown_beside, with_results
from ottrpo.reports.regions import (
    best,
    differences,
    markdown_radii,
    markdown_regions,
    matches,
)
from ottrpo.results.reading import CellResult, Curves, read_study
from tests.installs import ROOT

HALF, END = 500, 1_000


def cell(title, region, radius, half, end, environment="Task-v0", agent="ottrpo"):
    """A cell whose seeds returned ``half`` in the middle of training and ``end`` at its end."""
    return CellResult(
        study="made",
        name=f"{environment}__{agent}__{title}",
        environment=environment,
        agent=agent,
        label=title,
        steps=END,
        resolved={"region": region, "radius": radius},
        curves={
            True: Curves(
                seed_n=tuple(range(len(end))),
                mark_t=np.array([HALF, END]),
                return_nt=np.array([half, end], dtype=float).T,
            )
        },
    )


def made(policy=""):
    return [
        cell(f"{policy}transport-3pc", "transport", "3%", [0, 0, 0], [5, 6, 7]),
        cell(f"{policy}transport-10pc", "transport", "10%", [2, 2, 2], [7, 6, 5]),
        cell(f"{policy}kl-1pc", "kl", "1%", [9, 9, 9], [1, 2, 3]),
        cell(f"{policy}kl-3pc", "kl", "3%", [0, 0, 0], [0, 1, 0]),
    ]


def test_the_best_is_that_of_the_last_tenth_then_of_all_evaluations():
    (match,) = matches(made())
    assert best(match.trials["transport"], [0, 1, 2]).radius == "10%"  # as good, and sooner
    assert best(match.trials["transport"], [1, 2]).radius == "3%"
    assert best(match.trials["kl"], [0, 1, 2]).radius == "1%"


def test_differences_are_taken_seed_by_seed():
    (match,) = matches(made())
    of_end, of_all, of_whole = differences(match)
    assert of_end.value == pytest.approx(4.0)  # 6, 4, 2
    assert of_end.interval == pytest.approx((4 - 4.968, 4 + 4.968), abs=1e-3)  # Student's, by hand
    assert of_all.value == pytest.approx(6 - 7 / 6)
    assert of_whole.value == pytest.approx(4 - 5.5)
    assert all(each.paired for each in (of_end, of_all, of_whole))


def test_the_table_has_a_row_per_problem_and_policy_and_says_who_is_ahead():
    text = markdown_regions(made("bins-") + made("gaussian-"))
    assert text.count("| Task-v0 | bins |") == text.count("| Task-v0 | gaussian |") == 1
    assert "6.00 (3.52 to 8.48) | 2.00 (-0.484 to 4.48)" in text
    assert (
        "At the end of training transport is ahead in none and behind in none, of 2 comparisons."
        in text
    )
    ahead = "ahead in 2 (Task-v0 (bins), Task-v0 (gaussian)) and behind in none, of 2 comparisons."
    assert f"With all radii alike transport is {ahead}" in text
    single = [made()[0], made()[2]]
    assert "of all radii" not in markdown_regions(single)  # it was chosen before
    assert "missing" in markdown_regions(made()[:2])


def test_radii_stand_in_order_and_the_best_is_bold():
    lines = markdown_radii(made()).splitlines()
    assert lines[0] == "| environment | region | 1% | 3% | 10% |"
    assert lines[2].startswith("| Task-v0 | transport | – | 6.00 ± 2.48 | **6.00 ± 2.48** |")
    assert lines[3].startswith("| Task-v0 | KL | **2.00 ± 2.48** | 0.333 ± 1.43 | – |")


def test_of_an_unfinished_study_the_seeds_count_that_all_radii_have():
    cells = made()
    cells[1] = cell("transport-10pc", "transport", "10%", [2, 2, 2, 2], [7, 6, 5, 90])
    assert markdown_radii(cells) == markdown_radii(made())
    assert markdown_regions(cells) == markdown_regions(made())


def test_beside_tells_how_far_each_is_from_the_first():
    mine, rival = cell("a", "kl", 1.0, [0, 0], [1, 2]), cell("b", "kl", 1.0, [0, 0], [3, 4])
    lines = markdown_beside([mine, rival]).splitlines()
    assert lines[2].endswith("| – | 2 |")
    assert "| 3.50 (-2.85 to 9.85) | +2.00 (+2.00 to +2.00) | 2 |" in lines[3]


def test_a_page_says_that_there_are_no_results(tmp_path):
    page = "a\n<!-- regions: nowhere -->\nold\n<!-- end -->\nb"
    told = "There are no results of this study yet."
    assert with_results(page, tmp_path) == page.replace("old", told)


def test_intervals_of_the_best_radii_hold_what_they_should():
    """Three radii for each, ten seeds: alike, one of them better, one region noisier."""
    rng = np.random.default_rng(0)
    for levels, noise in (([0, 0, 0], 1.0), ([0, -0.5, -1], 1.0), ([0, 0, 0], 0.2)):
        held = 0
        for _ in range(300):
            cells = [
                cell(f"{region}-{i}", region, float(i), np.zeros(10), end)
                for region, size in (("transport", noise), ("kl", 1.0))
                for i, end in enumerate(np.array(levels)[:, None] + size * rng.normal(size=(3, 10)))
            ]
            (match,) = matches(cells)
            low, high = differences(match)[0].interval
            held += low <= 0 <= high
        assert held >= 0.92 * 300


def test_the_radii_of_kl_finite_are_those_that_did_best_on_other_seeds():
    tried = read_study(ROOT / "results/kl-finite-radii")
    chosen = {
        (match.environment, region): best(trials, match.seeds).radius
        for match in matches(tried.cells)
        for region, trials in match.trials.items()
    }
    study = tomllib.loads((STUDIES_FOLDER / "kl-finite.toml").read_text())
    used = {
        (environment, cell["label"]): f"{cell['settings']['radius']['start']:g}"
        for cell in study["cells"]
        for environment in cell["environments"]
    }
    assert used == chosen
    tuned = {
        seed for cell in tried.cells for curve in cell.curves.values() for seed in curve.seed_n
    }
    assert not tuned & set(range(study["first_seed"], study["first_seed"] + study["seeds"]))
