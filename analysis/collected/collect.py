"""Make a collected file (``collection``): each drafter runs at every token of one text.

The text is the target's own, by the run's sampling, or given (``analysis.collected.given``); its
features come from one forward over it.
Finished work is kept in a folder beside the file, so an interrupted collection continues.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import structs
from torch import Tensor

from analysis.collected.collection import (
    Collection,
    CollectionHeader,
    DrafterLimits,
    Given,
    check_asked_anywhere,
    drafter_key,
    not_listable,
    write,
)
from analysis.collected.given import Answer, Follows, told
from analysis.measures.probe import SLAB, TOP, observe
from core import CREATOR
from core.declared import convert
from core.decoding.along import Reading, along, read_along
from core.decoding.decode import Decoder, decode
from core.decoding.engine import Engine, environment, model_identity
from core.decoding.request import Settings
from core.drafting.best import top
from core.drafting.session import Drafter, DraftSession, layers_read
from core.errors import UserError, writing
from core.files import replacing
from core.journal import Journal, open_journal
from core.json_input import parse_json
from core.methods.method import TargetFacts, Value
from core.methods.names import PLAIN
from core.methods.registry import choose, find_method
from core.models.target import Target
from core.progress import At, Steps, part, silent
from core.ranges import Range
from core.rounds.draft import MARGINAL, MAX_BUDGET, Array
from core.rounds.round import GREEDY, Sampling
from core.verification.rules import TargetTokens, VerificationRule

AT_ONCE = 16  # positions that are saved together


@dataclass(frozen=True)
class CollectionPlan:
    """The settings of a collection: how much text, and how much of the drafters' lists.

    new_tokens  of the text at most
    width  tokens listed per depth at most; 1,024 is enough for every budget
    given  the text; None: the target writes it
    """

    new_tokens: int = 256
    width: int = MAX_BUDGET
    sampling: Sampling = GREEDY
    marginals: bool = True
    given: Answer | None = None

    def check(self) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        Settings(1, self.new_tokens, self.sampling).check()
        if self.new_tokens < 2:
            raise UserError("collecting needs at least 2 new tokens")
        Range(1, MAX_BUDGET).check("the tokens kept per depth", self.width)
        if self.given is not None and not self.sampling.greedy:
            raise UserError("a given text is not sampled: leave the temperature at 0")


@dataclass(frozen=True, eq=False)
class LoadedModels:
    """A loaded target with its drafters.

    drafters  by the name they have in the file; ``options``: those each was made with
    target    a Target that keeps the features that all drafters read; of an engine of ends one
              that cannot be run
    about     which target and weights these are; only the same ones continue unfinished work
    """

    facts: TargetFacts
    piece: Callable[[int], str]
    drafters: Mapping[str, Drafter]
    target: Target
    options: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def read(self, tokens: Sequence[int], reserve: int = 1) -> Reading:
        """Read a text of token ids for the drafters: the target's hidden states; p is not known."""
        return read_along(self.target, tokens, len(tokens), reserve=reserve)

    @property
    def max_depth(self) -> int:
        """Of the deepest drafter."""
        return max(drafter.max_depth for drafter in self.drafters.values())

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers that any of the drafters reads, ascending."""
        return layers_read(self.drafters.values())

    @property
    def identity(self) -> dict[str, Any]:
        """The facts that must be the same for unfinished work to continue."""
        return {
            "model": self.facts.name,
            "drafters": {n: [d.max_depth, list(d.layers)] for n, d in self.drafters.items()},
            "options": {name: dict(own) for name, own in self.options.items()},
            "about": dict(self.about),
        }


def source_of(engine: Engine, methods: Sequence[str], values: Mapping[str, Value]) -> LoadedModels:
    """The engine's target with the drafters of these methods, each with its own of the options.

    Raises UserError for a method without a drafter or an option that no drafter has.
    """
    language, drafters, options, weights = engine.prepare(), {}, {}, {}
    unused = set(values)
    for method in methods:
        check_asked_anywhere(method)
        key, names = drafter_key(method), [o.name for o in find_method(method).drafter_options]
        own = {name: values[name] for name in names if name in values}
        unused -= set(own)
        chosen = choose(method, own)
        drafter = engine.load_drafter(chosen)
        assert drafter is not None  # drafter_key refuses plain decoding
        drafters[key] = drafter
        options[key] = chosen.drafter_options
        weights[key] = engine.identity(chosen, drafter)
    if unused:
        raise UserError(f"no drafter here has the option {sorted(unused)[0]!r}")
    place = environment(language)
    about = {
        "tokenizer_hash": place["tokenizer_hash"],
        "dtype": place["dtype"],
        "model": model_identity(language),
        "weights": weights,
    }
    target = Target(language.model, () if engine.ends else layers_read(drafters.values()))
    return LoadedModels(language, language.piece, drafters, target, options, about)


def widest(methods: Sequence[str]) -> dict[str, Value]:
    """The options that ``collect`` sets by default, so that smaller values can be simulated."""
    options = (option for method in methods for option in find_method(method).drafter_options)
    return {option.name: option.collect for option in options if option.collect is not None}


def collect(
    source: LoadedModels,
    prompt: Sequence[int],
    path: Path,
    plan: CollectionPlan = CollectionPlan(),
    prompt_text: str = "",
    report: Steps = silent,
    kept: Reading | None = None,
) -> Collection:
    """Collect the text after ``prompt`` (token ids) into ``path``; continues its own work.

    kept  what the target said of ``plan.given`` elsewhere; None: it reads the text here

    Raises UserError for a plan out of range, a prompt that does not fit the context, a text that
    ends with its first token or is of another target, or a drafter whose states cannot be listed.
    """
    plan.check()
    folder = path.with_name(path.name + ".partial")
    made_of = {**source.identity, "plan": asdict(plan), "prompt": list(prompt)}
    with open_journal(folder, "collection", made_of, anew=True) as journal:
        work = _FinishedArrays(folder, journal)
        arrays, header = _collected(source, prompt, plan, work, report, kept)
        arrays["pieces"] = _pieces(arrays, source.piece)
        write(path, structs.replace(header, prompt_text=prompt_text), arrays)
        shutil.rmtree(folder, ignore_errors=True)
    return Collection.load(path)


def _collected(
    source: LoadedModels,
    prompt: Sequence[int],
    plan: CollectionPlan,
    work: _FinishedArrays,
    report: Steps,
    kept: Reading | None,
) -> tuple[dict[str, Array], CollectionHeader]:
    report(0.0, "the text")
    if "text" not in work:
        made = _text(source, prompt, plan) if kept is None else _told(source, kept, plan)
        work.save("text", made)
    text = work.load("text")
    answer, end = len(prompt), int(text.pop("end"))
    given = _given(plan, text)
    if end - answer < 2:
        raise UserError("the text ends with its first token: no round would start in it")
    known = text["tokens"][: end - 1].tolist()
    reading = source.read(known) if kept is None else kept.until(end - 1)
    arrays, limits = dict(text), {}
    for number, (name, drafter) in enumerate(source.drafters.items()):
        step = part(report, number, len(source.drafters), name)
        place = _Place(source, name, drafter, reading, answer)
        limits[name] = _limits(place, plan)
        found = _gather(place, limits[name], work, plan, step)
        arrays |= {f"{name}.{key}": values for key, values in found.items()}
    header = CollectionHeader(
        name=source.facts.name,
        vocabulary=source.facts.vocabulary,
        stops=tuple(sorted(source.facts.stop_ids)),
        answer=answer,
        end=end,
        prompt_text="",
        sampling=plan.sampling,
        drafters=limits,
        about={
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "creator": CREATOR,
            **source.about,
        },
        given=given,
    )
    return {name: _small(a, header.vocabulary) for name, a in arrays.items()}, header


# ── the text ─────────────────────────────────────────────────────────────────────────────────────


class EndlessTarget(Target):
    """The target without stop tokens: text continues as far as a last round's draft reaches."""

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset()


