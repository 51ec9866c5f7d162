"""Counts of other engines, and DDTree's trees: numbers once more by hand, hostile files refused."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.engines.served import read_served
from analysis.engines.trees import write_trees
from analysis.kinds import COUNTS, kind_of
from analysis.measures.counts import by_place, strip
from analysis.measures.counts_in_words import sentences
from app.cli import main
from app.report.counted import sheets, strips
from core.errors import UserError
from core.traces.reader import read_trace
from tests.helpers.engine_answers import (
    BENCH,
    DUMP,
    FRAGMENTS,
    LLAMA,
    PROFILE,
    SGLANG,
    STUDIO,
    VLLM,
    trees,
)
from tests.helpers.engine_logs import LOGS, tensorrt


def written(folder, value, name="r.json"):
    path = folder / name
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("value", "engine", "places"),
    [
        (VLLM, "vLLM", True), (SGLANG, "SGLang", True), (LLAMA, "llama.cpp", False),
        (BENCH, "vLLM", True), (STUDIO, "LM Studio", False),
    ],
)  # fmt: skip
def test_each_engines_counts(tmp_path, value, engine, places):
    found = read_served(written(tmp_path, value))
    assert (found.engine, found.kind, found.drafted, found.accepted) == (engine, "response", 12, 5)
    assert found.accepted_of_drafted == pytest.approx(5 / 12)
    batch = {"id": "b", "custom_id": "1", "response": {"status_code": 200, "body": value}}
    again = written(tmp_path, batch, "batch.jsonl")
    assert read_served(again).to_json() == found.to_json() and kind_of(again) is COUNTS
    if engine == "LM Studio":
        assert found.rounds is None and found.tau is None
        return
    assert found.rounds == 4 and found.tau == pytest.approx(1 + 5 / 4)
    if not places:
        assert found.histogram is None and found.by_depth == ()
        return
    assert value is BENCH or found.histogram == (1, 2, 0, 1)
    # of 4 rounds 3 accepted depth 1, of these 1 depth 2, and that one depth 3
    assert [d.conditional for d in found.by_depth] == pytest.approx([3 / 4, 1 / 3, 1])
    assert [d.marginal for d in found.by_depth] == pytest.approx([3 / 4, 1 / 4, 1 / 4])
    assert found.by_depth[-1].tau == found.tau


ITERATIONS = [
    {"iter": 1, "iterLatencyMS": 80.0, "numActiveRequests": 2},
    {"iter": 2, "iterLatencyMS": 9.0, "specDecodingStats": tensorrt(6, 4, 2)},
    {"iter": 2, "iterLatencyMS": 9.0, "specDecodingStats": tensorrt(6, 4, 2), "attentionDpRank": 1},
    {"iter": 3, "iterLatencyMS": 9.0, "specDecodingStats": tensorrt(6, 1, 2), "rank": 0},
    {"iter": 4, "iterLatencyMS": 9.0, "specDecodingStats": tensorrt(0, 0, 0)},
]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.log", "printed.jsonl", "printed.log"])
def test_iterations_are_summed_and_other_ranks_left_out(name, tmp_path):
    path = tmp_path / name
    form = str if name.startswith("printed") else json.dumps
    whole = json.dumps(ITERATIONS) if name == "a.json" else "\n".join(map(form, ITERATIONS)) + "\n"
    path.write_text(whole)
    found = read_served(path)
    assert (found.engine, found.kind, found.records) == ("TensorRT-LLM", "iteration", 2)
    assert (found.rounds, found.drafted, found.accepted, found.tau) == (4, 12, 5, 2.25)
    assert kind_of(path) is COUNTS
    notes = " ".join(sentences(found))
    if form is json.dumps:
        assert "1 iteration of other ranks left out: they repeat rank 0." in notes
        assert "2 of 4 iterations drafted nothing." in notes


def test_requests_of_tensorrt_have_totals(tmp_path):
    stats = {"acceptance_rate": 5 / 12, "total_accepted_draft_tokens": 5, "total_draft_tokens": 12}
    one = {"request_id": 1, "perf_metrics": {"first_iter": 3, "speculative_decoding": stats}}
    split = {"ctx_perf_metrics": {"perf_metrics": {}}, "gen_perf_metrics": one}
    for value in (one, [one], [split]):
        found = read_served(written(tmp_path, value))
        assert (found.engine, found.drafted, found.accepted) == ("TensorRT-LLM", 12, 5)
        assert found.rounds is None and found.tau is None


@pytest.mark.parametrize(
    ("stats", "why"),
    [
        (tensorrt(0, 0, 0), "holds no iteration: 1 of 1 iteration drafted nothing"),
        (tensorrt(6, 7, 2), "more tokens are accepted than drafted"),
        (tensorrt(6, 4, 7), "more requests have a draft than there are drafted tokens"),
        ({"numDraftTokens": 6}, "num_?[aA]ccepted"),
    ],
)
def test_an_iteration_that_cannot_be_is_one_sentence(stats, why, tmp_path):
    with pytest.raises(UserError, match=why):
        read_served(written(tmp_path, [{"iter": 1, "specDecodingStats": stats}]))


def test_a_share_of_a_bench_is_a_whole_count(tmp_path):
    names = ("num_drafts", "draft_tokens", "accepted_tokens", "per_position_acceptance_rates")
    told = zip((f"spec_decode_{name}" for name in names), (100, 100, 29, [0.29]), strict=True)
    assert read_served(written(tmp_path, dict(told))).by_depth[0].accepted == 29


def kept(lengths):
    """Rounds that accepted place 1, 2, …"""
    return [sum(length >= n for length in lengths) for n in range(1, max(lengths) + 1)]


DRAFTS = st.integers(0, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_a_profile_is_read_by_place(tmp_path):
    """With its histogram as counts, without one as shares that have no interval."""
    found = read_served(written(tmp_path, PROFILE))
    assert (found.kind, found.rounds, found.accepted, found.tau) == ("profile", 4, 5, 2.25)
    assert [d.conditional for d in found.by_depth] == pytest.approx([3 / 4, 1 / 3, 1])
    assert found.histogram == (1, 2, 0, 1) and found.drafted is None
    bare = read_served(written(tmp_path, PROFILE | {"acceptance_length_histogram": None}))
    assert bare.rounds is None and bare.tau == 2.25 and bare.by_depth[0].low is None
    assert [d.marginal for d in bare.by_depth] == pytest.approx([3 / 4, 1 / 4, 1 / 4])
    assert read_served(lines(tmp_path, [PROFILE, VLLM])).kind == "response"
    none = {"acceptance_length_histogram": {"1": 0}}
    assert read_served(written(tmp_path, PROFILE | none)) == bare
    deeper = PROFILE | none | {"mean_accept_length": 2.5}  # of more places than are told
    assert read_served(written(tmp_path, deeper)).tau == 2.5


def lines(folder, values):
    path = folder / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, values)))
    return path


def test_a_dump_of_verifications_is_read_in_order(tmp_path):
    again = {**DUMP[0], "replay": 1}
    without = {**DUMP[0], "n_draft": 0, "n_accept": 0}
    found = read_served(lines(tmp_path, [*DUMP, again, without]))
    assert (found.engine, found.kind, found.rounds) == ("llama.cpp", "dump", 4)
    assert (found.drafted, found.accepted, found.tau) == (12, 5, 2.25)
    assert found.order == (((1, 3), (0, 3), (3, 3), (1, 3)),) and found.exact
    assert found.notes == ("2 of 6 steps are replays or drafted nothing: τ is of the others.",)


def test_of_a_dump_that_was_cut_off_all_whole_lines_are_read(tmp_path):
    whole, half = "\n".join(map(json.dumps, DUMP)), '{"n_draft": 3, "n_acc'
    for name in ("dump.jsonl", "dump.log"):
        path = tmp_path / name
        path.write_text(whole)
        expected = read_served(path)
        path.write_text(f"{whole}\n{half}")
        found = read_served(path)
        assert found.notes == ("Line 5, the last, is cut off: it is left out.",)
        assert replace(found, notes=()) == expected and expected.rounds == 4
        for wrong in (f"{half}\n{whole}", f"{whole}\n{half}\n", half):
            path.write_text(wrong)
            with pytest.raises(UserError, match=r"is not JSON|holds no counts"):
                read_served(path)


def test_json_by_any_name_is_read_where_some_value_has_counts(tmp_path):
    path = tmp_path / "said.txt"
    path.write_text(json.dumps([{"choices": []}, VLLM]))
    assert "1 response left out" in read_served(path).notes[0]
    path.write_text("\ufeff" + json.dumps(VLLM))
    assert read_served(path).kind == "response"
    path.write_text('{"choices": []}\n' + LOGS["vLLM, 2026"])
    assert read_served(path).kind == "log line"


def test_more_accepted_tokens_than_the_text_has_are_told(tmp_path):
    short = VLLM | {"usage": {"completion_tokens": 4}}
    (said,) = read_served(lines(tmp_path, [VLLM, short])).notes
    assert said.startswith("1 response accepted more tokens than the text has")
    equal = VLLM | {"usage": {"completion_tokens": 5}}
    assert not read_served(lines(tmp_path, [VLLM, equal])).notes


def test_fragments_tell_who_wrote_each_token(tmp_path):
    """Rounds end with the target's own token; the first token is of the prompt's pass."""
    found = read_served(lines(tmp_path, FRAGMENTS))
    assert (found.engine, found.rounds, found.accepted, found.tokens) == ("LM Studio", 4, 5, 10)
    assert found.histogram == (1, 2, 0, 1) and found.drafted is None
    assert [row[2] for row in list(sheets(found))[1].rows] == ["25.0%", "50.0%", "0.0%", "25.0%"]
    assert read_served(written(tmp_path, FRAGMENTS)) == found
    cut = read_served(lines(tmp_path, FRAGMENTS[:-1]))
    assert (cut.rounds, cut.accepted) == (4, 5)
    said = " ".join(sentences(read_served(lines(tmp_path, FRAGMENTS * 5))))
    assert "looks like a draft" in said and "from place 1 on" in said and "drafts end" not in said
    update = [{"type": "contentBlock.appendText", "id": "x", "text": "a", "tokensCount": 1,
               "fromDraftModel": each["containsDrafted"]} for each in FRAGMENTS]  # fmt: skip
    assert read_served(lines(tmp_path, update)) == found
    empty = {"tokensCount": 0, "containsDrafted": False}
    assert read_served(lines(tmp_path, [*FRAGMENTS[:2], empty, *FRAGMENTS[2:]])) == found
    template = {"tokensCount": 1, "containsDrafted": False, "isStructural": True}
    assert read_served(lines(tmp_path, [*FRAGMENTS[:2], template, *FRAGMENTS[2:]])) == found


def test_lm_studio_writes_names_in_two_ways(tmp_path):
    told = {"total_draft_tokens_count": 12, "accepted_draft_tokens_count": 5,
            "rejected_draft_tokens_count": 4, "ignored_draft_tokens_count": 3}  # fmt: skip
    found = read_served(written(tmp_path, {"stats": told}))
    assert (found.engine, found.drafted, found.accepted) == ("LM Studio", 12, 5)


def test_sglang_tells_where_it_cut_drafts(tmp_path):
    """A length counts the root: two whole drafts of three, one of two, one of none."""
    meta = SGLANG["meta_info"] | {"spec_cap_lens_histogram": [0, 1, 0, 1, 2],
                                  "spec_num_proposed_drafts": 12}  # fmt: skip
    assert read_served(written(tmp_path, {"meta_info": meta})).drafted == 8
    deeper = SGLANG["meta_info"] | {"spec_num_correct_drafts": 6}  # a histogram may end early
    found = read_served(written(tmp_path, {"meta_info": deeper}))
    assert found.accepted == 6 and "hold 5 of 6 accepted tokens" in " ".join(sentences(found))


def test_drafts_that_are_known_to_be_whole_are_not_called_shorter(tmp_path):
    """Of SGLang, where it counts the lengths that it verified, and all are one; the root counts."""
    meta = SGLANG["meta_info"] | {"spec_verify_ct": 40, "spec_accept_histogram": [10, 20, 10]}
    for lengths, shorter in (([0] * 4 + [40], False), ([0] * 3 + [20, 20], True), (None, True)):
        told = {**meta, "spec_draft_token_num": 120, "spec_cap_lens_histogram": lengths}
        found = read_served(written(tmp_path, {"meta_info": told}))
        said = " ".join(sentences(found))
        assert ("drafts were shorter" in said) == shorter, lengths
        assert (found.full is True) == (not shorter) == ("None is accepted whole" in said)


@given(st.lists(DRAFTS, min_size=1, max_size=30))
def test_a_round_counts_at_the_depths_that_it_drafted(order):
    """Of drafts of different lengths, by walking every round step by step."""
    lengths = [accepted for accepted, _ in order]
    for each in by_place(kept(lengths), len(lengths), order):
        tested = accepted = 0
        for taken, drafted in order:
            for depth in range(1, drafted + 1):
                if depth == each.depth:
                    tested, accepted = tested + 1, accepted + (taken >= depth)
                if taken < depth:
                    break
        assert (each.tested, each.accepted) == (tested, accepted)
        assert each.conditional == accepted / tested


def test_vllm_tells_which_depths_were_drafted(tmp_path):
    inner = VLLM["metrics"]["speculative_decoding"] | {
        "per_step_accepted": [1, 0, 3, 1], "per_step_drafted": [1, 3, 3, 3],
        "num_draft_tokens": 10,
    }  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps({"metrics": {"speculative_decoding": inner}}))
    found = read_served(tmp_path / "r.json").by_depth
    # of the three rounds that accepted depth 1, one had drafted no further
    assert [(d.accepted, d.tested) for d in found] == [(3, 4), (1, 2), (1, 1)]


def test_the_place_where_most_drafts_end_needs_no_more_than_every_drafts_length(tmp_path):
    """Three drafts end at place 2, one at place 1; two were too short to be refused."""
    for drafted, refused in (([3] * 6, 2), ([3, 3, 3, 3, 1, 1], 2)):
        told = {"per_step_accepted": [1, 1, 1, 0, 1, 1], "per_step_drafted": drafted}
        told |= {"num_spec_steps": 6, "num_draft_tokens": sum(drafted)}
        value = {"metrics": {"speculative_decoding": told}}
        counts = read_served(written(tmp_path, value))
        assert counts.exact and counts.full == (len(set(drafted)) == 1)
        share = "83.3%" if counts.full else "50.0%"
        assert any(f"{share} of 6 drafts end at place {refused}" in s for s in sentences(counts))


def test_a_response_that_contradicts_itself_is_left_out_and_named(tmp_path, capsys):
    bad = {"meta_info": SGLANG["meta_info"] | {"spec_verify_ct": 99}}
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (SGLANG, bad, SGLANG)))
    found = read_served(path)
    assert found.records == 2
    assert "1 response left out" in found.notes[0] and "line 2: the histogram" in found.notes[0]
    assert main(["trace", "import", str(path)]) == 0
    assert "line 2: the histogram" in " ".join(capsys.readouterr().out.split())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_the_curve_is_that_of_counting_rounds(lengths):
    for each in by_place(kept(lengths), len(lengths)):
        came = sum(n >= each.depth - 1 for n in lengths)
        assert each.accepted == sum(n >= each.depth for n in lengths)
        assert each.marginal == each.accepted / len(lengths)
        assert each.conditional == each.accepted / came


@given(st.lists(DRAFTS, min_size=1, max_size=20), st.data())
def test_rounds_are_the_same_by_whichever_fields_tell_them(tmp_path_factory, order, data):
    """vLLM's and SGLang's responses with any of their fields, and llama.cpp's three numbers."""
    folder, rounds = tmp_path_factory.mktemp("served"), len(order)
    accepted, drafted = (sum(each) for each in zip(*order, strict=True))
    lengths = Counter(taken for taken, _ in order)
    longest, short = max(lengths), data.draw(st.booleans())
    of_all = [lengths[n] for n in range(longest + 1 + data.draw(st.sampled_from((0, 2, 2000))))]
    told = {
        "num_spec_steps": rounds, "num_draft_tokens": drafted, "acceptance_histogram": of_all,
        "num_accepted_draft_tokens": accepted, "num_spec_tokens": max(1, longest - short),
        "per_step_accepted": [taken for taken, _ in order],
    }  # fmt: skip
    told = {name: told[name] for name in data.draw(st.sets(st.sampled_from([*told]), min_size=1))}
    if "per_step_accepted" in told:
        told["per_step_drafted"] = [each for _, each in order]
    by_round = bool({"acceptance_histogram", "per_step_accepted"} & told.keys())
    if by_round or {"num_accepted_draft_tokens", "num_draft_tokens"} <= told.keys():
        found = read_served(written(folder, {"metrics": {"speculative_decoding": told}}))
        assert found.rounds == (rounds if by_round or "num_spec_steps" in told else None)
        assert found.drafted == (drafted if "num_draft_tokens" in told else None)
        assert not by_round or found.accepted == accepted
        assert found.histogram == (tuple(of_all[: longest + 1]) if by_round else None)
        if by_round and found.exact is False:
            assert [d.accepted for d in found.by_depth[:longest]] == kept([*lengths.elements()])
    caps = Counter(each + 1 if each else data.draw(st.integers(0, 1)) for _, each in order)
    meta = {"spec_verify_ct": rounds, "spec_correct_drafts_histogram": dict(enumerate(of_all)),
            "completion_tokens": rounds + accepted, "spec_cap_lens_histogram": caps,
            "spec_num_proposed_drafts": drafted + 1}  # fmt: skip
    value = {"meta_info": meta, "usage": {"completion_tokens": 1}}
    found = read_served(written(folder, value))
    assert (found.rounds, found.accepted, found.drafted) == (rounds, accepted, drafted)
    assert found.tokens == rounds + accepted and not found.notes
    for passes in (rounds, 0, -1):  # beside the prompt's own; below zero: of another text
        timings = {"draft_n": drafted, "draft_n_accepted": accepted,
                   "predicted_n": max(0, accepted + 1 + passes)}  # fmt: skip
        if drafted:
            found = read_served(written(folder, {"timings": timings, "num_spec_steps": None}))
            assert (found.rounds or 0, found.drafted) == (max(0, passes), drafted)


