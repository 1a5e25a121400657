"""How Sphinx builds the site: from these pages, the library itself and results/, without a network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE)
)  # the tables and pictures that the pages include are made by a file here
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from generate import write_all  # noqa: E402

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
# package.md is the description that goes with a wheel, generated/ is included by other pages
exclude_patterns = ["_build", "generated", "lessons", "package.md"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True

sphinx_gallery_conf = {
    "examples_dirs": "lessons",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",  # all of them are run
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
}

html_theme = "furo"
html_title = "ottrpo"
html_show_copyright = False
html_copy_source = False
