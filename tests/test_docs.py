"""The documents tell the truth: their links lead somewhere, their examples run."""

import ast
import doctest
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ottrpo.cli import VERBS
from ottrpo.cli.problem_files import read_problem
from ottrpo.core import cost_data
from ottrpo.core.cost_data import COST_KINDS, cost_from_data

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")])
COMMAND_LINE = (ROOT / "docs" / "command_line.md").read_text()


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page):
    for target in re.findall(r'(?:\]\(|src=")([^)"#]+)', page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_examples_stand_in_blocks(page):
    """Else they would be quotations, run together."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    assert [line for line in outside.splitlines() if line.startswith(">>>")] == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_python_examples_run(page, monkeypatch):
    monkeypatch.setattr(cost_data, "COST_KINDS", dict(COST_KINDS))  # a page registers one
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"index.md", "package.md"}
    assert pages == set(re.findall(r"\]\((\w+\.md)\)", index))
    trees = "".join(re.findall(r"{toctree}(.*?)```", index, re.S))
    assert pages == {f"{name}.md" for name in re.findall(r"^(\w+)$", trees, re.M)}


def test_the_readme_is_short_and_has_examples():
    readme = (ROOT / "README.md").read_text()
    assert readme.count(">>>") >= 5
    assert readme.count("\n") <= 130


def test_the_description_of_the_package_stands_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    links = re.findall(r'(?:\]\(|src=")([^)"]+)', (ROOT / project["readme"]).read_text())
    assert links
    assert all(link.startswith("https://") for link in links)


def test_every_problem_on_the_command_line_page_is_one():
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", COMMAND_LINE, re.S)]
    costs = [block for block in blocks if "kind" in block]
    problems = [block for block in blocks if "kind" not in block]
    assert (len(problems), len(costs)) == (3, 1)
    for problem in problems:
        read_problem(problem)
    cost_from_data(costs[0])


def test_the_command_line_page_knows_every_verb_and_every_cost():
    assert all(f"ottrpo {verb}" in COMMAND_LINE for verb in VERBS)
    assert all(f"`{kind}`" in COMMAND_LINE for kind in COST_KINDS)


def named_in(path):
    """Names of test functions, and of methods as Class::method."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
            found |= {f"{node.name}::{method}" for method in methods}
    return found


def test_every_erratum_names_tests_that_exist():
    text = (ROOT / "docs" / "errata.md").read_text()
    entries = re.split(r"^## ", text, flags=re.M)[1:]
    assert len(entries) >= 9
    for entry in entries:
        nodes = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", entry)
        assert nodes, f"no test is named in: {entry.splitlines()[0]}"
        for path, name in nodes:
            assert name in named_in(path), f"{path} has no test {name}"


def test_the_pages_results_are_those_of_the_results_folder():
    from ottrpo.reports.readme import PAGES, with_results

    for name in PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert page.count("<!-- end -->") == len(re.findall(r"<!-- \w+: ", page)) > 0
        assert page == with_results(page, ROOT / "results"), f"{name} is old: run `make results`"


@pytest.mark.parametrize("name", ["kl_against_ot", "costs", "rivals", "richer_policies"])
def test_what_is_said_with_an_interval_stands_in_a_table(name):
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    tables = "".join(re.findall(r"<!-- \w+: .*?<!-- end -->", page, re.S))
    prose = re.sub(r"\s+", " ", re.sub(r"<!-- \w+: .*?<!-- end -->", "", page, flags=re.S))
    said = re.findall(r"[+-]?[\d,.]+ \([+-]?[\d,.]+ to [+-]?[\d,.]+\)", prose)
    assert len(said) >= 2
    for claim in said:
        assert claim in tables, claim


def test_a_contest_has_the_tasks_in_which_all_ran():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- contest: .*?-->\n(.*?)<!-- end -->", readme, re.S)
    heads, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert heads[1:4] == ["OT-TRPO, default", "PPO, tuned", "TRPO, tuned"]
    assert 6 <= len(rows) <= 12
    assert all("±" in entry for row in rows for entry in row[1:4])
    printed = {row[0] for row in rows if "±" in row[4]}
    assert len(printed) == 6  # those of the paper; it says nothing of the others
    assert all(row[4] == "–" for row in rows if row[0] not in printed)


def test_the_page_on_studies_names_them_all():
    from ottrpo.experiments.study import STUDIES

    page = (ROOT / "docs" / "reproduce.md").read_text()
    assert [name for name in STUDIES if f"`{name}`" not in page] == []


def test_the_study_on_the_page_is_one(tmp_path):
    from ottrpo.experiments.study import load_study

    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "reproduce.md").read_text(), re.S)
    (tmp_path / "mine.toml").write_text(text)
    study = load_study(tmp_path / "mine.toml")
    assert [len(study.cells), study.cells[2].label] == [8, "coarse radius-10pc"]
    for cell in study.cells:
        assert cell.spec().steps == 1_000_000


