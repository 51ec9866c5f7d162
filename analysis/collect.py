"""Make a collected file (``analysis.collection``): the drafters run once at every token of one text.

The text is the target's own, by the target's rule; its features come from one forward over it. What
is finished is kept in a folder beside the file, so an interrupted collection goes on where it was.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.collection import (
    Collection,
    CollectionHeader,
    Limits,
    drafter_key,
    drafter_shapes,
    write,
)
from analysis.probe import observe
from core import VERSION
from core.decoding.decode import Drafter, Method, Proposal, Settings, decode
from core.decoding.engine import Engine, RunRequest
from core.errors import UserError
from core.files import replacing
from core.methods.registry import TargetFacts, Value, recipe, settle
from core.models.target import Target
from core.rounds.draft import Array
from core.rounds.round import GREEDY, Sampling

AT_ONCE = 16  # positions that share a pass of a drafter
Report = Callable[[float, str], None]  # (done of 1, what is being done)


@dataclass(frozen=True)
class Plan:
    """What is collected.

    kept  tokens per depth at most; 1,024 is enough for every budget
    """

    new_tokens: int = 256
    kept: int = 1024
    sampling: Sampling = GREEDY
    marginals: bool = True

    def check(self) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        Settings(1, self.new_tokens, self.sampling).check()
        if self.new_tokens < 2:
            raise UserError("collecting needs at least 2 new tokens")
        if not 1 <= self.kept <= 1024:
            raise UserError(f"the tokens kept per depth must be 1 to 1024, not {self.kept}")


@dataclass(frozen=True, eq=False)
class Source:
    """A loaded target with its drafters.

    drafters  by the name they have in the file; ``options``: those each was made with
    target    a Target that keeps the features this drafter reads (None: any)
    about     which target and which weights these are; kept work is only gone on with by the same
    """

    facts: TargetFacts
    piece: Callable[[int], str]
    drafters: Mapping[str, Drafter]
    target: Callable[[Drafter | None], Target]
    options: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


def source_of(engine: Engine, methods: Sequence[str], given: Mapping[str, Value]) -> Source:
    """The engine's target with the drafters of these methods, each made with those of the
    ``given`` options that it has.

    Raises UserError for a method without a drafter or an option that no drafter has.
    """
    language, drafters, options, weights = engine.prepare(), {}, {}, {}
    unused = set(given)
    for method in methods:
        key, chosen = drafter_key(method), recipe(method)
        own = {k: v for k, v in given.items() if k in chosen.drafter_options}
        unused -= set(own)
        name = f"{key}+chain" if isinstance(chosen.drafter, str) else method
        settled = settle(name, own)
        made = engine.method(name, settled)
        assert made.drafter is not None
        drafters[key] = made.drafter
        options[key] = {k: settled[k] for k in chosen.drafter_options}
        weights[key] = engine.identity(name, made)
    if unused:
        raise UserError(f"no drafter here has the option {sorted(unused)[0]!r}")
    plain = engine.start(RunRequest("", "ar")).header  # it says which target this is
    about = {
        "tokenizer_hash": plain.tokenizer_hash,
        "dtype": plain.dtype,
        "model": dict(plain.model),
        "weights": weights,
    }

    def target(drafter: Drafter | None) -> Target:
        return engine.target(Method("", drafter))

    return Source(language, language.piece, drafters, target, options, about)


def collect(
    source: Source,
    prompt: Sequence[int],
    path: Path,
    plan: Plan = Plan(),
    prompt_text: str = "",
    report: Report = lambda done, what: None,
) -> Collection:
    """Collect the target's text on ``prompt`` (token ids) into ``path``; resumes its own work.

    Raises UserError for a plan out of range, a prompt that does not fit the context, or a text
    that ends with its first token.
    """
    plan.check()
    work = _Work(path, {**_identity(source), "plan": asdict(plan), "prompt": list(prompt)})
    work.begin()
    report(0.0, "the target's text")
    text = work.once("text", lambda: _text(source, prompt, plan))
    answer, end = len(prompt), int(text["end"])
    if end - answer < 2:
        raise UserError("the text ends with its first token: no round would start in it")
    arrays = {k: v for k, v in text.items() if k != "end"}
    limits = {}
    for number, (name, drafter) in enumerate(source.drafters.items()):

        def tell(done: float, name: str = name, number: int = number) -> None:
            report((number + done) / len(source.drafters), name)

        place = _Place(source, name, drafter, text["tokens"][: end - 1], answer)
        limits[name] = _gather(place, work, plan, tell)
        arrays |= work.arrays(name)
    header = CollectionHeader(
        name=source.facts.name,
        vocabulary=source.facts.vocabulary,
        stops=tuple(sorted(source.facts.stop_ids)),
        answer=answer,
        end=end,
        prompt_text=prompt_text,
        sampling=asdict(plan.sampling),
        drafters=limits,
        about={
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "creator": {"name": "draftscope", "version": VERSION},
            **source.about,
        },
    )
    arrays = {name: _small(a, header.vocabulary) for name, a in arrays.items()}
    arrays["pieces"] = _pieces(arrays, source.piece)
    write(path, header, arrays)
    work.end()
    return Collection.load(path)


# ── the text ─────────────────────────────────────────────────────────────────────────────────────


class Endless(Target):
    """The target without stop tokens: a last round's draft is walked beyond the end of the text."""

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset()


