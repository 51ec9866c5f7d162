"""A path-conditional drafter in one file: q of a token depends on the two tokens before it.

python -m app run assets/examples/trigram.py --prompt "Write a short story about a fox."

Its states are nodes of the tree: what stands after a node is asked for when the builder has chosen
it. A draft language model or an EAGLE head has the same shape; only ``score`` would run a network.
"""

from dataclasses import dataclass

import numpy as np
import torch

from core import ASSETS
from core.drafting.session import Drafter, PathSession
from core.methods.method import BY_PATH, DrafterInfo, Method, Range, option
from core.ngram import NgramStore


@dataclass(frozen=True)
class TrigramOptions:
    depths: int = option(6, "how many tokens deep it drafts", Range(1, 32))
    trust: float = option(4.0, "how much the text so far counts", Range(0, 100))


class TrigramSession(PathSession):
    def __init__(self, drafter, root, width):
        super().__init__(root, drafter.max_depth, width)
        self.drafter, self.contexts = drafter, []  # the two last tokens at every scored node

    def score(self, tokens, parents):
        """log q [R, V] after R nodes; a parent of −1 is the text before the root."""
        for token, parent in zip(tokens, parents, strict=True):
            before = self.contexts[parent][-1] if parent >= 0 else self.drafter.text[-1]
            self.contexts.append((before, token))
        rows = [self.drafter.log_q(context) for context in self.contexts[-len(tokens) :]]
        return torch.stack(rows)


class Trigrams(Drafter):
    """Counts of a store, and of the text so far."""

    def __init__(self, language, folder, options):
        self.store = NgramStore.open(ASSETS / "models" / language.name / "ngram.safetensors")
        self.max_depth, self.trust, self.text = options.depths, options.trust, []
        self.vocabulary = np.arange(language.vocabulary)
        self.store.probabilities((0, 0), self.vocabulary)  # compiled here, not in the first round

    def reset(self, capacity):
        self.text = []

    def extend(self, tokens, features):
        self.text += tokens

    def begin(self, root, width):
        return TrigramSession(self, root, width)

    def log_q(self, context):
        p = self.store.probabilities(context, self.vocabulary)
        for i in range(len(self.text) - 2):
            if tuple(self.text[i : i + 2]) == context:
                p[self.text[i + 2]] += self.trust
        return torch.from_numpy(p / max(p.sum(), 1e-12)).log().float()


DRAFTER = DrafterInfo(
    "trigrams", "what followed the two tokens before", Trigrams, TrigramOptions, BY_PATH
)
METHOD = Method("Trigrams", DRAFTER, "best-first", budget=16)
