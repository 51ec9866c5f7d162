"""The recorder for vLLM, on small stand-ins of its classes. ``make test-engines`` runs it in a real
vLLM."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from draftscope_recorder import channel, listening, measuring, options, vllm, writing
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from analysis.engines.served import read_served
from analysis.kinds import COUNTS, kind_of
from core.rounds.causes import Cause
from core.rounds.draft import Draft
from core.rounds.round import Round, Verdict, new_tokens
from core.traces.reader import read_trace
from tests import ROOT
from tests.bench import advised, recorder
from tests.helpers import recorder_fakes as fakes
from tests.helpers.pretend_gpu import HERE, INDEXED, MOVES, OnGPU, gpu, is_new


def record(monkeypatch, folder, runner, requests, chosen="", **serve):
    """Serve the requests with the recorder on; the traces by request, and the writer's totals."""
    monkeypatch.setattr(listening, "Channel", fakes.Here)
    listener = vllm.attach(runner, runner.config(), options.parse(f"{folder}{chosen}"))
    runner.serve(requests, **serve)
    assert listener is not None and listener.on
    listener.close()
    traces = {t.header.settings["request"]: t for t in map(read_trace, folder.glob("*.jsonl.gz"))}
    return traces, json.loads((folder / "run.json").read_text())


def prompts(count, **more):
    return [
        fakes.request(f"r{n}", [3 + n % 30, 5, 7 + n % 30], 20 + n, **more) for n in range(count)
    ]


KINDS = [(fakes.FakeV1, k) for k in ("steps", "block", "heads")] + [(fakes.FakeV2, "steps")]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("runner", "kind"), KINDS)
def test_every_round_is_there_with_p_and_q(monkeypatch, tmp_path, runner, kind, temperature):
    """Counts are the engine's own, texts are those served, p and q those of the tables."""
    fake = runner(kind, temperature=temperature)
    requests = prompts(5, temperature=temperature)
    traces, totals = record(monkeypatch, tmp_path, fake, requests)
    assert {k: totals[k] for k in fake.counts} == fake.counts
    assert fake.counts["accepted_tokens"] > 0 and set(traces) == {r.name for r in requests}
    p, q = (x.log_softmax(-1) for x in (fake.target, fake.q))
    for served in requests:
        trace = traces[served.name]
        assert trace.complete and not trace.faults
        assert list(trace.header.prompt_ids) == served.prompt
        assert new_tokens(trace.rounds) == served.text[: served.most]
        for r in trace.rounds:
            probs, tokens = r.target_probs, torch.from_numpy(r.draft.tokens)
            np.testing.assert_allclose(probs.top_log_p, p[tokens].topk(10).values, atol=1e-5)
            np.testing.assert_allclose(probs.log_p[1:], p[tokens[:-1], tokens[1:]], atol=1e-5)
            assert probs.rank.tolist()[1:] == [
                int((p[a] > p[a, b]).sum()) + 1 for a, b in pairwise(tokens)
            ]
            if temperature == 0:
                assert r.verdict.target_tokens.tolist() == p[tokens].argmax(-1).tolist()
            else:  # what it would have drawn elsewhere is not known
                assert (r.verdict.target_tokens[r.accepted + 1 :] == -1).all()
            if kind != "steps" or not r.draft.nodes:
                continue
            np.testing.assert_allclose(r.draft.log_q[1:], q[tokens[:-1], tokens[1:]], atol=1e-5)
            ranks = [int((q[a] > q[a, b]).sum()) + 1 for a, b in pairwise(tokens)]
            assert r.draft.ranks[1:].tolist() == ranks and r.max_depth == 3
            assert r.probe is not None
            observed = tokens[list(r.verdict.path[:3])]
            tvd = (p[observed].exp() - q[observed].exp()).abs().sum(-1) / 2
            np.testing.assert_allclose(r.probe.tvd, tvd, atol=1e-5)
            covered = p[observed].exp().gather(1, q[observed].topk(16).indices).cumsum(1)
            np.testing.assert_allclose(r.probe.coverage, covered, atol=1e-5)
            if r.verdict.bonus_token is None and r.accepted < 3:
                wanted = q[tokens[r.accepted]]
                assert r.probe.rank_q[r.accepted] == (wanted > wanted[r.verdict.bonus]).sum() + 1