def _text(source: LoadedModels, prompt: Sequence[int], plan: CollectionPlan) -> dict[str, Array]:
    """The target's own text, or the given one with what the target says of it (``given``, JSON)."""
    target, tail = source.target, 1 + source.max_depth
    if plan.given is None:
        return text_with_tail(target, prompt, plan.new_tokens, plan.sampling, tail)
    plan.given.check(target.vocabulary)
    count = min(plan.new_tokens, len(plan.given.tokens))
    follows = Follows(plan.given, len(prompt))
    found = text_with_tail(target, prompt, count, plan.sampling, tail, lambda _: follows)
    about = structs.asdict(follows.found(int(found["end"]) - len(prompt)))
    return found | {"given": np.array(json.dumps(about))}


@torch.inference_mode()
def _told(source: LoadedModels, kept: Reading, plan: CollectionPlan) -> dict[str, Array]:
    """The same of a text that was read elsewhere: what follows its end is its own tail."""
    assert plan.given is not None
    plan.given.check(source.facts.vocabulary)
    tokens, answer = kept.tokens.tolist(), kept.answer
    end = min(len(tokens), answer + plan.new_tokens)
    stops = (n + 1 for n in range(answer, end) if tokens[n] in source.facts.stop_ids)
    end = min(end, next(stops, end))
    last = min(len(tokens), end + 1 + source.max_depth)
    best = list[tuple[Tensor, Tensor]]()
    for first in range(answer, last - 1, SLAB):
        log_p = kept.logits(first, min(first + SLAB, last - 1)).float().log_softmax(-1)
        listed = top(log_p, TOP)
        best.append((listed.indices.cpu(), listed.values.cpu()))
    ids, values = (torch.cat(part).numpy() for part in zip(*best, strict=True))
    return {
        "tokens": np.array(tokens[:last], np.int32),
        "end": np.array(end),
        "target.ids": ids.astype(np.int32),
        "target.log_p": values.astype(np.float32),
        "given": np.array(json.dumps(structs.asdict(told(kept, plan.given, end - answer)))),
    }