def _text(source: Source, prompt: Sequence[int], plan: Plan) -> dict[str, Array]:
    """Plain decoding: tokens, what stands behind the end, and the target's best along it."""
    shared, tail = source.target(None), 1 + max(d.depths for d in source.drafters.values())
    target = Endless(shared.model)
    room = shared.context_limit - len(prompt) - plan.new_tokens
    settings = Settings(1, plan.new_tokens + max(0, min(tail, room)), plan.sampling, timed=False)
    tokens, end, best = list(prompt), len(prompt) + plan.new_tokens, []
    for record in decode(target, Method("ar"), prompt, settings, observe):
        if len(tokens) == len(prompt):
            tokens.append(int(record.draft.tokens[0]))
        assert record.target_probs is not None
        best.append((record.target_probs.top_ids[0], record.target_probs.top_log_p[0]))
        tokens += record.committed
        stops = [i for i, t in enumerate(tokens[len(prompt) :]) if t in source.facts.stop_ids]
        if stops:
            end = min(end, len(prompt) + stops[0] + 1)
        if len(tokens) >= end + tail:
            break
    return {
        "tokens": np.array(tokens, np.int32),
        "end": np.array(min(end, len(tokens))),
        "target.ids": np.array([ids for ids, _ in best], np.int32),
        "target.log_p": np.array([odds for _, odds in best], np.float32),
    }


# ── the drafters ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Place:
    """One drafter on one text: its tokens up to the last root."""

    source: Source
    name: str
    drafter: Drafter
    tokens: Array
    answer: int

    @property
    def starts(self) -> int:
        return len(self.tokens) - self.answer

    def proposals(self, first: int, width: int) -> Iterator[Proposal]:
        """At every start from the ``first`` on, in order."""
        if first >= self.starts:
            return
        target = self.source.target(self.drafter)
        features = target.prefill(self.tokens.tolist(), 0).features
        each = getattr(self.drafter, "propose_each", None)
        if each is None:
            yield from self._one_by_one(features, first, width)
            return
        tokens = torch.from_numpy(self.tokens.astype(np.int64)).to(target.device)
        anchors = torch.arange(self.answer + first, len(self.tokens), device=target.device)
        for some in anchors.split(AT_ONCE):
            yield from each(tokens, features, some, width)

    def _one_by_one(self, features: torch.Tensor, first: int, width: int) -> Iterator[Proposal]:
        """As decoding would ask it, one committed token after the other."""
        known = self.answer + first
        self.drafter.reset(len(self.tokens) + 1)
        self.drafter.extend(self.tokens[:known].tolist(), features[:known])
        for at in range(known, len(self.tokens)):
            yield self.drafter.propose(int(self.tokens[at]), width)
            self.drafter.extend([int(self.tokens[at])], features[at : at + 1])


def _gather(place: _Place, work: _Work, plan: Plan, report: Callable[[float], None]) -> Limits:
    """All of one drafter's proposals, into the work's arrays."""
    limits = work.limits(place.name)
    if limits is None:
        limits = _limits(place, plan)
        work.allocate(place.name, place.starts, limits, plan.marginals)
    arrays, first = work.arrays(place.name), work.done(place.name)
    for at, proposal in enumerate(place.proposals(first, plan.kept), first):
        if at % AT_ONCE == 0:
            work.advance(place.name, at)
            report(at / place.starts)
        _put(place.name, arrays, at, proposal)
    work.advance(place.name, place.starts)
    return limits


