"""Texts by two engines: the first token that differs, and what the target thought there.

A text is a trace, the response of another engine that tells its token ids (vLLM
``return_token_ids``, SGLang ``output_ids``, llama.cpp ``tokens``) or at least its words, or a plain
text file. p is known where a trace holds it. Never torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from analysis.labels import sampling
from analysis.measures.checkpoints import common_length
from analysis.numbers import percent
from core.declared import Count, convert
from core.errors import UserError
from core.json_input import MAX_BYTES
from core.progress import At, silent
from core.readers import Say, json_values, read_lines
from core.rounds.round import Round
from core.traces.reader import is_trace, new_text, read_trace
from core.traces.schema import Trace

BEFORE = 12  # tokens that are shown before the difference
CHARACTERS = 60  # of a text, where tokens are not known


@dataclass(frozen=True, eq=False)
class Written:
    """One engine's text.

    prompt, tokens  ids of the prompt and of the new text; None: not told
    text            the new text; None: not told
    rounds          of a trace; they begin at position ``start``
    sampled         whether a trace says that its target's tokens were drawn, not its best
    complete        False of a trace that was interrupted or has no rounds: its text goes on
    tokenizer       hash of the tokenizer that the ids are of; "": not told
    target          name of the model that wrote it; "": not told
    dtype           the precision that it computed in, such as bfloat16; "": not told
    """

    name: str
    prompt: tuple[int, ...] | None
    tokens: tuple[int, ...] | None
    text: str | None
    rounds: tuple[Round, ...] = ()
    start: int = 0
    sampled: bool = False
    complete: bool = True
    tokenizer: str = ""
    target: str = ""
    dtype: str = ""

    def reads_otherwise(self, other: Written) -> bool:
        """Whether an id is known to be of another tokenizer than the other's."""
        return bool(self.tokenizer and other.tokenizer) and self.tokenizer != other.tokenizer


Ids = tuple[Count, ...] | None


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    token_ids: Ids = None
    prompt_token_ids: Ids = None
    message: _Message | None = None
    content: str | None = None
    text: str | None = None


class _Extension(Struct):
    """The extension of newer SGLang servers: a list of ids for each choice."""

    output_ids: list[Ids] | None = None
    input_ids: Ids = None


class _Response(_Choice):
    """Another engine's response; each field is one engine's."""

    choices: list[_Choice] | None = None
    sglext: _Extension | None = None
    output_ids: Ids = None
    tokens: Ids = None

    @property
    def _choice(self) -> _Choice:
        return self.choices[0] if self.choices else self

    @property
    def new_tokens(self) -> Ids:
        of_choices = self.sglext.output_ids if self.sglext else None
        told = (*(of_choices or ())[:1], self._choice.token_ids, self.output_ids, self.tokens)
        return next((ids for ids in told if ids is not None), None)

    @property
    def prompt(self) -> Ids:
        of_request = self.sglext.input_ids if self.sglext else None
        told = (of_request, self._choice.prompt_token_ids, self.prompt_token_ids)
        return next((ids for ids in told if ids is not None), None)

    @property
    def words(self) -> str | None:
        choice = self._choice
        content = choice.content if choice.message is None else choice.message.content
        told = (content, choice.text, self.content, self.text)
        return next((text for text in told if text is not None), None)


@dataclass(frozen=True)
class Side:
    """One engine's text there, or what a target that is asked says of it.

    p, other  of this one's ``token`` and of the other's, by the trace's own target; None: not known
    best      p of that target's best token; ``least``: of the last that the trace lists, which no
              unlisted token exceeds. None also where a text ended: its end has no p
    round     which decided the token; ``ended``: the text has none there
    """

    token: int | None
    text: str
    p: float | None = None
    other: float | None = None
    round: int | None = None
    best: float | None = None
    least: float | None = None
    ended: bool = False

    @property
    def gap(self) -> tuple[float, bool] | None:
        """Nats from the best token to the further of the two, and whether it is exact or at least
        that; None where p is not known."""
        if not self.best:
            return None
        gaps = [_nats(self.best, self.least if p is None else p) for p in (self.p, self.other)]
        known = [gap for gap in gaps if gap is not None]
        exact = self.p is not None and self.other is not None
        return (max(known), exact) if len(known) == len(gaps) else None

    def is_off(self, bound: float) -> bool:
        """Whether its token is known to lie more than ``bound`` nats below its target's best."""
        p = self.least if self.p is None else self.p
        gap = _nats(self.best, p) if self.best else None
        return gap is not None and gap > bound


def _nats(best: float, p: float | None) -> float | None:
    """From one probability down to another; infinitely many to 0."""
    return None if p is None else max(0.0, math.log(best / p)) if p else math.inf


