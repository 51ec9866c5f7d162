"""The recorder in a real vLLM and a real SGLang on a CPU (``make test-engines``): it recorded what
was served.

Each drafter and precision is one process of the engine, with the embedded target and our own
drafter as ``model export`` writes it; DRAFTSCOPE_DRAFTERS names a folder with others, by vLLM's
methods. Every recorded round is then computed here, in float32: p and q in its draft, and the chain
or tree that our drafter would draft. SGLang's kernels for CPUs are stand-ins (``sglang_kernels``).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.cli import main
from core.decoding.decode import Decoder
from core.decoding.engine import Engine
from core.drafting.session import MIN_LISTED, DraftSession
from core.models import embedded
from core.models.presets import Value
from core.rounds.draft import Draft
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Trace
from tests import ROOT
from tests.engines.ngram import looked_up, looked_up_last
from tests.engines.prompts import encoded
from tests.engines.serve import LONGEST

PROGRAMS = {  # by engine: its Python, and what is run there
    "vllm": (os.environ.get("DRAFTSCOPE_VLLM", ""), "serve.py"),
    "sglang": (os.environ.get("DRAFTSCOPE_SGLANG", ""), "serve_sglang.py"),
}
DRAFTERS = os.environ.get("DRAFTSCOPE_DRAFTERS", "")
LOOKED_UP = 4  # last tokens, at most, by ``ngram``


@dataclass(frozen=True)
class Kind:
    """A drafter. ``ours``: its name here, with the builder; ``places``: tokens a draft;
    ``options``: of ours; ``fields``: of the engine's settings; ``beams``: how many tokens after a
    node it may draft, in ``steps``; ``unseen``: how many tokens of the prompt it is not shown;
    ``runner``: which of vLLM's; ``drawn``: whether drafts are drawn from q above temperature 0;
    ``tokens``: a text; ``tells_q`` and ``tells_tvd``: whether the engine does."""

    ours: str
    places: int
    options: Mapping[str, Value] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "vllm"
    beams: int = 1
    steps: int = 1
    unseen: int = 0
    runner: str = "V1"
    drawn: bool = False
    tokens: int = 32
    tells_q: bool = True
    tells_tvd: bool = True

    @property
    def greedy(self) -> bool:
        """Whether this engine verifies greedily whatever a request asks for: SGLang on a CPU."""
        return self.engine == "sglang"


def _sglang(
    ours: str, algorithm: str, *, beams: int, steps: int, places: int, unseen: int = 0
) -> Kind:
    """EAGLE-2's trees, and chains by one beam."""
    shape = {"num_steps": steps, "eagle_topk": beams, "num_draft_tokens": places + 1}
    options = {"top_k": beams, "depth": steps}
    fields = {"algorithm": algorithm, **shape}
    return Kind(
        ours, places, options, fields, "sglang", beams, steps, unseen,
        tells_q=beams > 1, tells_tvd=False,
    )  # fmt: skip


def _second(kind: Kind, drawn: bool = False) -> Kind:
    """The same drafter in vLLM's V2 runner, which tells q of drafts that are drawn from it alone.
    Its kernels are interpreted here, so texts are short."""
    fields = {**kind.fields, **({"draft_sample_method": "probabilistic"} if drawn else {})}
    return replace(
        kind, fields=fields, runner="V2", drawn=drawn, tokens=10, tells_q=drawn, tells_tvd=drawn
    )


NGRAM = Kind(
    "pld+chain", 4, {"longest": LOOKED_UP, "copied": 4, "whole": "no"},
    {"prompt_lookup_max": LOOKED_UP, "prompt_lookup_min": 1}, tells_q=False, tells_tvd=False,
)  # fmt: skip
EAGLE3 = Kind("eagle3+chain", 3)
DRAFT_MODEL = Kind("sps+chain", 3, {"depth": 3})
DFLASH = Kind("dflash+chain", 7)
KINDS = {
    "ngram": NGRAM,
    "eagle3": EAGLE3,
    "draft_model": DRAFT_MODEL,
    "medusa": Kind("medusa+chain", 4),
    "dflash": DFLASH,
    "V2-ngram": _second(NGRAM),
    "V2-eagle3": _second(EAGLE3),
    "V2-draft_model": _second(DRAFT_MODEL),
    "V2-dflash": _second(DFLASH),
    "V2-eagle3-drawn": _second(EAGLE3, drawn=True),
    "sglang-eagle3": _sglang("eagle3", "EAGLE3", beams=4, steps=3, places=7),
    "sglang-eagle3-chain": _sglang("eagle3", "EAGLE3", beams=1, steps=3, places=3),
    "sglang-standalone": _sglang(
        "sps+eagle2", "STANDALONE", beams=2, steps=3, places=5, unseen=1
    ),
}  # fmt: skip
# (how many at once, temperature), one after another in one process
PHASES = ((1, 0.0), (8, 0.0), (1, 1.0), (8, 1.0))


