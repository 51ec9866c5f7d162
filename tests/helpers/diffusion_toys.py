"""Toy masked-diffusion targets in float64, a plain sampler written independently, random graphs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import strategies as st

from core.diffusion.denoise import denoise
from core.diffusion.draft_graph import DraftGraph, make_graph
from core.diffusion.request import DenoiseSettings, Pace
from core.rounds.round import Round
from core.verification.sampling import gumbel_noise

VOCABULARY, MASK = 13, 12
PROMPT = (3, 1, 4, 1, 5)


class ToyTarget:
    """Logits that depend on the whole block and on all text before it; each state on its own.

    coupling  how much other positions matter: near 0 the ranking hardly moves and drafts are
              accepted, at 1 almost none are
    drift     how far a draft's logits are off in the same call: a target that is not exact
    """

    def __init__(
        self, seed: int = 0, coupling: float = 0.3, stop: Sequence[int] = (), drift: float = 0.0
    ):
        self.mask_id, self.vocabulary, self.stop_ids = MASK, VOCABULARY, frozenset(stop)
        self.device, self.exact, self.forwards = torch.device("cpu"), drift == 0, 0
        self.seed, self.coupling, self.drift = seed, coupling, drift
        self.scored = 0  # distributions computed in all
        self.text: list[int] = []

    def begin(self, prompt: Sequence[int], length: int, block: int) -> None:
        self.text, self.size, self.finished = list(prompt), block, 0
        self.limit = length // block

    def advance(self, block: Sequence[int]) -> None:
        assert len(block) == self.size and self.mask_id not in block
        self.finished += 1
        assert self.finished < self.limit, "the last block needs no advance"
        self.text += block

    def score(self, states, wanted):
        assert states.dtype == np.int64 and states.shape[1] == self.size
        assert len(states) == len(wanted)
        self.forwards += 1
        out = []
        for row, (state, places) in enumerate(zip(states, wanted, strict=True)):
            assert (state[places] == self.mask_id).all() and len(places)
            assert ((state == states[0]) | (states[0] == self.mask_id)).all()
            self.scored += len(places)
            logits = self.logits(state)[places]
            out.append(torch.from_numpy(logits + self.drift * (row > 0) * np.cos(7 * logits)))
        return out

    def logits(self, state: np.ndarray) -> np.ndarray:
        """[L, V] of one block state after the text so far."""
        context = hash((self.seed, *self.text)) % 2**32
        own = np.random.default_rng(context)
        base = own.normal(size=(self.size, self.vocabulary)) * 2
        fixed = np.random.default_rng(self.seed)
        mix = fixed.normal(size=(self.size, self.size))
        values = fixed.normal(size=(self.vocabulary, self.vocabulary))
        return base + self.coupling * np.tanh(mix @ values[state])


def plain_text(target: ToyTarget, settings: DenoiseSettings, prompt: Sequence[int] = PROMPT):
    """Plain denoising, written independently in loops: (the new tokens, model calls)."""
    target.begin(prompt, settings.length, settings.block)
    text, calls, size = [], 0, settings.block
    for block in range(settings.length // size):
        state = [MASK] * size
        quotas = _quotas(size, settings.pace.tokens)
        while MASK in state:
            calls += 1
            logits = target.logits(np.array(state))
            best = []
            for place in (i for i in range(size) if state[i] == MASK):
                row = logits[place]
                p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
                scores = row.copy()
                if settings.temperature:
                    at = len(prompt) + block * size + place
                    noise = gumbel_noise(settings.seed, at, VOCABULARY).numpy().astype(np.float64)
                    scores = row / settings.temperature + noise
                token = max((t for t in range(VOCABULARY) if t != MASK), key=lambda t: scores[t])
                best.append((-p[token], place, token))
            ahead = min(settings.ahead, settings.pace.threshold or 1)
            first = min(place for _, place, _ in best)
            free = [each for each in best if each[1] == first or -each[0] >= ahead]
            best = sorted(free) + [each for each in best if each not in free]
            if settings.pace.threshold is None:
                count = quotas.pop(0)
            else:
                count = max(1, sum(-p >= settings.pace.threshold for p, _, _ in best))
            for _, place, token in best[:count]:
                state[place] = token
        text += state
        if not settings.go_on and target.stop_ids & set(state):
            break
        if block < settings.length // size - 1:
            target.advance(state)
    return text, calls


def _quotas(size: int, per_step: int) -> list[int]:
    steps = -(-size // per_step)
    return [size // steps + (1 if step < size % steps else 0) for step in range(steps)]


def run(
    target: ToyTarget, settings: DenoiseSettings, graph: DraftGraph | None = None
) -> tuple[Round, ...]:
    return tuple(denoise(target, PROMPT, settings, graph))


def chain(length: int, step: int = 1) -> DraftGraph:
    """c11, c11 c21, …: each level the next-best positions, best tokens."""
    sets = [[(i, 1) for i in range(1, step * n + 1)] for n in range(1, length + 1)]
    return make_graph(sets, Pace(step))


def grown(rng: random.Random, nodes: int, step: int = 1, places: int = 6, tokens: int = 2):
    """A random draft graph: every formula extends one that is there, or none."""
    sets = [frozenset[tuple[int, int]]()]
    for _ in range(nodes * 4):
        parent = rng.choice(sets)
        free = [i for i in range(1, places + 1) if i not in {i for i, _ in parent}]
        if len(free) < step:
            continue
        new = parent | {(i, rng.randint(1, tokens)) for i in rng.sample(free, step)}
        if new not in sets:
            sets.append(new)
        if len(sets) > nodes:
            break
    return make_graph([sorted(s) for s in sets[1:]], Pace(step))


graphs = st.builds(
    lambda seed, nodes, step: grown(random.Random(seed), nodes, step),
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.sampled_from([1, 1, 1, 2]),
)
paces = st.sampled_from(
    [Pace(1), Pace(1), Pace(2), Pace(3), Pace(4), Pace(threshold=0.5), Pace(threshold=0.3)]
)


def toy_language(drift=0.0, stop=()):
    return SimpleNamespace(
        name="toy/diffusion",
        target=ToyTarget(3, coupling=0.1, drift=drift, stop=stop),
        block=8,
        ahead=0.0,
        model=SimpleNamespace(dtype=torch.float64),
        device="cpu",
        tokenizer_hash="toy",
        encode_chat=lambda prompt: [1 + len(prompt) % 7, 2, *(ord(c) % 9 for c in prompt)],
        text=lambda tokens: " ".join(map(str, tokens)),
        piece=lambda token: f"<{token}>",
    )
