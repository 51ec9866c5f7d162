"""A fake engine for the studio: instant rounds of every shape, made without torch.

Its prompts steer it: ``slow`` waits between rounds, ``fail`` breaks with a sentence, ``big`` drafts
as many nodes as the budget allows at any depth, ``hostile`` speaks in attacks. The same prompt and
seed give the same text by every method; "treeflash" and "dart" explain their nodes as those do.
"""

from __future__ import annotations

import heapq
import json
import shutil
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np

from app.studio.engine import CollectRequest, DiagnoseRequest, Started
from core import ASSETS
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods import dart, treeflash
from core.methods.registry import find_method
from core.progress import Progress, silent
from core.rounds.draft import CHILDLESS, Array, Candidates, Draft, Proposal
from core.rounds.round import Probe, Round, TargetProbs, Times, Verdict
from core.traces.fields import as_round
from core.traces.reader import round_from_line
from core.traces.schema import Header

WORDS = (
    " the", " tree", " grows", " one", " leaf", " at", " a", " time", ",", " and", " each",
    " branch", " asks", " what", " the", " target", " would", " say", ".", "\n", " So", " it",
    " waits", "    ", " 42", "def", "(x)", ":", " return", " x", " *", " 2",
)  # fmt: skip
HOSTILE = (
    '<img src=x onerror="window.__pwned=1">',
    "<script>window.__pwned=1</script>",
    "${window.__pwned=1}",
    "{{constructor.constructor('window.__pwned=1')()}}",
    "`+(window.__pwned=1)+`",
    "javascript:window.__pwned=1",
    "\x1b[31m\x00\x07\u202eevil",
    "</script><svg onload=window.__pwned=1>",
    "A" * 10_000,
    "\\x \\u ${ `",
    '\'" onmouseover=window.__pwned=1 x="',
    "]]>&lt;&#x3c;",
)
DEPTHS = 15
WIDTH = 8  # M and S of the drafter that sees the token before


def words(hostile: bool = False) -> tuple[str, ...]:
    return HOSTILE + WORDS[: 32 - len(HOSTILE)] if hostile else WORDS


def make_round(
    seed: int = 0,
    budget: int = 64,
    index: int = 0,
    position: int = 10,
    root: int = 3,
    hostile: bool = False,
    method: str = "ddtree",
    ahead: Sequence[int] = (),
) -> Round:
    """A round whose numbers are plausible: best-first draft, a walk through p, all probes.

    ``ahead`` is the text to come, if the target is to write a given one.
    """
    rng = np.random.default_rng(seed)
    names = words(hostile)
    ids = np.stack([rng.permutation(len(names)) for _ in range(DEPTHS)])
    odds = np.sort(rng.dirichlet(np.full(len(names), 0.12), DEPTHS), 1)[:, ::-1] + 1e-7
    foresee(rng, ids, ahead)
    draft = make_draft(rng, Candidates(ids, np.log(odds).astype(np.float32)), root, budget, method)
    log_p = target_s_view(rng, draft, len(names), ahead)
    choices = log_p.argmax(1)
    path = [0]
    while (below := draft.child(path[-1], int(choices[path[-1]]))) is not None:
        path.append(below)
    verdict, seen = Verdict(tuple(path), choices), min(len(path), DEPTHS)
    probe = Probe(
        tvd=rng.uniform(0.1, 0.7, seen).astype(np.float32),
        coverage=np.linspace(0.4, 0.95, 16, dtype=np.float32)[None].repeat(seen, 0),
        entropy_q=rng.uniform(0.5, 3, seen).astype(np.float32),
        rank_q=rng.integers(1, 30, seen).astype(np.int32),
    )
    return Round(
        index,
        position,
        draft,
        verdict,
        committed=(*draft.tokens[path[1:]].tolist(), verdict.bonus),
        target_probs=probs_of(draft, log_p),
        probe=probe,
        times=Times(0.012, 0.0003, 0.087, 0.002),
        texts=dict(enumerate(names)),
    )


def probs_of(draft: Draft, log_p: Array) -> TargetProbs:
    """Return what a probe would keep of log p after every row [N, V]."""
    top = np.argsort(-log_p, 1)[:, :10]
    own, rank = np.full(len(draft), np.nan, np.float32), np.zeros(len(draft), np.int32)
    above = log_p[draft.parents[1:]]
    own[1:] = above[np.arange(len(above)), draft.tokens[1:]]
    rank[1:] = (above > own[1:, None]).sum(1) + 1
    entropy = -(np.exp(log_p) * log_p).sum(1).astype(np.float32)
    return TargetProbs(
        own, rank, top, np.take_along_axis(log_p, top, 1).astype(np.float32), entropy
    )