@pytest.mark.parametrize(
    ("runner", "asked", "ran"),
    [(fakes.FakeV1, "block", "standard"), (fakes.FakeV2, "block", "block"),
     (fakes.FakeV1, "fly", "fly"), (fakes.FakeV2, "fly", "fly")],
)  # fmt: skip
def test_the_rule_that_ran_is_named(tmp_path, runner, asked, ran):
    """The V1 runner takes ``block`` and verifies by ``standard``."""
    fake = runner()
    listener = vllm.attach(fake, fake.config(asked), options.parse(str(tmp_path)))
    assert listener.header()["header"]["settings"]["rule"] == ran


def test_rows_are_those_that_adaptive_verification_left(monkeypatch, tmp_path):
    """The host knows how many tokens were scheduled; the device, how many are verified."""
    fake = fakes.FakeV2(adaptive=True)
    requests = prompts(5)
    traces, totals = record(monkeypatch, tmp_path, fake, requests)
    assert {k: totals[k] for k in fake.counts} == fake.counts
    nodes = {r.draft.nodes for trace in traces.values() for r in trace.rounds}
    assert nodes == {0, 1, 2, 3}
    p = fake.target.log_softmax(-1)
    for served in requests:
        trace = traces[served.name]
        assert new_tokens(trace.rounds) == served.text[: served.most] and not trace.faults
        for r in trace.rounds:
            tokens = torch.from_numpy(r.draft.tokens)
            np.testing.assert_allclose(
                r.target_probs.log_p[1:], p[tokens[:-1], tokens[1:]], atol=1e-5
            )


def test_a_server_s_totals_are_read_as_an_engine_s_counts_are(monkeypatch, tmp_path):
    """They are all that is left of traces that ``max_mb`` removed."""
    fake = fakes.FakeV1()
    record(monkeypatch, tmp_path, fake, prompts(5))
    found = read_served(tmp_path / "run.json")
    counts = {"drafts": found.rounds, "draft_tokens": found.drafted}
    assert counts | {"accepted_tokens": found.accepted} == fake.counts
    assert (found.kind, kind_of(tmp_path / "run.json")) == ("recording", COUNTS)


@pytest.mark.parametrize("left_out", ["", ",q=0"])
@pytest.mark.parametrize("runner", [fakes.FakeV1, fakes.FakeV2])
def test_a_draft_that_a_schedule_made_shorter_ended_at_its_last_depth(
    monkeypatch, tmp_path, runner, left_out
):
    """vLLM drafts less in large batches: a walk through all of it lacked depth, not width."""
    fake = runner(schedule=(2, 1, 3))
    traces, totals = record(monkeypatch, tmp_path, fake, prompts(4), left_out)
    assert {k: totals[k] for k in fake.counts} == fake.counts
    rounds = [r for t in traces.values() for r in t.rounds if r.draft.nodes]
    assert {r.draft.nodes for r in rounds} == {1, 2, 3}
    assert all(r.max_depth == r.draft.nodes for r in rounds)
    whole = {r.stop_reason for r in rounds if r.accepted == r.draft.nodes and not r.ends_inside}
    assert whole == {Cause.BEYOND}


def test_ranks_that_share_the_requests_are_not_recorded(tmp_path, caplog):
    fake = fakes.FakeV2()
    config = fake.config()
    config.parallel_config.enable_batch_sharded_sampling = True
    assert vllm.attach(fake, config, options.parse(str(tmp_path))) is None
    assert "each rank samples for some of the requests" in caplog.text


def test_recording_changes_no_token(monkeypatch, tmp_path):
    plain, heard = fakes.FakeV1(temperature=1.0), fakes.FakeV1(temperature=1.0)
    requests = prompts(4, temperature=1.0), prompts(4, temperature=1.0)
    plain.serve(requests[0])
    record(monkeypatch, tmp_path, heard, requests[1])
    assert [r.text for r in requests[0]] == [r.text for r in requests[1]]


