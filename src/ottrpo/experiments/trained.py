"""Trained agents, from the directory of a run or from a single file."""

from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from ottrpo.core.checks import require, require_words
from ottrpo.envs import catalogue
from ottrpo.persistence import bundle
from ottrpo.results.run_directory import RunDirectory
from ottrpo.terminal import bar

from .registry import agents
from .run import load_agent


@dataclass(frozen=True)
class Trained:
    """An agent, and what it is called and was trained on."""

    agent: Any
    name: str
    environment: str

    def evaluate(self, episodes: int, *, deterministic: bool, seed: int) -> Any:
        """Returns of fresh episodes; a bar tells how long it takes (of tables no time)."""
        play = partial(self.agent.evaluate, episodes, deterministic=deterministic, seed=seed)
        if "after_episode" not in signature(self.agent.evaluate).parameters:
            return play()
        with bar(self.environment, episodes) as after_episode:
            return play(after_episode=after_episode)


def load_trained(path: Path, *, trust: bool = False) -> Trained:
    """The agent of a run's directory, or of a file that `save` wrote.

    Args:
        path: which; it may come from a stranger.
        trust: whether the module of an environment ``module:Name-v0`` may be imported.

    Raises:
        ValueError: if there is none, or it is damaged, or it can't be used without more.
    """
    saved = path.exists() or path.with_name(path.name + bundle.ENDING).exists()
    require(saved, f"there is no {path}: neither a run's directory nor a file with a saved agent")
    if path.is_dir():
        directory = RunDirectory.open(path)
        environment = str(directory.manifest.get("environment"))
        require_words("environment", environment)
        catalogue.require_no_import(environment, trust=trust)
        with bundle.interpreting(path):
            agent = load_agent(directory)
        return Trained(agent, str(directory.manifest.get("agent")), environment)
    return _from_file(path, trust)


def _from_file(path: Path, trust: bool) -> Trained:
    kind, _, data = bundle.read_any(path)
    entries = [entry for entry in agents() if entry.class_name == kind]
    if not entries:
        known = ", ".join(entry.class_name for entry in agents())
        raise ValueError(f"{path} holds a {kind!r}, which is no agent here; known: {known}")
    agent_class = entries[0].load()
    found = data.get("environment")
    if entries[0].finite:  # it names its environment with all settings, and makes it itself
        if isinstance(found, dict):
            catalogue.require_no_import(str(found.get("id")), trust=trust)
        agent = agent_class.load(path)
        return Trained(agent, entries[0].name, agent.problem.name)
    if not isinstance(found, str):
        raise ValueError(
            f"{path} names no environment; evaluate it in Python: "
            f"{kind}.load(path, env=env).evaluate(10)"
        )
    catalogue.require_no_import(found, trust=trust)
    return Trained(agent_class.load(path, env=found), entries[0].name, found)
