"""Suffix decoding (arXiv 2411.04975; Arctic Inference, vLLM's ``suffix``): what followed the text's
last tokens before, here and in earlier texts, weighed by how often it did.

Of every number m of last tokens (the pattern) a draft is made: a tree, greedily, or one path. A
node's estimated probability is the product of count ÷ its parent's count along its path. The draft
with the largest sum of estimates is offered, of equals that of the longest pattern.

Light. ``automaton`` counts, ``drafter`` drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import BY_PATH, DrafterInfo, Explanation, Method, Note, Range, option

# Notes of a node: how often its path was seen after the pattern, its estimated probability, the
# pattern's tokens, and whether earlier texts were looked at instead of the text itself.
SEEN, ESTIMATE, MATCHED, EARLIER = "times seen", "estimate", "matched tokens", "in earlier texts"


@dataclass(frozen=True)
class SuffixOptions:
    """Options; the defaults are vLLM's, but a tree where vLLM drafts a path."""

    max_tree_depth: int = option(
        24, "tokens of the pattern and of the deepest path together, at most", Range(2, 1024),
        "pattern and path",
    )  # fmt: skip
    max_spec_factor: float = option(
        1.0, "a draft has this many nodes for each token of its pattern, at most",
        Range(0, 64, step=0.1), "nodes per pattern token",
    )  # fmt: skip
    min_token_prob: float = option(
        0.1, "the least estimated probability of a node", Range(0, 1, step=0.01),
        "least probability",
    )  # fmt: skip
    tree: bool = option(
        True,
        "a tree of the most probable nodes; no: the path of the most frequent tokens",
        label="tree",
    )
    earlier: str = option("", "path of earlier texts: a trace, a text file, JSON lines or a folder")


EXPLAIN = Explanation(
    lead="Token {depth} of what followed the text's last tokens before.",
    notes=(
        Note(SEEN, "times seen", "count", "how often its path followed the pattern"),
        Note(ESTIMATE, "estimate", "probability", "Π count ÷ the parent's count, along its path"),
        Note(MATCHED, "pattern", "count", "tokens at the text's end that were found before"),
        Note(EARLIER, "from earlier texts", "count", "1: in earlier texts; 0: in the text itself"),
    ),
    childless="It can have no children: a draft has at most {max_spec_factor} nodes for each token "
    "of its pattern, pattern and path have {max_tree_depth} tokens at most, and nothing is drafted "
    "that has an estimate below {min_token_prob}.",
    closing="q is the share of the token among all that followed its parent's path, and no model's "
    "probability.",
)
DRAFTER = DrafterInfo(
    "suffix",
    "what followed the text's last tokens before, by how often it did",
    "core.methods.suffix.drafter:load",
    SuffixOptions,
    states=BY_PATH,
    explain=EXPLAIN,
    depends="text",
    vllm="suffix",
)
METHOD = Method(
    "Suffix decoding", "suffix", "best-first", 24, "a tree of what followed the last tokens before",
)  # fmt: skip
