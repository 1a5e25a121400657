"""The explorer: one page that solves trust-region problems as one drags them, without a network."""

import base64
import hashlib
from pathlib import Path

HERE = Path(__file__).parent


def explorer() -> str:
    """The page; its policy lets it run this script, load nothing and talk to nobody."""
    script = "".join(_text(name) for name in ("explorer_math.js", "explorer.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {"style": _text("explorer.css"), "script": script, "digest": digest}
    page = _text("explorer.html")
    for name, text in parts.items():
        page = page.replace("{{ " + name + " }}", text)
    return page


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