def test_a_text_ends_where_it_was_served_to(monkeypatch, tmp_path):
    """A stop token in the midst of a round, a length limit, and a prompt that came in parts."""
    fake = fakes.FakeV1()
    whole = fakes.request("a", list(range(3, 20)), 20)
    fakes.FakeV1().serve([whole])
    stop = whole.text[9]
    asked = fakes.request("a", list(range(3, 20)), 20, stop_token_ids=[stop])
    short = fakes.request("b", [4, 5, 6], 7)
    long = fakes.request("c", [4, 5, 6] * 168, 8, max_tokens=None)  # the model's length is 512
    traces, _ = record(monkeypatch, tmp_path, fake, [asked, short, long], part=5)
    text = new_tokens(traces["a"].rounds)
    assert text == whole.text[: whole.text.index(stop) + 1]
    assert len(new_tokens(traces["b"].rounds)) == 7
    assert len(long.text) > 8 == len(new_tokens(traces["c"].rounds))
    assert traces["a"].complete and not traces["a"].faults


def test_who_is_recorded(monkeypatch, tmp_path):
    """A share of the requests, and those that ask; a request may also refuse, or give a tag."""
    asks, refuses = prompts(2), prompts(40)
    for n, r in enumerate(refuses):
        r.name = f"s{n}"
    asks[0].sampling.extra_args = {"draftscope": "nightly"}
    refuses[0].sampling.extra_args = {"draftscope": 0}
    asks[0].sampling.min_p, asks[0].sampling.repetition_penalty = 0.25, 1.0
    asks[0].sampling.logit_bias = {7: -100.0}
    traces, _ = record(monkeypatch, tmp_path, fakes.FakeV1(), [*asks, *refuses], ",sample=0.3")
    assert "r0" in traces and "s0" not in traces and 3 < len(traces) < 25
    assert traces["r0"].header.settings["tag"] == "nightly"
    assert traces["r0"].header.settings["processors"] == "min_p 0.25, logit_bias"
    assert all("processors" not in t.header.settings for n, t in traces.items() if n != "r0")
    chosen = options.parse("x,sample=0.3")
    assert set(traces) - {"r0"} == {
        n for n in ("r1", *(f"s{i}" for i in range(1, 40))) if chosen.wants(n)
    }


@pytest.mark.parametrize("left_out", ["p=0", "q=0", "p=0,q=0"])
def test_what_is_left_out_is_unknown(monkeypatch, tmp_path, left_out):
    traces, _ = record(monkeypatch, tmp_path, fakes.FakeV1(), prompts(1), f",{left_out}")
    for r in traces["r0"].rounds:
        assert (r.target_probs is None) == ("p=0" in left_out)
        assert (r.proposal is None) == ("q=0" in left_out or not r.draft.nodes)
        assert r.probe is None
        assert r.max_depth == (3 if r.draft.nodes else 0)  # the engine's, whatever else is kept


@pytest.mark.parametrize("hook", vllm.HOOKS, ids=lambda hook: hook.need)
@pytest.mark.parametrize("runner", [fakes.FakeV1, fakes.FakeV2])
def test_a_missing_name_is_one_sentence(monkeypatch, tmp_path, caplog, hook, runner):
    """For every hook of the table, and both runners: nothing breaks and no number is wrong."""
    fake = runner()
    name = (hook.v1 if runner is fakes.FakeV1 else hook.v2).split(".")[0]

    class Older:
        def __getattr__(self, wanted):
            if wanted == name:
                raise AttributeError(wanted)
            return getattr(fake, wanted)

    monkeypatch.setattr(listening, "Channel", fakes.Here)
    if name == "_sample":  # it would be taken for the other runner, which lacks more
        monkeypatch.setattr(vllm, "V2", vllm.V1)
    with caplog.at_level(logging.WARNING):
        made = vllm.attach(Older(), fake.config(), options.parse(str(tmp_path)))
    said = [r.getMessage() for r in caplog.records]
    assert any("this vLLM's runner has no" in line for line in said)
    assert (made is None) == hook.vital


