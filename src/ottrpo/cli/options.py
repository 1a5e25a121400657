"""What all verbs share: how they are parsed, and how a mistake of the user is told."""

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Protocol, TypeVar, get_args

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ottrpo.extras import remedy


class Mistake(Exception):
    """Something the user can put right: told in one line, exit code 2."""


class Verb(Protocol):
    """One subcommand, already parsed."""

    def run(self) -> int | None:
        """Do it; the exit code, if it is not 0."""


AnyVerb = TypeVar("AnyVerb", bound=Verb)


def whole(text: str) -> int:
    """A whole number, also as people write large ones.

    >>> whole("1e5"), whole("100_000")
    (100000, 100000)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
        exact = value.is_integer()
    except ValueError:
        exact = False
    if not exact:
        raise ValueError(f"{text!r} is no whole number, such as 100000 or 1e5")
    return int(value)


# Options that several verbs have.
Trust = Annotated[
    bool,
    tyro.conf.arg(
        help="let the run import the module of its environment (`module:Name-v0`), if it names one"
    ),
]
Results = Annotated[
    Path | None,
    tyro.conf.arg(
        help="a folder, or `published` for the results that came with ottrpo; by default results/ "
        "if\nit exists, else the published ones"
    ),
]

# What options are made of, how it is named in the help, and how it is read.
_KINDS: dict[type, tuple[str, Callable[[str], Any]]] = {
    int: ("N", whole),
    float: ("X", float),
    str: ("TEXT", str),
    Path: ("PATH", Path),
}
_RULES = ConstructorRegistry()


@_RULES.primitive_rule
def _plain(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Options of these kinds, also such as need not be given: tyro would offer to type None."""
    arms = [arm for arm in get_args(info.type) or [info.type] if arm is not NoneType]
    if len(arms) != 1 or arms[0] not in _KINDS:
        return None
    metavar, read = _KINDS[arms[0]]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: read(texts[0]),
        is_instance=lambda value: value is None or isinstance(value, arms[0]),
        str_from_instance=lambda value: [str(value)],
    )


@contextlib.contextmanager
def mistakes(context: str = "") -> Iterator[None]:
    """Tell what the library refuses inside this block as a mistake of the user.

    Wrap what reads the user's input, never what works on it: there a ``ValueError`` is a bug.
    """
    try:
        yield
    except OSError as error:
        raise Mistake(refused(error, context)) from error
    except RecursionError as error:
        raise Mistake(f"{context or 'what was given'}: nested too deeply") from error
    except (ValueError, ImportError) as error:
        missing = remedy(error) if type(error) is ModuleNotFoundError else None
        told = missing or str(error)
        raise Mistake(unbroken(f"{context}: {told}" if context else told)) from error


def results_root(asked: Path | None) -> Path:
    """Where results are read: as asked; by default in ``results``, else those that came along."""
    from ottrpo.results.layout import PUBLISHED

    here = asked or Path("results")
    # by its name too, as results of one's own would hide what was published
    wanted = asked is None or asked == Path(PUBLISHED.name)
    return PUBLISHED if wanted and not here.is_dir() else here


def require_at_least(least: int, **options: int | None) -> None:
    """Refuse options that are given and smaller than that.

    Raises:
        Mistake: if one is.
    """
    for name, value in options.items():
        if value is not None and value < least:
            told = "must not be negative" if least == 0 else f"must be at least {least}"
            raise Mistake(f"--{name.replace('_', '-')} {told}, got {value}")


def parse(verb_type: type[AnyVerb], prog: str, arguments: Sequence[str]) -> AnyVerb | None:
    """The verb with its options; None if help was asked for and has been printed."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                verb_type,
                prog=prog,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=_RULES,
            )
    except SystemExit as exit_:
        if exit_.code in (0, None):
            return None
        raise Mistake(_unboxed(complaint.getvalue())) from None


def refused(error: OSError, where: Any) -> str:
    """What the system refused, in one line; ``where`` if the error names no file."""
    return unbroken(f"{error.filename or where}: {error.strerror or error}")


def unbroken(text: str) -> str:
    """``text`` without line breaks."""
    return " ".join(text.split())


def _unboxed(text: str) -> str:
    """Tyro's framed message as one line: the frame, its title and the help text of options go."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [row.strip("│ ") for row in plain.splitlines() if not row.startswith(("╭", "╰"))]
    parts = (unbroken(part) for part in re.split(r"─{4,}", " ".join(rows)))
    return "; ".join(part for part in parts if part and not part.startswith("Argument helptext"))
