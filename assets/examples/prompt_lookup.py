"""Prompt lookup as a method of one's own: what followed the last two tokens may follow again.

python -m app run --method assets/examples/prompt_lookup.py \\
    --prompt "Write a poem in which every line begins with the words In the morning."
"""

from collections import Counter

import numpy as np

from core.decoding.decode import Proposal
from core.methods.registry import Recipe
from core.rounds.draft import Candidates


class PromptLookup:
    layers = ()  # the target layers whose hidden states it reads: none

    def __init__(self, language, depths, kept):
        self.depths, self.kept, self.text = depths, kept, []

    def reset(self, rows):
        self.text = []

    def extend(self, tokens, features):
        self.text += tokens

    def propose(self, root, width):
        text = [*self.text, root]
        behind = [i + 2 for i in range(len(text) - 2) if text[i : i + 2] == text[-2:]]
        ids = np.zeros((self.depths, self.kept), np.int64)
        log_q = np.full(ids.shape, -np.inf, np.float32)  # never drafted
        for depth in range(self.depths):
            seen = Counter(text[i + depth] for i in behind if i + depth < len(text))
            for rank, (token, count) in enumerate(seen.most_common(self.kept)):
                ids[depth, rank], log_q[depth, rank] = token, np.log(count / seen.total())
        return Proposal(Candidates(ids, log_q))


METHOD = Recipe(
    "Prompt lookup", PromptLookup, "best-first", budget=16, options={"depths": 8, "kept": 4}
)
