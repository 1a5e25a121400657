"""What the pages include and nobody types: settings, results by agent, pictures."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pictures import draw_all

from ottrpo.experiments import registry
from ottrpo.reports.explorer import explorer
from ottrpo.reports.tables import lines_of, table_of
from ottrpo.results.reading import CellResult, read_study

# table -> the agent, and the studies in which it stands
RESULTS = {
    "ottrpo": ("ottrpo", ("suite", "control", "discrete-control")),
    "tabular": ("ottrpo", ("tabular-default",)),
    "wpo": ("wpo", ("tabular-readings",)),
    **{
        agent: (agent, ("baselines-control", "baselines-finite"))
        for agent in ("bgpg", "wnpg", "trpo", "ppo", "a2c")
    },
}
GUESTS = {"results": "results/RESULTS.md", "contributing": "CONTRIBUTING.md"}
EXPLORER, EXPLORER_PAGE = "<!-- on the site: the explorer itself -->", "try/explorer.html"
COLUMNS = (
    "environment | configuration | study | steps | deterministic | sampled | lowest seed | seeds "
    "| paper"
)


def settings_table(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Names, defaults and meanings, as the dataclasses have them."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, told in settings.items():
        default = f"`{json.dumps(told['default'])}`" if "default" in told else "`–`"
        about = " ".join(told["about"].split()).replace("|", "\\|").replace("``", "`")
        rows.append(f"| `{name}` | {default} | {about} |")
    return "\n".join(rows) + "\n"


def results_table(cells: Sequence[CellResult]) -> str:
    """Scores of one agent, a line per cell that has runs."""
    lines = [lines_of(cell)[0] for cell in cells]
    return table_of([line for line in lines if line.score], COLUMNS).markdown()


def write_guests(docs: Path) -> None:
    """Pages that live beside docs/, as pages of the site: ``site/``."""
    folder = docs / "site"
    folder.mkdir(exist_ok=True)
    for name, path in GUESTS.items():
        text = (docs.parent / path).read_text(encoding="utf-8")
        text = re.sub(r"\]\((?:\.\./)?docs/", "](../", text)  # as seen from docs/site
        text = re.sub(r"\[([^]]+)\]\(CHANGELOG.md\)", r"\1", text)
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def as_on_the_site(text: str) -> str:
    """A page's links to what lives beside docs/, as links to the site's own pages, or as names."""
    for name, path in GUESTS.items():
        text = text.replace(f"](../{path})", f"](site/{name}.md)")
    text = text.replace("](lessons)", "](tutorials/index.rst)")
    text = text.replace(
        EXPLORER, f'<a href="{EXPLORER_PAGE}">Open it here</a>, or have it written:'
    )
    return re.sub(r"\[[^]]+\]\(\.\./([\w/-]+\.md)\)", r"`\1`", text)


def write_all(docs: Path) -> None:
    """Write ``generated/``, ``site/`` and ``pictures/``."""
    write_guests(docs)
    folder, results = docs / "generated", docs.parent / "results"
    explorer_page = folder / "pages" / EXPLORER_PAGE
    explorer_page.parent.mkdir(parents=True, exist_ok=True)
    explorer_page.write_text(explorer(), encoding="utf-8")
    for entry in registry.agents():
        text = settings_table(entry.described_settings())
        (folder / f"settings_{entry.key}.md").write_text(text, encoding="utf-8")
    for table, (agent, studies) in RESULTS.items():
        cells = [cell for study in studies for cell in read_study(results / study).cells]
        text = results_table([cell for cell in cells if cell.agent == agent])
        (folder / f"results_{table}.md").write_text(text, encoding="utf-8")
    draw_all(docs / "pictures")
