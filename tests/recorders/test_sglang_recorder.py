"""The recorder for SGLang on a stand-in with its names and signatures: no build of SGLang runs on a
plain CPU, so all tensors are made by hand. Chains, queues and disks: ``test_recorder.py``."""

from __future__ import annotations

import functools
import json
import logging
import pkgutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from draftscope_recorder import listening, measuring, sglang

from app import cli
from core.rounds.causes import Cause
from core.rounds.draft import NOT_ASKED
from core.rounds.round import new_tokens
from core.traces.reader import read_trace
from tests.helpers import recorder_fakes, sglang_fakes
from tests.helpers.sglang_fakes import ANY_K, FakeSGLang, request


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Install a server and the recorder; gives the traces by request and the totals."""

    def made(fake, requests, chosen="", without=None, between=lambda listener: None):
        monkeypatch.setattr(listening, "Channel", recorder_fakes.Here)
        monkeypatch.setattr(recorder_fakes.Here, "made", None)
        monkeypatch.setenv("DRAFTSCOPE_RECORD", f"{tmp_path}{chosen}")
        closing = []
        monkeypatch.setattr(sglang.atexit, "register", closing.append)
        fake.install(monkeypatch)
        with pytest.MonkeyPatch.context() as patch:
            if without is not None:
                place, _, name = without.rpartition(".")
                patch.delattr(pkgutil.resolve_name(place), name)
            sglang.install()
        for close in closing:
            between(close.__self__)
        fake.serve(requests)
        for close in closing:
            close()
        traces = {
            t.header.settings["request"]: t for t in map(read_trace, tmp_path.glob("*.jsonl.gz"))
        }
        totals = tmp_path / "run.json"
        return traces, json.loads(totals.read_text()) if totals.exists() else None

    return made


def prompts(count, **more):
    return [request(f"r{n}", [3 + n % 30, 5, 7 + n % 30], 20 + n, **more) for n in range(count)]


def sampled(count):
    return prompts(count, temperature=1.0, top_k=ANY_K)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("asked", [prompts, sampled])
def test_every_tree_is_there_with_p_and_q(server, ahead, asked):
    """Texts are those served; p, q and the lists are those of the tables, at every row."""
    fake, requests = FakeSGLang(ahead=ahead), asked(6)
    traces, totals = server(fake, requests)
    assert set(traces) == {r.rid for r in requests} and totals["broken_requests"] == 0
    p, q = (x.log_softmax(-1) for x in (fake.target, fake.q))
    branched = 0
    for req in requests:
        trace = traces[req.rid]
        assert trace.complete and not trace.faults
        assert list(trace.header.prompt_ids) == req.origin_input_ids
        assert trace.header.settings["sampling"]["temperature"] == 0  # a CPU verifies greedily
        assert new_tokens(trace.rounds) == req.served
        for r in trace.rounds:
            draft, probs = r.draft, r.target_probs
            tokens, above = torch.from_numpy(draft.tokens), torch.from_numpy(draft.parents[1:])
            assert draft.nodes == fake.width - 1 and r.max_depth == fake.steps
            branched += len(set(draft.parents.tolist())) < len(draft)
            np.testing.assert_allclose(probs.top_log_p, p[tokens].topk(10).values, atol=1e-5)
            own = p[tokens[above], tokens[1:]]
            np.testing.assert_allclose(probs.log_p[1:], own, atol=1e-5)
            assert probs.rank.tolist()[1:] == [
                int((p[a] > value).sum()) + 1 for a, value in zip(tokens[above], own, strict=True)
            ]
            np.testing.assert_allclose(draft.log_q[1:], q[tokens[above], tokens[1:]], atol=1e-5)
            for row, token in enumerate(tokens.tolist()):
                if r.proposal.after[row] == NOT_ASKED:
                    continue
                listed, best = r.candidates_after(row), q[token].topk(fake.k)
                assert listed.ids.tolist() == best.indices.tolist()
                np.testing.assert_allclose(listed.log_q, best.values, atol=1e-5)
    assert branched and totals["accepted_tokens"] > 0


def test_why_a_token_was_not_drafted_follows_from_the_candidates(server):
    """The causes, computed anew from the tables; all of them occur."""
    fake, requests = FakeSGLang(width=16), prompts(30)
    traces, _ = server(fake, requests)
    found = set()
    for r in (r for t in traces.values() for r in t.rounds):
        if r.ends_inside or r.committed[-1:] != (r.verdict.bonus,):
            continue
        last = r.verdict.path[-1]
        listed = fake.q[int(r.draft.tokens[last])].topk(fake.k).indices.tolist()
        if r.draft.depths[last] == fake.steps:
            cause = Cause.BEYOND
        elif not _expanded(fake, r, last):
            cause = Cause.STOPPED
        elif r.verdict.bonus in listed:
            cause = Cause.PRUNED
        else:
            cause = Cause.OUTSIDE
        assert r.stop_reason is cause
        found.add(cause)
    assert found == {Cause.BEYOND, Cause.PRUNED, Cause.OUTSIDE, Cause.STOPPED}


def _expanded(fake, record, row):
    """Whether EAGLE-2 asked its drafter after a row: the row is among the k best of its depth."""
    q, beams = fake.q.softmax(-1), [((), int(record.draft.tokens[0]), 1.0)]
    wanted = tuple(int(record.draft.tokens[r]) for r in record.draft.path(row)[1:])
    for _ in wanted:
        grown = [
            ((*path, int(t)), int(t), score * float(q[token, t]))
            for path, token, score in beams
            for t in q[token].topk(fake.k).indices
        ]
        beams = sorted(grown, key=lambda each: -each[2])[: fake.k]
    return wanted in {path for path, _, _ in beams}


@pytest.mark.parametrize(
    ("device", "hip", "rejects", "greedy"),
    [("cpu", None, True, True), ("xpu:0", None, False, True), ("cuda:1", None, False, False),
     ("cuda", "6.4", False, True), ("cuda", "6.4", True, False)],
)  # fmt: skip
def test_where_verification_is_greedy(monkeypatch, device, hip, rejects, greedy):
    """As SGLang's own table: on ROCm it samples only with rejection sampling."""
    monkeypatch.setattr(torch.version, "hip", hip)
    server = SimpleNamespace(speculative_use_rejection_sampling=rejects)
    assert sglang._greedy(device, server) == greedy