def test_the_program_on_the_page_about_export_is_the_example():
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.S)
    assert (ROOT / "examples" / "deploy_a_policy.py").read_text().endswith(f'"""\n\n{shown}')


def test_pages_are_finished_for_screen_readers_and_keys_once(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from finish import finish

    corner = '<thead>\n<tr class="row-odd"><th class="head"><p></p></th>\n'
    page = (
        '<aside class="sidebar-drawer"><p class="caption" role="heading">Begin</p></aside>'
        f"{corner}<th><p>score</p></th>\n</tr>\n</thead>{corner}</tr>\n</thead><pre>a</pre>"
        '<code><span class="pre">tests/test_docs.py::test_it</span></code>'
    )
    for name in ("page.html", "explorer.html"):
        (tmp_path / name).write_text(page if name == "page.html" else "<pre>a_b</pre>")
    finish(tmp_path)
    done = (tmp_path / "page.html").read_text()
    assert 'role="heading" aria-level="2"' in done
    assert done.count("<thead>") == 1
    assert '<td class="head"></td>\n<th><p>score' in done
    assert '<pre tabindex="0">' in done
    assert "tests/<wbr>test_<wbr>docs.<wbr>py::<wbr>test_<wbr>it" in done
    assert (tmp_path / "explorer.html").read_text() == "<pre>a_b</pre>"  # none of the theme's
    finish(tmp_path)
    assert (tmp_path / "page.html").read_text() == done


def test_what_the_pages_include_is_what_is_made(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import generate

    from ottrpo.experiments import registry

    made = {f"settings_{entry.key}.md" for entry in registry.agents()}
    made |= {f"results_{table}.md" for table in generate.RESULTS}
    pages = "".join(page.read_text() for page in ROOT.glob("docs/*.md"))
    asked = set(re.findall(r"{include} generated/(\S+)", pages))
    assert asked <= made
    assert len(asked) >= 12
    table = generate.settings_table(registry.agent_by_key("tabular-ottrpo").described_settings())
    assert "| `radius` |" in table


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("sphinx_gallery")
    folder = tmp_path_factory.mktemp("site")
    source = folder / "project"
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("_build"))
    (source / "results").symlink_to(ROOT / "results")
    (source / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "CONTRIBUTING.md", source)
    build = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q"]
    folders = [str(source / "docs"), str(folder / "html")]
    done = subprocess.run([*build, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    lesson = (site / "tutorials/lesson_2_the_cliff.html").read_text()
    assert "updates outside the region: 0" in lesson
    page = (site / "explorer.html").read_text()
    (explorer,) = re.findall(r'href="(try/[^"]+)"', page)
    assert "The trust-region explorer" in (site / explorer).read_text()


@pytest.mark.slow
def test_a_search_in_a_folder_finds_pages_and_fetches_none(site, browser):
    page = browser.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.goto((site / "search.html").as_uri() + "?q=multiplier")
    page.wait_for_function("document.querySelectorAll('ul.search li').length > 5")
    page.wait_for_timeout(500)
    assert "theory.html" in page.inner_html("ul.search")
    page.close()
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_every_page_of_the_site(site, browser, scheme):
    check = (ROOT / "tests/reports/readable.js").read_text()
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len(pages) > 35
    page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 900})
    wrong, asked = [], []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for path in pages:
        page.goto(path.as_uri())
        found = page.evaluate(check)
        assert found.pop("texts") > 5
        fine = {"faint": [], "nameless": [], "doubled": [], "jumps": [], "language": "en"}
        assert (path.name, found) == (path.name, fine)
        assert page.evaluate(overflow) == 0  # what is wide scrolls inside its own box
    page.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