@dataclass(frozen=True)
class Bounds:
    """How far the engine's numbers may be from ours: log p and log q on average and at most, TVD
    at most, all in nats but the last; ``tie``, how far below our best tokens a token of its draft
    may lie; and ``same``, the least share of drafts that are ours.

    In bfloat16, with its 8 bits, a logit of 20 is known to about 0.1. A drafter adds its own error
    to that of the target's states. Behind refused tokens the text makes no sense, and rounding
    moves p most: by up to 1.3 in transformers' bfloat16, without an engine and its recorder.

    In float32 a number has an error of 2⁻²⁴ of its size, and a sum of 1536 products, the longest
    here, about √1536 times as much, 2e-6. So a logit of 20 is known to about 5e-5: on average twice
    that is allowed, and at most 40 times, for places where 30 layers make more of an error. Chains
    then part at ties alone, which are rare.
    """

    mean: float
    most: float
    tvd: float
    tie: float
    same: float


BOUNDS = {
    "float32": Bounds(1e-4, 2e-3, 1e-3, 1e-3, 0.95),
    "bfloat16": Bounds(0.1, 2.0, 0.2, 0.5, 1 / 3),
}


@dataclass(frozen=True)
class Phase:
    """Answers and counts of a phase, and its traces by the number of the prompt."""

    texts: list[list[int]]
    counts: dict[str, int]
    traces: dict[int, Trace]


@dataclass(frozen=True)
class Served:
    """A process of the engine. ``totals``: the recorder's own sums; {}: it was off. ``drafter``:
    its checkpoint."""

    kind: Kind
    phases: list[Phase]
    totals: dict[str, int]
    drafter: Path | None


@dataclass(frozen=True)
class Computed:
    """A recorded round, and what we compute of it.

    text   until the root
    log_p  float32 [n + 1, V], after the root and every drafted token
    log_q  float32 [n, V], by which every drafted token was drafted
    others the paths after which the engine's q is of another text
    own    what our drafter drafts after the root
    drawn  whether the engine drew its draft from q
    """

    record: Round
    text: list[int]
    log_p: Tensor
    log_q: Tensor
    others: set[tuple[int, ...]]
    own: Draft
    drawn: bool

    @property
    def tokens(self) -> list[int]:
        assert isinstance(self.record.draft, Draft)
        return self.record.draft.tokens.tolist()

    @property
    def drafted(self) -> Tensor:
        return torch.tensor(self.tokens[1:], dtype=torch.long)

    @property
    def above(self) -> Tensor:
        """The row before each drafted token."""
        assert isinstance(self.record.draft, Draft)
        return torch.from_numpy(self.record.draft.parents[1:]).long()

    @property
    def astray(self) -> np.ndarray:
        """[n] Whether the engine's q of a drafted token is of another text."""
        assert isinstance(self.record.draft, Draft)
        return np.array([tuple(path[:-1]) in self.others for path in paths(self.record.draft)])

    @property
    def same(self) -> bool:
        """Whether our drafter drafts these paths."""
        assert isinstance(self.record.draft, Draft)
        return sorted(paths(self.own)) == sorted(paths(self.record.draft))


@cache
def engine() -> Engine:
    return Engine(embedded.NAME, "cpu")