def test_sampling_where_the_device_samples(server, monkeypatch):
    """On a GPU the request's temperature is the verification's; a refused sibling is said so."""
    fake, requests = FakeSGLang(), [*sampled(8), request("best", [3, 5, 7])]
    monkeypatch.setattr(sglang, "_greedy", lambda device, server: False)
    traces, _ = server(fake, requests)
    told = {name: t.header.settings["sampling"]["temperature"] for name, t in traces.items()}
    assert told == {r.rid: float(r.rid != "best") for r in requests}
    assert [new_tokens(traces[r.rid].rounds) for r in requests] == [r.served for r in requests]
    reasons = {r.stop_reason for t in traces.values() for r in t.rounds}
    assert Cause.REFUSED in reasons and not any(t.faults for t in traces.values())


def test_recording_changes_no_token(server, monkeypatch):
    plain, heard = FakeSGLang(), FakeSGLang()
    requests = sampled(4), sampled(4)
    plain.install(monkeypatch)
    plain.serve(requests[0])
    server(heard, requests[1])
    assert [r.served for r in requests[0]] == [r.served for r in requests[1]]


def test_a_text_ends_where_it_was_served_to(server):
    """A server that schedules ahead verifies once more after a text's end: that is left out."""
    whole = request("a", [3, 4, 5], 20)
    first = FakeSGLang()
    with pytest.MonkeyPatch.context() as patch:
        first.install(patch)
        first.serve([whole])
    stop = whole.served[9]
    requests = [request("a", [3, 4, 5], 20), request("b", [4, 5, 6], 7)]
    requests[0].eos_token_ids = {stop}
    traces, totals = server(FakeSGLang(ahead=True), requests)
    assert new_tokens(traces["a"].rounds) == whole.served[: whole.served.index(stop) + 1]
    assert len(new_tokens(traces["b"].rounds)) == 7 and totals["broken_requests"] == 0
    assert all(r.committed for t in traces.values() for r in t.rounds)


def test_who_is_recorded(server):
    asks = request("a", [3, 4, 5], custom_params={"draftscope": "nightly"}, presence_penalty=0.5)
    refuses = request("b", [4, 5, 6], custom_params={"draftscope": 0})
    picture = request("c", [5, 6, 7], custom_params={"draftscope": 1})
    picture.multimodal_inputs = object()
    traces, _ = server(FakeSGLang(), [asks, refuses, picture], ",sample=0")
    assert set(traces) == {"a"} and traces["a"].header.settings["tag"] == "nightly"
    assert traces["a"].header.settings["processors"] == "presence_penalty 0.5"


@pytest.mark.parametrize("left_out", ["p=0", "q=0", "p=0,q=0"])
def test_what_is_left_out_is_unknown(server, left_out):
    traces, _ = server(FakeSGLang(), prompts(2), f",{left_out}")
    for r in traces["r0"].rounds:
        assert (r.target_probs is None) == ("p=0" in left_out)
        assert (r.proposal is None) == ("q=0" in left_out)
        assert np.isnan(r.draft.log_q[1:]).all() == ("q=0" in left_out)