def _limits(place: _Place, plan: Plan) -> Limits:
    """What the file will hold, read off the drafter's first two answers."""
    small, wide = (next(place.proposals(0, w)).candidates for w in (1, plan.kept))
    offered, next_ids = wide.ids.shape[1], wide.transitions and wide.transitions.ids
    kept = min(offered, plan.kept)
    options = dict(place.source.options.get(place.name, {}))
    sizes = {} if next_ids is None else dict(zip(_SIZES, next_ids.shape[1:], strict=True))
    return Limits(
        depths=len(wide.ids),
        kept=kept,
        least=small.ids.shape[1],
        complete=offered < plan.kept or kept == place.source.facts.vocabulary,
        options={k: v for k, v in options.items() if k not in _SIZES},
        **sizes,
    )


_SIZES = ("candidates", "siblings")


def _put(name: str, arrays: Mapping[str, Array], at: int, proposal: Proposal) -> None:
    found = proposal.candidates
    kept = arrays[f"{name}.ids"].shape[-1]
    width = min(kept, found.ids.shape[1])
    arrays[f"{name}.ids"][at, :, :width] = found.ids[:, :width]
    arrays[f"{name}.log_q"][at] = -np.inf
    arrays[f"{name}.log_q"][at, :, :width] = found.log_q[:, :width]
    if (t := found.transitions) is None:
        return
    t.need_all()
    arrays[f"{name}.next_ids"][at] = t.ids
    arrays[f"{name}.next_log_q"][at] = t.log_q
    if f"{name}.next_marginal" in arrays:
        arrays[f"{name}.next_marginal"][at] = t.marginal


# ── unfinished work ──────────────────────────────────────────────────────────────────────────────


class _Work:
    """A folder beside the file, with arrays that are filled in place and how far they are."""

    def __init__(self, path: Path, identity: Mapping[str, Any]):
        self.folder = path.with_name(path.name + ".partial")
        self._identity = json.loads(json.dumps(identity))
        self._state: dict[str, Any] = {}

    def begin(self) -> None:
        """Go on with what is there if it is the same work, else start anew."""
        try:
            self._state = json.loads((self.folder / "state.json").read_text("utf-8"))
        except (OSError, ValueError):
            self._state = {}
        if self._state.get("identity") == self._identity:
            return
        try:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"{self.folder} cannot be made: {error.strerror}") from None
        self._state = {"identity": self._identity, "done": {}, "limits": {}}
        self._save()

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def once(self, name: str, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """Arrays made now or in an earlier run."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            with replacing(path) as unfinished, unfinished.open("wb") as file:
                np.savez(file, **make())  # type: ignore[arg-type]
        with np.load(path, allow_pickle=False) as found:
            return dict(found)

    def limits(self, name: str) -> Limits | None:
        raw = self._state["limits"].get(name)
        return Limits(**raw) if raw else None

    def allocate(self, name: str, starts: int, limits: Limits, marginals: bool) -> None:
        shapes = drafter_shapes(name, starts, limits)
        if marginals and limits.candidates:
            shapes[f"{name}.next_marginal"] = shapes[f"{name}.next_ids"]
        for array, shape in shapes.items():
            kind = np.int32 if array.endswith("ids") else np.float32
            np.lib.format.open_memmap(self.folder / f"{array}.npy", "w+", kind, shape).flush()
        self._state["limits"][name] = asdict(limits)
        self.advance(name, 0)

    def arrays(self, name: str) -> dict[str, Array]:
        files = sorted(self.folder.glob(f"{name}.*.npy"))
        return {f.stem: np.load(f, mmap_mode="r+", allow_pickle=False) for f in files}

    def done(self, name: str) -> int:
        return int(self._state["done"].get(name, 0))

    def advance(self, name: str, done: int) -> None:
        self._state["done"][name] = done
        self._save()

    def _save(self) -> None:
        with replacing(self.folder / "state.json") as unfinished:
            unfinished.write_text(json.dumps(self._state), "utf-8")


def _identity(source: Source) -> dict[str, Any]:
    """What must be the same for work to go on."""
    drafters = {name: [d.depths, list(d.layers)] for name, d in source.drafters.items()}
    own = {name: dict(o) for name, o in source.options.items()}
    about = dict(source.about)
    return {"model": source.facts.name, "drafters": drafters, "options": own, "about": about}


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
