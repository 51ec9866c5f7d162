"""Toy models and drafters: small enough for exactness in float64, real enough to break things.

The reference everywhere is ``plain``: Hugging Face's own forward without any cache and without
Draftscope's attention, one token at a time.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from core.drafting.builders import best_first, chain
from core.models.cache import ATTENTION
from core.methods.dart.search import ContinuitySearch, Weights
from core.decoding.decode import decode, Method, new_tokens, Proposal, Settings
from core.methods.dart.drafter import DartConfig, DartDrafter, DartModel, feature_layers, Head
from core.methods.dflash.drafter import DFlashConfig, DFlashDrafter, DFlashModel
from core.methods.treeflash.drafter import TreeFlashDrafter, TreeFlashModel, TreeFlashOptions
from core.ngram import NgramStore
from core.verification.sampling import gumbel_noise
from core.models.target import Target
from core.rounds.draft import Candidates, Draft, Transitions
from core.rounds.round import Round, Sampling, Times, Verdict

VOCABULARY = 48
LAYERS = (0, 2)  # feature layers of every toy drafter
PROMPT = (5, 17, 3, 44, 9, 28, 3, 11)
GREEDY = Sampling()
SAMPLED = Sampling(temperature=0.9, top_k=20, top_p=0.95, seed=11)
HOT = Sampling(temperature=1.3, seed=5)
FAMILIES = ("llama", "qwen3")


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


@cache
def model(family: str = "llama", seed: int = 0, vocabulary: int = VOCABULARY, dtype=torch.float64):
    """A random causal LM that runs on Draftscope's attention. Shared: never train it."""
    return _make(family, seed, vocabulary, ATTENTION).to(dtype)


@cache
def reference(family: str = "llama", seed: int = 0, vocabulary: int = VOCABULARY):
    """The same weights on Hugging Face's own eager attention, in float64."""
    return _make(family, seed, vocabulary, "eager").double()


def _make(family: str, seed: int, vocabulary: int, attention: str):
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "attn_implementation": attention,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    torch.manual_seed(seed)
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    made = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shape)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(head_dim=16, **shape)),
        "qwen3_moe": lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(head_dim=16, **shape, **experts, experts_implementation="eager")
        ),
    }[family]()
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        if parameter.ndim > 1:  # wide enough that every token and position matters
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.25
        else:
            parameter.data = 1 + 0.2 * torch.randn(parameter.shape, generator=generator)
    made.lm_head.weight.data *= 2
    return made.eval().requires_grad_(False)


def target(family: str = "llama", layers: tuple[int, ...] = LAYERS, stop: Sequence[int] = ()):
    """A fresh Target. ``stop`` are its stop tokens; the shared weights are not copied."""
    shared = model(family)
    if stop:
        shared = copy.copy(shared)
        shared.generation_config = copy.deepcopy(shared.generation_config)
        shared.generation_config.eos_token_id = list(stop)
    return Target(shared, layers)


@torch.inference_mode()
def full_forward(tokens: Sequence[int], family: str = "llama", layers: Sequence[int] = LAYERS):
    """Hugging Face's forward over a whole text: logits [T, V], features [T, F·h], KV per layer."""
    out = reference(family)(torch.tensor([list(tokens)]), use_cache=True, output_hidden_states=True)
    features = torch.cat([out.hidden_states[i + 1][0] for i in layers], -1)
    kv = [(layer.keys, layer.values) for layer in out.past_key_values.layers]
    return SimpleNamespace(logits=out.logits[0], features=features, kv=kv)


# ── plain decoding, written independently ────────────────────────────────────────────────────────