def test_an_error_ends_the_recording_and_no_step(monkeypatch, tmp_path, caplog):
    fake, requests = fakes.FakeV1(), prompts(2)
    monkeypatch.setattr(listening, "Channel", fakes.Here)
    listener = vllm.attach(fake, fake.config(), options.parse(str(tmp_path)))
    monkeypatch.setattr(vllm.V1, "measured", lambda *args: 1 / 0)
    with caplog.at_level(logging.WARNING):
        fake.serve(requests)
    assert all(len(r.text) >= r.most for r in requests) and not listener.on
    assert [r.getMessage() for r in caplog.records].count(
        "draftscope: recording ended: division by zero in before"
    ) == 1


def test_a_lost_step_ends_the_requests_it_held(tmp_path):
    """Their traces are cut, without a hole; requests that begin later are whole."""
    header = {"engine": "vLLM", "model": {}}
    writer = writing.Writer(tmp_path, header, 1 << 30, "run")
    about = {"prompt": [1, 2], "sampling": {"temperature": 0.0}, "most": 9, "stops": []}

    def step(name, tokens, out, **facts):
        count = len(tokens)
        arrays = {
            "tokens": np.array(tokens, np.int32), "out": np.array([out], np.int32),
            "parents": np.arange(-1, count - 1, dtype=np.int32),
        }  # fmt: skip
        writer.step({"rows": [[name, count]], **facts}, arrays)

    step("a", [0], [5], new={"a": about})
    step("a", [0, 6], [6, 7])
    step("a", [0, 6], [6, 7], gap=True, lost=2)
    step("b", [0], [5], new={"b": about})
    step("b", [0, 6], [3, -1])
    writer.step({"finished": ["b"], "lost": 2}, {})
    a, b = (read_trace(p) for p in sorted(tmp_path.glob("*.gz")))
    assert (a.complete, len(a.rounds)) == (False, 1) and (b.complete, len(b.rounds)) == (True, 1)
    totals = json.loads((tmp_path / "run.json").read_text())
    assert (totals["lost_steps"], totals["broken_requests"], totals["rounds"]) == (2, 1, 2)


def test_a_text_that_ended_is_closed_without_another_step(tmp_path):
    """An engine with nothing left to do says no more; the trace is whole all the same."""
    writer = writing.Writer(tmp_path, {"engine": "vLLM", "model": {}}, 1 << 30, "run")
    about = {"prompt": [1, 2], "sampling": {}, "most": 3, "stops": []}
    for tokens, out, new in (([0], [5], {"a": about}), ([0, 6], [6, 7], {})):
        count = len(tokens)
        arrays = {
            "tokens": np.array(tokens, np.int32), "out": np.array([out], np.int32),
            "parents": np.arange(-1, count - 1, dtype=np.int32),
        }  # fmt: skip
        writer.step({"rows": [["a", count]], "new": new}, arrays)
    [file] = tmp_path.glob("*.gz")
    assert read_trace(file).complete
    writer.close()
    assert json.loads((tmp_path / "run.json").read_text())["broken_requests"] == 0


def test_a_full_disk_and_old_files(tmp_path, monkeypatch, capsys):
    """A trace that cannot be written is one sentence; old ones beyond the limit are removed."""
    fake = fakes.FakeV1()
    record(monkeypatch, tmp_path / "a", fake, prompts(6), ",max_mb=0")
    assert not list((tmp_path / "a").glob("*.gz"))
    writer = writing.Writer(tmp_path, {}, 5, "run")
    for path in (old := tmp_path / "old", new := tmp_path / "new"):
        path.write_text("abc")
        writer._finish(path)
    assert new.exists() and not old.exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(listening, "Channel", lambda *a: None)
    writer = writing.Writer(tmp_path / "file" / "b", {"engine": "vLLM", "model": {}}, 1, "run")
    about = {"prompt": [1], "sampling": {}, "most": 9, "stops": []}
    rows = {"tokens": np.zeros(1, np.int32), "parents": np.array([-1], np.int32)}
    for n in range(3):
        facts = {"rows": [["a", 1]], "new": {"a": about} if not n else {}}
        writer.step(facts, rows | {"out": np.array([[n]], np.int32)})
    writer.close()
    assert capsys.readouterr().err.count("draftscope: the trace of request a ends") == 1


