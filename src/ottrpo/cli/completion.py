"""``ottrpo completion``: what shells complete, from the same classes as the options."""

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from ottrpo.terminal import say

from . import QUIET, VERBS

BASH = """\
_ottrpo() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} options="" names="" agents="{agents}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{verbs}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
    --agent) COMPREPLY=($(compgen -W "$agents" -- "$word")); return ;;
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "$names" -- "$word") $(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _ottrpo ottrpo
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print the script with which a shell completes verbs, options and names.

    bash: eval "$(ottrpo completion bash)"    zsh: eval "$(ottrpo completion zsh)"
    fish: ottrpo completion fish | source     in the shell's start-up file, or by hand.
    """

    shell: Annotated[
        Literal["bash", "zsh", "fish"], tyro.conf.Positional, tyro.conf.arg(metavar="SHELL")
    ]
    """bash, zsh or fish"""

    def run(self) -> None:
        """Print the script."""
        script = _fish() if self.shell == "fish" else _bash()
        say((ZSH if self.shell == "zsh" else "") + script.rstrip())


def _bash() -> str:
    names, cases = _names(), []
    for verb in VERBS:
        options, own = (" ".join(words) for words in (_options(verb), names.get(verb, ())))
        cases.append(f'    {verb}) options="{options}"; names="{own}" ;;')
    words = {"verbs": " ".join(VERBS), "agents": " ".join(_agents())}
    return BASH.format(cases="\n".join(cases), **words)


def _fish() -> str:
    names, lines = _names(), []
    for verb, (_, _, about) in VERBS.items():
        chosen = f'complete -c ottrpo -n "__fish_seen_subcommand_from {verb}"'
        lines.append(f'complete -c ottrpo -f -n __fish_use_subcommand -a {verb} -d "{about}"')
        for option in _options(verb):
            after = f' -x -a "{" ".join(_agents())}"' if option == "--agent" else ""
            lines.append(f"{chosen} -l {option.lstrip('-')}{after}")
        if verb in names:
            lines.append(f'{chosen} -a "{" ".join(names[verb])}"')
    return "\n".join(lines)


def _options(verb: str) -> list[str]:
    """The options of a verb, without what has no name on the command line."""
    module, name, _ = VERBS[verb]
    kind: Any = getattr(import_module(f".{module}", __package__), name)
    hints = get_type_hints(kind, include_extras=True)
    unnamed = (tyro.conf.Positional, tyro.conf.Suppress)
    marks = {key: getattr(hint, "__metadata__", ()) for key, hint in hints.items()}
    own = [f.name for f in fields(kind) if not any(mark in unnamed for mark in marks[f.name])]
    return [f"--{name.replace('_', '-')}" for name in own] + ["--help", QUIET]


def _agents() -> list[str]:
    from ottrpo.experiments.registry import agents

    return list(dict.fromkeys(entry.name for entry in agents()))


def _names() -> dict[str, list[str]]:
    """What the first argument of some verbs may be."""
    from ottrpo.benchmarks import BENCHMARKS
    from ottrpo.envs.catalogue import CATALOGUE
    from ottrpo.experiments.registry import agents, configurations, studies

    environments = [entry.env_id for entry in CATALOGUE]
    every = ((entry.name, config) for entry in agents() for config in configurations(entry))
    sides = dict.fromkeys(f"{name}/{config}" for name, config in every)
    return {
        "train": environments,
        "tune": environments,
        "reproduce": list(studies()),
        "report": list(studies()),
        "compare": [*_agents(), *sides],
        "plot": [*_agents(), *sides],
        "bench": list(BENCHMARKS),
        "completion": ["bash", "zsh", "fish"],
    }
