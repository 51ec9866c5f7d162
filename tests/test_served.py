"""Counts of other engines, and DDTree's trees: numbers once more by hand, hostile files refused."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.engines.served import read_served
from analysis.engines.trees import write_trees
from analysis.measures.counts import by_place, strip
from app.cli import main
from core.errors import UserError
from core.traces.reader import read_trace
from tests import toys

VLLM = {
    "usage": {"completion_tokens": 9},
    "metrics": {
        "speculative_decoding": {
            "acceptance_histogram": [1, 2, 0, 1],
            "num_spec_steps": 4,
            "num_accepted_draft_tokens": 5,
            "num_draft_tokens": 12,
            "num_spec_tokens": 3,
            "per_step_accepted": [1, 0, 3, 1],
            "per_step_drafted": [3, 3, 3, 3],
        }
    },
}
SGLANG = {
    "text": "…",
    "meta_info": {
        "spec_verify_ct": 4, "spec_accept_length": 2.25, "completion_tokens": 9,
        "spec_accept_histogram": [1, 2, 0, 1], "spec_draft_token_num": 12,
    },
}  # fmt: skip
LLAMA = {"timings": {"draft_n": 12, "draft_n_accepted": 5, "predicted_n": 10, "predicted_ms": 1.5}}
BENCH = {
    "spec_decode_num_drafts": 4, "spec_decode_draft_tokens": 12, "spec_decode_accepted_tokens": 5,
    "spec_decode_per_position_acceptance_rates": [0.75, 0.25, 0.25], "completed": 2,
}  # fmt: skip
STUDIO = {
    "stats": {
        "predictedTokensCount": 10, "totalDraftTokensCount": 12, "acceptedDraftTokensCount": 5
    }
}  # fmt: skip


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


def kept(lengths):
    """Rounds that accepted place 1, 2, …"""
    return [sum(length >= n for length in lengths) for n in range(1, max(lengths) + 1)]


DRAFTS = st.integers(0, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


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


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_the_curve_is_that_of_counting_rounds(lengths):
    for each in by_place(kept(lengths), len(lengths)):
        came = sum(n >= each.depth - 1 for n in lengths)
        assert each.accepted == sum(n >= each.depth for n in lengths)
        assert each.marginal == each.accepted / len(lengths)
        assert each.conditional == each.accepted / came


def test_several_responses_and_other_shapes(tmp_path):
    inner = VLLM["metrics"]["speculative_decoding"]
    short = {k: v for k, v in inner.items() if not k.startswith("per_step")}
    short["acceptance_histogram"] = {"0": 1, "3": 1, "1": 2}
    lines = "\n".join(map(json.dumps, (VLLM, {"metrics": {"speculative_decoding": short}})))
    (tmp_path / "r.jsonl").write_text(lines)
    found = read_served(tmp_path / "r.jsonl")
    assert found.records == 2 and found.histogram == (2, 4, 0, 2)
    assert found.tokens is None  # one of them does not tell
    assert found.order == (((1, 3), (0, 3), (3, 3), (1, 3)), None)
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
    "seems to be an OpenAI server": {"choices": [{"text": "hi"}]},
    "tells neither accepted": {"metrics": {"speculative_decoding": {"other": 1}}},
    "no draft was verified": {"meta_info": {"spec_verify_ct": 0}},
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
    "an object, not a list": {"metrics": [1]},
    "counts several choices": {"sglext": {"spec_tokens_details": [{}, {}]}},
    "holds no response": [],
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_what_holds_no_counts_is_one_sentence(tmp_path, said):
    with pytest.raises(UserError, match=said):
        read_served(written(tmp_path, WRONG[said]))


# ── DDTree ───────────────────────────────────────────────────────────────────────────────────────


def trees(count=30):
    """Return what the reference would save of a toy's run."""
    drafter = toys.NoisyOracle([*toys.PROMPT, *toys.plain(60)])
    run = toys.run(toys.tree(drafter), count, budget=9)
    saved = [
        {
            "accepted_indices": list(r.verdict.path),
            "tree": {
                "node_token_ids": r.draft.tokens[1:].tolist(),
                "node_depths": r.draft.depths[1:].tolist(),
                "parents": r.draft.parents.tolist(),
            },
        }
        for r in run.rounds
    ]
    ids = [*toys.PROMPT, *run.tokens]
    return {"output_ids": ids, "num_input_tokens": len(toys.PROMPT), "round_trees": saved}, run


def test_saved_trees_become_the_same_rounds(tmp_path):
    value, run = trees()
    out = tmp_path / "t.jsonl.gz"
    assert write_trees(written(tmp_path, value), out) == len(run.rounds)
    trace = read_trace(out)
    for ours, theirs in zip(trace.rounds, run.rounds, strict=True):
        assert ours.committed == theirs.committed and ours.position == theirs.position
        assert ours.verdict.path == theirs.verdict.path
        assert ours.draft.parents.tolist() == theirs.draft.parents.tolist()


def test_trees_that_are_not_the_texts_are_refused(tmp_path):
    value, _ = trees()
    value["output_ids"] = [1 + (i % 40) for i in range(len(value["output_ids"]))]
    with pytest.raises(UserError, match="is not the text"):
        write_trees(written(tmp_path, value), tmp_path / "t.jsonl")


def test_hostile_trees_are_one_sentence(tmp_path):
    """Random damage to one value after the other."""
    rng, value = random.Random(0), trees()[0]
    nasty = [None, -1, 1 << 40, "x", [], {}, [[]], 0.5, True]
    for n in range(150):
        made = json.loads(json.dumps(value))
        each = made["round_trees"][rng.randrange(len(made["round_trees"]))]
        place = rng.choice([made, each, each["tree"]])
        place[rng.choice(list(place))] = rng.choice(nasty)
        try:
            write_trees(written(tmp_path, made), tmp_path / f"{n}.jsonl")
        except UserError as error:
            assert "\n" not in str(error)


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
    assert main(["trace", "import", str(tmp_path / "none.json")]) == 2