@dataclass(frozen=True)
class Lists:
    """All that a drafter would answer: after state r, ids[r, s] leads to the state leads[r, s]."""

    ids: Array
    log_q: Array
    leads: Array


@dataclass(frozen=True)
class Found:
    """The B most probable prefixes: a draft, and of each row the list and place it was read from,
    and the state after it."""

    draft: Draft
    states: Array
    places: Array
    leads_to: Array


def best_first(lists: Lists, root: int, budget: int) -> Found:
    """The slow and obvious way; no numba in the fake's process."""
    log_q, leads = lists.log_q, lists.leads
    rows: list[tuple[int, int, int, int, float]] = [(-1, 0, 0, 0, 0.0)]
    heap = [(-float(log_q[0, 0]), 0, 0, 0)]  # −score, parent, state, place
    while heap and len(rows) <= budget:
        key, parent, state, place = heapq.heappop(heap)
        row, leads_to = len(rows), int(leads[state, place])
        rows.append((parent, rows[parent][1] + 1, state, place, -key))
        if place + 1 < log_q.shape[1]:
            step = float(log_q[state, place] - log_q[state, place + 1])
            heapq.heappush(heap, (key + step, parent, state, place + 1))
        if leads_to >= 0:
            heapq.heappush(heap, (key - float(log_q[leads_to, 0]), row, leads_to, 0))
    parents, depths, states, places, scores = map(np.array, zip(*rows, strict=True))
    tokens, logs, after = (t[states, places] for t in (lists.ids, log_q, leads))
    tokens[0], logs[0], after[0] = root, 0, 0
    draft = Draft(
        tokens=tokens.astype(np.int64),
        parents=parents.astype(np.int32),
        depths=depths.astype(np.int32),
        ranks=np.where(depths > 0, places + 1, 0).astype(np.int32),
        log_q=logs.astype(np.float32),
        scores=scores.astype(np.float32),
    )
    return Found(draft, states, places, after)


def target_s_view(
    rng: np.random.Generator, draft: Draft, words_known: int, ahead: Sequence[int]
) -> np.ndarray:
    """log p after every row [N, V]: near the drafter's q, and along the text to come ``ahead``."""
    log_p_all = np.log(rng.dirichlet(np.full(words_known, 0.15), len(draft)) + 1e-9)
    for row in range(1, len(draft)):  # the target agrees with the drafter, more or less
        parent = int(draft.parents[row])
        log_p_all[parent, draft.tokens[row]] += 4.0 * np.exp(draft.log_q[row])
    true: list[int] = [0]
    while len(true) <= len(ahead):  # and says the text to come
        log_p_all[true[-1], ahead[len(true) - 1]] = log_p_all[true[-1]].max() + 2
        below = draft.child(true[-1], ahead[len(true) - 1])
        if below is None:
            break
        true.append(below)
    log_p_all -= np.log(np.exp(log_p_all).sum(1, keepdims=True))
    return log_p_all


def foresee(rng: np.random.Generator, ids: np.ndarray, ahead: Sequence[int]) -> None:
    """Put the text to come among a depth's best, as often as a fair drafter would."""
    for depth, token in enumerate(ahead[: len(ids)]):
        rank = int(rng.choice([0, 1, 2, 5, 12], p=[0.5, 0.2, 0.1, 0.1, 0.1]))
        old = int(np.flatnonzero(ids[depth] == token)[0])
        ids[depth, [rank, old]] = ids[depth, [old, rank]]


def make_draft(
    rng: np.random.Generator, by_depth: Candidates, root: int, budget: int, method: str
) -> Draft:
    if method == "ar":
        return Draft.root_only(root)
    if method.startswith("treeflash"):
        return given_the_token_before(rng, by_depth, root, budget)
    depths = np.arange(1, DEPTHS + 1)
    leads = np.where(depths < DEPTHS, depths, CHILDLESS)[:, None].repeat(by_depth.ids.shape[1], 1)
    draft = best_first(Lists(by_depth.ids, by_depth.log_q, leads), root, budget).draft
    draft = replace(draft, proposal=Proposal.factorised(by_depth, draft.depths))
    return (
        by_two_terms(rng, draft) if method.startswith("dart") or "continuity" in method else draft
    )


