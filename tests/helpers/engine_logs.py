"""Lines of other engines' logs and metrics pages, as they write them."""

from __future__ import annotations

VLLM = "INFO 06-06 14:20:34 [metrics.py:86] SpecDecoding metrics: "
TASK = "0.11.873.131 I slot print_timing: id  0 | task 7 | "
DECODE = "[2025-05-27 20:14:38 TP0] Decode batch. #running-req: 18, token usage: 0.71, "
SUMS = "spec common_specu: statistics {:>16}: #calls(b,g,a) = 4 542 31, #gen drafts = {:6}, "
SUMS += "#acc drafts = 28, #gen tokens = {:6}, #acc tokens = {:5}, #mean acc len = 18.00, "
SUMS += "#acc rate/pos = ({}), dur(b,g,a) = 0.688, 0.851, 0.021 ms"


def tensorrt(drafted: int, accepted: int, requests: int) -> dict[str, float]:
    """The counts of TensorRT-LLM of an iteration."""
    return {
        "numDraftTokens": drafted, "numAcceptedTokens": accepted,
        "numRequestsWithDraftTokens": requests,
        "acceptanceLength": 1 + accepted / requests if requests else 0.0,
        "iterLatencyMS": 1.5, "draftOverhead": 0.1,
    }  # fmt: skip


LOGS = {
    "vLLM, 2026": (
        f"{VLLM}Mean acceptance length: 6.82, Current speculative depth: 7, Accepted throughput: "
        "6.46 tokens/s, Drafted throughput: 7.77 tokens/s, Accepted: 256 tokens, Drafted: 308 "
        "tokens, Per-position acceptance rate: 1.000, 1.000, 1.000, 1.000, 0.795, 0.614, 0.409, "
        "Avg Draft acceptance rate: 83.1%"
    ),
    "vLLM, 2025": (
        f"{VLLM}Draft acceptance rate: 38.8%, Mean acceptance length: 2.16, Accepted: 150 tokens, "
        "Drafted: 387 tokens, Per-position acceptance rate: 0.543, 0.357, 0.264\n"
        f"{VLLM}Draft acceptance rate: nan%, Accepted: 0 tokens, Drafted: 0 tokens"
    ),
    "a bare curve": "Per-position acceptance rate: 0.600, 0.300, 0.100",
    "vLLM's page": "\n".join(
        f'vllm:spec_decode_num_{name}_total{{engine="{engine}",model_name="m"{more}}} {count}.0'
        for engine, part in ((0, 3), (1, 2))
        for name, more, count in (
            ("drafts", "", 200 * part),
            ("draft_tokens", "", 600 * part),
            ("accepted_tokens", "", 290 * part),
            *(
                ("accepted_tokens_per_pos", f',position="{at}"', kept * part)
                for at, kept in enumerate((150, 90, 50))
            ),
        )
    ),
    "SGLang": f"{DECODE}accept len: 2.40, accept rate: 0.84, cuda graph: True, #queue-req: 3",
    "SGLang's page": 'sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.4',
    "llama.cpp": (
        f"{TASK}draft acceptance = 0.63158 (   24 accepted /    38 generated), mean len =  2.85\n"
        f"{TASK}     acc per pos = (0.923, 0.615, 0.308)"
    ),
    "llama.cpp, early 2026": (
        f"{TASK}draft acceptance = 0.66237 (  257 accepted /   388 generated), mean acceptance "
        "length =  3.65, acceptance rate per position = (0.804, 0.701, 0.629, 0.515)\n"
        + SUMS.format("draft-mtp", 97, 388, 257, "0.804, 0.701, 0.629, 0.515")
    ),
    "llama.cpp, 2025": "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)",
    "llama.cpp's sums": "\n".join(
        (
            SUMS.format("ngram-mod", 20, 600, 300, "0.903, 0.806"),
            SUMS.format("ngram-mod", 31, 920, 527, "0.903, 0.806"),
            SUMS.format("draft-dflash", 511, 2041, 974, "0.763, 0.526, 0.362, 0.254"),
        )
    ),
    # iterations of 3 and 2 requests with drafts of 2, one of another rank, and one without a draft
    "TensorRT-LLM": "\n".join(
        str({"iter": n, "iterLatencyMS": 9.5, "kvCacheStats": {"cacheHitRate": 0.5}, **more})
        for n, more in enumerate(
            (
                {"specDecodingStats": tensorrt(6, 4, 3), "attentionDpRank": 0},
                {"specDecodingStats": tensorrt(6, 4, 3), "attentionDpRank": 1},
                {"specDecodingStats": tensorrt(4, 1, 2), "requestStats": None},
                {"specDecodingStats": tensorrt(0, 0, 0)},
            )
        )
    ),
    "TensorRT-LLM's page": "\n".join(
        f'trtllm_spec_decode_{name}_tokens_total{{{label}="{at}",worker="{worker}"}} {count}'
        for worker in range(2)
        for name, counts in (("drafted", (30, 30, 20)), ("accepted", (24, 9)))
        for label, at, count in (("token_position", *each) for each in enumerate(counts))
    )
    + '\ntrtllm_spec_decode_drafted_tokens_created{token_position="0"} 1.7e9'
    + "\ntrtllm_spec_decode_acceptance_length 1.9",
    "TensorRT-LLM's totals": 'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 20.0\n'
    'trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 15.0\n'
    'trtllm_spec_decode_acceptance_length{model_name="m"} 3.75',
    "TensorRT-LLM, all at place 0": "\n".join(
        f'trtllm_spec_decode_{name}_tokens_total{{token_position="0"}} {count}'
        for name, count in (("drafted", 12), ("accepted", 5))
    ),
    "llama.cpp's page": "llamacpp:spec_decode_num_drafts_total 10\n"
    "llamacpp:spec_decode_num_draft_tokens_total 30\n"
    "llamacpp:spec_decode_num_accepted_tokens_total 12",
}
