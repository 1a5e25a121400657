"""The page: complete, small, quick, the same every time, and deaf to what names ask of it."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from ottrpo.cli import main
from ottrpo.reports.page import errata, render, write_page
from ottrpo.results.reading import read_study, study_names

from .synthetic import cell, write_study

ROOT = Path(__file__).parents[2]
LIMIT = 2_000_000  # bytes
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&$x$"


class Elements(HTMLParser):
    """Tags, attributes and text of a page, as a browser would take them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def kept(kept_page):
    return kept_page.read_text(encoding="utf-8")


def test_the_kept_results_make_a_small_page_that_asks_for_nothing(kept):
    assert len(kept.encode()) < LIMIT
    page = Elements(kept)
    assert not {"img", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    for name, value in page.attributes:
        if name == "xlink:href" or name == "href":
            assert value.startswith(("#", "data:text/csv"))
        assert name not in ("src", "srcset", "action")
        assert not name.startswith("on")
    assert "@import" not in kept
    assert not re.search(r"url\((?!#)", kept)


def test_every_part_of_the_paper_has_its_place(kept):
    text = " ".join(Elements(kept).text)
    for heading in (
        "At a glance",
        "Training curves on six environments",
        "Scores of trained agents",
        "Training time",
        "Updates that leave the trust region",
        "Radius and transport cost on Taxi",
        "A learned advantage with more and fewer candidates, Hopper",
        "GAE against a learned advantage",
        "λ of the generalised advantage estimate, Hopper",
        "Settings, finite problems",
        "Settings, continuous control",
        "Every method as printed, and as it does here",
        "Environments",
        "Errata: what the paper leaves open or gets wrong",
        "All studies",
    ):
        assert heading in text
    assert "Hopper-v3" in text  # the paper's ids stand beside the installed ones
    assert "MuJoCo's own bindings instead of mujoco-py" in text
    assert "3,130 ± 230" in text  # a baseline as printed
    assert all(study in text for study in study_names(ROOT / "results"))


def test_the_same_results_give_the_same_page_and_neither_jax_nor_torch_is_loaded(tmp_path):
    folder = write_study(tmp_path / "control", [cell(), cell("Swimmer-v5")])
    path = tmp_path / "page.html"
    program = (
        "import sys; from pathlib import Path; from ottrpo.reports.page import write_page;"
        "import ottrpo.reports.comparison;"
        "write_page(Path(sys.argv[1]), Path(sys.argv[2]));"
        "print([m for m in ('jax', 'torch', 'stable_baselines3') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(path)]
    # no order of sets may show; what else is in the environment may choose how sums are made
    other = {"PYTHONHASHSEED": "1", "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = os.environ | other
    done = subprocess.run(command, capture_output=True, text=True, env=other)
    assert done.stdout.strip() == "[]", done.stderr
    assert path.read_text() == render([read_study(folder)])


def test_names_are_text_and_nothing_else(tmp_path):
    words = {"agent": HOSTILE, "config": HOSTILE, "label": HOSTILE}
    cells = {
        "unknown": cell(HOSTILE, **words, resolved={HOSTILE: HOSTILE}),
        "hopper": cell(label=HOSTILE, resolved={"radius": HOSTILE, "gamma": HOSTILE}),
    }
    about = {
        "description": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
        "hardware": {"processor": HOSTILE},
        "commit": HOSTILE,
        "collected": HOSTILE,
    }
    folders = [
        write_study(tmp_path / "control", cells, **about),
        write_study(tmp_path / "other", cells, **about, study=HOSTILE, paper=[HOSTILE]),
    ]
    page = Elements(render([read_study(folder) for folder in folders]))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert sum(HOSTILE in text for text in page.text) > 20  # told, letter by letter


def test_the_policy_lets_our_script_run_and_no_other(kept):
    (policy,) = re.findall(r"script-src '([^']+)'", kept)
    assert policy.startswith("sha256-")
    assert "default-src 'none'" in kept


def download(page, name):
    (uri,) = re.findall(rf'download="{name}" href="data:text/csv;charset=utf-8,([^"]+)"', page)
    return list(csv.DictReader(io.StringIO(unquote(unescape(uri)))))


def test_the_downloads_hold_every_number(tmp_path):
    cells = [cell(), cell(config="=1+1")]
    page = render(
        [read_study(write_study(tmp_path / "control", cells, score=[100.0, 50.0], seeds=4))]
    )
    scores = download(page, "scores.csv")
    assert [(row["configuration"], row["actions"]) for row in scores] == [
        ("default", "deterministic"),
        ("default", "sampled"),
        ("'=1+1", "deterministic"),  # no spreadsheet runs it
        ("'=1+1", "sampled"),
    ]
    assert scores[0]["paper"] == "2939"
    seeds = download(page, "seeds.csv")
    assert len(seeds) == 8  # a line per seed, with a column for each way to act
    for row in scores[:2]:
        mean = sum(float(seed[row["actions"]]) for seed in seeds[:4]) / 4
        assert mean == pytest.approx(float(row["mean"]), rel=1e-5)


def test_what_is_missing_is_shown(tmp_path):
    cells = [cell(planned_seeds=10), cell("Swimmer-v5", trained_steps=None, planned_seeds=10)]
    page = render([read_study(write_study(tmp_path / "control", cells, seeds=4))])
    text = [t.strip() for t in Elements(page).text]
    assert "4 of 10" in text
    assert "0 of 10" in text
    assert "not comparable: no finished run" in text
    assert "ottrpo reproduce baselines-control" in text
    assert "No results yet of the study ablation-lambda:" in text


def test_a_page_about_one_study_holds_the_parts_where_it_stands(tmp_path, capsys):
    root = tmp_path / "results"
    write_study(root / "control", [cell()], score=123.0, seeds=3)
    write_study(root / "ablation-lambda", [cell(label="lambda")], score=45.0, seeds=3)
    path = tmp_path / "page.html"
    command = ["report", "control", "--results", str(root), "--html", str(path)]
    assert main(command) == 0
    assert capsys.readouterr().out == f"written: {path}\n"
    page = path.read_text()
    assert "Scores of trained agents" in page
    assert "λ of the generalised advantage estimate" not in page
    assert 'id="study-control"' in page
    assert 'id="study-ablation-lambda"' not in page
    assert {row["study"] for row in download(page, "scores.csv")} == {"control"}
    assert "Studies: 1, cells: 1, finished runs: 3." in page
    # with --json the numbers are printed and the page is written too
    assert main([*command, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"control"}


def test_no_results_make_a_page_too(tmp_path):
    page = render([])
    assert "not comparable: no finished run" in page


def test_labels_are_drawn_to_the_letter(tmp_path):
    cells = [cell(label=f"default radius-{r}", resolved={"radius": r}) for r in (0.001, 0.003)]
    page = render([read_study(write_study(tmp_path / "mine", cells))])
    assert "radius-0.001" in page
    texts = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", page))
    assert "radius-0.001" in texts
    assert "radius-0.003" in texts


def test_the_errata_are_those_of_the_documents():
    text = (ROOT / "docs" / "errata.md").read_text()
    found = errata(text)
    assert len(found) == len(re.findall(r"^## ", text, flags=re.M)) >= 9
    assert all(paragraphs for _, paragraphs in found)
    assert not any("Held by" in p for _, paragraphs in found for p in paragraphs)
    ((heading, (paragraph,)),) = errata(
        "# T\n\n## 1. <b>\n\n`a<b` *x* t* 0* [t](u)\n\nHeld by `t`.\n"
    )
    assert (heading, paragraph) == ("1. <b>", "<code>a&lt;b</code> <em>x</em> t* 0* t")


def test_a_thousand_runs_in_under_ten_seconds(tmp_path):
    environments = ("Hopper-v5", "Swimmer-v5", "HalfCheetah-v5", "MountainCarContinuous-v0")
    agents = ("ottrpo", "trpo", "ppo", "a2c", "bgpg")
    for study in ("control", "baselines", "ablation-lambda", "ablation-estimator", "mine"):
        cells = [cell(e, agent=a) for e in environments for a in agents]
        write_study(tmp_path / "results" / study, cells, seeds=10)
    began = time.process_time()
    write_page(tmp_path / "results", tmp_path / "page.html")
    # seconds of the processor: what a machine of our own would take
    assert time.process_time() - began < 10.0
    page = (tmp_path / "page.html").read_text()
    assert "finished runs: 1000." in page
    assert len(page.encode()) < LIMIT
