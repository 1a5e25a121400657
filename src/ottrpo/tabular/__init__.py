"""Agents for finite problems: every quantity of the paper is a table and every update is exact."""

from ottrpo.threads import default_to_one_thread

from .agents import WPO, TabularOTTRPO
from .environments import as_problem
from .mdp import FiniteMDP
from .settings import LinearSchedule, RegionSettings, TabularSettings, WPOSettings
from .stepped import SteppedProblem

__all__ = [
    "WPO",
    "FiniteMDP",
    "LinearSchedule",
    "RegionSettings",
    "SteppedProblem",
    "TabularOTTRPO",
    "TabularSettings",
    "WPOSettings",
    "as_problem",
]

default_to_one_thread()
