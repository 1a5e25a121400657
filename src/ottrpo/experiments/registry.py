"""Which agents, configurations and studies there are; the agents are listed in ``agents.toml``.

Two classes carry the name ``ottrpo``: one for finite problems and one for all others. Which of
them trains is decided by the environment's spaces.
"""

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from ottrpo.core import Cost
from ottrpo.core.checks import require, require_one_of
from ottrpo.core.cost_data import cost_from_data, cost_to_data
from ottrpo.core.documented import documentation
from ottrpo.extras import load

from .spec import configuration_names

if TYPE_CHECKING:
    from .study import Study

HERE = Path(__file__).parent
CONFIGS = HERE / "configs"
# Keywords that are no settings: the runner gives them itself, or they don't change the result.
_NOT_SETTINGS = {"self", "env", "seed", "verbose", "tensorboard_log", "device", "_init_setup_model"}
_PLAIN = (bool, int, float, str, list, tuple, dict, NoneType)  # what a manifest can hold


@dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """One agent class.

    Attributes:
        key: unique; also the folder of its configurations.
        module: where the class lives.
        class_name: what it is called there.
        description: one line.
        finite: whether it needs Discrete observations and actions.
        name: on the command line; the key by default.
    """

    key: str
    module: str
    class_name: str
    description: str
    finite: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.key)

    @property
    def config_folder(self) -> Path:
        """Where the TOML files of this agent are."""
        return CONFIGS / self.key

    def load(self) -> type[Any]:
        """The class."""
        agent_class: type[Any] = load(self.module, self.class_name)
        return agent_class

    def known_settings(self) -> dict[str, inspect.Parameter]:
        """The constructor's keywords that a configuration may set."""
        return {
            name: parameter
            for name, parameter in inspect.signature(self.load()).parameters.items()
            if name not in _NOT_SETTINGS and parameter.kind is not parameter.VAR_KEYWORD
        }

    def resolve(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Every setting with its value: what is given, laid over the constructor's defaults.

        A default that is made afresh for each agent has no value before.
        """
        defaults = {name: p.default for name, p in self.known_settings().items()}
        told = {k: cost_to_data(v) if isinstance(v, Cost) else v for k, v in defaults.items()}
        return {k: v for k, v in told.items() if isinstance(v, _PLAIN)} | dict(settings)

    def described_settings(self) -> dict[str, dict[str, Any]]:
        """Every setting: its default, and what it means as the class and its settings tell it."""
        agent = self.load()
        told = documentation(agent) | documentation(getattr(agent, "settings_type", object))
        defaults = self.resolve({})
        return {
            name: {"about": told.get(name, "")}
            | ({"default": defaults[name]} if name in defaults else {})
            for name in self.known_settings()
        }

    def require_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse what the agent would refuse in any environment, before there is one."""
        kind = getattr(self.load(), "settings_type", None)
        if kind is not None:
            given = _with_cost(settings)
            kind(**{each.name: given[each.name] for each in fields(kind) if each.name in given})

    def build(self, env: Any, settings: Mapping[str, Any], seed: int) -> Any:
        """The agent, ready to learn."""
        keywords = _with_cost(settings)
        agent_class = self.load()
        if "policy" in inspect.signature(agent_class).parameters:
            policy = keywords.pop("policy", "MlpPolicy")
            return agent_class(policy, env, seed=seed, **keywords)
        return agent_class(env, seed=seed, **keywords)


def _with_cost(settings: Mapping[str, Any]) -> dict[str, Any]:
    cost = {"cost": cost_from_data(settings["cost"])} if "cost" in settings else {}
    return dict(settings) | cost


_AGENTS = tuple(
    AgentEntry(key=key, **table)
    for key, table in tomllib.loads((HERE / "agents.toml").read_text(encoding="utf-8")).items()
)


def agents() -> tuple[AgentEntry, ...]:
    """The agents that there are."""
    return _AGENTS


def agent_by_key(key: str) -> AgentEntry:
    """The agent that a manifest names."""
    by_key = {entry.key: entry for entry in agents()}
    require_one_of(key, by_key, "an agent")
    return by_key[key]


def agent_for(name: str, environment: str, *, finite: bool) -> AgentEntry:
    """The agent ``name`` for an environment with finite, or other, spaces."""
    require_one_of(name, sorted({entry.name for entry in agents()}), "an agent")
    # the class for finite problems comes first where both would do
    fitting = [e for e in agents() if e.name == name and (finite or not e.finite)]
    require(
        bool(fitting),
        f"{name} is for environments with Discrete observations and actions, {environment} has "
        f"others; agents for it: {', '.join(e.name for e in agents() if not e.finite) or 'none'}",
    )
    return fitting[0]


def configurations(entry: AgentEntry) -> list[str]:
    """The names of an agent's configurations."""
    return configuration_names(entry.config_folder)


def studies() -> "dict[str, Study]":
    """The studies that this installation has, by name."""
    from .study import STUDIES

    return dict(STUDIES)
