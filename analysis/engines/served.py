"""What other engines report of served drafts: JSON, log lines or metrics pages. Never torch.

No trace is made of counts: they hold no trees. Each form is recognised and read in one of two
tables, ``_READERS`` here for JSON objects and ``lines.FORMS`` for text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from analysis.engines.lines import read_lines_of_counts
from analysis.measures.counts import Counts, Served, summed
from core.errors import UserError
from core.json_input import MAX_BYTES, parse_json, read_json
from core.lines import open_regular
from core.samples import read_lines
from core.traces.fields import BadField, Fields

MAX_DEPTH = 1 << 10


def read_served(path: Path) -> Counts:
    """The counts in a file: responses as JSON or one a line in .jsonl, a log, or a metrics page.

    Raises UserError, one sentence, for a file that holds none, or in another form.
    """
    values = _responses_if_json(path)
    if values is None:
        records, kind, notes = read_lines_of_counts(path)
    else:
        records, kind, notes = [_one(*each) for each in values], "response", []
    if not records:
        raise UserError(f"{path} holds no response")
    counts = summed(records, kind, notes)
    if counts.tau is None and counts.accepted_of_drafted is None and not counts.by_depth:
        few = "no draft was verified" if counts.rounds == 0 else "some count of all is missing"
        raise UserError(f"{path} tells neither accepted of drafted tokens nor τ: {few}")
    return counts


def _responses_if_json(path: Path) -> list[tuple[Any, str]] | None:
    """The responses of a file that is named as JSON, or is JSON; None: it is text."""
    if path.suffix in (".json", ".jsonl"):
        return list(responses(path))
    try:
        with open_regular(path) as file:
            start = file.read(64).lstrip()[:1]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    if start not in (b"{", b"["):
        return None
    try:
        return list(responses(path))
    except UserError:  # a log's line may begin so
        return None


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
        f"{where} {_seems(response)}holds no counts of vLLM (metrics.speculative_decoding), SGLang "
        "(meta_info), llama.cpp (timings) or LM Studio (stats)"
    )


def _seems(response: Fields) -> str:
    if "choices" in response:
        return "seems to be an OpenAI server's response, but "
    if "round_trees" in response:
        return "seems to be DDTree's saved trees, but "
    return (
        "seems to be the header of a trace (`report` reads it), and "
        if "format" in response
        else ""
    )


def _check(served: Served) -> None:
    """Raises BadField for counts that contradict each other."""
    if served.drafted is not None and (served.accepted or 0) > served.drafted:
        raise BadField("more tokens are accepted than drafted")
    if served.histogram is not None:
        if served.rounds not in (None, sum(served.histogram)):
            raise BadField("the histogram does not add up to the rounds")
        told = sum(n * count for n, count in enumerate(served.histogram))
        if served.accepted is not None and served.accepted < told:
            raise BadField("the histogram does not add up to the accepted tokens")


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
    return _with_sums(
        Served(
            "vLLM",
            raw.optional("num_spec_steps"),
            raw.optional("num_draft_tokens"),
            raw.optional("num_accepted_draft_tokens"),
            response.object("usage").optional("completion_tokens"),
            histogram,
            order,
            places=_all_places(histogram, raw.optional("num_spec_tokens")),
        )
    )


def _all_places(histogram: tuple[int, ...] | None, most: int | None) -> tuple[int, ...] | None:
    """Rounds that accepted each place, where the engine tells how many places a draft has."""
    if histogram is None or most is None or not len(histogram) - 1 <= most <= MAX_DEPTH:
        return None
    return tuple(sum(histogram[n:]) for n in range(1, most + 1))


def _with_sums(served: Served) -> Served:
    """With rounds and accepted tokens of the histogram, where nothing else tells them."""
    if served.histogram is None:
        return served
    accepted = sum(n * count for n, count in enumerate(served.histogram))
    return replace(
        served,
        rounds=sum(served.histogram) if served.rounds is None else served.rounds,
        accepted=accepted if served.accepted is None else served.accepted,
    )


def _vllm_bench(raw: Fields, response: Fields) -> Served:
    """What ``vllm bench serve --save-result`` writes: shares by place, not rounded."""
    rounds = raw.integer("spec_decode_num_drafts")
    rates = raw.entries("spec_decode_per_position_acceptance_rates")
    if (
        len(rates) > MAX_DEPTH
        or not all(type(r) in (int, float) and 0 <= r <= 1 for r in rates)
        or any(a < b for a, b in pairwise(rates))
    ):
        raise BadField("its shares by place are not shares, or rise")
    places = tuple(round(rate * rounds) for rate in rates)
    drafted, accepted = (raw.integer(f"spec_decode_{n}_tokens") for n in ("draft", "accepted"))
    return Served("vLLM", rounds, drafted, accepted, places=places or None)


def _lm_studio(raw: Fields, response: Fields) -> Served:
    names = ("totalDraftTokensCount", "acceptedDraftTokensCount")
    drafted, accepted = (raw.integer(name) for name in names)
    tokens = raw.optional("predictedTokensCount")
    return Served("LM Studio", None, drafted, accepted, tokens)


def _sglang(raw: Fields, response: Fields) -> Served:
    def first(*names: str) -> int | None:
        return next((raw.optional(name) for name in names if name in raw), None)

    histogram = _histogram(raw, "spec_correct_drafts_histogram", "spec_accept_histogram")
    return _with_sums(
        Served(
            "SGLang",
            raw.integer("spec_verify_ct"),
            first("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
            first("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
            (raw if "completion_tokens" in raw else response.object("usage")).optional(
                "completion_tokens"
            ),
            histogram,
        )
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


def _lm_studio_part(response: Fields) -> Fields:
    part = response.object("stats") or response
    return part if "totalDraftTokensCount" in part else Fields(None)


Reader = Callable[[Fields, Fields], Served]
_READERS: tuple[tuple[Callable[[Fields], Fields], Reader], ...] = (
    (_vllm_part, _vllm),
    (lambda r: r if "spec_decode_num_drafts" in r else Fields(None), _vllm_bench),
    (_sglang_part, _sglang),
    (_llama_part, _llama),
    (_lm_studio_part, _lm_studio),
)
