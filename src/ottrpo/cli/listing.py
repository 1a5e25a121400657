"""``ottrpo list``."""

from dataclasses import dataclass
from typing import Any

from ottrpo.terminal import say, say_json

WIDTH = 92


@dataclass(frozen=True, kw_only=True)
class List:
    """List costs, agents with their configurations, environments, studies and benchmarks."""

    json: bool = False
    """print one JSON object"""
    agent: str | None = None
    """list the settings of this agent, which `ottrpo train --set` can change"""

    def run(self) -> None:
        """Collect and print."""
        if self.agent is not None:
            self._settings(self.agent)
            return
        catalogue = _collect()
        if self.json:
            say_json(catalogue, indent=2)
            return
        for title, rows in catalogue.items():
            say(title)
            width = max((len(name) for name in rows), default=0)
            for name, text in rows.items():
                say(f"  {name:<{width}}  {_flat(text)}".rstrip())
                for line in _configuration_lines(text):
                    say(f"  {'':<{width}}    {line}")
            if not rows:
                say("  none yet")

    def _settings(self, key: str) -> None:
        import json
        from textwrap import wrap

        from ottrpo.experiments import registry

        from .options import mistakes

        with mistakes():
            settings = registry.agent_by_key(key).described_settings()
        if self.json:
            say_json(settings, indent=2)
            return
        for name, setting in settings.items():
            say(f"{name} = {json.dumps(setting['default'])}" if "default" in setting else name)
            for line in wrap(setting["about"], WIDTH):
                say(f"    {line}")


def _collect() -> dict[str, dict[str, Any]]:
    from ottrpo.benchmarks import BENCHMARKS
    from ottrpo.core.cost_data import COST_KINDS
    from ottrpo.envs.catalogue import CATALOGUE
    from ottrpo.experiments import registry
    from ottrpo.experiments.spec import read_configuration

    return {
        "costs": {name: _first_line(kind) for name, kind in COST_KINDS.items()},
        "agents": {
            entry.key: {
                "name": entry.name,
                "description": entry.description,
                "configurations": {
                    config: read_configuration(entry.config_folder, config).description
                    for config in registry.configurations(entry)
                },
            }
            for entry in registry.agents()
        },
        "environments": {
            entry.env_id: {"paper": entry.paper_id, "difference": entry.difference}
            for entry in CATALOGUE
        },
        "studies": {name: study.description for name, study in registry.studies().items()},
        "benchmarks": {name: text for name, (_, text) in BENCHMARKS.items()},
    }


def _first_line(described: type) -> str:
    return (described.__doc__ or "").strip().splitlines()[0]


def _flat(text: Any) -> str:
    if isinstance(text, str):
        return text
    if "configurations" in text:
        return f"{text['description']} (--agent {text['name']})"
    parts = [f"in the paper {text['paper']}" if text["paper"] else "", text["difference"]]
    return "; ".join(part for part in parts if part)


def _configuration_lines(text: Any) -> list[str]:
    if isinstance(text, str):
        return []
    named: dict[str, str] = text.get("configurations", {})
    width = max(map(len, named), default=0)
    return [f"--config {name:<{width}}  {told}".rstrip() for name, told in named.items()]