def _given(plan: CollectionPlan, text: dict[str, Array]) -> Given | None:
    """Take the note on a given text out of the arrays and return it; None for the target's own."""
    if plan.given is None:
        return None
    noted = "what is noted of the given text"
    return convert(parse_json(str(text.pop("given")), noted), Given, noted)


def text_with_tail(
    target: Target,
    prompt: Sequence[int],
    new_tokens: int,
    sampling: Sampling,
    tail: int,
    rule: Callable[[Sampling], VerificationRule] = TargetTokens,
) -> dict[str, Array]:
    """Plain decoding: tokens, ``tail`` more after the end, and the target's best along them.

    rule    what chooses the tokens
    tokens  int32 [T] with the prompt's; ``end``: the length of the text without its tail
    target.ids, target.log_p  after each new token
    """
    room = target.context_limit - len(prompt) - new_tokens
    settings = Settings(1, new_tokens + max(0, min(tail, room)), sampling, timed=False)
    tokens, end, best = list(prompt), len(prompt) + new_tokens, []
    decoder, endless = Decoder(PLAIN, rule=rule), EndlessTarget(target.model)
    for record in decode(endless, decoder, prompt, settings, observe):
        if len(tokens) == len(prompt):
            tokens.append(int(record.draft.tokens[0]))
        assert record.target_probs is not None
        best.append((record.target_probs.top_ids[0], record.target_probs.top_log_p[0]))
        tokens += record.committed
        stops = [i for i, t in enumerate(tokens[len(prompt) :]) if t in target.stop_ids]
        if stops:
            end = min(end, len(prompt) + stops[0] + 1)
        if len(tokens) >= end + tail:
            break
    return {
        "tokens": np.array(tokens, np.int32),
        "end": np.array(min(end, len(tokens))),
        "target.ids": np.array([ids for ids, _ in best], np.int32),
        "target.log_p": np.array([log_p for _, log_p in best], np.float32),
    }


# ── the drafters ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Place:
    """One drafter on one text, read up to the last root; ``answer``: the first one."""

    source: LoadedModels
    name: str
    drafter: Drafter
    reading: Reading
    answer: int

    @property
    def starts(self) -> int:
        return len(self.reading.tokens) - self.answer

    def sessions(self, first: int, width: int) -> Iterator[DraftSession]:
        """At every start from the ``first`` on, in order."""
        tokens = self.reading.tokens
        roots = torch.arange(self.answer + first, len(tokens), device=tokens.device)
        return (at.session for at in along(self.drafter, self.reading, roots, width))


