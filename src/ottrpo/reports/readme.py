"""The results table of the README, made from ``results/`` and never typed.

``python -m ottrpo.reports.readme`` writes it between its marks; a test fails when the two differ.
"""

import sys
from pathlib import Path

from ottrpo.core.checks import require
from ottrpo.results.reading import read_study

from .tables import markdown_speeds, markdown_table

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
# study -> what is said above its table
STUDIES = {
    "tabular-default": "Finite problems, default settings (`ottrpo reproduce tabular-default`):",
    "control": "Continuous control, MuJoCo v5 (`ottrpo reproduce control`):",
    "paper-literal": "OT-TRPO with the paper's settings (`ottrpo reproduce paper-literal`):",
    "baselines-control": "The other methods there, tuned and as the paper has them "
    "(`ottrpo reproduce baselines-control`):",
    "baselines-finite": "The other methods on finite problems "
    "(`ottrpo reproduce baselines-finite`):",
}
TIMED = "training-time"


def results_section(results: Path) -> str:
    """The tables of the studies that have results: scores, and at the end speeds."""
    parts = [
        f"{text}\n\n{markdown_table(read_study(results / study).cells)}"
        for study, text in STUDIES.items()
        if (results / study / "manifest.json").exists()
    ]
    if (results / TIMED / "manifest.json").exists():
        parts.append(
            "Steps of training per second, one run at a time on one machine "
            f"(`ottrpo reproduce {TIMED}`):\n\n"
            f"{markdown_speeds(read_study(results / TIMED).cells)}"
        )
    return "\n".join(parts)


def with_results(page: str, results: Path) -> str:
    """``page`` with the tables between its marks made anew."""
    require(BEGIN in page and END in page, f"the page needs the marks {BEGIN} and {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{results_section(results)}{END}{after}"


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    readme = root / "README.md"
    page = with_results(readme.read_text(encoding="utf-8"), root / "results")
    readme.write_text(page, encoding="utf-8")
