"""The page in a real browser: it runs, sorts, shows everything, and asks nobody for anything."""

from pathlib import Path

import pytest

# the box of every drawing must be on the page and have something in it
DRAWINGS = """() => [...document.querySelectorAll("figure svg")].map(svg => {
    const box = svg.getBoundingClientRect();
    return [box.width, box.height, svg.querySelectorAll("path").length];
})"""
COLUMN = """([table, index]) => [...document.querySelectorAll("table")[table].tBodies[0].rows]
    .map(row => row.cells[index].dataset.sort ?? row.cells[index].textContent)"""


@pytest.fixture(params=["light", "dark"])
def page(browser, kept_page, request):
    """The page, opened; whatever goes wrong on it is noted."""
    page = browser.new_page(color_scheme=request.param, viewport={"width": 1400, "height": 900})
    page.wrong, page.asked, page.scheme = [], [], request.param
    page.on("console", lambda message: page.wrong.append(message.text))
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(kept_page.as_uri())
    yield page
    page.close()


def test_it_opens_without_a_word_and_asks_for_nothing(page, kept_page):
    page.wait_for_load_state("networkidle")
    assert page.wrong == []
    assert page.asked == [kept_page.as_uri()]
    assert page.title() == "OT-TRPO: the paper and our runs"


def test_every_figure_is_drawn(page):
    for details in page.query_selector_all("details"):
        details.evaluate("part => part.open = true")
    drawings = page.evaluate(DRAWINGS)
    assert len(drawings) == page.locator("figure").count() >= 15
    for width, height, paths in drawings:
        assert width > 200
        assert height > 100
        assert paths >= 5  # axes and at least one curve
    # six panels of the training curves, one per environment
    assert page.locator("#fig-experiments-allenvs figure svg").count() == 6
    assert page.locator("#fig-experiments-ablation figure svg").count() == 3


def test_a_link_opens_what_is_folded(page):
    page.get_by_role("link", name="Scores of trained agents").click()
    page.locator("#tab-trained-scores table").first.wait_for()  # the browser tells of it later
    assert not page.locator("#errata p").first.is_visible()


def test_the_answer_stands_on_top_and_everyone_can_read_it(page):
    assert page.locator(".answer").count() == 3
    assert page.locator(".forest svg").bounding_box()["y"] < 900  # without scrolling
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    found = page.evaluate((Path(__file__).parent / "readable.js").read_text())
    assert found.pop("texts") > 200
    assert found == {"faint": [], "nameless": [], "doubled": [], "jumps": [], "language": "en"}


def test_a_click_sorts_a_table_and_another_turns_it_round(page):
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    table = page.locator("#tab-trained-scores table").first
    index = page.evaluate("table => [...document.querySelectorAll('table')].indexOf(table)",
                          table.element_handle())  # fmt: skip
    heads = table.locator("th").all_inner_texts()
    column = heads.index("ours")
    before = page.evaluate(COLUMN, [index, column])
    table.locator("th button").nth(column).click()
    up = page.evaluate(COLUMN, [index, column])
    numbers = [float(text) for text in up if text != "missing"]
    assert sorted(map(str, up)) == sorted(map(str, before))
    assert up != before
    assert len(numbers) > 10
    assert numbers == sorted(numbers)
    assert set(up[len(numbers) :]) <= {"missing"}  # what has no number comes last
    assert table.locator("th").nth(column).get_attribute("aria-sort") == "ascending"
    table.locator("th button").nth(column).click()
    down = [float(t) for t in page.evaluate(COLUMN, [index, column]) if t != "missing"]
    assert down == sorted(numbers, reverse=True)
    # names sort as words
    table.locator("th button").first.click()
    names = page.evaluate(COLUMN, [index, 0])
    assert names == sorted(names, key=str.lower)
    assert table.locator("th[aria-sort]").count() == 1
    assert page.wrong == []


def test_dark_is_dark_and_light_is_light(page):
    colours = page.evaluate(
        "() => ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"
    )
    back, ink = (sum(map(int, c[4:-1].split(", "))) for c in colours)
    assert (back < ink) == (page.scheme == "dark")
    axis = page.evaluate("() => getComputedStyle(document.querySelector('figure svg text')).fill")
    assert axis == colours[1]  # the drawings follow


def test_it_fits_and_prints(page):
    overflow = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) == 0  # wide tables scroll inside their own box
    assert len(page.pdf(prefer_css_page_size=True)) > 50_000
    assert page.wrong == []


def test_downloads_come_out_of_the_page_itself(page):
    with page.expect_download() as started:
        page.get_by_role("link", name="scores.csv").click()
    text = Path(started.value.path()).read_text()
    assert text.startswith("study,environment,agent,configuration,actions,mean,")
    assert "control,Swimmer-v5,ottrpo,default,deterministic," in text
