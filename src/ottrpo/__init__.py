"""Policy optimisation inside optimal-transport trust regions.

The public names load when first used, so that ``import ottrpo`` stays quick.
"""

from typing import Any

from ottrpo.extras import load

__version__ = "0.1.0"

# public name -> module that defines it
_HOME: dict[str, str] = {
    "OTTRPO": "ottrpo.agents.ottrpo",
    "BGPG": "ottrpo.agents.guided",
    "WNPG": "ottrpo.agents.wnpg",
    "ClippedPPO": "ottrpo.agents.clipped",
    "WPOGradient": "ottrpo.agents.pathwise",
    "WPPG": "ottrpo.agents.pathwise",
    "TabularOTTRPO": "ottrpo.tabular.agents",
    "WPO": "ottrpo.tabular.agents",
    "CheckpointEvery": "ottrpo.agents.watching",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return load(_HOME[name], name)
    raise AttributeError(f"module 'ottrpo' has no attribute {name!r}; known: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
