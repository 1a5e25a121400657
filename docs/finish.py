"""What the theme leaves out of the pages that it writes: names for screen readers, the keyboard."""

import re
from pathlib import Path

# as written by Sphinx, Furo and sphinx-gallery -> with what axe-core asks for
WITH_NAMES = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    # whatever can be pushed aside can be so by the arrow keys
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<div id="search-results">', '<h1>Search</h1>\n<div id="search-results">'),
)
NAME = re.compile(r'(?<=<span class="pre">)[^<]+')
HEADLESS = re.compile(r"<thead>(?:\s*</?tr[^>]*>|\s*<th[^>]*><p></p></th>)+\s*</thead>")
CORNER = re.compile(r"<th([^>]*)><p></p></th>")


def finished(page: str) -> str:
    """The page, with names for what has none and breaks where long names may be broken."""
    for written, wanted in WITH_NAMES:
        page = page.replace(written, wanted)
    # a row of empty headings is none, and a corner without words heads nothing
    page = CORNER.sub(r"<td\1></td>", HEADLESS.sub("", page))
    return NAME.sub(lambda name: re.sub(r"([/_.:])(?=\w)", r"\1<wbr>", name[0]), page)


def finish(site: Path) -> None:
    """Do so with every page of a site that was just built; doing it again changes nothing."""
    for path in site.rglob("*.html"):
        before = path.read_text(encoding="utf-8")
        if WITH_NAMES[1][0] in before:  # else it is no page of the theme's, or was finished
            path.write_text(finished(before), encoding="utf-8")
