"""The recorder in a real vLLM on a CPU (``make test-engines``): it recorded what was served.

Each drafter and precision is one process of vLLM, with the embedded target and our own drafter as
``model export`` writes it; DRAFTSCOPE_DRAFTERS names a folder with others, by vLLM's methods. Every
recorded round is then computed here, in float32: p and q along its draft, and the chain that our
drafter would draft.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
from core.drafting.session import MIN_LISTED
from core.models import embedded
from core.models.presets import Value
from core.rounds.draft import Draft
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Trace
from tests.engines.ngram import looked_up
from tests.engines.prompts import encoded
from tests.engines.serve import LONGEST

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("DRAFTSCOPE_VLLM", "")
DRAFTERS = os.environ.get("DRAFTSCOPE_DRAFTERS", "")
TOKENS = 32
LOOKED_UP = 4  # last tokens, at most, by ``ngram``


@dataclass(frozen=True)
class Kind:
    """A drafter. ``ours``: its name here, with the builder of chains; ``places``: tokens a draft;
    ``options``: of ours; ``fields``: of vLLM's config."""

    ours: str
    places: int
    options: Mapping[str, Value] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


KINDS = {
    "ngram": Kind(
        "pld+chain", 4, {"longest": LOOKED_UP, "copied": 4, "whole": "no"},
        {"prompt_lookup_max": LOOKED_UP, "prompt_lookup_min": 1},
    ),
    "eagle3": Kind("eagle3+chain", 3),
    "draft_model": Kind("sps+chain", 3, {"depth": 3}),
    "medusa": Kind("medusa+chain", 4),
    "dflash": Kind("dflash+chain", 7),
}  # fmt: skip
# (how many at once, temperature), one after another in one process
PHASES = ((1, 0.0), (8, 0.0), (1, 1.0), (8, 1.0))


@dataclass(frozen=True)
class Bounds:
    """How far vLLM's numbers may be from ours: log p and log q on average and at most, TVD at most,
    all in nats but the last; ``tie``, how far below our best a token of its chain may lie; and
    ``same``, the least share of chains that are ours.

    In bfloat16, with its 8 bits, a logit of 20 is known to about 0.1. A drafter adds its own error
    to that of the target's states.

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
    "bfloat16": Bounds(0.1, 1.0, 0.2, 0.5, 1 / 3),
}


@dataclass(frozen=True)
class Phase:
    """Answers and counts of a phase, and its traces by the number of the prompt."""

    texts: list[list[int]]
    counts: dict[str, int]
    traces: dict[int, Trace]


@dataclass(frozen=True)
class Served:
    """A process of vLLM. ``totals``: the recorder's own sums; {}: it was off. ``drafter``: its
    checkpoint."""

    kind: Kind
    phases: list[Phase]
    totals: dict[str, int]
    drafter: Path | None


@dataclass(frozen=True)
class Computed:
    """A recorded round, and what we compute of it.

    text   until the root
    log_p  float32 [n + 1, V], after the root and every drafted token
    log_q  float32 [n, V], after the root and every drafted token but the last
    chain  what our drafter drafts after the root
    """

    record: Round
    text: list[int]
    log_p: Tensor
    log_q: Tensor
    chain: list[int]

    @property
    def tokens(self) -> list[int]:
        assert isinstance(self.record.draft, Draft)
        return self.record.draft.tokens.tolist()

    @property
    def drafted(self) -> Tensor:
        return torch.tensor(self.tokens[1:], dtype=torch.long)


@cache
def engine() -> Engine:
    return Engine(embedded.NAME, "cpu")


def serve(
    folder: Path,
    method: str,
    dtype: str,
    phases: list[dict[str, Any]],
    recorded: bool = True,
    **fields: Any,
) -> Served:
    """Serve phases by vLLM, with the recorder or without. Skips without vLLM."""
    if not PYTHON:
        pytest.skip("DRAFTSCOPE_VLLM names no Python with vLLM")
    kind = KINDS[method]
    drafter = checkpoint(folder, method, kind.ours.partition("+")[0])
    speculative = {"method": method, "num_speculative_tokens": kind.places, **kind.fields, **fields}
    if drafter is not None:
        speculative["model"] = str(drafter)
    task = {
        "model": str(embedded.prepare()), "speculative": speculative, "dtype": dtype,
        "phases": phases,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    out = folder / "out.json"
    command = [PYTHON, str(ROOT / "tests/engines/serve.py"), json.dumps(task), str(out)]
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
    if DRAFTERS:
        if not (Path(DRAFTERS) / method).is_dir():
            pytest.skip(f"DRAFTSCOPE_DRAFTERS has no folder {method}")
        return Path(DRAFTERS) / method
    assert main(["model", "export", "--kind", ours, "--out", str(folder / method)]) == 0
    return folder / method


def phase(batch: int, temperature: float) -> dict[str, Any]:
    return {
        "prompts": encoded()[: max(batch, 2)],
        "batch": batch,
        "tokens": TOKENS,
        "temperature": temperature,
    }


@pytest.fixture(scope="module", params=[(m, d) for d in BOUNDS for m in KINDS], ids="-".join)
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
    drafter.extend(prompt, target.prefill(prompt, room - len(prompt)).features)
    for record in trace.rounds:
        assert isinstance(record.draft, Draft)
        tokens = record.draft.tokens.tolist()
        session = drafter.begin(tokens[0], MIN_LISTED)
        before = text[: record.position + 1]
        chain = builder(session, before, served.kind.places).tokens[1:].tolist()
        log_q = session.log_q(tokens[:-1]) if len(tokens) > 1 else torch.empty(0, 0)
        scores = target.score(record.draft)
        assert log_q is not None
        log_p = scores.logits.float().log_softmax(-1)
        yield Computed(record, before, log_p, log_q.float(), chain)
        path = target.commit(record.verdict)
        accepted = [tokens[row] for row in record.verdict.path]
        drafter.extend(accepted, scores.features[path])


def text_of(trace: Trace) -> list[int]:
    """Prompt and text: the first root, then what every round committed."""
    first = int(trace.rounds[0].draft.tokens[0])
    return [*trace.header.prompt_ids, first, *(t for r in trace.rounds for t in r.committed)]


def sums(traces: Mapping[int, Trace]) -> dict[str, int]:
    """Counted as vLLM counts: rounds without a draft are none."""
    drafts = [r for t in traces.values() for r in t.rounds if r.draft.nodes]
    return {
        "drafts": len(drafts),
        "draft_tokens": sum(r.draft.nodes for r in drafts),
        "accepted_tokens": sum(r.accepted for r in drafts),
    }


def test_counts_and_texts_are_vllms_own(run):
    """Of every phase: totals equal vLLM's counters, texts and prompts are those of its answers."""
    served, _ = run
    for (batch, temperature), said in zip(PHASES, served.phases, strict=True):
        print(f"\nbatch {batch} T={temperature}: {said.counts}", end="")
        assert sums(said.traces) == said.counts
        for number, text in enumerate(said.texts):
            trace = said.traces[number]
            assert trace.complete and not trace.faults
            assert text_of(trace) == [*trace.header.prompt_ids, *text]
            assert trace.header.settings["sampling"]["temperature"] == temperature
    whole = {name: sum(p.counts[name] for p in served.phases) for name in served.phases[0].counts}
    assert {name: served.totals[name] for name in whole} == whole and whole["drafts"] > 0
    assert served.totals["lost_steps"] == served.totals["broken_requests"] == 0


