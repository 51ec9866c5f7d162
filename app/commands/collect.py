"""``collect``: run the drafters once at every token of a text, for what-if without the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.collected.collection import Collection, check_listable, drafter_key
from app.command_line import REQUIRED, option, words
from app.commands import common
from app.commands.given import Asked, Texts, asked_of
from app.commands.options import (
    POSITIVE,
    WHOSE,
    Model,
    SamplingOptions,
    Set,
    assignment,
    drafting,
    method,
)
from app.terminal import ProgressBar, one_line, say
from core.errors import UserError
from core.journal import alone
from core.methods.method import BY_PATH, BY_RUN, Value
from core.methods.registry import find_method
from core.progress import Steps
from core.rounds.draft import MAX_BUDGET
from core.rounds.round import Sampling


@dataclass(frozen=True, kw_only=True)
class Options(Set, Texts, SamplingOptions, Model):
    """Write the target's text on one prompt, and what the drafters say at every token of it.

    `whatif FILE` then simulates any builder, budget and option without the model. Several prompts
    fill a folder, one file each. Repeat the command to continue an interrupted one.

    --answer takes a text that another engine served: the drafters run at each of its tokens, and
    the target gives p of each. --states takes texts with the target's hidden states, so that the
    target need not be here.
    """

    methods: tuple[str, ...] = words(WHOSE, (), method)
    set: tuple[tuple[str, str], ...] = option(
        (),
        "an option of a drafter (default: the largest lists that can be simulated)",
        read=assignment,
        metavar="NAME=VALUE",
    )
    out: Path = option(
        REQUIRED, "the file to write, such as sky.safetensors; for several prompts a folder"
    )
    max_new_tokens: int = option(256, "tokens to write at most", POSITIVE)
    width: int = option(MAX_BUDGET, "tokens listed per depth; the default is exact at every budget")
    no_marginals: bool = option(
        False,
        "leave out q by depth alone where the drafter also reads the token before; the file is "
        "a third smaller",
    )


def main(args: Options) -> int:
    texts = _texts(args.out, asked_of(args))
    args = replace(args, methods=args.methods or drafting(args, BY_PATH, BY_RUN))
    for name in args.methods:
        check_listable(name)
    # The work on a file has a lock of its own: here it is the folder of several.
    several = len(texts) > 1
    with alone(args.out, "collection", resumes=True) if several else nullcontext():
        _collect(args, texts)
    _tell(args.out, list(texts))
    return 0


def _collect(args: Options, texts: Mapping[Path, Asked]) -> None:
    """Make the files that are not there."""
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    from analysis.collected.collect import CollectionPlan, collect, source_of, widest

    values = widest(args.methods) | args.values
    older = {file: found for file in texts if (found := _older(file)) is not None}
    for file, found in older.items():
        if other := next(_differences(found, args, texts[file], sampling, values), None):
            raise _finished(file, other)
    plan = CollectionPlan(args.max_new_tokens, args.width, sampling, not args.no_marginals)
    plan.check()
    engine = common.load_engine(args, args.methods, ends=bool(args.states))
    source = source_of(engine, args.methods, values)
    for file, found in older.items():
        if found.header.name != source.facts.name:
            raise _finished(file, f"target, {found.header.name}")
    left = {f: text for f, text in texts.items() if len(texts) == 1 or f not in older}
    language = engine.prepare()
    with ProgressBar("collecting", len(left)) as progress:
        for number, (file, text) in enumerate(left.items()):
            done = _part(progress, number, len(left))
            read = text.read(args, language, source.layers)
            own = replace(plan, given=read.answer)
            collect(source, read.ids, file, own, read.words, done, read.reading)


def _texts(path: Path, asked: Sequence[Asked]) -> dict[Path, Asked]:
    """The text of each file. Several go into a folder, numbered, so that the same command finds
    what is finished. Raises UserError for a path that is no folder."""
    if len(asked) == 1:
        return {path: asked[0]}
    if not path.absolute().parent.is_dir() or (path.exists() and not path.is_dir()):
        raise UserError(f"{len(asked)} texts need a folder, and {path} cannot be one")
    return {path / f"{n:04d}.safetensors": text for n, text in enumerate(asked, 1)}


def _part(progress: ProgressBar, number: int, count: int) -> Steps:
    """The report of one of several texts."""
    name = f"text {number + 1} of {count}, " if count > 1 else ""
    return lambda done, what: progress.at(number + done, name + what)


def _tell(path: Path, files: Sequence[Path]) -> None:
    """Say what the path holds now: tokens, drafters, size and the next command."""
    made = [Collection.load(file) for file in files]
    tokens = sum(each.end - each.answer for each in made)
    size = sum(file.stat().st_size for file in files) / 1e6
    texts = f"{len(made)} texts, " if len(made) > 1 else ""
    say(
        f"{path}: {texts}{tokens} new tokens, {', '.join(made[0].drafters)}, {size:.1f} MB; "
        f"whatif {path} shows what methods and budgets would do"
    )
    for each in made:
        if each.given:
            say(one_line(each.given, 400))


def _older(path: Path) -> Collection | None:
    """The finished collection at ``path``, if there is one. A file is only replaced by its like, so
    that a slip costs no model and no text."""
    if not path.absolute().parent.is_dir():
        raise UserError(f"there is no folder {path.absolute().parent}")
    if not path.exists():
        return None
    try:
        return Collection.load(path)
    except UserError:
        raise UserError(f"{path} exists and is not a collected text") from None


def _finished(path: Path, other: str) -> UserError:
    return UserError(
        f"{path} is a finished collection of another {other}: choose another name, or remove it"
    )


def _differences(
    older: Collection,
    args: Options,
    asked: Asked,
    sampling: Sampling,
    values: Mapping[str, Value],
) -> Iterator[str]:
    """Name the settings in which an older collection is not what the arguments ask for."""
    header = older.header
    methods = {drafter_key(name): name for name in args.methods}
    if (header.given.digest if header.given else "") != (asked.digest if asked.given else ""):
        yield "text"
    if asked.prompt and header.prompt_text != asked.prompt:
        yield "prompt"
    if header.sampling != sampling:
        yield "sampling"
    if set(header.drafters) != set(methods):
        yield f"set of drafters, {', '.join(header.drafters)}"
        return
    count = older.end - older.answer
    whole = header.given is not None and count == header.given.length
    ended = whole or int(older.tokens[older.end - 1]) in header.stop_ids
    if count > args.max_new_tokens or (count < args.max_new_tokens and not ended):
        yield f"number of new tokens, {count}"
    for name, limits in header.drafters.items():
        if limits.width != args.width and not (limits.complete and limits.width < args.width):
            yield f"number of tokens per depth, {limits.width}"
        if limits.candidates and (f"{name}.next_marginal" in older.arrays) == args.no_marginals:
            yield "choice of --no-marginals"
        for setting, value in _drafter_options(methods[name], values, header.vocabulary).items():
            held = limits.setting(setting)
            if held is not None and held != value:
                yield f"{setting}, {held}"


def _drafter_options(method: str, values: Mapping[str, Value], vocabulary: int) -> dict[str, Value]:
    """The options of a method's drafter as a file has them: no list is longer than all tokens."""
    found = find_method(method)
    options = {o.name: o for o in found.drafter_options}
    resolved = found.resolve({k: v for k, v in values.items() if k in options})
    return {
        name: resolved[name] if o.collect is None else min(int(resolved[name]), vocabulary)
        for name, o in options.items()
    }