def _gather(
    place: _Place,
    limits: DrafterLimits,
    work: _FinishedArrays,
    plan: CollectionPlan,
    report: At,
) -> dict[str, Array]:
    """All that one drafter proposes, by the names in the file. Parts are saved as they are done."""
    file = re.sub(r"[^\w+-]", "_", place.name) + f"-{sha256(place.name.encode()).hexdigest()[:8]}"
    parts = {first: f"{file}.{first}" for first in range(0, place.starts, AT_ONCE)}
    done = next((first for first, part in parts.items() if part not in work), place.starts)
    sessions = place.sessions(done, plan.width)
    for first in range(done, place.starts, AT_ONCE):
        report(first / place.starts)
        some = [_listed(session, limits, plan) for session in islice(sessions, AT_ONCE)]
        work.save(parts[first], {key: np.stack([each[key] for each in some]) for key in some[0]})
    saved = [work.load(part) for part in parts.values()]
    return {key: np.concatenate([each[key] for each in saved]) for key in saved[0]}


def _limits(place: _Place, plan: CollectionPlan) -> DrafterLimits:
    """Return how much the file will hold, read off the drafter's first two answers."""
    narrow, wide = (next(place.sessions(0, width)) for width in (1, plan.width))
    listable = wide.state_count is not None
    if narrow.by_depth is None or wide.by_depth is None or not (wide.factorised or listable):
        raise UserError(not_listable(place.name))
    offered = wide.by_depth.ids.shape[1]
    width, sizes = min(offered, plan.width), {}
    if listable:
        _, candidates, siblings = _tables(wide)["next_ids"].shape
        sizes = {"candidates": candidates, "siblings": siblings}
    options = place.source.options.get(place.name, {})
    return DrafterLimits(
        max_depth=wide.max_depth,
        width=width,
        min_width=narrow.by_depth.ids.shape[1],
        complete=offered < plan.width or width == place.source.facts.vocabulary,
        options={name: value for name, value in options.items() if name not in sizes},
        **sizes,
    )


def _listed(session: DraftSession, limits: DrafterLimits, plan: CollectionPlan) -> dict[str, Array]:
    assert session.by_depth is not None
    ids = np.zeros((limits.max_depth, limits.width), np.int32)
    log_q = np.full(ids.shape, -np.inf, np.float32)
    width = min(limits.width, session.by_depth.ids.shape[1])
    ids[:, :width] = session.by_depth.ids[:, :width]
    log_q[:, :width] = session.by_depth.log_q[:, :width]
    tables = _tables(session) if session.state_count is not None else {}
    if not plan.marginals:
        tables.pop("next_marginal", None)
    return {"ids": ids, "log_q": log_q, **tables}


def _tables(session: DraftSession) -> dict[str, Array]:
    """Return the lists after every state, [L, M, S]; after the root M times the same one."""
    listed, depths = session.state_count or 1, session.max_depth
    found = session.expand(np.arange(listed, dtype=np.int32))
    count = (listed - 1) // max(1, depths - 1) or 1
    states = np.concatenate([np.zeros(count, int), np.arange(1, listed)])
    rows = np.argsort(found.states)[states].reshape(depths, count)
    tables = {"next_ids": found.ids[rows], "next_log_q": found.log_q[rows]}
    if MARGINAL in found.notes:
        tables["next_marginal"] = found.notes[MARGINAL][rows]
    return tables


# ── unfinished work ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _FinishedArrays:
    """Arrays that are finished: files beside the journal."""

    folder: Path
    journal: Journal

    def __contains__(self, part: str) -> bool:
        return part in self.journal

    def save(self, part: str, arrays: Mapping[str, Array]) -> None:
        path = self.folder / f"{part}.npz"
        with writing(path), replacing(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        self.journal.add(part, path.name)

    def load(self, part: str) -> dict[str, Array]:
        with np.load(self.folder / self.journal.get(part), allow_pickle=False) as found:
            return dict(found)


def _small(array: Array, vocabulary: int) -> Array:
    """Ids in two bytes where the vocabulary allows it."""
    if array.dtype.kind == "f":
        return np.asarray(array, np.float32)
    return np.asarray(array, np.uint16 if vocabulary <= 1 << 16 else np.int32)


def _pieces(arrays: Mapping[str, Array], piece: Callable[[int], str]) -> Array:
    """The text of every token that is mentioned, as JSON bytes."""
    whole = [np.unique(a) for name, a in arrays.items() if a.dtype.kind != "f"]
    ids = np.unique(np.concatenate(whole)).tolist()
    text = json.dumps({str(t): piece(t) for t in ids}, ensure_ascii=False)
    return np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
