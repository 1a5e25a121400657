"""The explorer in a real browser: its numbers are the library's, and everyone can use it."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from ottrpo.cli import main
from ottrpo.core import Binary, TableCost, update_policy
from ottrpo.reports.explorer import explorer

DISCOUNT = 0.95
READABLE = (Path(__file__).parent / "readable.js").read_text()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "a-new-folder" / "explorer.html"
    assert main(["explore", "-o", str(path)]) == 0
    return path


@pytest.fixture(params=["light", "dark"])
def page(browser, written, request):
    page = browser.new_page(color_scheme=request.param, viewport={"width": 1200, "height": 900})
    page.wrong, page.asked = [], []
    page.on("console", lambda message: page.wrong.append(message.text))
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(written.as_uri())
    yield page
    assert page.wrong == []
    assert page.asked == [written.as_uri()]
    page.close()


def test_it_is_small_and_whole():
    text = explorer()
    assert len(text.encode()) < 100_000
    assert "{{" not in text
    assert "https://" not in text


def test_the_dual_is_the_library_s_on_random_problems(browser, written):
    rng = np.random.default_rng(0)
    problems = []
    for _ in range(300):
        n = int(rng.integers(2, 7))
        policy = rng.dirichlet(np.ones(n)) * (rng.random(n) < 0.8)
        policy = policy / policy.sum() if policy.any() else np.eye(n)[0]
        cost = rng.random((n, n)) * (1 - np.eye(n))
        gain, radius = rng.normal(size=n), float(rng.choice([0.0, 0.01, 0.2, 5.0]))
        problems.append([policy.tolist(), gain.tolist(), cost.tolist(), radius or 1e-3])
    page = browser.new_page()
    page.goto(written.as_uri())
    theirs = page.evaluate(
        "all => all.map(p => { const r = regionOf(...p); return [r.next, r.solution.multiplier,"
        " r.solution.spent]; })",
        problems,
    )
    page.close()
    for (policy, gain, cost, radius), (following, multiplier, spent) in zip(
        problems, theirs, strict=True
    ):
        ours = update_policy([policy], [1.0], [gain], TableCost(cost), radius)
        assert following == pytest.approx(ours.policy_sa[0], abs=1e-12)
        assert multiplier == pytest.approx(ours.solution.multiplier, rel=1e-12)
        assert spent == pytest.approx(ours.solution.spent, abs=1e-12)


def cliff_walking(updates, radius):
    """CliffWalking by Gymnasium's table and the library's update; values are solved for exactly."""
    n, k, goal, start = 48, 4, 47, 36
    step, reward = np.zeros((n, k, n)), np.zeros((n, k))
    for s, actions in gymnasium.make("CliffWalking-v1").unwrapped.P.items():
        for a, outcomes in actions.items():
            for chance, following, gained, ends in outcomes:
                reward[s, a] += chance * gained
                if not ends:
                    step[s, a, following] += chance
    step[goal], reward[goal] = 0.0, 0.0
    policy = np.full((n, k), 1 / k)
    for _ in range(updates):
        moves = np.einsum("sa,sat->st", policy, step)
        value = np.linalg.solve(np.eye(n) - DISCOUNT * moves, (policy * reward).sum(1))
        weight = np.linalg.solve(np.eye(n) - DISCOUNT * moves.T, (1 - DISCOUNT) * np.eye(n)[start])
        weight[goal] = 0.0
        q = reward + DISCOUNT * step @ value
        policy = update_policy(policy, np.maximum(weight, 0), q, Binary(), radius).policy_sa
    return policy


def test_cliff_walking_is_learnt_as_the_library_learns_it(page):
    page.locator("#step").click()
    page.locator("#ten").click()
    theirs = np.array(page.evaluate("cliff.ot"))
    ours = cliff_walking(11, 0.1)
    walked = slice(0, 37)  # the cliff and the goal are never acted in
    assert theirs[walked] == pytest.approx(ours[walked], abs=1e-8)
    assert "After 11 updates." in page.locator("#cliff-told").inner_text()
    for _ in range(6):
        page.locator("#ten").click()
    assert "return of −13" in page.locator("#cliff-told").inner_text()


def test_the_keyboard_is_enough(page):
    before = page.locator("#told").inner_text()
    page.locator("#radius").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.locator("#radius-told").inner_text() == "0.22"
    assert page.locator("#told").inner_text() != before
    page.locator("#count").focus()
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.ariaLabel")
        )
    assert reached[:3] == ["example", "cost", "radius"]
    assert "mass of action A" in reached
    assert "advantage of action D" in reached
    page.locator("#step").focus()
    page.keyboard.press("Enter")
    assert "After 1 update." in page.locator("#cliff-told").inner_text()


def test_kl_is_stuck_where_transport_moves(page):
    page.locator("#example").select_option("corner")
    told = page.locator("#told").inner_text()
    assert "0 within KL" in told
    assert "No KL region ever reaches B, C, D" in told


def test_a_cost_of_one_s_own(page):
    page.locator("#cost").select_option("own")
    entry = page.get_by_label("cost from A to D")
    entry.fill("0.01")
    given = page.evaluate("problem()")
    assert given["cost"][0][3] == 0.01
    ours = update_policy(
        [given["policy"]], [1.0], [given["gain"]], TableCost(given["cost"]), given["radius"]
    )
    told = page.locator("#told").inner_text()
    assert f"λ* = {json.loads(f'{ours.solution.multiplier:.4g}')}" in told


def test_everything_has_a_name_and_can_be_read(page):
    found = page.evaluate(READABLE)
    assert found.pop("texts") > 60
    assert found == {"faint": [], "nameless": [], "doubled": [], "jumps": [], "language": "en"}


def test_a_narrow_screen_needs_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
