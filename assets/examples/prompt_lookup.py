"""A method of one's own: what followed the last two tokens may follow again.

The listed `pld` copies from one place. This one counts all places, so it can draft a tree.

python -m app run assets/examples/prompt_lookup.py \\
    --prompt "Write a poem in which every line begins with the words In the morning."
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from core.drafting.session import Drafter, FactorisedSession
from core.methods.method import DrafterInfo, Method, Range, option
from core.rounds.draft import Candidates


@dataclass(frozen=True)
class Options:
    depths: int = option(8, "how many tokens deep it drafts", Range(1, 64))
    width: int = option(4, "tokens kept per depth", Range(1, 64))


class PromptLookup(Drafter):
    def __init__(self, language, folder, options):
        self.max_depth, self.width, self.text = options.depths, options.width, []

    def reset(self, capacity):
        self.text = []

    def extend(self, tokens, features):
        self.text += tokens

    def begin(self, root, width):
        text = [*self.text, root]
        places = [i + 2 for i in range(len(text) - 2) if text[i : i + 2] == text[-2:]]
        ids = np.zeros((self.max_depth, self.width), np.int64)
        log_q = np.full(ids.shape, -np.inf, np.float32)  # never drafted
        for depth in range(self.max_depth):
            seen = Counter(text[i + depth] for i in places if i + depth < len(text))
            for rank, (token, count) in enumerate(seen.most_common(self.width)):
                ids[depth, rank], log_q[depth, rank] = token, np.log(count / seen.total())
        return FactorisedSession(Candidates(ids, log_q))


METHOD = Method(
    "Prompt counts",
    DrafterInfo("prompt-lookup", "what followed the last two tokens", PromptLookup, Options),
    "best-first",
    budget=16,
)