@dataclass(frozen=True)
class Difference:
    """Where two texts part.

    what    "prompt", "token" or "character"
    index   from 0: of the prompt's tokens, of the new tokens, or of the text's characters
    before  the text before it
    """

    what: str
    index: int
    before: str
    sides: tuple[Side, Side]

    def tied(self, bound: float, asked: Side | None = None) -> bool | None:
        """Whether a target held both tokens within ``bound`` nats of its best; None where p is not
        known, or ``disputed``. ``asked``: what one more target says."""
        said = self._said(bound, asked)
        return said.pop() if len(said) == 1 else None

    def disputed(self, bound: float, asked: Side | None = None) -> bool:
        """Whether one target held both tokens within ``bound`` nats of its best, and another not:
        rounding alone does not explain that."""
        return len(self._said(bound, asked)) == 2

    def _said(self, bound: float, asked: Side | None) -> set[bool]:
        """Whether it is a tie, by each target of which that is known."""
        gaps = [side.gap for side in (*self.sides, asked) if side is not None]
        known = [gap for gap in gaps if gap is not None]
        return {gap <= bound for gap, exact in known if exact or gap > bound}

    def least_gap(self, asked: Side | None = None) -> float | None:
        """The smallest of the targets' gaps, in nats; None where none is known."""
        gaps = [side.gap for side in (*self.sides, asked) if side is not None]
        return min((gap for gap, _ in (each for each in gaps if each is not None)), default=None)


def read_texts(
    path: Path, response: int | None = None, at: At = silent, cut: Say | None = None
) -> list[Written]:
    """The texts in a file: of a trace, of a .txt file, or of its responses: the n-th, or all.
    ``at`` hears how far a trace is read, and ``cut`` of a last line that was cut off.

    Raises UserError, one sentence, for a file that holds something else.
    """
    if is_trace(path):
        return [_of_trace(read_trace(path, at=at), path.name)]
    if path.suffix == ".txt":
        return [Written(path.name, None, None, _plain(path))]
    found = list(json_values(path, cut))
    chosen = found if response is None else found[max(0, response - 1) : max(0, response)]
    if not chosen:
        wanted = 1 if response is None else response
        raise UserError(f"{path} holds {len(found)} responses: there is no response {wanted}")
    return [_named(value, where, path) for value, where in chosen]


def _named(response: Any, where: str, path: Path) -> Written:
    found: _Response = convert(response, _Response, where)
    tokens, text = found.new_tokens, found.words
    if tokens is None and text is None:
        what = "token_ids, output_ids, tokens, text or content"
        raise UserError(f"{where}: it holds no text: {what}")
    return Written(path.name + where.removeprefix(str(path)), found.prompt, tokens, text)


def _plain(path: Path) -> str:
    """All that a text file holds. Raises UserError for one without a word."""
    if not read_lines(path, MAX_BYTES):
        raise UserError(f"{path} holds no text")
    return path.read_text("utf-8-sig")


def _of_trace(trace: Trace, name: str) -> Written:
    whole = (*trace.header.prompt_ids, *new_text(trace, name))
    at = trace.header.settings.get("prompt_tokens")  # a recorder's first root may be the prompt's
    at = at if type(at) is int and 0 <= at <= len(whole) else len(trace.header.prompt_ids)
    text = (trace.footer or {}).get("text")
    start = trace.rounds[0].position if trace.rounds else 0
    text = text if isinstance(text, str) else None
    drawn = not sampling(trace.header).greedy or any(
        record.verdict.bonus_token is not None for record in trace.rounds
    )
    return Written(
        name, whole[:at], whole[at:], text, trace.rounds, start, drawn,
        trace.complete and bool(trace.rounds), trace.header.tokenizer_hash,
        target if isinstance(target := trace.header.model.get("name"), str) else "",
        trace.header.dtype,
    )  # fmt: skip


# ── the difference ───────────────────────────────────────────────────────────────────────────────


def first_difference(one: Written, other: Written) -> Difference | None:
    """Find where the two part; None where they are the same, as far as both tell. A text that ends
    earlier differs at its end, unless its trace was interrupted there.

    Raises UserError where one tells tokens and the other words alone.
    """
    if one.prompt is not None and other.prompt is not None and one.prompt != other.prompt:
        at = common_length(one.prompt, other.prompt)
        sides = [_in_prompt(each, at) for each in (one, other)]
        return Difference("prompt", at, "", (sides[0], sides[1]))
    if one.tokens is not None and other.tokens is not None:
        at = common_length(one.tokens, other.tokens)
        ends = [at == len(each.tokens or ()) for each in (one, other)]
        cut = any(e and not t.complete for e, t in zip(ends, (one, other), strict=True))
        if all(ends) or cut:
            return None
        first, second = _side(one, other, at), _side(other, one, at)
        before = [_piece(one, other, t) for t in one.tokens[max(0, at - BEFORE) : at]]
        return Difference("token", at, "".join(before), (first, second))
    if one.text is None or other.text is None:
        raise UserError(
            f"{one.name} and {other.name} cannot be compared: one tells token ids and the other "
            "words alone"
        )
    return _by_character(one.text, other.text)


