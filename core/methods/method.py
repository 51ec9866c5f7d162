"""A method's description of itself, as plain data. Light: never torch.

A method is a drafter, a builder and a verification rule. Each states its options once, as a frozen
dataclass whose fields carry defaults, ranges and help (``option``). Heavy parts are lazy references
("package.module:name"), so that help texts and the first page never wait for torch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from core.drafting.session import Builder, as_builder
from core.errors import UserError
from core.methods.names import BUILDERS, DRAFTERS, PLAIN
from core.models.hub import Source
from core.models.presets import Value
from core.ranges import Range

Options = Mapping[str, Value]
Flags = Callable[[int, Options], str]  # an engine's options for drafts of K tokens


# ── options ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Option:
    """One option: its name, default, range and help.

    label    what a form shows; ``help`` one sentence
    collect  the value ``collect`` uses by default, for an option that only says how many states or
             tokens a drafter lists: a collected file then serves every smaller value. None: what
             the drafter says depends on it, and a collected file fixes its value
    """

    name: str
    default: Value
    label: str
    help: str
    range: Range | None = None
    collect: Value | None = None

    @property
    def type(self) -> type:
        return type(self.default)

    def read(self, value: Value) -> Value:
        """A value given as text or number, in the default's type. Raises UserError."""
        typed = self._typed(value)
        if self.range is not None:
            self.range.check(f"the option {self.name}", cast(float, typed))
        return typed

    def _typed(self, value: Value) -> Value:
        kind = self.type
        if kind is bool:
            word = str(value).lower()
            if word not in ("true", "false", "yes", "no", "1", "0"):
                raise UserError(f"the option {self.name} is yes or no, not {value!r}")
            return word in ("true", "yes", "1")
        try:
            if kind is int and float(value) != int(value):
                raise ValueError
            return kind(value)
        except (ValueError, OverflowError):
            what = "a whole number" if kind is int else "a number"
            raise UserError(f"the option {self.name} is {what}, not {value!r}") from None


def option(
    default: Any,
    help: str,
    range: Range | None = None,
    label: str = "",
    collect: Value | None = None,
) -> Any:
    """A field of an options dataclass; see ``Option``."""
    about = {"help": help, "range": range, "label": label, "collect": collect}
    return field(default=default, metadata=about)


def temperature_of_q(what: str = "q") -> Any:
    """The field of a drafter's options by which its logits are divided."""
    about, numbers = f"the logits of {what} are divided by it", Range(1e-3, 1e3, step=0.05)
    return option(1.0, about, numbers, "temperature of q")


@dataclass(frozen=True)
class QOptions:
    """The options of a drafter that has no more to choose than q's temperature."""

    temperature: float = temperature_of_q()


@dataclass(frozen=True)
class DepthOptions:
    """The options of a drafter that can draft as deep as one likes."""

    depth: int = option(8, "how many tokens deep it drafts", Range(1, 64))
    temperature: float = temperature_of_q()


def options_of(kind: type | None) -> tuple[Option, ...]:
    """The options that an options dataclass declares; none for None."""
    if kind is None:
        return ()
    return tuple(
        Option(
            f.name,
            cast(Value, f.default),
            f.metadata.get("label") or f.name.replace("_", " "),
            f.metadata.get("help", ""),
            f.metadata.get("range"),
            f.metadata.get("collect"),
        )
        for f in dataclasses.fields(kind)
    )


def read_options(options: tuple[Option, ...], name: str, values: Options) -> dict[str, Value]:
    """Defaults with ``values`` put in. Raises UserError for an unknown option or a bad value."""
    found = {o.name: o.default for o in options}
    by_name = {o.name: o for o in options}
    for key, value in values.items():
        key = key.replace("-", "_")
        if key not in by_name:
            known = ", ".join(by_name) or "none"
            raise UserError(f"{name} has no option {key!r} (its options: {known})")
        found[key] = by_name[key].read(value)
    return found


def made_options(kind: type | None, values: Options) -> Any:
    """The options dataclass with its own of these values; None for None."""
    return None if kind is None else kind(**{o.name: values[o.name] for o in options_of(kind)})


# ── what a node's notes are ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Note:
    """How one of a draft's notes is shown.

    name   its key in ``Draft.notes``
    label  text before the value
    form   "probability" (the note is a log-probability), "number", "signed" or "count"
    help   one sentence; may name options as fields, as in {width}
    """

    name: str
    label: str
    form: str = "number"
    help: str = ""


@dataclass(frozen=True)
class Mark:
    """A quiet mark in a node's box: ``sign`` where ``low`` ≤ value < ``high``.

    value  the note ``note``, or log q less it where ``against_q``
    """

    sign: str
    note: str
    help: str
    low: float = -math.inf
    high: float = math.inf
    against_q: bool = False


