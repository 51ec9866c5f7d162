"""What other engines report of a served text: counts, and from DDTree whole trees. Never torch.

vLLM, SGLang and llama.cpp count acceptance and keep no trees, so there is nothing to draw: a
histogram, a curve by depth and the order of rounds, as far as each tells them. No trace is made of
counts. DDTree's saved trees become a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.json_input import MAX_BYTES, parse_json, read_json
from core.samples import read_lines
from core.traces.fields import END, BadField, Fields
from core.traces.record import Recorder
from core.traces.schema import MAX_ROWS

MAX_DEPTH = 1 << 10
LABEL = "counts that the engine reported: it kept no trees"


@dataclass(frozen=True)
class Served:
    """One response's counts. None: the engine does not tell.

    rounds     target passes that verified a draft
    drafted, accepted  tokens of all drafts
    tokens     new tokens of the text
    histogram  rounds that accepted 0, 1, 2 … tokens
    order      accepted and drafted tokens of every round, in order
    """

    engine: str
    rounds: int | None
    drafted: int | None
    accepted: int | None
    tokens: int | None = None
    histogram: tuple[int, ...] | None = None
    order: tuple[tuple[int, int], ...] | None = None


def read_served(path: Path) -> list[Served]:
    """The responses in a JSON file, or one a line in a .jsonl file.

    Raises UserError, one sentence, for a file that is none or holds no counts.
    """
    found = [_one(fields, where) for fields, where in responses(path)]
    if not found:
        raise UserError(f"{path} holds no response")
    return found


def responses(path: Path) -> Iterator[tuple[Any, str]]:
    """Every response in a JSON file, or one a line in a .jsonl file, and what to call it.

    Raises UserError, one sentence, for what is not JSON.
    """
    if path.suffix == ".jsonl":
        for n, line in read_lines(path, MAX_BYTES):
            yield parse_json(line, f"{path}, line {n}"), f"{path}, line {n}"
        return
    value = read_json(path)
    for n, each in enumerate(value if isinstance(value, list) else [value], 1):
        yield each, f"{path}, response {n}" if isinstance(value, list) else str(path)


def _one(value: Any, where: str) -> Served:
    try:
        response = Fields(value, "the response")
        for find, read in _READERS:
            if found := find(response):
                served = read(found, response)
                _check(served)
                return served
    except BadField as why:
        raise UserError(f"{where}: {why}") from None
    raise UserError(
        f"{where} holds no counts of vLLM (metrics.speculative_decoding), SGLang (meta_info) or "
        "llama.cpp (timings)"
    )


def _check(served: Served) -> None:
    """Raises BadField for counts that contradict each other."""
    if (served.accepted or 0) > (END if served.drafted is None else served.drafted):
        raise BadField("more tokens are accepted than drafted")
    if served.histogram is not None and served.rounds not in (None, sum(served.histogram)):
        raise BadField("the histogram does not add up to the rounds")


# ── engines ──────────────────────────────────────────────────────────────────────────────────────


def _vllm(raw: Fields, response: Fields) -> Served:
    order = None
    if "per_step_accepted" in raw:
        accepted = raw.whole("per_step_accepted", least=0)
        drafted = raw.whole("per_step_drafted", least=0)
        if len(accepted) != len(drafted) or any(
            a > d or d > MAX_DEPTH for a, d in zip(accepted, drafted, strict=True)
        ):
            raise BadField("per_step_accepted and per_step_drafted do not fit each other")
        order = tuple(zip(accepted, drafted, strict=True))
    histogram = _histogram(raw, "acceptance_histogram")
    if histogram is None and order is not None:
        histogram = _counted([accepted for accepted, _ in order])
    tokens = response.object("usage").optional("completion_tokens")
    return Served(
        "vLLM",
        raw.optional("num_spec_steps"),
        raw.optional("num_draft_tokens"),
        raw.optional("num_accepted_draft_tokens"),
        tokens,
        histogram,
        order,
    )


def _sglang(raw: Fields, response: Fields) -> Served:
    def first(*names: str) -> int | None:
        return next((raw.optional(name) for name in names if name in raw), None)

    histogram = _histogram(raw, "spec_correct_drafts_histogram", "spec_accept_histogram")
    accepted = first("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    if accepted is None and histogram is not None:
        accepted = sum(n * count for n, count in enumerate(histogram))
    return Served(
        "SGLang",
        raw.integer("spec_verify_ct"),
        first("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
        accepted,
        (raw if "completion_tokens" in raw else response.object("usage")).optional(
            "completion_tokens"
        ),
        histogram,
    )


def _llama(raw: Fields, response: Fields) -> Served:
    tokens = raw.optional("predicted_n")
    accepted = raw.integer("draft_n_accepted")
    # every pass gives one token that was not drafted; the first of the text is the prompt's
    rounds = None if tokens is None or tokens <= accepted else tokens - accepted - 1
    return Served("llama.cpp", rounds or None, raw.integer("draft_n"), accepted, tokens)


def _histogram(raw: Fields, *names: str) -> tuple[int, ...] | None:
    """Rounds by accepted tokens, of a list or of an object {"0": n, …}; None: there is none."""
    for name in names:
        if name not in raw:
            continue
        try:
            texts = raw.object(name)
        except BadField:
            return _bounded(raw.whole(name, least=0))
        keys = list(texts)
        if not all(key.isascii() and key.isdigit() and len(key) < 5 for key in keys):
            raise BadField(f"{name} does not count rounds by accepted tokens")
        counts = {int(key): texts.integer(key) for key in keys}
        return _bounded(tuple(counts.get(n, 0) for n in range(max(counts, default=-1) + 1)))
    return None


def _bounded(histogram: tuple[int, ...]) -> tuple[int, ...]:
    if len(histogram) > MAX_DEPTH:
        raise BadField(f"a histogram of {len(histogram)} depths")
    while histogram and not histogram[-1]:
        histogram = histogram[:-1]
    return histogram


def _counted(lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(lengths.count(n) for n in range(max(lengths, default=-1) + 1))


def _vllm_part(response: Fields) -> Fields:
    inner = response.object("metrics").object("speculative_decoding")
    return inner or (response if "num_spec_steps" in response else inner)


def _sglang_part(response: Fields) -> Fields:
    part = response.object("meta_info") or _spec_details(response)
    if not part and "choices" in response:
        choices = response.entries("choices")
        part = Fields(choices[0], "a choice").object("meta_info") if choices else part
    part = part or response
    return part if "spec_verify_ct" in part else Fields(None)


def _spec_details(response: Fields) -> Fields:
    """What newer servers add to an OpenAI response: one choice's, or a list with one a choice."""
    extension = response.object("sglext")
    try:
        return extension.object("spec_tokens_details")
    except BadField:
        entries = extension.entries("spec_tokens_details")
        if len(entries) != 1:
            raise BadField("sglext counts several choices: ask for one a response") from None
        return Fields(entries[0], "spec_tokens_details")