def given_the_token_before(
    rng: np.random.Generator, by_depth: Candidates, root: int, budget: int
) -> Draft:
    """TreeFlash's kind: q′ after each of the M best, leaves outside them."""
    ids, log_q = by_depth.ids, by_depth.log_q
    bent = log_q[:, None] + rng.normal(0, 0.9, (DEPTHS, WIDTH, ids.shape[1]))
    bent -= np.log(np.exp(bent).sum(-1, keepdims=True))
    best = np.argsort(-bent, -1)[..., :WIDTH]
    at = [(0, 0), *((d, m) for d in range(1, DEPTHS) for m in range(WIDTH))]  # of each state
    depth, before = np.array(at).T
    place = best[depth, before]
    inner = (place < WIDTH) & (depth[:, None] + 1 < DEPTHS)
    lists = Lists(
        ids[depth[:, None], place],
        bent[depth[:, None], before[:, None], place].astype(np.float32),
        np.where(inner, 1 + depth[:, None] * WIDTH + place, CHILDLESS),
    )
    found = best_first(lists, root, budget)
    states, used = found.states, sorted({0, *found.leads_to.tolist()} - {CHILDLESS})
    marginal = log_q[depth[states], place[states, found.places]]
    rank_before = np.where(depth[states] > 0, before[states] + 1.0, np.nan)
    notes = {treeflash.MARGINAL: marginal, treeflash.BEHIND: rank_before}
    number = {state: at for at, state in enumerate(used)} | {CHILDLESS: CHILDLESS}
    after = np.array([number[state] for state in found.leads_to.tolist()], np.int32)
    listed = Candidates(lists.ids[used], lists.log_q[used])
    return replace(
        found.draft,
        notes={name: without_root(values) for name, values in notes.items()},
        proposal=Proposal(listed, after, DEPTHS, by_depth),
    )


def by_two_terms(rng: np.random.Generator, draft: Draft) -> Draft:
    """The draft with DART's two score terms; the order of its rows stays what it was."""
    size = len(draft)
    context = rng.integers(0, 3, size).astype(np.float32)
    seen = np.where(context > 0, rng.integers(1, 90, size), 0).astype(np.float32)
    level = np.maximum(draft.depths, 1).astype(np.float32)
    term_q = draft.log_q * 0.9 ** (level - 1) / level**0.7
    term_ngram = np.where(seen > 0, -rng.uniform(0.2, 2.5, size), -11.5) / level**0.7
    scores = np.zeros(size, np.float32)
    for row in range(1, size):
        scores[row] = scores[draft.parents[row]] + term_q[row] + term_ngram[row]
    values = zip(dart.NOTES, (term_q, term_ngram, context, seen), strict=True)
    return replace(draft, scores=scores, notes={name: without_root(v) for name, v in values})


def without_root(values: Array) -> Array:
    return np.append(np.nan, values[1:]).astype(np.float32)


def make_run(count: int = 8, budget: int = 64, hostile: bool = False, seed: int = 0) -> list[Round]:
    return list(islice(rounds_of(budget, hostile, seed), count))


def rounds_of(
    budget: int, hostile: bool, seed: int, method: str = "ddtree", text: Sequence[int] = ()
) -> Iterator[Round]:
    """Rounds one after the other, without end; ``text`` is what they write, if that matters."""
    root, position = text[0] if text else 3, 12
    for index in count():
        ahead = text[position - 11 :]
        made = make_round(seed + index, budget, index, position, root, hostile, method, ahead)
        yield made
        root, position = made.verdict.bonus, position + len(made.committed)


def make_text(prompt: str, seed: int, length: int) -> list[int]:
    """Return the text of the fake's target to a prompt, the same for every method."""
    return np.random.default_rng([seed, *prompt.encode()[:64]]).integers(0, 32, length).tolist()


def make_header(prompt: str = "why?", method: str = "ddtree", **settings: Any) -> Header:
    return Header(
        method=method,
        settings={"budget": 64, "max_new_tokens": 32} | settings,
        model={"name": "fake"},
        prompt_text=prompt,
        prompt_ids=(1, 2, 3),
        device="cpu",
        dtype="float32",
    )