def test_a_text_computed_in_part_elsewhere_ends_its_trace(server, capsys):
    """A request that is retracted is computed again by prefill, which is not heard."""
    fake, requests = FakeSGLang(), prompts(3)
    fake.retract_at = 4
    traces, totals = server(fake, requests)
    cut = [t for t in traces.values() if not t.complete]
    assert len(cut) == 1 and len(cut[0].rounds) == 3 and totals["broken_requests"] == 1
    assert "computed some of the text where the recorder does not listen" in capsys.readouterr().err


@pytest.mark.parametrize("hook", sglang.HOOKS, ids=lambda hook: hook.name.rpartition(".")[2])
def test_a_missing_name_is_one_sentence(server, caplog, hook):
    """For every hook of the table: the server serves, and no number is wrong."""
    requests = prompts(2)
    with caplog.at_level(logging.WARNING):
        traces, _ = server(FakeSGLang(), requests, without=hook.name)
    what = "nothing is recorded" if hook.vital else f"{hook.need} is not recorded"
    said = [line for line in caplog.messages if "this SGLang" in line]
    assert said == [f"draftscope: this SGLang has no {hook.name}: {what}"]
    assert all(r.finished() for r in requests) and bool(traces) == (not hook.vital)
    for req in requests if traces else ():
        assert new_tokens(traces[req.rid].rounds) == req.served
        known = hook is sglang.SERVER
        assert all((r.proposal is not None) == known for r in traces[req.rid].rounds)


@pytest.mark.parametrize("hook", sglang.HOOKS[:4], ids=lambda hook: hook.name.rpartition(".")[2])
def test_a_missing_argument_is_one_sentence(server, caplog, monkeypatch, hook):
    """An argument that a version calls otherwise, in every call that is listened to."""
    requests = prompts(1)
    real = sglang.inspect.signature

    def signature(called):
        made = real(called)
        if called.__name__ != hook.name.rpartition(".")[2]:
            return made
        return made.replace(parameters=[
            p.replace(name="other") if p.name == hook.arguments[-1] else p
            for p in made.parameters.values()
        ])  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(sglang.inspect, "signature", signature)
        traces, _ = server(FakeSGLang(), requests)
    assert f"this SGLang has no {hook.arguments[-1]} in {hook.name}: " in caplog.text
    assert requests[0].finished() and bool(traces) == (not hook.vital)


def test_without_a_registry_nothing_is_recorded(server, caplog):
    requests = prompts(1)
    name = "sglang.srt.plugins.hook_registry.HookRegistry"
    assert server(FakeSGLang(), requests, without=name) == ({}, None)
    assert "this SGLang has no HookRegistry: nothing is recorded" in caplog.text
    assert requests[0].finished()


def test_an_error_ends_the_recording_and_no_step(server, caplog, monkeypatch):
    monkeypatch.setattr(sglang.Verification, "meet", lambda *args: 1 / 0)
    requests = prompts(2)
    server(FakeSGLang(), requests)
    assert all(r.finished() for r in requests)
    assert caplog.messages.count("draftscope: recording ended: division by zero in before") == 1


def test_a_server_that_verifies_elsewhere_is_told(server, caplog, monkeypatch):
    """Without speculative decoding, or with a drafter that has its own verification."""
    fake, requests = FakeSGLang(), prompts(2)
    own = sglang_fakes.eagle_sample
    traces, _ = server(fake, requests, between=lambda _: setattr(fake.utils, "eagle_sample", own))
    assert not traces and all(r.finished() for r in requests)
    assert [x for x in caplog.messages if "eagle_sample was not called" in x] == [
        "draftscope: text was written and eagle_sample was not called, so nothing is recorded: "
        "speculative decoding is off, or drafts are verified elsewhere"
    ]


def test_other_ranks_do_not_write(server, monkeypatch):
    monkeypatch.setattr(sglang, "_writes", lambda: False)
    assert server(FakeSGLang(), prompts(1)) == ({}, None)


@pytest.mark.parametrize(("k", "steps"), [(1, 3), (4, 1)])
def test_chains_have_no_q_and_one_depth_has(server, k, steps):
    """A chain's scores are not q (SGLang does not compute them); one depth is one list."""
    fake, requests = FakeSGLang(k, steps, width=4), prompts(3)
    traces, _ = server(fake, requests)
    rounds = [r for t in traces.values() for r in t.rounds]
    assert [new_tokens(traces[r.rid].rounds) for r in requests] == [r.served for r in requests]
    assert all((r.proposal is None) == (k == 1) for r in rounds)
    assert {r.stop_reason for r in rounds if not r.ends_inside} == (
        {Cause.UNKNOWN, Cause.BEYOND} if k == 1 else {Cause.BEYOND, Cause.OUTSIDE, Cause.PRUNED}
    )


