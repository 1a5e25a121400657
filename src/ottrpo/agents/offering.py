"""An agent offers its settings: as the constructor's signature, in its help, and as attributes."""

from inspect import cleandoc
from textwrap import indent, wrap
from typing import Any

from ottrpo.core.checks import Refused
from ottrpo.core.documented import documentation

from .checks import is_so_anyway

WIDTH = 92
# SB3 keeps these itself, and asks for the first two whenever it needs them
_KEPT_BY_SB3 = ("tensorboard_log", "verbose", "n_envs", "seed", "device")
# what programs for SB3's policies look for; an answer that is a copy would take no change
_OF_TORCH = (
    *("parameters", "named_parameters", "modules", "optimizer", "log_std", "action_dist"),
    *("features_extractor", "pi_features_extractor", "vf_features_extractor"),
    *("mlp_extractor", "action_net", "value_net"),
)
_NOT_TORCH_S = (
    "networks are JAX's and not torch's; state_dict() has copies of their arrays, "
    "load_state_dict(...) replaces them"
)
_FIRST = {
    "policy": "``MlpPolicy``, ``CnnPolicy`` or ``MultiInputPolicy``.",
    "env": "an environment's id, a Gymnasium environment or an SB3 ``VecEnv``.",
}


def offer(agent_class: Any) -> None:
    """Make the settings of ``agent_class.settings_type`` those of the class."""
    kind, inherited = agent_class.settings_type, agent_class.__init__

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        inherited(self, *arguments, **keywords)

    __init__.__signature__ = kind.signature()  # type: ignore[attr-defined]
    agent_class.__init__ = __init__
    told = _FIRST | documentation(kind)
    entries = [_entry(name, told[name]) for name in (*_FIRST, *kind.names())]
    arguments = indent("\n".join(entries), "    ")
    agent_class.__doc__ = f"{cleandoc(agent_class.__doc__)}\n\nArgs:\n{arguments}\n"
    for name in kind.names():
        if name not in _KEPT_BY_SB3:
            setattr(agent_class, name, _attribute(name, told[name]))
    for name, why in kind.instead.items():
        setattr(agent_class, name, _absent(agent_class.__name__, name, why))
    for name in _OF_TORCH:
        if name not in kind.names():
            setattr(agent_class, name, _absent(agent_class.__name__, name, _NOT_TORCH_S))


def _entry(name: str, told: str) -> str:
    return "\n".join(wrap(f"{name}: {told}", WIDTH, subsequent_indent="    "))


def _attribute(name: str, told: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self.told, name)

    def change(self: Any, value: Any) -> None:
        self.tell(name, value)

    return property(get, change, doc=told)


def _absent(agent: str, name: str, why: str) -> property:
    """Not there; nobody shall believe that it took what was assigned, unless it is so anyway."""
    told = f"{agent} has no {name!r}: {why}"

    def get(self: Any) -> Any:
        raise AttributeError(told)

    def refuse(self: Any, value: Any) -> None:
        if not is_so_anyway(name, value):
            raise Refused(told)

    return property(get, refuse)
