"""The command line: ``ottrpo VERB ...``.

Each verb is a frozen dataclass in a module of its own, which tyro turns into options and help; a
module is loaded only when its verb is used, so that ``ottrpo --help`` answers at once. Exit codes:
0 done, 2 a mistake of the user (one line on standard error), 1 anything else.
"""

import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from ottrpo import __version__
from ottrpo.extras import remedy
from ottrpo.names import known
from ottrpo.terminal import hushed, json_alone, say, shown, spell_for_terminal
from ottrpo.threads import default_to_one_thread

# verb -> (module, class, what it does)
VERBS = {
    "train": ("train", "Train", "train an agent on an environment"),
    "tune": ("tune", "Tune", "search for settings, and write them to a file"),
    "resume": ("resume", "Resume", "continue an interrupted run"),
    "evaluate": ("evaluate", "Evaluate", "evaluate a trained agent"),
    "reproduce": ("reproduce", "Reproduce", "run a study: many trainings, one table"),
    "report": ("report", "Report", "show the scores of studies, from their stored results"),
    "watch": ("watch", "Watch", "watch a trained agent, in a window or as a film"),
    "export": ("export", "Export", "write a trained policy as an ONNX file"),
    "compare": ("compare", "Compare", "compare two runs, results or agents"),
    "plot": ("plot", "Plot", "draw learning curves, as a figure for a paper"),
    "explore": ("explore", "Explore", "write an interactive page about trust regions"),
    "solve": ("solve", "Solve", "solve a trust-region problem from a JSON file"),
    "list": ("listing", "List", "list costs, agents, environments, studies, benchmarks"),
    "bench": ("bench", "Bench", "measure speed against the alternatives"),
    "doctor": ("doctor", "Doctor", "show versions, threads and devices, and run a self-test"),
    "completion": ("completion", "Completion", "print the completion script of a shell"),
}
QUIET = "--quiet"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    default_to_one_thread()
    spell_for_terminal()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with _warnings_in_one_line():
            return _at_top(arguments)
    except BrokenPipeError:  # the reader of our output, a pager say, has gone
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        say("ottrpo: interrupted", error=True)
        return 1
    except MemoryError as error:
        say(f"ottrpo: not enough memory: {error}", error=True)
        return 1
    except Exception as error:
        told = f"unexpected {type(error).__name__}: {error}"
        say(f"{traceback.format_exc()}ottrpo: {told}", error=True)
        return 1


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print warnings as lines of ours, without the place in the code that gave them."""
    python_way = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"ottrpo: {shown(str(message))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = python_way


def _at_top(arguments: list[str]) -> int:
    """What needs no verb is answered here; nothing else has to be loaded for it."""
    quiet, arguments = QUIET in arguments, [text for text in arguments if text != QUIET]
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        say(_help())
    elif name == "--version":
        say(f"ottrpo {__version__}")
    elif name in VERBS:
        with hushed(quiet):
            return _run(name, arguments[1:])
    else:
        told = f"{name!r} is not a verb" if name else "a verb is missing"
        say(f"ottrpo: {told}; {known(name, VERBS)} (try: ottrpo --help)", error=True)
        return 2
    return 0


def _run(name: str, arguments: list[str]) -> int:
    from .options import Mistake, Verb, parse

    module, class_name, _ = VERBS[name]
    try:
        verb_type = getattr(import_module(f".{module}", __name__), class_name)
        read = getattr(verb_type, "parse", None) or (lambda *given: parse(verb_type, *given))
        verb: Verb | None = read(f"ottrpo {name}", arguments)
        with json_alone(getattr(verb, "json", False)):
            return 0 if verb is None else verb.run() or 0
    except Mistake as mistake:
        say(f"ottrpo: {mistake}", error=True)
        return 2
    except ImportError as error:
        line = remedy(error)
        if line is None:
            raise
        say(f"ottrpo: {line}", error=True)
        return 2


def _help() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, _, text) in VERBS.items()]
    return "\n".join(
        [
            "usage: ottrpo VERB [OPTIONS]",
            "",
            "Policy optimisation inside optimal-transport trust regions.",
            "",
            *lines,
            "",
            "ottrpo VERB --help lists the options of a verb; ottrpo --version prints the version.",
            f"{QUIET} with any verb: print only errors, and the JSON of --json.",
        ]
    )