def test_several_responses_and_other_shapes(tmp_path):
    inner = VLLM["metrics"]["speculative_decoding"]
    short = {k: v for k, v in inner.items() if not k.startswith("per_step")}
    short["acceptance_histogram"] = {"0": 1, "3": 1, "1": 2}
    assert read_served(written(tmp_path, short)).full  # all 4 have the 3 places that are told
    lines = "\n".join(map(json.dumps, (VLLM, {"metrics": {"speculative_decoding": short}})))
    (tmp_path / "r.jsonl").write_text(lines)
    found = read_served(tmp_path / "r.jsonl")
    assert found.records == 2 and found.histogram == (2, 4, 0, 2)
    assert found.tokens is None  # one of them does not tell
    assert found.order == (((1, 3), (0, 3), (3, 3), (1, 3)), None)
    ((title, marks),) = strips(found)
    assert title.endswith("in order") and len(marks) == 4
    more = replace(found, order=(*found.order, ((0, 3),)))
    assert list(strips(more)) == [(f"{title}, of the first of 2", marks)]
    choice = {"choices": [{"meta_info": SGLANG["meta_info"]}]}
    both = read_served(written(tmp_path, [choice]))
    assert both.engine == "SGLang" and both.accepted == 5
    details = {"spec_tokens_details": [SGLANG["meta_info"]]}
    openai = {"choices": [{}], "usage": {"completion_tokens": 9}, "sglext": details}
    assert read_served(written(tmp_path, openai)) == both
    del details["spec_tokens_details"][0]["completion_tokens"]  # the usage tells it there
    assert read_served(written(tmp_path, openai)) == both
    assert strip([[0, 3], [3, 3], [0, 0], [1, 2]]) == "▁█▁▅"


