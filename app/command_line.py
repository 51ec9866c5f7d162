"""Command lines from declarations: a dataclass of options becomes a parser and its help (cyclopts).

    @dataclass(frozen=True, kw_only=True)
    class Options(Prompts, Sampling):
        \"\"\"Say what the command does.\"\"\"

        traces: tuple[Path, ...] = words("traces, or folders of them")
        budget: int = option(16, "drafted nodes a round", Range(1, 1024))

Classes are combined by inheriting; each base is a group of its own in the help, under its
``title``. The types are int, float, str, Path, bool, Literal, one of these or None, and tuples of
them.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from textwrap import shorten
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from core.errors import UserError
from core.files import check_place
from core.ranges import Range

REQUIRED = MISSING
Read = Callable[[str], Any]
Declared = tuple[Field[Any], Any]  # a field and its type
T = TypeVar("T", bound="CommandOptions")
WIDTH = 100  # characters of a line of help
SENTENCES = {
    r"^Unused Tokens: \[(.*)\]$": r"\1 is more than the command takes",
    r"^Unknown option: (\S+)$": r"there is no option \1",
}
METAVARS = {int: "N", float: "X", Path: "PATH"}

# What options were called, and what they are called now, in the commands that have the new name.
RENAMED = (
    ("--method", "--methods"),
    ("--draft-model", "--drafter"),
    ("--seeds", "--repeats"),
    ("--seeds", "--seed"),
    ("--temperatures", "--temperature"),
    ("--format", "--to"),
    ("--kept", "--width"),
    ("--work", "--out"),
    ("--asks", "--tasks"),
    ("--more", "--files"),
)


def option(
    default: Any,
    help: str,
    range: Range | None = None,
    read: Read | None = None,
    metavar: str = "",
    word: bool = False,
) -> Any:
    """A field of a command's options.

    default  ``REQUIRED``: it must be given
    read     turns each word into a value; raises UserError, or ValueError with what it must be
    metavar  what stands for a value in the help; by default a word for its type
    word     it may stand without its name, as in ``run ddtree``
    """
    about = {"help": help, "range": range, "read": read, "metavar": metavar, "word": word}
    return field(default=default, metadata=about)


def words(help: str, default: Any = REQUIRED, read: Read | None = None) -> Any:
    """A field whose values may stand without its name."""
    return option(default, help, read=read, word=True)


def one_of(choices: Sequence[str]) -> Read:
    """Reads one of these words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return read


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a command, or a group of them."""

    title: ClassVar[str] = "options"

    @classmethod
    def groups(cls) -> Iterator[tuple[str, list[Declared]]]:
        """Title and fields of each group: the class's own fields, then those of its bases."""
        hints = get_type_hints(cls)
        owners = {f.name: _owner(cls, f.name) for f in fields(cls) if f.metadata}
        for owner in (c for c in cls.__mro__ if c in owners.values()):
            own = [(f, hints[f.name]) for f in fields(cls) if owners.get(f.name) is owner]
            yield vars(owner).get("title", CommandOptions.title), own

    @classmethod
    def of(cls: type[T], given: Mapping[str, Any]) -> T:
        """The options with what a command line gives. Raises UserError."""
        return cls(**given)


def _owner(kind: type, name: str) -> type:
    """The class that a field comes from; those that only change its default do not count."""
    return next(c for c in reversed(kind.__mro__) if name in getattr(c, "__dataclass_fields__", {}))


def parse(kind: type[T], words: Sequence[str], name: str, examples: Sequence[str] = ()) -> T | None:
    """The options that the words give; None: they asked for the help, which is now printed.

    Raises UserError for words that are none of the options, and for values out of range.
    """
    from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
    from rich.console import Console

    lines = "\n".join(f"  {each}" for each in examples)
    app = App(
        name=name,
        help=_flowing(inspect.cleandoc(kind.__doc__ or "")),
        help_epilogue=f"Examples:\n\n{lines}" if examples else "",
        help_format="plaintext",
        version_flags=(),
        default_parameter=Parameter(negative=()),
    )
    app["--help"].show = False

    def command(**given: Any) -> None: ...

    command.__signature__ = inspect.Signature(_parameters(kind))  # type: ignore[attr-defined]
    app.default(command)
    declared = {f.name: (f, hint) for _, own in kind.groups() for f, hint in own}
    console = Console(width=min(WIDTH, Console().width) if sys.stdout.isatty() else WIDTH)
    try:
        call, bound, _ = app.parse_args(
            list(words), exit_on_error=False, print_error=False, console=console
        )
    except MissingArgumentError as error:
        said = _missing(error.argument.name if error.argument else "", words, declared)
        raise UserError(f"{said} (see {name} --help)") from None
    except CycloptsError as error:
        raise UserError(f"{_sentence(error, declared)} (see {name} --help)") from None
    if call is not command:
        call(*bound.args, **bound.kwargs)
        return None
    try:
        given = {n: _value(*declared[n], value) for n, value in bound.arguments.items()}
    except ValueError as error:
        raise UserError(f"{error} (see {name} --help)") from None
    return kind.of(given)


def run(
    kind: type[T],
    main: Callable[[T], int],
    name: str,
    examples: Sequence[str] = (),
    words: Sequence[str] | None = None,
) -> int:
    """Parse the words, by default the process's own, and call ``main``; returns the exit code.

    Raises UserError for what cannot be parsed, and for a place of ``--out`` where nothing can be
    written.
    """
    options = parse(kind, sys.argv[1:] if words is None else words, name, examples)
    if options is None:
        return 0
    out = getattr(options, "out", None)
    if isinstance(out, Path) and out != Path("-"):  # standard output
        check_place(out)
    return main(options)