def own_choice(logits: np.ndarray, sampling: Sampling, position: int) -> int:
    """The target's rule once more, in numpy float64: argmax of (filtered) logits and noise."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    scores = logits.astype(np.float64) / sampling.temperature
    if sampling.top_k:
        scores[scores < np.sort(scores)[::-1][: sampling.top_k][-1]] = -np.inf
    if sampling.top_p < 1:
        p = np.exp(scores - scores.max())
        p /= p.sum()
        mass = 0.0
        for token in np.argsort(-p, kind="stable"):
            if mass >= sampling.top_p:
                scores[token] = -np.inf
            mass += p[token]
    return int((scores + gumbel_noise(sampling.seed, position, len(scores)).numpy()).argmax())


@cache
def plain(
    count: int,
    sampling: Sampling = GREEDY,
    prompt: tuple[int, ...] = PROMPT,
    family: str = "llama",
    stop: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """New tokens of plain decoding: whole forwards of the reference model, no cache."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count:
        with torch.inference_mode():
            logits = reference(family)(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        tokens.append(own_choice(logits.numpy(), sampling, len(tokens)))
        if tokens[-1] in stop:
            break
    return tuple(tokens[len(prompt) :])


# ── drafters ─────────────────────────────────────────────────────────────────────────────────────


class ToyDrafter:
    """Remembers its context and checks what the loop hands it; ``log_q`` is the subclass's."""

    layers = LAYERS

    def __init__(self, depths: int = 7, vocabulary: int = VOCABULARY):
        self.depths, self.vocabulary = depths, vocabulary
        self.context: list[int] = []
        self.features: list[Tensor] = []
        self.room = 0

    def reset(self, rows: int) -> None:
        self.context, self.features, self.room = [], [], rows

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        assert len(tokens) == len(features)
        self.context += list(tokens)
        self.features.append(features)
        assert len(self.context) <= self.room

    def propose(self, root: int, width: int) -> Proposal:
        return Proposal.factorised(self.log_q([*self.context, root]), max(width, 16))

    def log_q(self, text: list[int]) -> Tensor:
        """[L, V] for the positions behind ``text``, whose last token is the root."""
        raise NotImplementedError

    def noise(self, text: list[int], seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed * 7919 + len(text))
        return torch.randn(self.depths, self.vocabulary, generator=generator)


class RandomDrafter(ToyDrafter):
    """Knows nothing."""

    def log_q(self, text: list[int]) -> Tensor:
        return (2 * self.noise(text)).log_softmax(-1)


class OracleDrafter(ToyDrafter):
    """Knows the text to come, and says it with log q = 0: probability exactly one."""

    def __init__(self, text: Sequence[int], depths: int = 7):
        super().__init__(depths)
        self.text = list(text)  # prompt and continuation

    def future(self, text: list[int]) -> list[int]:
        """The true tokens behind ``text``, wrapped at the end of what is known."""
        assert text == self.text[: len(text)], "the loop left the target's own text"
        ahead = self.text[len(text) : len(text) + self.depths]
        return ahead + [0] * (self.depths - len(ahead))

    def log_q(self, text: list[int]) -> Tensor:
        log_q = torch.full((self.depths, self.vocabulary), -torch.inf)
        log_q[torch.arange(self.depths), torch.tensor(self.future(text))] = 0.0
        return log_q


class NoisyOracle(OracleDrafter):
    """Right now and then: the true token stands at changing ranks, so paths skip rows."""

    def __init__(self, text: Sequence[int], depths: int = 7, boost: float = 2.5):
        super().__init__(text, depths)
        self.boost = boost

    def log_q(self, text: list[int]) -> Tensor:
        logits = 1.5 * self.noise(text, seed=3)
        logits[torch.arange(self.depths), torch.tensor(self.future(text))] += self.boost
        return logits.log_softmax(-1)


class AdversarialDrafter(OracleDrafter):
    """Never drafts the true token unless the budget forces it to: it stands last at every depth."""

    def log_q(self, text: list[int]) -> Tensor:
        logits = self.noise(text, seed=4)
        logits[torch.arange(self.depths), torch.tensor(self.future(text))] = -30.0
        return logits.log_softmax(-1)


class RightUntil(OracleDrafter):
    """Sure and right for the first ``right`` depths, sure and wrong behind them."""

    def __init__(self, text: Sequence[int], right: int, depths: int = 7):
        super().__init__(text, depths)
        self.right = right

    def log_q(self, text: list[int]) -> Tensor:
        tokens = torch.tensor(self.future(text))
        tokens[self.right :] = (tokens[self.right :] + 1) % self.vocabulary
        logits = 0.1 * self.noise(text)
        logits[torch.arange(self.depths), tokens] = 12.0
        return logits.log_softmax(-1)


class SameForever(ToyDrafter):
    """Always proposes one token, at every depth."""

    def __init__(self, token: int, depths: int = 7):
        super().__init__(depths)
        self.token = token

    def log_q(self, text: list[int]) -> Tensor:
        logits = torch.zeros(self.depths, self.vocabulary)
        logits[:, self.token] = 9.0
        return logits.log_softmax(-1)


def transitions_of(
    log_q: Tensor,
    behind: Callable[[int, int], Tensor],
    root: int,
    candidates: int,
    siblings: int,
) -> Transitions:
    """Tables the slow way, one pair at a time: ``behind(depth, token)`` is log q′ [V] at a 0-based
    depth given the token before it; log q [L, V] is the plain one."""
    depths, vocabulary = log_q.shape
    count, kept = min(candidates, vocabulary), min(siblings, vocabulary)
    chosen = [log_q[depth].topk(count).indices.tolist() for depth in range(depths)]
    ids, odds = np.zeros((depths, count, kept), np.int64), np.zeros((depths, count, kept))
    marginal, follow = odds.copy(), np.full(odds.shape, -1, np.int32)
    for depth, row in itertools.product(range(depths), range(count)):
        best = behind(depth, chosen[depth - 1][row] if depth else root).topk(kept)
        for place, (token, value) in enumerate(
            zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ):
            ids[depth, row, place], odds[depth, row, place] = token, value
            marginal[depth, row, place] = log_q[depth, token]
            if token in chosen[depth]:
                follow[depth, row, place] = chosen[depth].index(token)
    return Transitions(ids, odds.astype(np.float32), marginal.astype(np.float32), follow)


class ConditionalDrafter(OracleDrafter):
    """q′ hangs on the token before: right behind the true one, or with ``adversarial`` wrong there
    and nowhere else. The plain q, which the candidates are read off, likes the true token."""

    def __init__(
        self, text: Sequence[int], depths: int = 7, adversarial: bool = False, candidates: int = 5
    ):
        super().__init__(text, depths)
        self.adversarial, self.candidates = adversarial, candidates

    def log_q(self, text: list[int]) -> Tensor:
        logits = self.noise(text, seed=6)
        logits[torch.arange(self.depths), torch.tensor(self.future(text))] += 3.0
        return logits.log_softmax(-1)

    def behind(self, text: list[int], depth: int, token: int) -> Tensor:
        """log q′ [V] at a 0-based depth behind a token."""
        future = [text[-1], *self.future(text)]
        generator = torch.Generator().manual_seed(len(text) * 613 + depth * 97 + token)
        logits = 1.5 * torch.randn(self.vocabulary, generator=generator)
        if token == future[depth]:
            logits[future[depth + 1]] += -30.0 if self.adversarial else 2.5
        return logits.log_softmax(-1)

    def propose(self, root: int, width: int) -> Proposal:
        text = [*self.context, root]
        log_q = self.log_q(text)
        best = log_q.topk(min(max(width, 16), self.vocabulary))
        tables = transitions_of(
            log_q, lambda depth, token: self.behind(text, depth, token), root, self.candidates, 9
        )
        return Proposal(
            Candidates(best.indices.numpy(), best.values.numpy(), tables),
            lambda path: torch.stack([self.behind(text, i, t) for i, t in enumerate(path)]),
        )


def dflash_config(**changes) -> DFlashConfig:
    """A two-layer DFlash for the toy targets."""
    fields = {
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCABULARY,
        "block_size": 8,
        "num_target_layers": 4,
        "target_layer_ids": LAYERS,
        "mask_token_id": 47,
    }
    return DFlashConfig(**(fields | changes))


def dflash_model(seed: int = 0, dtype=torch.float64, **changes) -> DFlashModel:
    """Random weights, gains included: a norm that is skipped or misplaced must show."""
    return _randomised(DFlashModel(dflash_config(**changes)), seed, dtype)


def _randomised(made, seed: int, dtype):
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.2 * noise if parameter.ndim == 2 else 1 + 0.3 * noise
    return made.to(dtype).eval().requires_grad_(False)


def dflash_drafter(family: str = "llama", seed: int = 0) -> DFlashDrafter:
    owner = model(family)
    return DFlashDrafter(
        dflash_model(seed), owner.get_input_embeddings(), owner.get_output_embeddings()
    )


def treeflash_model(
    seed: int = 0, dtype=torch.float64, zero: bool = False, **changes
) -> TreeFlashModel:
    """Random weights on the backbone of ``dflash_model(seed)``; ``zero``: a head as at the start
    of training, which changes nothing."""
    made = _randomised(TreeFlashModel(dflash_config(**changes), 24), seed + 100, dtype)
    made.model.load_state_dict(dflash_model(seed, dtype, **changes).state_dict())
    made.ar_approximation.d.weight.data *= 0.0 if zero else 6.0
    return made


def treeflash_drafter(
    family: str = "llama", seed: int = 0, zero: bool = False, **options
) -> TreeFlashDrafter:
    owner = model(family)
    return TreeFlashDrafter(
        treeflash_model(seed, zero=zero),
        owner.get_input_embeddings(),
        owner.get_output_embeddings(),
        TreeFlashOptions(**options),
    )


def dart_config(**changes) -> DartConfig:
    """A DART layer for the toy targets: six masks, seven depths."""
    fields = {
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": VOCABULARY,
        "draft_length": 6,
        "target_hidden_size": 32,
    }
    return DartConfig(**(fields | changes))


def dart_model(seed: int = 0, dtype=torch.float64, **changes) -> DartModel:
    """Random weights, gains and mask included."""
    return _randomised(DartModel(dart_config(**changes)), seed + 200, dtype)


def dart_head(ids: Sequence[int], seed: int = 0) -> Head:
    """A random head of its own over a few of the target's tokens."""
    made = torch.nn.Linear(32, len(ids), bias=False, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    made.weight = torch.nn.Parameter(
        torch.randn(made.weight.shape, generator=generator).double(), requires_grad=False
    )
    return Head(made, torch.tensor(list(ids)))


def dart_drafter(
    family: str = "llama", seed: int = 0, head: Head | None = None, temperature: float = 1.0
) -> DartDrafter:
    owner = model(family)
    return DartDrafter(
        dart_model(seed),
        owner.get_input_embeddings(),
        head or Head(owner.get_output_embeddings()),
        feature_layers(4),
        temperature,
    )


def moved(drafter, device):
    """A copy of the drafter whose networks lie on the device."""
    drafter = copy.deepcopy(drafter)
    parts = (drafter, getattr(drafter, "conditioner", None), getattr(drafter, "head", None))
    for part in parts:
        for held in vars(part).values() if part is not None else ():
            if isinstance(held, torch.nn.Module):
                held.to(device)
    if isinstance(drafter.head, torch.nn.Module):
        drafter.head.to(device)
    return drafter


def ngram_store(text: Sequence[int], vocabulary: int = VOCABULARY) -> NgramStore:
    """The grams of a text, counted by hand."""
    grams = (tuple(text[i : i + n]) for n in (1, 2, 3) for i in range(len(text) - n + 1))
    return NgramStore.from_counts(Counter(grams), vocabulary)


def continuity(text: Sequence[int] = (), stops: Sequence[int] = (), **weights) -> ContinuitySearch:
    """DART's search over the grams of a text."""
    store = ngram_store(text) if text else NgramStore.empty(VOCABULARY)
    return ContinuitySearch(store, np.array(sorted(stops), np.int64), Weights(**weights))


# ── runs and drafts ──────────────────────────────────────────────────────────────────────────────


AR = Method("ar")


def tree(drafter) -> Method:
    return Method("ddtree", drafter, best_first)


def line(drafter) -> Method:
    return Method("dflash", drafter, chain)


def run(method: Method, count: int = 40, sampling: Sampling = GREEDY, budget: int = 16, **more):
    """Every round of one run on a fresh toy target: (rounds, new tokens, target)."""
    layers = method.drafter.layers if method.drafter else LAYERS
    where = more.pop("target", None) or target(
        more.pop("family", "llama"), layers, more.pop("stop", ())
    )
    prompt, observe = more.pop("prompt", PROMPT), more.pop("observe", None)
    assert not more, more
    settings = Settings(budget=budget, max_new_tokens=count, sampling=sampling)
    rounds = list(decode(where, method, list(prompt), settings, observe))
    return SimpleNamespace(rounds=rounds, tokens=tuple(new_tokens(rounds)), target=where)


def random_parents(rng: np.random.Generator, rows: int) -> list[int]:
    """Parents of a random tree in which every parent stands before its children."""
    return [-1, *(int(rng.integers(0, row)) for row in range(1, rows))]


def draft_of(parents: Sequence[int], tokens: Sequence[int]) -> Draft:
    """A draft of any shape: depths follow, scores and ranks are placeholders."""
    depths = [0] * len(parents)
    for row, parent in enumerate(parents[1:], 1):
        depths[row] = depths[parent] + 1
    return Draft(
        tokens=np.array(tokens, np.int64),
        parents=np.array(parents, np.int32),
        depths=np.array(depths, np.int32),
        ranks=np.array([0] + [1] * (len(parents) - 1), np.int32),
        log_q=np.zeros(len(parents), np.float32),
        scores=np.zeros(len(parents), np.float32),
    )


def verdict_of(draft: Draft, path: Sequence[int], bonus: int = 0) -> Verdict:
    choices = np.full(len(draft), -1, np.int64)
    for above, below in itertools.pairwise(path):
        choices[above] = draft.tokens[below]
    choices[path[-1]] = bonus
    return Verdict(tuple(path), choices)


def committed_kv(where: Target) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of the committed rows, layer by layer."""
    cache_ = where._kv
    return [
        (layer.keys[:, :, : where.length], layer.values[:, :, : where.length])
        for layer in cache_.layers
    ]


def as_logged(record: Round, number: int = 0) -> Round:
    """A round as a trace would hold it: with texts and (literal) stage times."""
    ids = {*record.draft.tokens.tolist(), *record.verdict.target_tokens.tolist(), *record.committed}
    texts = {token: f" t{token}" for token in sorted(ids) if token >= 0}
    times = Times(0.001 * (number + 1), 0.0001, 0.01, 0.0002)
    return replace(record, texts=texts, times=times)


# ── a language ───────────────────────────────────────────────────────────────────────────────────

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
LANGUAGE_SIZE = 259  # 256 bytes, <|end|>, <|start|>, <|mask|>


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE without merges: one token a byte, and three special tokens."""
    letters = sorted(ByteLevel.alphabet())
    special = ["<|end|>", "<|start|>", "<|mask|>"]
    bpe = Tokenizer(BPE({letter: i for i, letter in enumerate(letters)}, []))
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    bpe.add_special_tokens(special)
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>")
    made.chat_template = TEMPLATE
    return made


def language_model(family: str = "llama", dtype=torch.float32):
    """A fresh random model over the toy tokenizer's vocabulary, on Draftscope's attention."""
    return _make(family, 0, LANGUAGE_SIZE, ATTENTION).to(dtype)
