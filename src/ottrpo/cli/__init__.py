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
from difflib import get_close_matches
from importlib import import_module

from ottrpo import __version__
from ottrpo.threads import default_to_one_thread

from .options import Mistake, Verb, parse

# verb -> (module, class, what it does)
VERBS = {
    "train": ("ottrpo.cli.train", "Train", "train an agent on an environment"),
    "resume": ("ottrpo.cli.resume", "Resume", "go on with a run that was interrupted"),
    "evaluate": ("ottrpo.cli.evaluate", "Evaluate", "evaluate a trained agent"),
    "reproduce": ("ottrpo.cli.reproduce", "Reproduce", "run a study: many runs, one table"),
    "report": ("ottrpo.cli.report", "Report", "the scores of studies, from their results alone"),
    "compare": ("ottrpo.cli.compare", "Compare", "two runs, results or agents side by side"),
    "solve": ("ottrpo.cli.solve", "Solve", "solve a trust-region problem from a JSON file"),
    "list": ("ottrpo.cli.listing", "List", "costs, agents, environments, studies, benchmarks"),
    "bench": ("ottrpo.cli.bench", "Bench", "measure speed against the alternatives"),
    "doctor": ("ottrpo.cli.doctor", "Doctor", "versions, threads, devices and a self-test"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    default_to_one_thread()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with _warnings_in_one_line():
            return _run(arguments)
    except Mistake as mistake:
        print(f"ottrpo: {mistake}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, a pager say, has gone
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("ottrpo: interrupted", file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(f"ottrpo: unexpected {type(error).__name__}: {error}", file=sys.stderr)
        return 1


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print warnings as lines of ours, without the place in the code that gave them."""
    python_way = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"ottrpo: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = python_way


def _run(arguments: list[str]) -> int:
    if not arguments:
        raise Mistake(f"a verb is missing; known: {', '.join(VERBS)} (try: ottrpo --help)")
    name, rest = arguments[0], arguments[1:]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"ottrpo {__version__}")
        return 0
    if name not in VERBS:
        close = get_close_matches(name, VERBS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise Mistake(f"{name!r} is not a verb; {hint}known: {', '.join(VERBS)}")
    module, class_name, _ = VERBS[name]
    verb_type = getattr(import_module(module), class_name)
    own_parser = getattr(verb_type, "parse", None)
    prog = f"ottrpo {name}"
    verb: Verb | None = own_parser(prog, rest) if own_parser else parse(verb_type, prog, rest)
    return 0 if verb is None else verb.run()


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
            "ottrpo VERB --help tells the options of a verb; ottrpo --version the version.",
        ]
    )
