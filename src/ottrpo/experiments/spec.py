"""What a run is, and how configuration files and overrides become one.

A configuration is a TOML file with ``[settings]`` for every environment, ``[environments."ID"]``
tables laid over them, and ``steps``. Keys are closed: what the agent's constructor does not take
is refused, with the nearest name it does take.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ottrpo.core.checks import require, require_one_of, require_whole, require_words
from ottrpo.persistence.bundle import read_plain

from .protocol import Protocol

Settings = dict[str, Any]
# annotation -> (types that fit, in words)
_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a word"),
}
DEFAULT = "default"
MAX_BYTES = 2**20  # of a configuration
MAX_PARTS = 64  # of a key; TOML's parser takes time in their square
_DEEP = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_PARTS}}}")
# strings and comments, also such as do not end: each is passed over once
_QUOTED = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}+|\Z)|'
    r"'''.*?(?:'{3,5}+|\Z)|"
    r'"(?:[^"\\\n]|\\.)*+"?|'
    r"'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
MOST_STEPS = 10**15  # centuries of them
_FILE_KEYS = ("description", "extends", "steps", "settings", "environments")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run, fully resolved: training it twice gives the same numbers.

    Attributes:
        environment: the installed Gymnasium id.
        asked_environment: the id as the user wrote it.
        agent: its name on the command line.
        agent_key: the registry's key of the class that trains.
        config: name of the configuration.
        settings: the agent's constructor keywords, as plain data.
        seed: of training; evaluations draw from streams of their own.
        steps: environment steps to train for.
        protocol: when and how the agent is evaluated.
    """

    environment: str
    asked_environment: str
    agent: str
    agent_key: str
    config: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int
    steps: int
    protocol: Protocol

    def __post_init__(self) -> None:
        for name in ("environment", "asked_environment", "agent", "agent_key", "config"):
            require_words(name, getattr(self, name))
        require_whole("seed", self.seed, 0)
        require_whole("steps", self.steps, 1)
        require(
            self.steps <= MOST_STEPS, f"steps must be at most {MOST_STEPS:,}, got {self.steps:,}"
        )


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A configuration file, with what it extends laid under it."""

    name: str
    description: str = "the agent's own defaults"
    settings: Settings = field(default_factory=dict)
    steps: int | None = None
    environments: Mapping[str, Settings] = field(default_factory=dict)

    def settings_for(self, environment: str) -> Settings:
        """The settings on ``environment``, without the number of steps."""
        merged = merge(self.settings, self.environments.get(environment, {}))
        merged.pop("steps", None)
        return merged

    def steps_for(self, environment: str) -> int | None:
        """The number of steps on ``environment``, if the file says."""
        steps: int | None = self.environments.get(environment, {}).get("steps", self.steps)
        return steps


def read_configuration(folder: Path, name: str | Path) -> Configuration:
    """The configuration ``name`` of the agent whose files are in ``folder``.

    Args:
        folder: of the agent's configurations.
        name: of one of them, or the path of a file of one's own, which may extend one of them.

    Raises:
        ValueError: if there is no such file, or it is not a configuration.
    """
    if isinstance(name, Path):
        return _parsed(folder, name, name.stem, ())
    return _read(folder, name, ())


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """What a TOML file says, which may come from a stranger.

    Raises:
        ValueError: if it can't be read.
    """
    try:
        text = read_plain(path, MAX_BYTES).decode("utf-8")
        if _DEEP.search(_QUOTED.sub("q", text)):
            raise ValueError(f"a key has more than {MAX_PARTS} parts")
        return tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"can't read the {what} {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}") from error


def configuration_names(folder: Path) -> list[str]:
    """The configurations in ``folder``; ``default`` comes first, and needs no file."""
    others = {path.stem for path in folder.glob("*.toml")} - {DEFAULT}
    return [DEFAULT, *sorted(others)]


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Settings:
    """``over`` laid over ``under``; tables are merged key by key.

    >>> merge({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}})
    {'a': 1, 'b': {'c': 1, 'd': 2}}
    """
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def nested(settings: Mapping[str, Any]) -> Settings:
    """``settings`` with their dotted keys taken apart.

    >>> nested({"a": 1, "t.x": 2, "t.y": 3})
    {'a': 1, 't': {'x': 2, 'y': 3}}
    """
    made: Settings = {}
    for key, value in settings.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        made = merge(made, value)
    return made


def parse_overrides(texts: Iterable[str]) -> Settings:
    """Settings from ``key=value`` texts; values are TOML or JSON, and a bare word is a string.

    >>> parse_overrides(["radius=0.4", "cost=binary", "policy_kwargs.log_std_init=-1"])
    {'radius': 0.4, 'cost': 'binary', 'policy_kwargs': {'log_std_init': -1}}
    """
    settings: Settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        require(bool(equals and key.strip()), f"an override is written key=value, got {text!r}")
        try:
            settings = merge(settings, _parse_override(key.strip(), value.strip()))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"can't read the override {text!r}: {error}") from error
    return settings


def require_types(settings: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Refuse values whose type can't be right: a word for a number, a fraction for a count.

    Only what is annotated as a plain number, word or choice is checked; the rest is the agent's.
    """
    for key, value in settings.items():
        annotation = annotations.get(key)
        if get_origin(annotation) is Literal:
            choices = get_args(annotation)
            words = ", ".join(map(repr, choices))
            require(value in choices, f"{key} must be one of {words}, got {value!r}")
        elif annotation in _PLAIN:
            types, words = _PLAIN[annotation]
            # Python counts True among the integers
            fits = isinstance(value, types) and (annotation is bool or not isinstance(value, bool))
            require(fits, f"{key} must be {words}, got {value!r}")