def test_p_q_and_chains_are_ours(run):
    """At every drafted place: p, q and TVD are those that we compute, and our drafter drafts the
    same chain, or one that parts where two tokens tie."""
    served, bounds = run
    traces = [t for said in served.phases for t in said.traces.values()]
    rounds = [each for trace in traces for each in computed(served, trace)]
    log_p, log_q, tvd, below, same = [], [], [], [], 0
    for each in rounds:
        record, places = each.record, torch.arange(len(each.drafted))
        probs, own = record.target_probs, each.log_p[places, each.drafted]
        assert probs is not None
        log_p.append(np.abs(probs.log_p[1:] - own.numpy()))
        best = each.log_p.gather(1, torch.from_numpy(probs.top_ids))
        log_p.append(np.abs(probs.top_log_p - best.numpy())[:, 0])
        same += each.chain == each.tokens[1:]
        if served.drafter is None:
            check_looked_up(each)
            continue
        if not len(each.drafted):
            continue
        drafted = each.log_q[places, each.drafted]
        below.append((each.log_q.amax(-1) - drafted).numpy())
        log_q.append(np.abs(record.draft.log_q[1:] - drafted.numpy()))
        assert record.probe is not None
        seen = list(record.verdict.path[: len(record.probe.tvd)])
        own_tvd = (each.log_p[seen].exp() - each.log_q[seen].exp()).abs().sum(-1) / 2
        tvd.append(np.abs(record.probe.tvd - own_tvd.numpy()))
    print(f"\n{len(rounds)} rounds, {same} chains the same", end="")
    least = 0 if served.drafter is None else bounds.same  # ``check_looked_up`` says which are not
    for name, found, most in (
        ("log p", log_p, bounds.most), ("log q", log_q, bounds.most), ("TVD", tvd, bounds.tvd),
        ("below our best", below, bounds.tie),
    ):  # fmt: skip
        if not found:
            continue
        far = np.concatenate(found)
        print(f"; {name}: {len(far)} places, mean {far.mean():.5f}, most {far.max():.5f}", end="")
        assert far.max() < most and far.mean() < bounds.mean, name
    assert rounds and same > len(rounds) * least


def check_looked_up(each: Computed) -> None:
    """A draft of ``ngram`` is what vLLM's rule copies. Ours is the same, but it ends before a stop
    token, as transformers' does; vLLM copies that token and those after it."""
    drafted = each.tokens[1:]
    assert drafted == looked_up(each.text, 1, LOOKED_UP, KINDS["ngram"].places, LONGEST)
    stops = engine().prepare().stop_ids
    assert each.chain == list(takewhile(lambda token: token not in stops, drafted))
    assert each.record.proposal is None


def test_recording_changes_no_text(tmp_path):
    """With p and q recorded and without a recorder, the same seeds give the same texts and counts,
    at temperature 1, too."""
    phases = [phase(8, 0.0), phase(8, 1.0)]
    recorded, plain = (
        serve(tmp_path / name, "eagle3", "float32", phases, name == "recorded").phases
        for name in ("recorded", "plain")
    )
    assert [(p.texts, p.counts) for p in recorded] == [(p.texts, p.counts) for p in plain]
    assert all(p.traces for p in recorded) and not any(p.traces for p in plain)
    assert recorded[0].texts != recorded[1].texts


def test_block_verification_is_not_this_runners(tmp_path):
    """vLLM's V1 runner, which a CPU takes, has no ``block`` rule: it takes the option, and serves
    what ``standard`` serves. The traces say so."""
    asked, plain = (
        serve(folder, "ngram", "bfloat16", [phase(8, 1.0)], **fields).phases[0]
        for folder, fields in (
            (tmp_path / "block", {"rejection_sample_method": "block"}),
            (tmp_path / "standard", {}),
        )
    )
    assert asked.texts == plain.texts and asked.counts == plain.counts
    rules = {trace.header.settings["rule"] for trace in asked.traces.values()}
    assert rules == {"standard"}