def test_candidates_in_another_form_are_not_read(server, caplog):
    """As those of heads that draft at once: their scores are not products along a path."""
    fake, requests = FakeSGLang(), prompts(2)
    own = fake.candidates

    def flat(roots):
        scores, tokens, parents = own(roots)
        return scores, tokens, [parents[0], *(x[:, :1] for x in parents[1:])]

    fake.draft = lambda roots: (
        fake.utils.organize_draft_results(*flat(roots), fake.width),
        sglang_fakes.organize_draft_results(*own(roots), fake.width),
    )[1]
    traces, _ = server(fake, requests)
    assert all(r.proposal is None for t in traces.values() for r in t.rounds)
    assert caplog.text.count("in a form that is not known: q is not recorded") == 1


def test_q_of_a_captured_graph_is_that_of_its_replay(server, monkeypatch):
    """The functions inside a CUDA graph run once, while it is captured, and for more requests than
    a replay has; their memory is written again by every replay. The stand-in writes it by hand."""
    fake, requests = FakeSGLang(), prompts(5)
    static, listeners = [], []

    def replayed(roots):
        padded = torch.cat([roots, roots.new_zeros(4 - len(roots))])
        new = fake.candidates(padded)
        if not static:
            monkeypatch.setattr(sglang, "_capturing", lambda values: True)
            organize = fake.utils.organize_draft_results
            static.append(organize(*fake.candidates(padded * 0), fake.width))
            monkeypatch.setattr(sglang, "_capturing", lambda values: False)
        made = sglang_fakes.organize_draft_results(*new, fake.width)
        for held, value in zip(static[0], made, strict=True):
            held.copy_(value)
        [kept] = listeners[0].captured.values()
        kept.scores.copy_(torch.cat(new[0], 1))
        kept.tokens.copy_(torch.cat(new[1], 1).view_as(kept.tokens))
        kept.beams.copy_(made[0])
        return tuple(x[: len(roots)] for x in static[0])

    fake.draft = replayed
    traces, _ = server(fake, requests, between=listeners.append)
    q = fake.q.log_softmax(-1)
    for r in (r for t in traces.values() for r in t.rounds):
        tokens = torch.from_numpy(r.draft.tokens)
        own = q[tokens[torch.from_numpy(r.draft.parents[1:])], tokens[1:]]
        np.testing.assert_allclose(r.draft.log_q[1:], own, atol=1e-5)
    assert sum(len(t.rounds) for t in traces.values()) > 20


def test_parents_follow_from_links():
    """Against a walk of the links, on random trees with rows that nothing links to."""
    random = np.random.default_rng(0)
    for count in (1, 2, 7, 33):
        above = np.full((4, count), -1)
        for b in range(4):
            for row in range(1, count):
                above[b, row] = random.integers(-1 if row > 1 else 0, row)
        child, sibling = np.full((4, count), -1), np.full((4, count), -1)
        for b in range(4):
            for row in reversed(range(1, count)):
                if (parent := above[b, row]) >= 0:
                    sibling[b, row], child[b, parent] = child[b, parent], row
        found = measuring.parents(torch.tensor(child), torch.tensor(sibling))
        assert found.tolist() == above.tolist()


def test_a_row_that_nothing_links_to_is_left_out(server, monkeypatch):
    """SGLang leaves out a candidate whose parent was not chosen, as equal scores may do."""
    fake, requests = FakeSGLang(), prompts(3)
    own, leaf = sglang_fakes.build_tree_kernel_efficient, fake.width - 1

    @functools.wraps(own)
    def build(*args):
        made = own(*args)
        for child, sibling in zip(made[3], made[4], strict=True):
            child[child == leaf] = sibling[leaf].item()
            sibling[sibling == leaf] = sibling[leaf].item()
            sibling[leaf] = -1
        return made

    monkeypatch.setattr(sglang_fakes, own.__name__, build)
    traces, totals = server(fake, requests)
    rounds = [r for t in traces.values() for r in t.rounds]
    assert totals["broken_requests"] == 0
    assert {r.draft.nodes for r in rounds} == {fake.width - 2}
    assert [new_tokens(traces[r.rid].rounds) for r in requests] == [r.served for r in requests]


def test_the_report_shows_what_was_recorded(server, tmp_path, capsys):
    _, totals = server(FakeSGLang(), prompts(12))
    assert cli.main(["report", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    tau = 1 + totals["accepted_tokens"] / totals["rounds"]
    assert f"{tau:.2f}" in said and "sglang" in said.lower()
    for cause in (Cause.OUTSIDE, Cause.PRUNED, Cause.BEYOND):
        assert cause.short in said or cause.words in said
