"""Read other engines' reports of served drafts: JSON, log lines, metrics pages. Never torch.

No trace is made of counts: they hold no trees. Each form is recognised and read in one of two
tables, ``_FORMS`` here for JSON objects and ``lines.FORMS`` for text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from analysis.engines.lines import forms_of, left_out, read_lines_of_counts, text_lines
from analysis.engines.profile import NAME, Profile
from analysis.engines.steps import is_item, of_items
from analysis.engines.tensorrt import STATS, IterationStats, RequestStats, drafting, is_iteration
from analysis.measures.counts import Counts, Served, by_length, reached, summed
from analysis.numbers import plural
from core.declared import BadField, Count, Share, read
from core.errors import UserError, WrongKind, reading
from core.lines import open_regular
from core.readers import Item, json_values

RECORDER = "Draftscope's recorder"
MAX_DEPTH = 1 << 10
LOOKED_AT = 100  # lines of a file that is named as JSON and is not
Json = dict[str, Any]
Length = Annotated[int, Meta(ge=0, lt=10_000)]  # a key
Histogram = list[Count] | dict[Length, Count]  # rounds by accepted tokens
T = TypeVar("T")


def read_served(path: Path) -> Counts:
    """The counts in a file: responses as JSON or one a line in .jsonl, items of one text, a
    profile, a log, or a metrics page.

    Raises UserError, one sentence, for a file that holds none, or in another form.
    """
    values, cut = _responses_if_json(path)
    if values is None:
        records, kind, notes = read_lines_of_counts(path)
    elif (one := of_items(values)) is not None:
        records, kind, notes = [one[0]], *one[1:]
    else:
        records, kind, notes = _of_values(values, path)
    if not records:
        raise UserError(f"{path} holds no {kind}" + (f": {notes[0]}" if notes else ""))
    counts = summed(records, kind, [*cut, *notes])
    if counts.tau is None and counts.accepted_of_drafted is None and not counts.by_depth:
        few = "no draft was verified" if counts.rounds == 0 else "not all counts are there"
        raise UserError(f"{path} tells neither accepted of drafted tokens nor τ: {few}")
    return counts


def _of_values(values: Sequence[Item], path: Path) -> tuple[list[Served], str, list[str]]:
    """The counts of a file's values, their kind, and what was left out."""
    drafted, notes = drafting(values)
    records, wrong = _each(drafted, path)
    kind = "iteration" if any(is_iteration(value) for value, _ in values) else "response"
    engines = {each.engine for each in records}
    if len(engines) == 1:
        kind = {NAME: "profile", RECORDER: "recording"}.get(engines.pop(), kind)
    return records, kind, [*notes, *wrong]


def _responses_if_json(path: Path) -> tuple[list[Item] | None, list[str]]:
    """The responses of a file that is named as JSON, or is JSON of which some value has counts, and
    a sentence on a last line that was cut off; None: it is text."""
    cut, found, wrong = list[str](), list[Item](), None
    values = json_values(path, cut.append)
    if path.suffix in (".json", ".jsonl"):
        return _values_if_any(values, path), cut
    with reading(path), open_regular(path) as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        try:
            for each in values:
                found.append(each)
        except UserError as error:  # a log's line may begin so
            wrong = error
    if not any(isinstance(value, dict) and holds_counts(value) for value, _ in found):
        return None, []
    if wrong is not None:
        raise wrong
    return found, cut


def _values_if_any(values: Iterator[Item], path: Path) -> list[Item] | None:
    """The values of a file that is named as JSON; None: its lines are counts in another form, as
    Python prints them."""
    try:
        return list(values)
    except WrongKind:
        if any(forms_of(line) for _, line in islice(text_lines(path), LOOKED_AT)):
            return None
        raise


def holds_counts(value: dict[str, Any]) -> bool:
    """Whether an object has one of the forms that are read here; its numbers are not looked at."""
    for find, _ in _FORMS:
        with suppress(BadField):
            if find(value):
                return True
    return is_item(value) or is_iteration(value)


def _each(values: Sequence[Item], path: Path) -> tuple[list[Served], list[str]]:
    """The counts of each response, and what was left out of several. Raises UserError where none
    can be read."""
    records, wrong = list[Served](), list[UserError]()
    for value in values:
        try:
            records.append(_one(*value, path))
        except UserError as why:
            wrong.append(why)
    if wrong and not records:
        raise wrong[0]
    notes = left_out([str(why) for why in wrong], "response")
    told = [(each.accepted or 0, each.tokens) for each in records if each.tokens is not None]
    if more := sum(accepted > tokens for accepted, tokens in told):
        notes.append(
            f"{plural(more, 'response')} accepted more tokens than the text has: its end cut a "
            "draft off, or these are counts of another text."
        )
    return records, notes