def test_a_disk_that_fills_costs_the_traces_it_held(monkeypatch, tmp_path, capfd):
    """Serving and the other traces go on; the sentence and the totals say what was lost."""
    plain, full = prompts(4), prompts(4)
    fakes.FakeV1().serve(plain)
    tmp_path.joinpath("run-000002.jsonl.gz").symlink_to("/dev/full")
    fake = fakes.FakeV1()
    monkeypatch.setattr(listening, "Channel", fakes.Here)
    listener = vllm.attach(fake, fake.config(), options.parse(str(tmp_path)))
    fake.serve(full)
    assert listener.on
    listener.close()
    assert [r.text for r in full] == [r.text for r in plain]
    kept = [read_trace(p) for p in tmp_path.glob("*.gz") if not p.is_symlink()]
    assert len(kept) == 3 and all(trace.complete for trace in kept)
    assert json.loads((tmp_path / "run.json").read_text())["broken_requests"] == 1
    assert "No space left on device" in capfd.readouterr().err


def about(most=9, **more):
    return {"prompt": [1, 2], "sampling": {"temperature": 0.0}, "most": most, "stops": []} | more


def chain(*tokens):
    """The arrays of one request's chain."""
    return {
        "tokens": np.array(tokens, np.int32),
        "parents": np.arange(-1, len(tokens) - 1, dtype=np.int32),
    }


def test_a_sampled_chain_s_rank_is_its_place_in_the_list_after_its_parent():
    draft = Draft.chain([5, 7, 4], np.log([0.2, 0.1]))
    record = Round(0, 3, draft, Verdict((0, 1), np.array([7, 8, -1])), (7, 8))
    here = {
        "asked": np.array([True, True, False]),
        "q_top": np.array([[9, 7], [1, 2], [0, 0]]),
        "q_top_log": np.log([[0.7, 0.2], [0.5, 0.4], [1, 1]]).astype(np.float32),
    }
    seen = writing._with_q(record, here, 5, {"read": 1})
    assert seen.draft.ranks.tolist() == [0, 2, -1]
    assert seen.max_depth == 5  # the drafter's, though this draft ended before


def test_a_disk_that_fills_in_the_midst_of_a_trace_ends_that_trace_alone(tmp_path, capfd):
    """Closing a compressed file writes once more, and fails as well."""
    writer = writing.Writer(tmp_path, {"engine": "vLLM", "model": {}}, 1 << 30, "run")

    def step(name, *tokens, out, **facts):
        arrays = chain(*tokens) | {"out": np.array([out], np.int32)}
        writer.step({"rows": [[name, len(tokens)]], **facts}, arrays)

    for name in "ab":
        step(name, 0, out=[5], new={name: about()})
        step(name, 0, 6, out=[6, 7])
    raw = writer.requests["a"].recorder._writer._raw
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, raw.fileno())
    os.close(full)
    step("a", 7, 6, out=[6, 7])
    step("b", 7, 6, out=[6, 7])
    writer.step({"finished": ["a", "b"]}, {})
    writer.close()
    assert raw.closed and writer.totals.broken_requests == 1 and writer.totals.requests == 2
    assert len(read_trace(tmp_path / "run-000002.jsonl.gz").rounds) == 2
    assert read_trace(tmp_path / "run-000002.jsonl.gz").complete
    assert capfd.readouterr().err.count("No space left on device") == 1


class Losing(fakes.Here):
    """A channel that loses the steps of these numbers, and is ended from ``last`` on."""

    lost, last, count = (), 1 << 30, 0

    def send(self, facts, arrays):
        self.count += 1
        if self.count >= self.last:
            self.ended = True
            return False
        if self.count not in self.lost:
            facts["gap"] = self.count - 1 in self.lost
            return super().send(facts, arrays)
        return False


