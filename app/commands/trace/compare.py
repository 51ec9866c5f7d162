"""``trace compare``: texts by two engines, where they part, and whether a tie explains it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.numbers import NEAR, NEAR_IN, UNKNOWN, near, number
from app.command_line import option, words
from app.commands import common
from app.commands.options import POSITIVE, Model
from app.object_stores import here
from app.terminal import FittingTable, ProgressBar, console, one_line, print_lines, say
from core.errors import UserError
from core.methods.names import PLAIN
from core.ranges import Range

if TYPE_CHECKING:
    from analysis.engines.partings import LogP, Partings, TextPair

SHOWN = 40  # partings that the terminal lists


@dataclass(frozen=True, kw_only=True)
class Options(Model):
    """Compare what two engines wrote on one prompt or many, token by token: tie or bug?

    It reads traces or folders of them, or responses of vLLM (return_token_ids), SGLang (output_ids)
    or llama.cpp (tokens), and pairs several by their prompts. Without token ids it compares words.
    It shows the first difference, with p of both tokens where a trace has it. The difference is a
    tie if both tokens lie within --bound of the target's best token. If p of both sides is known
    and only one says so, the targets disagree. Logits of bfloat16 have 8 bits, so its bound is
    wider. For several texts all first differences are counted. Exit code 1 if a text differs or has
    no partner.
    """

    one: Path = words("a trace, .json or .jsonl, or a folder of traces", read=here)
    other: Path = words("the same from the other engine", read=here)
    response: int | None = option(
        None, "which response of a file that holds several (default: all)", POSITIVE
    )
    bound: float | None = option(
        None,
        f"nats within which tokens tie (default: {NEAR}; {NEAR_IN['bfloat16']} where one "
        "side is known to compute in bfloat16)",
        Range(0),
    )
    compute: bool = option(False, "ask the target of --model where no trace tells p")
    json: bool = option(False, "the differences as JSON")


def main(args: Options) -> int:
    from analysis.engines.partings import compared, count_partings, pair_texts, texts_at

    with ProgressBar("reading texts", late=True) as progress:
        ones, others = (
            texts_at(path, args.response, progress.at, partial(_left_out, path))
            for path in (args.one, args.other)
        )
    matched = pair_texts(ones, others)
    several = len(ones) > 1 or len(others) > 1
    pairs, bound = compared(matched), _bound(args, [text.dtype for text in (*ones, *others)])
    if args.compute:
        pairs, bound = _asked(args, pairs, bound)
    unmatched = len(ones) + len(others) - 2 * len(matched)
    if several:
        sampled = len(matched) - len(pairs)
        _many(args, pairs, count_partings(pairs, bound, unmatched, sampled))
    else:
        _one(args, pairs[0], bound)
    return 1 if unmatched or any(pair.difference is not None for pair in pairs) else 0


def _bound(args: Options, dtypes: Iterable[str]) -> float:
    """The nats within which tokens tie, by the precisions that are known."""
    return near(dtypes) if args.bound is None else args.bound


def _left_out(path: Path, sentence: str) -> None:
    say(f"{one_line(path.name, 200)}: {sentence}")


def _told_apart(args: Options, one: str, other: str) -> tuple[str, str]:
    """The names of the two sides; their paths where the names are equal."""
    return (str(args.one), str(args.other)) if one == other else (one, other)


def _one(args: Options, pair: TextPair, bound: float) -> None:
    from analysis.engines.texts import sentences

    found = pair.difference
    if args.json:
        facts = None if found is None else _facts(pair, bound)
        unknown = pair.one.reads_otherwise(pair.other) or not pair.compared
        same = None if facts is None and unknown else facts is None
        print(json.dumps({"same": same, "difference": facts}))
        return
    if found is not None and found.before:
        console().print(f"… {one_line(found.before, 200)}", soft_wrap=True)
    names = _told_apart(args, pair.one.name, pair.other.name)
    one, other = replace(pair.one, name=names[0]), replace(pair.other, name=names[1])
    print_lines(console(), sentences(found, one, other, bound, pair.asked))


def _many(args: Options, pairs: Sequence[TextPair], found: Partings) -> None:
    from analysis.engines.partings import KINDS, SAME, remarks, tie_or_bug

    parted = [pair for pair in pairs if pair.difference is not None]
    names = _told_apart(args, args.one.name, args.other.name)
    if args.json:
        rows = [{"one": p.one.name, "other": p.other.name, "kind": p.kind(found.bound)}
                | {"difference": _facts(p, found.bound)} for p in parted]  # fmt: skip
        said = remarks(found, names)
        print(json.dumps({"counts": found.to_json(), "remarks": said, "differences": rows}))
        return
    out = console()
    if parted:
        columns = ("", "parts at", "one", "other", "nats", "")
        rows = list(_rows(parted[:SHOWN], found.bound))
        out.print(FittingTable(columns, rows, left=("", "one", "other")))
        if len(parted) > SHOWN:
            out.print(f"… and {len(parted) - SHOWN} more")
        out.print()
    counts = (
        found.pairs, found.same, found.shorter, found.prompts, found.ties, found.others,
        found.disputed, found.unknown,
    )  # fmt: skip
    cells = [*map(str, counts)]
    out.print(FittingTable(("pairs", SAME, *KINDS[1:]), [cells]))
    out.print(one_line(tie_or_bug(found), 400), style="bold", soft_wrap=True)
    print_lines(out, remarks(found, names))


def _rows(parted: Sequence[TextPair], bound: float) -> Iterator[tuple[str, ...]]:
    for pair in parted:
        found, gap = pair.difference, pair.gap()
        if found is not None:
            sides = (one_line(repr(side.text), 24) for side in found.sides)
            nats = UNKNOWN if gap is None else number(gap, 3)
            at = f"{found.what} {found.index + 1}"
            yield (one_line(pair.one.name, 40), at, *sides, nats, pair.kind(bound))


def _facts(pair: TextPair, bound: float) -> dict[str, Any]:
    found, ours = pair.difference, pair.asked
    assert found is not None
    # JSON knows no infinity: where p is 0 the gap is null
    gap = pair.gap()
    more = {"tied": found.tied(bound, ours), "disputed": found.disputed(bound, ours)}
    more |= {"gap": None if gap == float("inf") else gap, "bound": bound}
    return asdict(found) | more | {"asked": None if ours is None else asdict(ours)}


def _asked(args: Options, pairs: Sequence[TextPair], bound: float) -> tuple[list[TextPair], float]:
    """The pairs with what our target says of partings of which no trace tells p; and the bound,
    which is no less than its precision needs."""
    from analysis.engines.partings import UNKNOWN as NOT_KNOWN
    from analysis.engines.partings import ask_target

    open_ = [at for at, pair in enumerate(pairs) if pair.kind(bound) == NOT_KNOWN]
    found = list(pairs)
    if open_:
        log_p, dtype = _log_p(args)
        bound = max(bound, _bound(args, [dtype]))
        with ProgressBar("asking the target", len(open_)) as progress:
            for done, at in enumerate(open_):
                progress.at(done)
                found[at] = ask_target(pairs[at], log_p)
    return found, bound


def _log_p(args: Options) -> tuple[LogP, str]:
    """Return a function that asks the target, and the precision it computes in."""
    engine = common.load_engine(args)
    target = engine.target(engine.method(PLAIN))

    def log_p(ids: Sequence[int]):
        if max(ids) >= target.vocabulary or len(ids) > target.context_limit:
            raise UserError(f"{args.model} cannot read these texts: they are another target's")
        return target.prefill(list(ids), 1).logits[0].float().log_softmax(-1).cpu().numpy()

    return log_p, str(target.dtype).removeprefix("torch.")