def _one(value: Any, where: str, path: Path) -> Served:
    if not isinstance(value, dict):
        raise WrongKind(f"{where}: the response is not an object", path)
    try:
        for find, kind in _FORMS:
            if found := find(value):
                served = read(found, kind).served(value)
                _check(served)
                return served
    except BadField as why:
        raise UserError(f"{where}: {why}") from None
    raise WrongKind(
        f"{where} holds no counts of vLLM (metrics.speculative_decoding), SGLang (meta_info), "
        "llama.cpp (timings), TensorRT-LLM (specDecodingStats, perf_metrics) or LM Studio (stats), "
        "and is not a speculation profile",
        path,
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


class _Vllm(Struct):
    num_spec_steps: Count | None = None
    num_draft_tokens: Count | None = None
    num_accepted_draft_tokens: Count | None = None
    num_spec_tokens: Count | None = None
    per_step_accepted: list[Count] | None = None
    per_step_drafted: list[Count] | None = None
    acceptance_histogram: Histogram | None = None

    def served(self, response: Json) -> Served:
        order, accepted = None, self.per_step_accepted
        if accepted is not None:
            order = tuple(zip(accepted, self.per_step_drafted or (), strict=False))
            if len(order) != len(accepted) or any(a > d or d > MAX_DEPTH for a, d in order):
                raise BadField("per_step_accepted and per_step_drafted do not fit each other")
        histogram = _bounded(self.acceptance_histogram)
        if histogram is None and accepted is not None:
            histogram = by_length(Counter(accepted))
        return _with_sums(
            Served(
                "vLLM",
                self.num_spec_steps,
                self.num_draft_tokens,
                self.num_accepted_draft_tokens,
                _tokens(response),
                histogram,
                order,
                places=_all_places(histogram, self.num_spec_tokens),
            )
        )


def _all_places(histogram: tuple[int, ...] | None, most: int | None) -> tuple[int, ...] | None:
    """Rounds that accepted each place, where the engine tells how many places a draft has."""
    if histogram is None or most is None or not len(histogram) - 1 <= most <= MAX_DEPTH:
        return None
    return reached(histogram, most)


def _with_sums(served: Served) -> Served:
    """Add rounds and accepted tokens of the histogram, where nothing else tells them."""
    if served.histogram is None:
        return served
    accepted = sum(n * count for n, count in enumerate(served.histogram))
    return replace(
        served,
        rounds=sum(served.histogram) if served.rounds is None else served.rounds,
        accepted=accepted if served.accepted is None else served.accepted,
    )


class _VllmBench(Struct):
    """The result of ``vllm bench serve --save-result``: shares by place, not rounded."""

    spec_decode_num_drafts: Count
    spec_decode_draft_tokens: Count
    spec_decode_accepted_tokens: Count
    spec_decode_per_position_acceptance_rates: Annotated[list[Share], Meta(max_length=MAX_DEPTH)]

    def served(self, response: Json) -> Served:
        rounds, rates = self.spec_decode_num_drafts, self.spec_decode_per_position_acceptance_rates
        if any(a < b for a, b in pairwise(rates)):
            raise BadField("its shares by place rise")
        places = tuple(round(rate * rounds) for rate in rates)
        drafted, accepted = self.spec_decode_draft_tokens, self.spec_decode_accepted_tokens
        return Served("vLLM", rounds, drafted, accepted, places=places or None)


class _Recorded(Struct):
    """A server's totals, which the recorder writes beside its traces."""

    drafts: Count
    draft_tokens: Count
    accepted_tokens: Count

    def served(self, response: Json) -> Served:
        return Served(RECORDER, self.drafts, self.draft_tokens, self.accepted_tokens)


class _LMStudio(Struct, rename="camel"):
    """LM Studio's counts. ``ignored``: drafted tokens that were neither accepted nor rejected."""

    total_draft_tokens_count: Count
    accepted_draft_tokens_count: Count
    rejected_draft_tokens_count: Count = 0
    ignored_draft_tokens_count: Count = 0
    predicted_tokens_count: Count | None = None

    def served(self, response: Json) -> Served:
        drafted, accepted = self.total_draft_tokens_count, self.accepted_draft_tokens_count
        if accepted + self.rejected_draft_tokens_count + self.ignored_draft_tokens_count > drafted:
            raise BadField("accepted, rejected and ignored tokens are more than were drafted")
        return Served("LM Studio", None, drafted, accepted, self.predicted_tokens_count)


class _SGLang(Struct):
    spec_verify_ct: Count
    completion_tokens: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_proposed_drafts: Count | None = None
    spec_draft_token_num: Count | None = None
    spec_num_correct_drafts: Count | None = None
    spec_accepted_drafts: Count | None = None
    spec_accept_token_num: Count | None = None
    spec_correct_drafts_histogram: Histogram | None = None
    spec_accept_histogram: Histogram | None = None
    spec_cap_lens_histogram: Histogram | None = None

    def served(self, response: Json) -> Served:
        drafted = (
            _capped(self.spec_cap_lens_histogram),
            self.spec_num_proposed_drafts,
            self.spec_proposed_drafts,
            self.spec_draft_token_num,
        )
        accepted = (
            self.spec_num_correct_drafts,
            self.spec_accepted_drafts,
            self.spec_accept_token_num,
        )
        histograms = (self.spec_correct_drafts_histogram, self.spec_accept_histogram)
        histogram = _bounded(_first(*histograms))
        return _with_sums(
            Served(
                "SGLang",
                self.spec_verify_ct,
                _first(*drafted),
                _first(*accepted),
                _first(self.completion_tokens, _tokens(response)),
                histogram,
                places=_all_places(histogram, self._length()),
            )
        )

    def _length(self) -> int | None:
        """Tokens of every draft, where the engine tells one length of all: it counts the root."""
        lengths = _bounded(self.spec_cap_lens_histogram) or ()
        told = [n for n, count in enumerate(lengths) if count]
        return told[0] - 1 if len(told) == 1 and lengths[told[0]] == self.spec_verify_ct else None


def _capped(lengths: Histogram | None) -> int | None:
    """Drafted tokens that were verified, where the engine cut drafts: each length counts the
    root. What it proposed is then more."""
    bounded = _bounded(lengths)
    return sum((n - 1) * count for n, count in enumerate(bounded) if n) if bounded else None


class _Llama(Struct):
    draft_n: Count
    draft_n_accepted: Count
    predicted_n: Count | None = None

    def served(self, response: Json) -> Served:
        tokens, accepted = self.predicted_n, self.draft_n_accepted
        # every pass gives one token that was not drafted; the first of the text is the prompt's
        rounds = None if tokens is None or tokens <= accepted else tokens - accepted - 1
        return Served("llama.cpp", rounds or None, self.draft_n, accepted, tokens)


def _tensorrt_part(response: Json) -> Json:
    """Of a server that splits prompts and answers, the answer's part counts."""
    served = _part(response, "gen_perf_metrics") or response
    part = _part(served, "perf_metrics", "speculative_decoding")
    return _with("total_draft_tokens", part)


def _first(*values: T | None) -> T | None:
    return next((value for value in values if value is not None), None)


def _tokens(response: Json) -> int | None:
    """New tokens by an OpenAI server's ``usage``."""
    return read(response.get("usage") or {}, _Usage).completion_tokens


class _Usage(Struct):
    completion_tokens: Count | None = None


def _bounded(histogram: Histogram | None) -> tuple[int, ...] | None:
    """Rounds by accepted tokens, of a list or of an object {"0": n, …}; None: there is none."""
    if histogram is None:
        return None
    counts = histogram if isinstance(histogram, dict) else dict(enumerate(histogram))
    longest = max((n for n, count in counts.items() if count), default=-1)
    if longest >= MAX_DEPTH:
        raise BadField(f"a histogram of {longest + 1} depths")
    return by_length(counts)


def _part(value: Json, *names: str) -> Json:
    """An object inside others; {} where there is none. Raises BadField for something else."""
    for name in names:
        value = read(value.get(name) or {}, dict[str, Any])
    return value


def _vllm_part(response: Json) -> Json:
    inner = _part(response, "metrics", "speculative_decoding")
    return inner or _with("num_spec_steps", response)


def _sglang_part(response: Json) -> Json:
    part = _part(response, "meta_info") or _spec_details(response)
    if not part and (choices := read(response.get("choices"), list[dict[str, Any]] | None)):
        part = _part(choices[0], "meta_info")
    return _with("spec_verify_ct", part or response)


def _spec_details(response: Json) -> Json:
    """Read what newer servers add to an OpenAI response: one choice's, or a list, one a choice."""
    told = _part(response, "sglext").get("spec_tokens_details")
    if isinstance(told, list):
        if len(told) != 1:
            raise BadField("sglext counts several choices: ask for one a response")
        told = told[0]
    return read(told or {}, dict[str, Any])


def _studio_part(response: Json) -> Json:
    """LM Studio's stats; its HTTP API and its SDK for Python write draft_tokens where the others
    write draftTokens."""
    part = _part(response, "stats") or response
    return {_camel(name): value for name, value in part.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _with(name: str, part: Json) -> Json:
    """The part where it has this field, else {}."""
    return part if part.get(name) is not None else {}


_FORMS: tuple[tuple[Callable[[Json], Json], Any], ...] = (
    (_vllm_part, _Vllm),
    (lambda r: _with("spec_decode_num_drafts", r), _VllmBench),
    (_sglang_part, _SGLang),
    (lambda r: _with("draft_n", _part(r, "timings") or r), _Llama),
    (lambda r: _with("totalDraftTokensCount", _studio_part(r)), _LMStudio),
    (lambda r: _with("numDraftTokens", _part(r, STATS)), IterationStats),
    (_tensorrt_part, RequestStats),
    (lambda r: _with("marginal_accept_rates", r), Profile),
    (lambda r: _with("broken_requests", r), _Recorded),
)