def measured(monkeypatch):
    """How many rows of requests the recorder measures, step by step."""
    found, own = [], listening.Listener.measured

    def counting(self, rows, *args):
        found.append(len(rows.counts))
        return own(self, rows, *args)

    monkeypatch.setattr(listening.Listener, "measured", counting)
    return found


def test_a_lost_step_ends_the_measuring_of_its_requests(monkeypatch, tmp_path):
    """Requests that begin later are measured and whole; those of the lost step are not."""
    monkeypatch.setattr(Losing, "lost", (3,))
    monkeypatch.setattr(fakes, "Here", Losing)
    rows = measured(monkeypatch)
    first, later = prompts(3), [fakes.request("later", [4, 5], 9)]
    traces, _ = record(monkeypatch, tmp_path, fakes.FakeV1(), [*first, *later])
    assert rows[:3] == [3, 3, 3] and set(rows[3:]) == {1}
    assert traces["later"].complete and new_tokens(traces["later"].rounds) == later[0].text[:9]
    assert [traces[r.name].complete for r in first] == [False] * 3


def test_nothing_is_measured_once_the_writer_is_gone(monkeypatch, tmp_path):
    monkeypatch.setattr(Losing, "last", 3)
    monkeypatch.setattr(listening, "Channel", Losing)
    rows, fake, requests = measured(monkeypatch), fakes.FakeV1(), prompts(3)
    listener = vllm.attach(fake, fake.config(), options.parse(str(tmp_path)))
    fake.serve(requests)
    assert not listener.on and rows == [3, 3, 3] and all(len(r.text) >= r.most for r in requests)


def test_a_channel_whose_writer_died_says_so_and_holds_nothing(tmp_path):
    """``send`` tells the listener; what waited is let go of."""
    sent = channel.Channel({"folder": str(tmp_path)}, 64, lambda x: x)  # a header that ends it
    while not sent.ended:
        sent.send({"rows": []}, {"out": np.zeros((1, 1), np.int32)})
        time.sleep(0.01)
    sent._thread.join()
    assert not sent.send({"rows": []}, {}) and sent._queue.empty()


def test_closing_a_channel_takes_no_longer_than_it_may(monkeypatch):
    """The queue, the thread and the process wait out one deadline between them."""
    now, asked = [100.0], []
    monkeypatch.setattr(channel.time, "monotonic", lambda: now[0])

    def waits(name):
        def wait(*args, timeout=None):
            asked.append((name, timeout if timeout is not None else args[-1]))
            now[0] += 2.0

        return wait

    made = object.__new__(channel.Channel)
    made._queue = SimpleNamespace(put=waits("queue"))
    made._thread = SimpleNamespace(join=waits("thread"))
    made._process = SimpleNamespace(wait=waits("process"))
    made.close(5.0)
    assert asked == [("queue", 5.0), ("thread", 3.0), ("process", 1.0)]


class Moves(TorchDispatchMode):
    """The copies from the host to the device that a GPU's host would wait for."""

    inside = False

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ours = [x for x in tree_leaves((args, kwargs)) if isinstance(x, OnGPU)]
        moved = func in MOVES and not ours and kwargs.get("device") == HERE
        by_host = func in INDEXED and ours and any(is_new(x) for x in tree_leaves(args[1]))
        if self.inside and (moved or by_host):
            self.found.append(str(func))
        return func(*args, **kwargs)