@dataclass(frozen=True)
class Explanation:
    """How a node's section "why it was drafted" is drawn for a drafter or a builder.

    layout     "path" (Π q along the path), "versus" (q beside the note ``versus``) or "terms" (the
               score as a sum of the notes ``terms``)
    lead       one sentence, with {rank}, {depth}, {parent} and the method's options as fields
    childless  one sentence, with the same fields, for a node that can have no children although
               it is not at the last depth
    """

    layout: str = "path"
    lead: str = "The drafter's {rank} token at depth {depth}, for any prefix."
    versus: str = ""
    terms: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    marks: tuple[Mark, ...] = ()
    childless: str = "It can have no children: the drafter lists nothing after it."
    closing: str = ""


# ── drafters, builders, methods ──────────────────────────────────────────────────────────────────

BY_DEPTH, BY_PREVIOUS, BY_PATH, BY_RUN = "depth", "token before", "path", "run"


class TargetFacts(Protocol):
    """The facts that a builder may need to know of a target."""

    @property
    def name(self) -> str: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def stop_ids(self) -> frozenset[int]: ...


@dataclass(frozen=True)
class Checkpoint:
    """How a drafter's checkpoint folders are read, for checks that load no weight.

    form    lazy reference to a ``core.models.checkpoint.DrafterForm``
    export  lazy reference: (folder, out, a function that loads the target) → the model, which it
            wrote to ``out`` in the official form (``model export``)
    layouts the layouts it is read in, for messages
    told    a pattern of the lines (``methods.layouts.marks``) by which a published config tells its
            kind; of several kinds that are told, the last that is listed counts
    inside  whether it may lie among the target's own tensors
    shipped the folder among those that ship; "": the drafter's name
    gguf    lazy reference to how it lies in llama.cpp's files, a
            ``core.models.gguf_layout.GgufLayout``; "": it is not read of them
    """

    form: str
    export: str = ""
    layouts: str = "its authors' layout"
    told: str = "$^"
    inside: bool = False
    shipped: str = ""
    gguf: str = ""


@dataclass(frozen=True)
class TrainingInfo:
    """How something is trained here, before anything heavy is loaded.

    load     lazy reference to its ``Training`` (``core.learning.student``)
    options  the dataclass of its own settings: each field is a flag of ``train``
    """

    load: str
    options: type

    @property
    def training(self) -> Any:
        return lazy(self.load)


@dataclass(frozen=True, eq=False)
class DrafterInfo:
    """A drafter before anything heavy is loaded.

    load        lazy reference or function: (language, folder or None, options) → Drafter
    options     its options dataclass
    states      what its q depends on: BY_DEPTH, BY_PREVIOUS, BY_PATH, or BY_RUN: on the rounds of
                its run too. What-if can list the states of the first two, of the third there are
                too many; of the last a text tells nothing, so calibration cannot ask it either.
    checkpoint  None: it has no weights
    training    None: it is not trained here
    recorded    lazy reference: (lists by depth, tables, options) → ``RecordedSession``, for a
                drafter whose states are BY_PREVIOUS (see ``analysis.collected.collection``)
    weights     whose checkpoint, by folder or hub id, where a method's name says so
    depends     what its q depends on, in a word; "": as ``states`` says
    vllm        what ``method`` of vLLM's --speculative-config calls it; "": vLLM has no such one
    vllm_last   the last version of vLLM that has it; "": the newest has
    vllm_fields further fields of that config, by its options; None: there are none
    flags       by engine: its command line's options for drafts of K tokens, by K and its options.
                An engine that is missing has no such drafter, or its options are not known
    """

    name: str
    about: str
    load: str | Callable[..., Any]
    options: type | None = None
    states: str = BY_DEPTH
    checkpoint: Checkpoint | None = None
    training: TrainingInfo | None = None
    recorded: str = ""
    explain: Explanation = Explanation()
    weights: str = ""
    depends: str = ""
    vllm: str = ""
    vllm_last: str = ""
    vllm_fields: Callable[[Options], Options] | None = None
    flags: Mapping[str, Flags] = field(default_factory=dict)

    @property
    def knows(self) -> str:
        """The words of tables for what its q depends on."""
        return self.depends or self.states


@dataclass(frozen=True, eq=False)
class BuilderInfo:
    """A builder before anything heavy is loaded.

    make    lazy reference or function: (target facts, options) → Builder
    nested  whether the draft of budget b is the first b rows of any larger budget's
    chain   whether its drafts are chains: budgets above the drafter's depth change nothing
    optimal whether a draft holds the most probable prefixes of all that is listed: a function of
            the options, or None for a builder that never promises it
    files   options that name a file which a preset of the target may provide
    rule    the verification rule that its drafts need, by its options, as in ``Method.rule``
    ends    why a draft may have fewer nodes than its budget, as the end of a sentence; may name
            options as fields
    """

    name: str
    about: str
    make: str | Callable[..., Any]
    options: type | None = None
    nested: bool = False
    chain: bool = False
    optimal: Callable[[Any], bool] | None = None
    explain: Explanation | None = None
    files: tuple[str, ...] = ()
    rule: Callable[[Any], str] | None = None
    ends: str = ""


