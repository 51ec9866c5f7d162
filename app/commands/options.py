"""Options that several commands share, each group as a class to inherit from. Never torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.command_line import CommandOptions, option, words
from app.table_texts import TableForm
from core.errors import UserError
from core.lines import LIMITS, UNLIMITED, Limits
from core.methods.names import METHODS
from core.methods.registry import find_method, runnable
from core.models.embedded import NAME as EMBEDDED
from core.ranges import Range
from core.rounds.draft import MAX_BUDGET

if TYPE_CHECKING:
    from app.ray_workers import Cluster

METHOD_HELP = (
    f"{', '.join(METHODS)}, DRAFTER+BUILDER, either with its drafter's @CHECKPOINT, or your own "
    "FILE.py"
)
RUNNABLE = "default: all that need no weights or have some for this model"
WHOSE = f"whose drafters ({RUNNABLE})"
SAMPLING = "sampling of the target"
BUDGETS, POSITIVE = Range(1, MAX_BUDGET), Range(1)


def method(text: str) -> str:
    """A method's name, listed or "drafter+builder", perhaps with "@checkpoint", or a method file's
    path. Raises UserError."""
    try:
        find_method(text)
    except UserError:
        if text.endswith(".py") or not (text and Path(text).expanduser().exists()):
            raise
        raise UserError(
            f"{text} is a file or a folder, not a method: `report` says what traces show, "
            "and METHOD@FOLDER names a drafter's checkpoint"
        ) from None
    return text


def assignment(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError("must be NAME=VALUE")
    return name, value


@dataclass(frozen=True, kw_only=True)
class Set(CommandOptions):
    """Options of methods."""

    set: tuple[tuple[str, str], ...] = option(
        (),
        "an option of the method, such as temperature=0.8 (`model doctor` lists them)",
        read=assignment,
        metavar="NAME=VALUE",
    )

    @property
    def values(self) -> dict[str, str]:
        return {name.replace("-", "_"): value for name, value in self.set}


@dataclass(frozen=True, kw_only=True)
class Printed(CommandOptions):
    """How tables are printed."""

    tables: TableForm | None = option(None, "print tables to paste into a paper or a page")

    def __post_init__(self) -> None:
        """Raises UserError beside --json, which prints none."""
        if self.tables and getattr(self, "json", False):
            raise UserError("--json prints no tables: leave --json or --tables out")


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Set):
    """One method and its options."""

    methods: tuple[str, ...] = words(f"what drafts: {METHOD_HELP}", read=method)

    @property
    def method(self) -> str:
        """The one method. Raises UserError for several."""
        if len(self.methods) != 1:
            raise UserError(f"name one method, not {len(self.methods)}: {METHOD_HELP}")
        return self.methods[0]


@dataclass(frozen=True, kw_only=True)
class MethodsOptions(Set):
    """Several methods and their options."""

    methods: tuple[str, ...] = words(f"{METHOD_HELP}; {RUNNABLE}", (), method)


@dataclass(frozen=True, kw_only=True)
class Model(CommandOptions):
    """The target, its drafter, and where they compute."""

    title: ClassVar[str] = "model"
    model: str = option(
        EMBEDDED,
        "target: a preset (`model doctor` lists them), a folder, a GGUF file, a Hugging Face id "
        "(ID@REVISION), or your own preset FILE.toml",
        metavar="NAME|PATH",
    )
    drafter: str | None = option(
        None,
        "the drafter's checkpoint: a folder, a GGUF file or a Hugging Face id (default: the "
        "preset's, or the one that ships)",
        metavar="PATH|ID",
    )
    template: tuple[tuple[str, str], ...] = option(
        (),
        "a variable of the chat template, such as enable_thinking=false",
        read=assignment,
        metavar="NAME=VALUE",
    )
    device: str = option(
        "auto", "auto, cpu, cuda, cuda:1, …, or split: over all GPUs", metavar="DEVICE"
    )


def drafting(args: Model, *without: str) -> tuple[str, ...]:
    """A method for each drafter that can run on the model, but those whose states are in
    ``without``."""
    found: dict[str, str] = {}
    for name in runnable(args.model, args.drafter):
        info = find_method(name).drafter_info
        if info is not None and info.states not in without:
            found.setdefault(info.name, name)
    return tuple(found.values())


@dataclass(frozen=True, kw_only=True)
class Filter(CommandOptions):
    """The filter of the distribution that the target's tokens are drawn from."""

    title: ClassVar[str] = SAMPLING
    temperature: float = option(0.0, "0 is greedy", Range(0))
    top_k: int = option(0, "0 is off", Range(0))
    top_p: float = option(1.0, "1 is off", Range(0, 1, above=True))


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Filter):
    """How the target samples."""

    title: ClassVar[str] = SAMPLING
    seed: int = option(0, "same seed, same text")


@dataclass(frozen=True, kw_only=True)
class Samplings(Filter):
    """How the target samples, with several seeds."""

    title: ClassVar[str] = SAMPLING
    seed: tuple[int, ...] = option((0,), "at temperature 0 several seeds are repeats")


@dataclass(frozen=True, kw_only=True)
class Prompts(CommandOptions):
    """One prompt, or a file of them."""

    title: ClassVar[str] = "prompts"
    prompt: str | None = option(
        None, "one prompt, or a chat as a JSON list of messages; - reads it from stdin"
    )
    prompts: Path | None = option(
        None,
        "many: .txt with one a line, or .jsonl, .json, .csv or .parquet with prompts, messages or "
        "turns (docs/commands.md has the fields)",
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class Conversations(Prompts):
    """Prompts with all of their turns."""

    turns: int | None = option(
        None,
        "turns of a conversation that are asked, each after the answer to the one before (default: "
        "all)",
        POSITIVE,
    )


@dataclass(frozen=True, kw_only=True)
class Logged(CommandOptions):
    """Where texts are logged and told."""

    trace: Path | None = option(
        None,
        "log every round (.jsonl or .jsonl.gz); several prompts: FILE-1, FILE-2, …",
        metavar="FILE",
    )
    json: bool = option(False, "one JSON object per prompt on stdout")


@dataclass(frozen=True, kw_only=True)
class RequestOptions(Set, Prompts, SamplingOptions, Model):
    """The settings of one request, without its method and budget."""

    max_new_tokens: int = option(128, "tokens to write at most", POSITIVE)


@dataclass(frozen=True, kw_only=True)
class Large(CommandOptions):
    """How large a trace may be."""

    large: bool = option(
        False, "read a trace of any size (otherwise 2 GB unpacked, and 100 times a .gz file)"
    )

    @property
    def limits(self) -> Limits:
        return UNLIMITED if self.large else LIMITS


@dataclass(frozen=True, kw_only=True)
class Placement(CommandOptions):
    """The machines that the work is on."""

    title: ClassVar[str] = "where it runs (default: in this process)"
    ray: str | None = option(
        None,
        "on a Ray cluster: auto (the one this machine is in), HOST:PORT, or local (one started "
        "here for this)",
        metavar="ADDRESS",
    )
    workers: int | None = option(
        None, "Ray workers (default: one per GPU, else one per node; to pack, one per core)",
        POSITIVE,
    )  # fmt: skip

    def cluster(self, device: str = "cpu", each_core: bool = False) -> Cluster | None:
        """The cluster, or None for this process. Raises UserError as ``Cluster.check`` does, and
        for workers without Ray."""
        if self.ray is None:
            if self.workers is not None:
                raise UserError("--workers needs --ray: --ray local starts workers on this machine")
            return None
        from app.ray_workers import Cluster

        found = Cluster(self.ray, self.workers, device, each_core)
        found.check()
        return found