@pytest.mark.parametrize("runner", [fakes.FakeV1, fakes.FakeV2])
def test_no_step_waits_for_a_copy_to_the_device(monkeypatch, tmp_path, runner):
    """Whole numbers go there by ``indices``, which does not wait."""
    requests = prompts(3)
    refused = fakes.request("no", [3, 5], 20, extra_args={"draftscope": 0})
    whole = fakes.request("parts", list(range(3, 20)), 20)
    moves, own = Moves(), listening.indices

    def pinned(some, values):
        before, moves.inside = moves.inside, False
        try:
            return own(some, values)
        finally:
            moves.inside = before

    def heard(own):
        def hook(self, *args):
            moves.inside = True
            try:
                return own(self, *args)
            finally:
                moves.inside = False

        return hook

    kind = vllm.V1 if runner is fakes.FakeV1 else vllm.V2
    for name in ("before", "after"):
        monkeypatch.setattr(kind, name, heard(getattr(kind, name)))
    for module in (listening, vllm):
        monkeypatch.setattr(module, "indices", pinned)
    monkeypatch.setattr(listening, "_leaving", lambda x: x.cpu())
    fake = runner()
    with gpu(monkeypatch), moves:
        fake.target, fake.q, fake.device = fake.target.to(HERE), fake.q.to(HERE), HERE
        if runner is fakes.FakeV1:
            fake.drafter.model.table = fake.q
        else:
            fake.speculator.draft_logits = fake.speculator.draft_logits.to(HERE)
        traces, _ = record(monkeypatch, tmp_path, fake, [*requests, refused, whole], part=5)
    assert moves.found == []
    assert len(traces) == 4 and any(r.probe for r in traces["r0"].rounds)


def test_200_requests_at_once(monkeypatch, tmp_path):
    """Every round of each is there, by the engine's own counts."""
    fake = fakes.FakeV1()
    requests = [fakes.request(f"r{n}", [3 + n % 30, 5], 9) for n in range(200)]
    traces, totals = record(monkeypatch, tmp_path, fake, requests, at_once=200)
    assert {k: totals[k] for k in fake.counts} == fake.counts
    texts = [r.text[: r.most] for r in requests]
    assert [new_tokens(traces[r.name].rounds) for r in requests] == texts