@dataclass(frozen=True, eq=False)
class Method:
    """A drafter, a builder and a verification rule, with the defaults that make them one method.

    drafter  its name in the registry, or a ``DrafterInfo``; None: plain decoding
    builder  its name in the registry, a ``BuilderInfo``, or a builder itself
    rule     lazy reference to a verification rule; "": the builder's, or the target's own token
    options  defaults that differ from those of the parts
    weights  the drafter's checkpoint, by folder or hub id; "": as the engine says
    """

    title: str
    drafter: str | DrafterInfo | None = None
    builder: str | BuilderInfo | Callable[..., Any] | None = None
    budget: int = 64
    about: str = ""
    rule: str = ""
    options: Options = field(default_factory=dict)
    weights: str = ""

    @cached_property
    def drafter_info(self) -> DrafterInfo | None:
        if isinstance(self.drafter, str):
            return find_drafter(self.drafter, self.weights)
        return self.drafter

    @cached_property
    def builder_info(self) -> BuilderInfo | None:
        """The builder's declarations; None for plain decoding and for one that declares nothing."""
        if isinstance(self.builder, str):
            return find_builder(self.builder)
        return self.builder if isinstance(self.builder, BuilderInfo) else None

    @property
    def is_chain(self) -> bool:
        """Whether its builder says that it drafts a chain."""
        return self.builder_info is not None and self.builder_info.chain

    @cached_property
    def drafter_options(self) -> tuple[Option, ...]:
        info = self.drafter_info
        return self._with_defaults(options_of(info.options)) if info is not None else ()

    @cached_property
    def builder_options(self) -> tuple[Option, ...]:
        info = self.builder_info
        return self._with_defaults(options_of(info.options)) if info is not None else ()

    @property
    def all_options(self) -> tuple[Option, ...]:
        return self.drafter_options + self.builder_options

    @property
    def explain(self) -> Explanation:
        """The builder's explanation of a node, else the drafter's."""
        if self.builder_info is not None and self.builder_info.explain is not None:
            return self.builder_info.explain
        return self.drafter_info.explain if self.drafter_info is not None else Explanation()

    def make_builder(self, facts: TargetFacts, values: Options) -> Builder:
        """The builder for a target, of a method that drafts; ``values`` holds every option of the
        method."""
        info = self.builder_info
        if info is None:
            return as_builder(cast(Any, self.builder))
        return lazy(info.make)(facts, made_options(info.options, values))

    def rule_for(self, values: Options) -> str:
        """The verification rule with these options, as ``rule`` names one."""
        info = self.builder_info
        if self.rule or info is None or info.rule is None:
            return self.rule
        return info.rule(made_options(info.options, values))

    def resolve(self, values: Options) -> dict[str, Value]:
        """Every option with its value. Raises UserError for an unknown option or a bad value."""
        return read_options(self.all_options, self.title, values)

    def _with_defaults(self, options: tuple[Option, ...]) -> tuple[Option, ...]:
        own = self.options
        return tuple(
            dataclasses.replace(o, default=o.read(own[o.name])) if o.name in own else o
            for o in options
        )


@cache
def find_drafter(name: str, weights: str = "") -> DrafterInfo:
    """The drafter of this name, with a checkpoint of its own if ``weights`` names one. The same
    object each time: an engine finds again what it has loaded for it.

    Raises UserError for a name that is not listed, or weights for a drafter that has none.
    """
    if name not in DRAFTERS:
        raise UserError(f"unknown drafter {name!r}: choose one of {', '.join(DRAFTERS)}")
    found: DrafterInfo = lazy(DRAFTERS[name])
    if weights and found.checkpoint is None:
        raise UserError(f"the drafter {name} has no weights: it takes no checkpoint {weights!r}")
    return dataclasses.replace(found, weights=weights) if weights else found


def drafter_source(drafter: DrafterInfo, source: Source) -> Source:
    """Where a drafter lies: a GGUF file with how it is read."""
    own = drafter.checkpoint
    if own is None or not own.gguf or source.gguf is None:
        return source
    return dataclasses.replace(source, layout=lazy(own.gguf))


@cache
def find_builder(name: str) -> BuilderInfo:
    """Raises UserError for a name that is not listed."""
    if name not in BUILDERS:
        raise UserError(f"unknown builder {name!r}: choose one of {', '.join(BUILDERS)}")
    return lazy(BUILDERS[name])


def lazy(reference: str | Callable[..., Any]) -> Any:
    """Import and return what a reference "package.module:name" names; anything else is itself."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def file_name(method: str) -> str:
    """A method's name; of one given as a file, the file's."""
    return Path(method).stem if method.endswith(".py") else method


def shown_name(method: str) -> str:
    """A method's name in tables, where ``ar`` is "plain"."""
    return "plain" if method == PLAIN else file_name(method)