def _llama_part(response: Fields) -> Fields:
    part = response.object("timings") or response
    return part if "draft_n" in part else Fields(None)


Reader = Callable[[Fields, Fields], Served]
_READERS: tuple[tuple[Callable[[Fields], Fields], Reader], ...] = (
    (_vllm_part, _vllm),
    (_sglang_part, _sglang),
    (_llama_part, _llama),
)


# ── what the counts say ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Depth:
    """``tested``: rounds that accepted all before, and drafted there. ``marginal``: accepted ÷ all
    rounds; ``conditional``: ÷ tested."""

    depth: int
    accepted: int
    tested: int
    marginal: float
    conditional: float


def summary(responses: Sequence[Served]) -> dict[str, Any]:
    """One engine's responses together, as plain numbers. None: an engine that does not tell."""
    histograms = [r.histogram for r in responses]
    histogram = None
    if all(h is not None for h in histograms):
        known = [h for h in histograms if h is not None]
        deepest = max(map(len, known), default=0)
        histogram = [sum(h[n] for h in known if n < len(h)) for n in range(deepest)]
    sums = {
        name: _sum([getattr(r, name) for r in responses])
        for name in ("rounds", "drafted", "accepted", "tokens")
    }
    rounds, accepted = sums["rounds"], sums["accepted"]
    if histogram is not None and rounds is None:
        rounds = sums["rounds"] = sum(histogram)
    if histogram is not None and accepted is None:
        accepted = sums["accepted"] = sum(n * count for n, count in enumerate(histogram))
    tau = 1 + accepted / rounds if accepted is not None and rounds else None
    rate = accepted / sums["drafted"] if accepted is not None and sums["drafted"] else None
    order = [pair for r in responses for pair in r.order or ()]
    whole = histogram is not None and len(order) == sum(histogram)
    depths = [] if histogram is None else by_depth(histogram, order if whole else None)
    return {
        "source": LABEL,
        "engine": ", ".join(dict.fromkeys(r.engine for r in responses)),
        "responses": len(responses),
        **sums,
        "tau": tau,
        "accepted_of_drafted": rate,
        "histogram": histogram,
        "by_depth": [vars(each) for each in depths],
        "order": [r.order and [list(pair) for pair in r.order] for r in responses],
    }


