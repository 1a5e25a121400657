"""The paper's printed numbers, read from the tables under ``paper_tables/``."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ottrpo.envs import catalogue

TABLES = Path(__file__).parent / "paper_tables"


@dataclass(frozen=True)
class Published:
    """A printed ``score ± spread``; spread over what, the paper does not say."""

    score: float
    spread: float


@cache
def table(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of the paper's table ``name``, typed once under ``paper_tables/``."""
    with open(TABLES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def trained_score(environment: str, agent: str) -> Published | None:
    """What the paper prints for ``agent`` on ``environment`` (tab:trained:scores), if anything.

    >>> trained_score("Hopper-v5", "ottrpo")
    Published(score=2939.0, spread=162.0)
    """
    paper_id = catalogue.paper_id(environment)
    for row in table("tab_trained_scores"):
        if (row["environment"], row["algorithm"]) == (paper_id, agent):
            return Published(float(row["score"]), float(row["spread"]))
    return None
