"""Responses of other engines, and what else they save of served drafts."""

from __future__ import annotations

from tests.helpers import toys

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
PROFILE = {
    "schema_version": "1.0", "measured": True, "producer": "specdec_bench", "method": "eagle3",
    "num_speculative_tokens": 3, "marginal_accept_rates": [0.75, 0.25, 0.25],
    "conditional_accept_rates": [0.75, 0.333333, 1.0], "mean_accept_length": 2.25,
    "acceptance_length_histogram": {"1": 1, "2": 2, "4": 1}, "validation": None,
}  # fmt: skip
# llama.cpp's LLAMA_SPEC_DUMP: a line a verification. LM Studio's SDK: a fragment a token.
DUMP = [
    {"step": n, "n_draft": 3, "n_accept": taken, "replay": 0, "draft_tok": [5, 6, 7],
     "tgt_tok": [5, 6, 7, 8][: taken + 1]}
    for n, taken in enumerate([1, 0, 3, 1])
]  # fmt: skip
FRAGMENTS = [
    {"content": "a", "tokensCount": 1, "containsDrafted": drafted == "d", "reasoningType": "none"}
    for drafted in "t" + "dt" + "t" + "dddt" + "dt"
]


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