def by_depth(
    histogram: Sequence[int], order: Sequence[tuple[int, int]] | None = None
) -> list[Depth]:
    """Acceptance by depth of chains: a round that accepted n tokens accepted depths 1 … n.

    ``order``: accepted and drafted tokens of every round, so that a round whose draft ended does
    not count at the depth after; None: as if every draft were long enough.
    """
    alive, found = [sum(histogram[depth:]) for depth in range(len(histogram))], list[Depth]()
    for depth in range(1, len(alive)):
        tested = alive[depth - 1]
        if order is not None:
            tested = sum(accepted >= depth - 1 and drafted >= depth for accepted, drafted in order)
        if tested:
            marginal, share = alive[depth] / alive[0], alive[depth] / tested
            found.append(Depth(depth, alive[depth], tested, marginal, share))
    return found


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def strip(order: Sequence[Sequence[int]]) -> str:
    """A sign for each round: how many of its drafted tokens were accepted, in order."""
    signs = "▁▂▃▄▅▆▇█"
    shares = (accepted / drafted if drafted else 0.0 for accepted, drafted in order)
    return "".join(signs[min(7, int(share * 8))] for share in shares)


# ── DDTree's trees ───────────────────────────────────────────────────────────────────────────────


def is_trees(path: Path) -> bool:
    """Whether the file holds DDTree's saved trees and no counts."""
    if path.suffix == ".jsonl":
        return False
    value = read_json(path)
    return isinstance(value, Mapping) and "round_trees" in value


def write_trees(path: Path, out: Path) -> int:
    """Write the trees that ``ddtree_generate(save_tree_traces=True)`` saved as a trace, without
    log q or lists; returns the number of rounds.

    The file is a JSON object: output_ids (prompt and text), num_input_tokens and round_trees, each
    {"accepted_indices": [0, …], "tree": {"node_token_ids": [N − 1], "parents": [N]}}.

    Raises UserError, one sentence, for anything else.
    """
    try:
        raw = Fields(read_json(path), "the file")
        ids, at = raw.whole("output_ids", least=0), raw.integer("num_input_tokens", least=1)
        rounds = [_tree(each) for each in raw.entries("round_trees")]
        if at >= len(ids):
            raise BadField("num_input_tokens leaves no text")
    except BadField as why:
        raise UserError(f"{path}: {why}") from None
    budget = max((len(tokens) for tokens, _, _ in rounds), default=0)
    with _whole_or_none(out), Recorder(out, "ddtree (imported)", ids[:at], budget) as record:
        for number, (tokens, parents, rows) in enumerate(rounds, 1):
            drafted = [ids[at] if at < len(ids) else -1, *tokens]
            text = ids[at + 1 : at + 1 + len(rows)]
            accepted = [drafted[row] for row in rows[1:] if row < len(drafted)]
            if drafted[0] < 0 or tuple(accepted[: len(text)]) != text[: len(accepted)]:
                raise UserError(f"{path}: what round {number} accepted is not the text")
            bonus = text[-1] if len(text) == len(rows) else -1  # the text's end cut it off
            record.round(drafted, parents, rows, bonus, committed=text)
            at += len(rows)
    return len(rounds)


@contextmanager
def _whole_or_none(path: Path) -> Iterator[None]:
    """A file that is written here does not stay when its source is refused."""
    try:
        yield
    except UserError:
        path.unlink(missing_ok=True)
        raise


def _tree(value: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Tokens of the nodes, parents with the root's −1 before them, and the accepted rows."""
    raw = Fields(value, "a round's tree")
    tree = raw.object("tree")
    tokens, parents = tree.whole("node_token_ids", least=0), tree.whole("parents")
    if len(tokens) >= MAX_ROWS:
        raise BadField(f"a tree of {len(tokens)} nodes")
    rows = raw.whole("accepted_indices", least=0)
    if rows[:1] != (0,):
        raise BadField("accepted_indices does not begin with the root")
    return tokens, parents, rows