KILLED = """
import os, signal, sys, time
import numpy as np
from draftscope_recorder import channel
about = {"engine": "vLLM", "model": {}}
header = {"folder": sys.argv[1], "name": "0", "max_mb": 1, "header": about}
sent = channel.Channel(header, 99, lambda x: x)
about = {"prompt": [1, 2], "sampling": {}, "most": 99, "stops": []}
for n in range(9):
    tokens = [0] if not n else [5, 6]
    arrays = {
        "tokens": np.array(tokens, np.int32),
        "parents": np.arange(-1, len(tokens) - 1, dtype=np.int32),
        "out": np.array([[5] if not n else [6, 5]], np.int32),
    }
    sent.send({"rows": [["a", len(tokens)]], "new": {} if n else {"a": about}}, arrays)
while not sent._queue.empty():
    time.sleep(0.01)
time.sleep(0.5)
print(sent._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def counted(folder: Path) -> list[dict]:
    """The counts of each recording in the folder, of those that have begun to write."""
    texts = [file.read_text() for file in folder.glob("*.json")]
    return [json.loads(text) for text in texts if text]


def test_rounds_of_a_server_that_was_killed_are_kept_and_another_goes_on_beside_them(tmp_path):
    """The writer outlives it, closes its files and ends: the trace opens, without a footer. A
    server that is started again writes into the same folder and touches nothing of it; so do two
    that start at once, with the same process id in their containers."""
    kept = dict[Path, bytes]()
    for times in (1, 2, 4):
        servers = [
            subprocess.Popen(
                [sys.executable, "-c", KILLED, str(tmp_path)],
                env={**os.environ, "PYTHONPATH": str(ROOT / "recorders")},
                stderr=subprocess.PIPE,
            )
            for _ in range(times - len(counted(tmp_path)))
        ]  # fmt: skip
        for server in servers:
            said = server.communicate()[1]
            assert server.returncode == -9, said
        until = time.monotonic() + 60
        while [each["broken_requests"] for each in counted(tmp_path)] != [1] * times:
            assert time.monotonic() < until, counted(tmp_path)
            time.sleep(0.05)
        assert all(file.read_bytes() == was for file, was in kept.items())
        kept = {file: file.read_bytes() for file in tmp_path.iterdir()}
    files = [file for file in kept if file.suffix == ".gz"]
    assert len(files) == 4 and len(kept) == 8
    for file in files:
        trace = read_trace(file)
        assert len(trace.rounds) == 8 and not trace.complete


def test_two_recordings_of_one_second_have_names_of_their_own(tmp_path):
    """Also where neither knows of the other, and a folder that cannot be written stops neither."""
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: writing._claimed(tmp_path / "new", "vllm-0"), range(24)))
    assert sorted(names) == sorted(["vllm-0", *(f"vllm-0-{n}" for n in range(2, 25))])
    (tmp_path / "file").touch()
    assert writing._claimed(tmp_path / "file", "vllm-0") == "vllm-0"


def test_the_writers_process(tmp_path):
    """It writes while the server lives, drops what the queue cannot hold, never waits, and closes
    its files when the server is gone."""
    header = {
        "folder": str(tmp_path),
        "name": "0",
        "max_mb": 1,
        "header": {"engine": "vLLM", "model": {}},
    }
    slow = channel.Channel(header, 2, lambda x: time.sleep(0.05) or x)
    for _ in range(50):
        slow.send({"rows": []}, {"out": np.zeros((1, 1), np.int32)})
    assert slow.lost > 40
    slow.close()
    assert slow._process.returncode == 0
    [totals] = tmp_path.glob("vllm-*.json")
    assert json.loads(totals.read_text())["lost_steps"] > 40


@pytest.mark.parametrize(
    ("value", "said"),
    [("x,y=1", "there is no option 'y'"), ("x,p=many", "p is not a number"), (",p=1", "no folder"),
     ("x,sample=2", "out of range")],
)  # fmt: skip
def test_a_wrong_variable_is_one_sentence(value, said):
    with pytest.raises(ValueError, match=said):
        options.parse(value)


def test_the_trace_format_is_packed_and_not_copied(tmp_path):
    """The wheel holds beside the recorder the project's own writer, file by file, and it runs
    with numpy alone where no ``core`` or ``app`` is."""
    build = tomllib.loads((ROOT / "recorders/pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = build["targets"]["wheel"]["force-include"]
    import shutil

    shutil.copytree(ROOT / "recorders/draftscope_recorder", tmp_path / "draftscope_recorder")
    for source, target in packed.items():
        source, target = ROOT / "recorders" / source, tmp_path / target
        copy = shutil.copytree if source.is_dir() else shutil.copy
        target.parent.mkdir(exist_ok=True)
        copy(source, target)
    code = (
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in {'core', 'app', 'analysis', 'torch', 'safetensors'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from draftscope_recorder.core.traces.record import Recorder\n"
        "import draftscope_recorder.writing, draftscope_recorder.vllm, draftscope_recorder.sglang\n"
        "with Recorder('a.jsonl', 'mine', [1, 2]) as record:\n"
        "    record.round([9, 4], [-1, 0], [0, 1], 8, [0.0, -0.5])\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert read_trace(tmp_path / "a.jsonl").rounds[0].committed == (4, 8)


def test_its_benches_say_in_one_sentence_that_vllm_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(recorder, "PYTHON", "missing/python")
    monkeypatch.setattr(sys, "argv", ["bench"])
    for main in (recorder.main, advised.main):
        with pytest.raises(SystemExit, match="2"):
            main()
        assert capsys.readouterr().err.count("\n") == 1


def test_the_roots_of_all_requests_of_a_step_hang_from_nothing():
    rows = listening.Rows(["a", "b", "c", "d"], [2, 1, 0, 1], [0, 2, 3])
    assert rows.chains == [-1, 0, 1, -1, -1, 4] and rows.index == [0, 1, 2, 5, 6, 7]


def test_a_wanted_token_that_q_lacks_is_not_known_and_one_that_it_excludes_has_no_rank():
    logits = torch.tensor([[3.0, 2.0, 1.0, -torch.inf]]).repeat(3, 1)
    wanted = torch.tensor([1, 3, 5])  # the second, one that q excludes, one beyond its vocabulary
    found = measuring.drafter(logits, None, torch.zeros(3, dtype=torch.int), wanted, 2)
    assert found["rank_q"].tolist() == [2, 0, -1]
    assert found["q_top"].tolist() == [[0, 1]] * 3