WRONG = {
    "no counts of vLLM": {"text": "hi"},
    "holds no counts of vLLM": {"choices": [{"text": "hi"}]},
    "is not an object": [7],
    "not all counts are there": {"metrics": {"speculative_decoding": {"other": 1}}},
    "no draft was verified": {"meta_info": {"spec_verify_ct": 0}},
    "no draft was verified$": [DUMP[0] | {"replay": 1}],
    "add up to the accepted": {"num_spec_steps": 2, "acceptance_histogram": [0, 2],
                               "num_accepted_draft_tokens": 1},
    "shares by place rise": BENCH | {"spec_decode_per_position_acceptance_rates": [0.1, 0.2]},
    "more tokens are accepted than drafted": {"timings": {"draft_n": 1, "draft_n_accepted": 2}},
    "draft_n_accepted is missing": {"timings": {"draft_n": 1}},
    "does not add up": {"meta_info": {"spec_verify_ct": 3, "spec_accept_histogram": [1]}},
    "do not fit each other": {
        "num_spec_steps": 1, "per_step_accepted": [3], "per_step_drafted": [1]
    },
    "a histogram of 2000 depths": {
        "meta_info": {"spec_verify_ct": 3, "spec_accept_histogram": [0] * 1999 + [1]}
    },
    "fit each other": {"num_spec_steps": 2, "per_step_accepted": [3, 1], "per_step_drafted": [3]},
    "do not fit": {"num_spec_steps": 1, "per_step_accepted": [0], "per_step_drafted": [2000]},
    "an object, not a list": {"metrics": [1]},
    "counts several choices": {"sglext": {"spec_tokens_details": [{}, {}]}},
    "holds no response": [],
    "nothing was measured": PROFILE | {"measured": False},
    "schema_version is not 1": PROFILE | {"schema_version": "2.0"},
    "by place rise": PROFILE | {"marginal_accept_rates": [0.25, 0.75, 0.1]},
    "are not those of its histogram": PROFILE | {"acceptance_length_histogram": {"1": 4}},
    "is below what its shares": PROFILE | {"mean_accept_length": 1.5},
    "neither shares by place nor lengths": PROFILE | {
        "marginal_accept_rates": [], "mean_accept_length": None, "acceptance_length_histogram": None
    },
    "lengths above num_speculative_tokens": PROFILE | {"num_speculative_tokens": 2},
    "is not that of its histogram": PROFILE | {"mean_accept_length": 3.0},
    "num_speculative_tokens must": PROFILE | {"num_speculative_tokens": 1 << 40},
    "more than were drafted": {"stats": {
        "totalDraftTokensCount": 3, "acceptedDraftTokensCount": 1, "rejectedDraftTokensCount": 1,
        "ignoredDraftTokensCount": 2}},
    "response 2: more tokens are accepted than drafted": [DUMP[0], DUMP[1] | {"n_accept": 4}],
    "response 1: n_draft must be": [DUMP[0] | {"n_draft": -1}],
    "a draft of 2000 tokens": [DUMP[0] | {"n_draft": 2000}],
    "more than 1024 drafted tokens in a row": [FRAGMENTS[1]] * 1025,
    "does not tell which of them": [FRAGMENTS[0], FRAGMENTS[1] | {"tokensCount": 2}],
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_what_holds_no_counts_is_one_sentence(tmp_path, said):
    with pytest.raises(UserError, match=said):
        read_served(written(tmp_path, WRONG[said]))


def test_hostile_counts_are_one_sentence(tmp_path):
    """Random damage to one value of each newer form."""
    rng = random.Random(0)
    nasty = [None, -1, 1 << 40, "\x1b[31m", [], {}, [[]], 0.5, True, {"1": -1}, {"0": 1}, {"x": 1}]
    told = 0
    for _ in range(300):
        made = json.loads(json.dumps(rng.choice([PROFILE, DUMP, FRAGMENTS, STUDIO])))
        part = made.get("stats", made) if isinstance(made, dict) else rng.choice(made)
        part[rng.choice(list(part))] = rng.choice(nasty)
        try:
            read_served(written(tmp_path, made)).to_json()
        except UserError as error:
            told += 1
            assert not {"\n", "\x1b"} & set(str(error))
    assert told > 100


# ── DDTree ───────────────────────────────────────────────────────────────────────────────────────


def test_saved_trees_become_the_same_rounds(tmp_path):
    value, run = trees()
    out = tmp_path / "t.jsonl.gz"
    assert write_trees(written(tmp_path, value), out) == len(run.rounds)
    trace = read_trace(out)
    for ours, theirs in zip(trace.rounds, run.rounds, strict=True):
        assert ours.committed == theirs.committed and ours.position == theirs.position
        assert ours.verdict.path == theirs.verdict.path
        assert ours.draft.parents.tolist() == theirs.draft.parents.tolist()
        assert ours.draft.ranks.tolist() == theirs.draft.ranks.tolist()
    last = max(n for n, r in enumerate(run.rounds) if r.accepted)
    del value["round_trees"][last + 1 :]  # and the text ends before its bonus token
    end = value["num_input_tokens"] + sum(len(r.committed) for r in run.rounds[: last + 1])
    value["output_ids"] = value["output_ids"][:end]
    tree = next(
        t for t in value["round_trees"] if len(t["tree"]["parents"]) > t["accepted_indices"][-1] + 1
    )
    for name in ("node_token_ids", "parents"):
        tree["tree"][name].pop()  # a smaller one
    write_trees(written(tmp_path, value), out)
    cut, whole = read_trace(out).rounds[-1], run.rounds[last].committed
    assert cut.verdict.bonus == -1 and cut.committed == whole[:-1] != ()
    assert read_trace(out).header.settings["budget"] == max(len(r.draft) - 1 for r in run.rounds)


def test_trees_that_are_not_the_texts_are_refused(tmp_path):
    value, _ = trees()
    beyond = value | {"round_trees": value["round_trees"] + value["round_trees"][:1] * 2}
    with pytest.raises(UserError, match=f"round {len(beyond['round_trees'])} accepted is not the"):
        write_trees(written(tmp_path, beyond), tmp_path / "t.jsonl")
    none = value | {"num_input_tokens": len(value["output_ids"]), "round_trees": []}
    with pytest.raises(UserError, match="leaves no text"):
        write_trees(written(tmp_path, none), tmp_path / "t.jsonl")
    value["output_ids"] = [1 + (i % 40) for i in range(len(value["output_ids"]))]
    with pytest.raises(UserError, match="is not the text"):
        write_trees(written(tmp_path, value), tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()


def test_hostile_trees_are_one_sentence(tmp_path):
    """Random damage to one value after the other."""
    rng, value = random.Random(0), trees()[0]
    nasty = [None, -1, 1 << 40, "x", [], {}, [[]], 0.5, True]
    for n in range(150):
        made = json.loads(json.dumps(value))
        each = made["round_trees"][rng.randrange(len(made["round_trees"]))]
        place = rng.choice([made, each, each["tree"]])
        place[rng.choice(list(place))] = rng.choice(nasty)
        path = written(tmp_path, made)
        try:
            write_trees(path, tmp_path / f"{n}.jsonl")
        except UserError as error:
            assert "\n" not in str(error) and str(path) in str(error)


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command(tmp_path, capsys):
    assert main(["trace", "import", str(written(tmp_path, VLLM))]) == 0
    shown = capsys.readouterr().out
    assert "without trees" in shown and "2.25" in shown and "By place" in shown
    assert main(["trace", "import", str(written(tmp_path, LLAMA)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accepted"] == 5
    assert main(["trace", "import", str(written(tmp_path, VLLM)), "--out", "x.jsonl"]) == 2
    assert "no trace can be made" in capsys.readouterr().err
    path = written(tmp_path, trees()[0])
    assert main(["trace", "import", str(path)]) == 2
    assert main(["trace", "import", str(path), "--out", str(tmp_path / "t.jsonl.gz")]) == 0
    assert main(["report", str(tmp_path / "t.jsonl.gz")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the drafter's last depth is not recorded: they count by depth only as deep" in said
    assert main(["trace", "import", str(tmp_path / "none.json")]) == 2