def _read(folder: Path, name: str, seen: tuple[str, ...]) -> Configuration:
    require_one_of(name, configuration_names(folder), f"a configuration of {folder.name}")
    require(name not in seen, f"configurations extend each other in a circle: {(*seen, name)}")
    path = folder / f"{name}.toml"
    if name == DEFAULT and not path.is_file():
        return Configuration(name=name)
    return _parsed(folder, path, name, seen)


def _parsed(folder: Path, path: Path, name: str, seen: tuple[str, ...]) -> Configuration:
    data = read_toml(path, "configuration")
    unknown = sorted(set(data) - set(_FILE_KEYS))
    require(not unknown, f"{path.name}: unknown keys {unknown}; known: {', '.join(_FILE_KEYS)}")
    settings, environments = data.get("settings", {}), data.get("environments", {})
    steps = data.get("steps")
    _require_tables(path.name, settings, environments, steps)
    if "extends" in data:
        base = _read(folder, data["extends"], (*seen, name))
        settings, environments = (
            merge(base.settings, settings),
            merge(base.environments, environments),
        )
        steps = base.steps if steps is None else steps
    return Configuration(
        name=name,
        description=data.get("description", ""),
        settings=settings,
        steps=steps,
        environments=environments,
    )


def _require_tables(file: str, settings: Any, environments: Any, steps: Any) -> None:
    both = isinstance(settings, dict) and isinstance(environments, dict)
    require(
        both and all(isinstance(table, dict) for table in environments.values()),
        f"{file}: settings, environments and each environment are tables",
    )
    for number in (steps, *(table.get("steps") for table in environments.values())):
        require(
            number is None or (isinstance(number, int) and number > 0),
            f"{file}: steps must be a positive whole number, got {number!r}",
        )


def _parse_override(key: str, value: str) -> Settings:
    try:
        return tomllib.loads(f"{key} = {value}")
    except tomllib.TOMLDecodeError:
        tomllib.loads(f"{key} = 0")  # the key, at least, must be one
    try:
        # TOML writes = where JSON has a colon
        return nested({key: json.loads(value)} if value[:1] in ("{", "[") else {key: value})
    except ValueError:
        return nested({key: value})
