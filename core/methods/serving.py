"""Options of engines that several drafters share: the ``flags`` of their homes."""

from __future__ import annotations

from core.methods.method import Flags, Options


def sglang_chain(size: int, options: Options) -> str:
    """SGLang's, for the drafters that it runs as EAGLE: one token at each depth."""
    return (
        f"--speculative-num-steps {size} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {size + 1}"
    )


def llama_cpp(kind: str) -> Flags:
    """llama.cpp's, for a drafter with weights: ``kind`` is its --spec-type."""

    def flags(size: int, options: Options) -> str:
        return f"--spec-type {kind} --spec-draft-n-max {size} --spec-draft-n-min 0"

    return flags


def tensorrt_llm(kind: str) -> Flags:
    """A line of the file that ``trtllm-serve --config`` takes: ``kind`` is its decoding_type. The
    drafter's model is left to add."""

    def flags(size: int, options: Options) -> str:
        return f"speculative_config: {{decoding_type: {kind}, max_draft_len: {size}}}"

    return flags