def _flowing(text: str) -> str:
    """Paragraphs of one line each: the help breaks them for its own width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _sentence(error: Exception, declared: Mapping[str, Declared]) -> str:
    """A sentence of the parser, begun small and without its stop; an old name gets its new one."""
    text, _, more = " ".join(str(error).split()).rstrip(".").partition(". ")
    old = text.removeprefix("Unknown option: ")
    for was, new in RENAMED:
        if was == old and new.removeprefix("--") in declared:
            return f"{old} is {new} now"
    for said, ours in SENTENCES.items():
        text = re.sub(said, ours, text)
    parts = (text, more) if more else (text,)
    return ", ".join(part[:1].lower() + part[1:] for part in parts)


def _missing(flag: str, words: Sequence[str], declared: Mapping[str, Declared]) -> str:
    """Of an option that stands there without a value, that; of one that is not there, its name as
    the help shows it, and what it is for."""
    if flag in words:
        return f"{flag} needs a value"
    made, hint = declared[flag.removeprefix("--").replace("-", "_")]
    about = made.metadata
    name = (
        flag.removeprefix("--").upper() if about.get("word") else f"{flag} {_metavar(made, hint)}"
    )
    what = ": ".join((about["help"], *filter(None, [", ".join(_choices(hint))])))
    return f"{name} is missing: {shorten(what, WIDTH, placeholder=' …')}"


def _choices(hint: Any) -> tuple[str, ...]:
    """The words that one value may be; (): any."""
    kind = _kind(hint)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _parameters(kind: type[CommandOptions]) -> list[inspect.Parameter]:
    """Each field as a parameter of a function, those that may stand without their name first."""
    from cyclopts import Group

    groups: dict[str, Group] = {}
    made: list[inspect.Parameter] = []
    for title, declared in kind.groups():
        group = groups.setdefault(title, Group(title.capitalize(), sort_key=len(groups)))
        made += [_parameter(*each, group) for each in declared]
    return sorted(made, key=lambda each: (each.kind, each.default is not each.empty))


def _parameter(declared: Field[Any], hint: Any, group: Any) -> inspect.Parameter:
    from cyclopts import Parameter

    about, name = declared.metadata, f"--{declared.name.replace('_', '-')}"
    kind, several = _kind(hint), get_origin(hint) is tuple
    shown = kind if kind is bool or get_origin(kind) is Literal else str
    default, places = declared.default, inspect.Parameter
    return places(
        declared.name,
        places.POSITIONAL_OR_KEYWORD if about.get("word") else places.KEYWORD_ONLY,
        default=places.empty if default is MISSING else _typed(default),
        annotation=Annotated[
            tuple[shown, ...] if several else shown | None if default is None else shown,
            Parameter(
                name=name,
                help=about["help"],
                group=group,
                consume_multiple=several,
                allow_repeating=True,  # of one value the last counts, of many all
                allow_leading_hyphen=not several and not about.get("word"),
                show_default=_default if _default(default) else False,
                metavar=_metavar(declared, hint) + " …" * several,
            ),
        ],
    )


def _metavar(declared: Field[Any], hint: Any) -> str:
    """The word that stands for a value in the help."""
    return declared.metadata.get("metavar") or METAVARS.get(_kind(hint), "TEXT")


def _kind(hint: Any) -> Any:
    """The type of one value: without None, and of a tuple's items."""
    if get_origin(hint) in (None, Literal):
        return hint
    return next(each for each in get_args(hint) if each not in (NoneType, Ellipsis))


def _default(value: Any) -> str:
    """A default as it would be typed; nothing for one that says nothing."""
    several = value if isinstance(value, tuple) else (value,)
    if any(isinstance(v, bool) or not isinstance(v, int | float | str | Path) for v in several):
        return ""
    return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in several)


def _typed(default: Any) -> Any:
    """A default as words, like those of the annotation: cyclopts checks it against that as soon as
    pydantic is imported."""
    if isinstance(default, tuple):
        return tuple(map(_typed, default))
    return default if default is None or isinstance(default, bool) else _default(default)


def _value(declared: Field[Any], hint: Any, given: Any) -> Any:
    """Return the given word or words in the field's type. Raises ValueError with a sentence."""
    kind, name = _kind(hint), f"--{declared.name.replace('_', '-')}"
    read = declared.metadata.get("read") or _reader(kind, declared.metadata.get("range"))
    if given == ():
        raise ValueError(f"{name} needs a value")
    found = []
    for word in given if get_origin(hint) is tuple else (given,):
        try:
            found.append(read(word))
        except ValueError as error:
            raise ValueError(f"{name} {error}, not {word!r}") from None
    return tuple(found) if get_origin(hint) is tuple else found[0]


def _reader(kind: Any, allowed: Range | None) -> Read:
    """Reads a word as a value of this type. Raises ValueError with what it must be."""
    if kind in (int, float):
        return lambda text: _number(text, kind, allowed)
    return Path if kind is Path else lambda word: word


def _number(text: str, kind: type, allowed: Range | None) -> float:
    what = "a whole number" if kind is int else "a number"
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"must be {what}") from None
    if not (abs(value) < math.inf if allowed is None else allowed.holds(value)):
        raise ValueError(f"must be {what if allowed is None else allowed}")
    return value