def serve(
    folder: Path,
    method: str,
    dtype: str,
    phases: list[dict[str, Any]],
    recorded: bool = True,
    fields: Mapping[str, Any] = {},
) -> Served:
    """Serve phases by the kind's engine, with the recorder or without. Skips without the engine."""
    kind = KINDS[method]
    python, program = PROGRAMS[kind.engine]
    if not python:
        pytest.skip(f"DRAFTSCOPE_{kind.engine.upper()} names no Python with it")
    drafter = checkpoint(folder, method, kind.ours.partition("+")[0])
    speculative = {**kind.fields, **fields}
    if kind.engine == "vllm":
        speculative |= {"method": vllm_method(method), "num_speculative_tokens": kind.places}
    if drafter is not None:
        speculative["model" if kind.engine == "vllm" else "draft_model_path"] = str(drafter)
    task = {
        "model": str(embedded.prepare()), "speculative": speculative, "dtype": dtype,
        "phases": [phase | {"tokens": kind.tokens} for phase in phases], "runner": kind.runner,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    out = folder / "out.json"
    command = [python, str(ROOT / "tests/engines" / program), json.dumps(task), str(out)]
    record = str(folder / "traces") if recorded else ""
    more = {"DRAFTSCOPE_RECORD": record, "PYTHONPATH": str(ROOT / "recorders")}
    done = subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    totals = [json.loads(path.read_text()) for path in (folder / "traces").glob("*.json")]
    assert len(totals) == recorded
    traces: list[dict[int, Trace]] = [{} for _ in phases]
    for path in (folder / "traces").glob("*.jsonl.gz"):
        trace = read_trace(path)
        phase, _, number = str(trace.header.settings["tag"]).partition("/")
        traces[int(phase)][int(number)] = trace
    said = json.loads(out.read_text())
    heard = [Phase(s["texts"], s["counts"], t) for s, t in zip(said, traces, strict=True)]
    return Served(kind, heard, totals[0] if recorded else {}, drafter)


def checkpoint(folder: Path, method: str, ours: str) -> Path | None:
    """The drafter's folder: the caller's, or ours, exported; None for one without weights."""
    if ours == "pld":
        return None
    if DRAFTERS and KINDS[method].engine == "vllm":
        if not (Path(DRAFTERS) / vllm_method(method)).is_dir():
            pytest.skip(f"DRAFTSCOPE_DRAFTERS has no folder {vllm_method(method)}")
        return Path(DRAFTERS) / vllm_method(method)
    assert main(["model", "export", "--kind", ours, "--out", str(folder / method)]) == 0
    return folder / method


def vllm_method(name: str) -> str:
    """The name by which vLLM is asked for the drafter of a kind."""
    return name.removeprefix("V2-").removesuffix("-drawn")


def phase(batch: int, temperature: float) -> dict[str, Any]:
    return {
        "prompts": encoded()[: max(batch, 2)],
        "batch": batch,
        "temperature": temperature,
    }


# SGLang's stand-in kernels compute in float32 whatever the precision, and V2's are interpreted.
CASES = [
    (method, dtype)
    for dtype in BOUNDS
    for method, kind in KINDS.items()
    if (kind.engine, kind.runner) == ("vllm", "V1") or method == "V2-eagle3" or dtype == "float32"
]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def run(request, tmp_path_factory) -> tuple[Served, Bounds]:
    method, dtype = request.param
    folder = tmp_path_factory.mktemp(method)
    return serve(folder, method, dtype, [phase(*each) for each in PHASES]), BOUNDS[dtype]


@torch.inference_mode()
def computed(served: Served, trace: Trace) -> Iterator[Computed]:
    """The rounds of a trace with their drafts: our target and our drafter along the same text."""
    where = "" if served.drafter is None else f"@{served.drafter}"
    method: Decoder = engine().method(served.kind.ours + where, served.kind.options)
    drafter, builder, target = method.drafter, method.builder, engine().target(method)
    assert drafter is not None and builder is not None
    text = text_of(trace)
    prompt = text[: len(trace.header.prompt_ids)]
    room = len(text) + served.kind.places + 1
    drafter.reset(room)
    features, unseen = target.prefill(prompt, room - len(prompt)).features, served.kind.unseen
    drafter.extend(prompt[unseen:], features[unseen:])
    drawn = served.kind.drawn and trace.header.settings["sampling"]["temperature"] > 0
    for record in trace.rounds:
        assert isinstance(record.draft, Draft)
        tokens = record.draft.tokens.tolist()
        session = drafter.begin(tokens[0], max(MIN_LISTED, builder.width(served.kind.places)))
        before = text[: record.position + 1]
        own = builder(session, before, served.kind.places)
        told = [session.log_q(path[:-1]) for path in paths(record.draft)]
        log_q = torch.stack([x[-1].float() for x in told if x is not None] or [torch.empty(0)])
        beams = served.kind.beams
        others = crossed(session, tokens[0], beams, served.kind.steps) if beams > 1 else set()
        scores = target.score(record.draft)
        log_p = scores.logits.float().log_softmax(-1)
        yield Computed(record, before, log_p, log_q, others, own, drawn)
        path = target.commit(record.verdict)
        accepted = [tokens[row] for row in record.verdict.path]
        drafter.extend(accepted, scores.features[path])


def crossed(session: DraftSession, root: int, beams: int, steps: int) -> set[tuple[int, ...]]:
    """The paths after which SGLang's q is of another text.

    Its drafter keeps keys and values by beam. When a beam goes on from another one's token, what it
    kept of the tokens before stays that of its own (SGLang's pull request 8409, which was closed).
    """
    found: set[tuple[int, ...]] = set()
    level = [((root,), 0.0, 0, True)]  # path, log q, beam, whether its keys are its own
    for step in range(steps - 1):  # the last step's beams are not asked again
        longer = []
        for path, score, beam, straight in level:
            log_q = session.log_q(path)
            assert log_q is not None
            best = log_q[-1].float().topk(beams)
            for token, value in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                longer.append(((*path, token), score + value, beam, straight))
        longer = sorted(longer, key=lambda each: -each[1])[:beams]
        level = [
            (path, score, beam, straight and (not step or beam == before))
            for beam, (path, score, before, straight) in enumerate(longer)
        ]
        found |= {path for path, _, _, straight in level if not straight}
    return found


def paths(draft: Draft) -> list[list[int]]:
    """The tokens from the root to every drafted row."""
    tokens = draft.tokens.tolist()
    return [[tokens[row] for row in draft.path(end)] for end in range(1, len(tokens))]


def text_of(trace: Trace) -> list[int]:
    """Prompt and text: the first root, then what every round committed."""
    first = int(trace.rounds[0].draft.tokens[0])
    return [*trace.header.prompt_ids, first, *(t for r in trace.rounds for t in r.committed)]


def sums(traces: Mapping[int, Trace]) -> dict[str, int]:
    """Counted as the engines count: rounds without a draft are none."""
    drafts = [r for t in traces.values() for r in t.rounds if r.draft.nodes]
    return {
        "drafts": len(drafts),
        "draft_tokens": sum(r.draft.nodes for r in drafts),
        "accepted_tokens": sum(r.accepted for r in drafts),
    }


def test_counts_and_texts_are_the_engines_own(run):
    """Of every phase: totals equal the engine's counters, texts and prompts are its answers'."""
    served, _ = run
    for (batch, temperature), said in zip(PHASES, served.phases, strict=True):
        print(f"\nbatch {batch} T={temperature}: {said.counts}", end="")
        assert sums(said.traces) == said.counts
        for number, text in enumerate(said.texts):
            trace = said.traces[number]
            assert trace.complete and not trace.faults
            assert text_of(trace) == [*trace.header.prompt_ids, *text]
            drawn = 0.0 if served.kind.greedy else temperature
            assert trace.header.settings["sampling"]["temperature"] == drawn
    whole = {name: sum(p.counts[name] for p in served.phases) for name in served.phases[0].counts}
    assert {name: served.totals[name] for name in whole} == whole and whole["drafts"] > 0
    assert served.totals["lost_steps"] == served.totals["broken_requests"] == 0


def test_p_q_and_drafts_are_ours(run):
    """At every drafted place: p, q and TVD are those that we compute, where the engine has them,
    and our drafter drafts the same chain or tree, or one that parts where tokens tie."""
    served, bounds = run
    traces = [t for said in served.phases for t in said.traces.values()]
    rounds = [each for trace in traces for each in computed(served, trace)]
    log_p, log_q, tvd, below, astray, judged, same = [], [], [], [], [], [], 0
    for each in rounds:
        record, places = each.record, torch.arange(len(each.drafted))
        probs, own = record.target_probs, each.log_p[each.above, each.drafted]
        assert probs is not None
        log_p.append(np.abs(probs.log_p[1:] - own.numpy()))
        best = each.log_p.gather(1, torch.from_numpy(probs.top_ids))
        log_p.append(np.abs(probs.top_log_p - best.numpy())[:, 0])
        same += each.same
        if not (each.others or each.drawn):
            judged.append(each.same)
        if served.drafter is None:
            check_looked_up(each, served.kind.runner)
            continue
        if not len(each.drafted):
            continue
        drafted = each.log_q[places, each.drafted]
        least, own = each.log_q.topk(served.kind.beams).values[:, -1], ~each.astray
        if not each.drawn:
            below.append((least - drafted).numpy()[own])
        if not np.isnan(record.draft.log_q[1:]).all():
            far = np.abs(record.draft.log_q[1:] - drafted.numpy())
            log_q.append(far[own])
            astray.append(far[~own])
        if record.probe is None:
            continue
        seen = list(record.verdict.path[: len(record.probe.tvd)])
        own_tvd = (each.log_p[seen].exp() - each.log_q[seen].exp()).abs().sum(-1) / 2
        tvd.append(np.abs(record.probe.tvd - own_tvd.numpy()))
    print(f"\n{len(rounds)} rounds, {same} drafts the same", end="")
    if any(map(len, astray)):
        far = np.concatenate(astray)
        print(f"; of another text: {len(far)} places, log q {far.mean():.5f} off", end="")
        print(f"; {sum(judged)} of {len(judged)} drafts the same without such places", end="")
    fewest = 0 if served.drafter is None else bounds.same  # ``check_looked_up`` says which are not
    for name, found, most in (
        ("log p", log_p, bounds.most), ("log q", log_q, bounds.most), ("TVD", tvd, bounds.tvd),
        ("below what we would draft", below, bounds.tie),
    ):  # fmt: skip
        if not found:
            continue
        far = np.concatenate(found)
        print(f"; {name}: {len(far)} places, mean {far.mean():.5f}, most {far.max():.5f}", end="")
        assert far.max() < most and far.mean() < bounds.mean, name
    assert judged and sum(judged) > len(judged) * fewest
    assert bool(log_q) == served.kind.tells_q and bool(tvd) == served.kind.tells_tvd


def check_looked_up(each: Computed, runner: str) -> None:
    """A draft of ``ngram`` is what the runner's rule copies. Ours is that of the first runner, but
    it ends before a stop token, as transformers' does; vLLM copies that token and those after."""
    drafted, places = each.tokens[1:], NGRAM.places
    assert each.record.proposal is None
    if runner == "V2":
        assert drafted in ([], looked_up_last(each.text, 1, LOOKED_UP, places))
        return
    assert drafted == looked_up(each.text, 1, LOOKED_UP, places, LONGEST)
    stops = engine().prepare().stop_ids
    own = each.own.tokens[1:].tolist()
    assert own == list(takewhile(lambda token: token not in stops, drafted))


@pytest.mark.parametrize("method", ["eagle3", "sglang-eagle3"])
def test_recording_changes_no_text(method, tmp_path):
    """With p and q recorded and without a recorder, the same seeds give the same texts and counts,
    at temperature 1, too. SGLang's batches depend on when requests come, and the last bits of
    float32 on its batches: there it is one request at a time, without seeds."""
    phases = [phase(1, 0.0)] if KINDS[method].greedy else [phase(8, 0.0), phase(8, 1.0)]
    recorded, plain = (
        serve(tmp_path / name, method, "float32", phases, name == "recorded").phases
        for name in ("recorded", "plain")
    )
    assert [(p.texts, p.counts) for p in recorded] == [(p.texts, p.counts) for p in plain]
    assert all(p.traces for p in recorded) and not any(p.traces for p in plain)
    assert len(phases) == 1 or recorded[0].texts != recorded[1].texts


def test_block_verification_is_not_the_first_runners(tmp_path):
    """vLLM's V1 runner has no ``block`` rule: it takes the option, and serves
    what ``standard`` serves. The traces say so."""
    asked, plain = (
        serve(folder, "ngram", "bfloat16", [phase(8, 1.0)], fields=fields).phases[0]
        for folder, fields in (
            (tmp_path / "block", {"rejection_sample_method": "block"}),
            (tmp_path / "standard", {}),
        )
    )
    assert asked.texts == plain.texts and asked.counts == plain.counts
    rules = {trace.header.settings["rule"] for trace in asked.traces.values()}
    assert rules == {"standard"}


def test_block_verification_is_the_second_runners(tmp_path):
    """The V2 runner verifies by it, and the traces say so: with the same seeds it takes other
    tokens than ``standard``, from the same drafts."""
    asked, standard = (
        serve(folder, "V2-eagle3-drawn", "float32", [phase(2, 1.0)], fields=fields).phases[0]
        for folder, fields in (
            (tmp_path / "block", {"rejection_sample_method": "block"}),
            (tmp_path / "standard", {}),
        )
    )
    for said, rule in ((asked, "block"), (standard, "standard")):
        assert {trace.header.settings["rule"] for trace in said.traces.values()} == {rule}
        assert sums(said.traces) == said.counts
    assert asked.texts != standard.texts
