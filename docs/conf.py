"""How Sphinx builds the site: from these pages, the library and results/, without a network."""

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE)
)  # the tables and pictures that the pages include are made by a file here
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from finish import finish  # noqa: E402
from generate import as_on_the_site, write_all  # noqa: E402

from ottrpo import __version__  # noqa: E402

write_all(HERE)

project = "ottrpo"
author = "The ottrpo developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
# generated/ is included by other pages, package.md is the description that goes with a wheel
exclude_patterns = ["_build", "generated", "lessons", "package.md"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True  # as they are written, no addresses of functions
napoleon_google_docstring = True
napoleon_use_ivar = True  # else attributes are described twice

sphinx_gallery_conf = {
    "examples_dirs": "lessons",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",  # all of them are run
    "abort_on_example_error": True,
    "show_memory": False,
    "write_computation_times": False,  # a page that fetches scripts from elsewhere
    "show_signature": False,
    "download_all_examples": False,
    "within_subsection_order": "FileNameSortKey",
}

highlight_language = "text"  # a block that does not say what it is shows commands

html_theme = "furo"
html_title = "ottrpo"
html_static_path = ["style"]
html_extra_path = ["generated/pages"]  # as they are: the explorer
html_css_files = ["site.css"]
html_show_copyright = False
html_show_search_summary = False  # they are fetched, which browsers refuse of a folder's files
html_copy_source = False


def _on_the_site(app: Any, name: str, source: list[str]) -> None:
    if not name.startswith("site/"):  # guests are written as they are to stand there
        source[0] = as_on_the_site(source[0])


def _bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """The bar of π(a|s) is no substitution."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def _skipped(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Fields of named tuples are told by the class's own docstring."""
    return True if (getattr(thing, "__doc__", "") or "").startswith("Alias for field") else None


# as NumPy spells out what can become an array
ARRAY_LIKE = re.compile(r"[~\w.]*_Buffer \|.*?_NestedSequence\[complex \| bytes \| str\]")


def _readable(
    app: Any, what: str, name: str, thing: Any, options: Any, given: str | None, back: str | None
) -> tuple[str | None, str | None]:
    """Types by their last names."""
    short = [
        text and re.sub(r"~[\w.]+\.", "", ARRAY_LIKE.sub("ArrayLike", text))
        for text in (given, back)
    ]
    return short[0], short[1]


def _finish(app: Any, failure: Exception | None) -> None:
    if failure is None:
        finish(Path(app.outdir))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _on_the_site)
    app.connect("autodoc-process-docstring", _bars)
    app.connect("autodoc-skip-member", _skipped)
    app.connect("autodoc-process-signature", _readable)
    app.connect("build-finished", _finish)