def _by_character(one: str, other: str) -> Difference | None:
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if at is None:
        if len(one) == len(other):
            return None
        at = min(len(one), len(other))
    sides = (
        Side(None, one[at : at + CHARACTERS], ended=at == len(one)),
        Side(None, other[at : at + CHARACTERS], ended=at == len(other)),
    )
    return Difference("character", at, one[max(0, at - CHARACTERS) : at], sides)


def _in_prompt(side: Written, at: int) -> Side:
    token = side.prompt[at] if side.prompt and at < len(side.prompt) else None
    return Side(token, _piece(side, side, token))


def _side(mine: Written, theirs: Written, at: int) -> Side:
    tokens, others = mine.tokens or (), theirs.tokens or ()
    token, other = (t[at] if at < len(t) else None for t in (tokens, others))
    text = _piece(mine, theirs, token)
    found, ended = decided(mine.rounds, len(mine.prompt or ()) + at), token is None
    if found is None:
        return Side(token, text, ended=ended)
    record, row = found
    p = [None if t is None else _p(record, row, t) for t in (token, other)]
    listed = None if record.target_probs is None else record.target_probs.top_log_p[row]
    known = [] if listed is None else [math.exp(min(0.0, x)) for x in listed.tolist() if x == x]
    judged = bool(known) and None not in (token, other)
    best, least = (max(known), min(known)) if judged else (None, None)
    return Side(token, text, p[0], p[1], record.number, best, least, ended)


def decided(rounds: Sequence[Round], position: int) -> tuple[Round, int] | None:
    """The round that decided the token at an absolute position, and the accepted row after which
    it stands; None for what prefill gave."""
    for record in rounds:
        step = position - record.position - 1
        if 0 <= step <= record.accepted:
            return record, record.verdict.path[step]
    return None


def _p(record: Round, row: int, token: int) -> float | None:
    log_p = record.log_p_after(row, token)
    return None if log_p is None or math.isnan(log_p) else math.exp(min(0.0, log_p))


def _piece(one: Written, other: Written, token: int | None) -> str:
    """A token's text, if a round of either trace mentions it."""
    if token is None:
        return "the end"
    for record in (*one.rounds, *other.rounds):
        if token in record.texts:
            return record.texts[token]
    return f"⟨{token}⟩"


def sentences(
    found: Difference | None, one: Written, other: Written, bound: float,
    asked: Side | None = None,
) -> list[str]:  # fmt: skip
    """The difference in words; a tie is within ``bound`` nats, ``asked`` as in ``tied``."""
    if found is None:
        known = one.tokens is not None and other.tokens is not None
        size = min(len(t.tokens or ()) if known else len(t.text or "") for t in (one, other))
        what = "token ids, of two tokenizers" if one.reads_otherwise(other) else "text"
        said = [f"the same {what}: {size} {'tokens' if known else 'characters'}"]
        cut = {t.name: bool(t.rounds) for t in (one, other) if not t.complete}
        why = ((name, "was interrupted" if some else "has no rounds") for name, some in cut.items())
        if cut and not size:
            return [f"nothing is compared: {name} {words}" for name, words in why]
        return [*said, *(f"{name} {words}: only so much is compared" for name, words in why)]
    where = {"prompt": "the prompt's token", "token": "new token", "character": "character"}
    said = [f"they part at {where[found.what]} {found.index + 1}"]
    if one.reads_otherwise(other):
        said.append("the tokenizers differ: an id of one may be another token of the other")
    for written, side in zip((one, other), found.sides, strict=True):
        token = "" if side.token is None else f" ({side.token})"
        words = f"{written.name}: {side.text!r}{token}"
        if side.round is not None:
            words += f", decided in round {side.round}"
        if side.p is not None or side.other is not None:
            words += f"; its target gives it p = {percent(side.p)}"
            words += f", and the other's token {percent(side.other)}"
        said.append(words)
    if found.what == "prompt":
        said.append("the prompts differ: another chat template, special tokens or tokenizer")
        return said
    if asked is not None:
        said.append(
            f"the target that was asked gives them p = {percent(asked.p)} and "
            f"{percent(asked.other)}, and its best token {percent(asked.best)}"
        )
    if found.disputed(bound, asked):
        said.append(
            f"the targets disagree: by one, both tokens lie within {bound:g} nats of its best; "
            "another puts one of them further below. Look for other weights or precision"
        )
    elif (tied := found.tied(bound, asked)) is not None:
        said.append(
            f"both lie within {bound:g} nats of the target's best: another order of rounding can "
            "swap them"
            if tied
            else "this is not a tie: other weights, precision, sampling or masks, or a lossy rule"
        )
    elif any(side.ended for side in found.sides):
        said[0] = f"the same before {where[found.what]} {found.index + 1}: there one has ended"
        said.append("it ended at a stop token or a limit: no token stands against the other's")
    else:
        said.append(
            "whether it is a tie is not known: no trace tells p of both tokens there "
            "(`trace compare --compute` asks the target)"
        )
    return said