def diagnosis(method: str) -> dict[str, Any]:
    """Return JSON that ``diagnose --json`` might print."""
    own = {"mistake": "", "name": "as configured", "places": 80, "tau": 1.5, "right": [0.4, 0.1],
           "acceptance": [0.4, None], "tvd": [0.6, 0.8], "ratio": 1.0, "gain": 0.0,
           "better": False, "unchanged": False}  # fmt: skip
    off = own | {"mistake": "layers", "name": "layers + 1", "tau": 2.5, "tvd": [0.25, None],
                 "ratio": 3.0, "gain": 0.4, "better": True}  # fmt: skip
    worse = [
        off | {"name": f"rope {n}", "places": 20, "gain": -n, "better": False} for n in range(9)
    ]
    named = "layers + 1 accepts 3.0× as much"
    wiring = {"places": 80, "verdict": "mistake named", "said": [named],
              "nearest": "layers + 1", "configured": own, "mistakes": [off, *worse],
              "faults": [named],
              "notes": ["features help little"]}  # fmt: skip
    lint = [{"wrong": True, "text": HOSTILE[0]}, {"wrong": False, "text": "its head is tied"}]
    return {"method": method, "wiring": wiring, "checkpoint": lint}


ENDLESS = 10_000  # tokens


class FakeEngine:
    """Speaks like ``app.studio.engine.LiveEngine``; ``start`` reads its orders from the prompt."""

    def __init__(self, broken: str = "", may_load: threading.Event | None = None):
        self.broken, self.may_load = broken, may_load
        self.closed = 0

    def prepare(self, report: Progress) -> None:
        for step in range(4):
            report(step / 4, "pretending to load")
        if self.may_load is not None:
            self.may_load.wait()
        if self.broken:
            raise UserError(self.broken)

    def start(self, request: Any, report: Progress = silent) -> Started:
        if "refuse" in request.prompt:
            raise UserError("the fake refuses this prompt")
        if isinstance(request, CollectRequest):
            return Started(
                make_header(request.prompt, request.method), self._collect(request, report)
            )
        if isinstance(request, DiagnoseRequest):
            return Started(make_header("", request.method), self._diagnose(request, report))
        sampling = {"temperature": request.temperature, "seed": request.seed}
        options = find_method(request.method).resolve(dict(request.options))
        own = {"budget": request.resolved.settings.budget, "sampling": sampling, "options": options}
        return Started(make_header(request.prompt, request.method, **own), self._rounds(request))

    def _collect(self, request: CollectRequest, report: Progress) -> Generator[Round, None, None]:
        """A text that ships, in place of the asked one."""
        for step in range(3):
            report(step / 3, "dflash")
            time.sleep(0.3 if "patient" in request.prompt else 0)
        if not request.path.is_file():  # a page may be reading it
            shutil.copy(ASSETS / "collected" / "walk-in-the-rain.safetensors", request.path)
        yield from ()

    def _diagnose(self, request: DiagnoseRequest, report: Progress) -> Generator[Round, None, None]:
        """A drafter whose layers are off by one, in a checkpoint that speaks in attacks. With
        "treeflash" it goes on until it is stopped."""
        for step in range(ENDLESS if request.method == "treeflash" else 5):
            report(min(step / 5, 1), "layers + 1")
            time.sleep(0.05)
        request.path.write_text(json.dumps(diagnosis(request.method)))
        yield from ()

    def _rounds(self, request: RunRequest) -> Generator[Round, None, None]:
        hostile, slow = "hostile" in request.prompt, "slow" in request.prompt
        budget = request.resolved.settings.budget
        left = ENDLESS if slow else request.max_new_tokens  # a slow run goes on until it is stopped
        try:
            text = make_text(request.prompt, request.seed, left + DEPTHS + 2)
            seed = request.seed + len(request.method)  # another method, another draft
            left -= 1
            for record in rounds_of(budget, hostile, seed, request.method, text):
                if left <= 0:
                    return
                record = replace(record, committed=record.committed[:left])
                if slow or "patient" in request.prompt:
                    time.sleep(0.25)
                if "fail" in request.prompt and record.index == 2:
                    raise UserError("the fake broke in round 2")
                if "crash" in request.prompt and record.index == 2:
                    raise RuntimeError("something internal with a /secret/path")
                left -= len(record.committed)
                yield record
        finally:
            self.closed += 1


def round_from_json(line: Mapping[str, Any]) -> Round:
    """The Round of what ``round_to_json`` writes."""
    return round_from_line(as_round({"kind": "round", **line}))
