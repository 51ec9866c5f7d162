"""Toy models and drafters: small enough for exactness in float64, real enough to break things.

The reference everywhere is ``plain``: Hugging Face's own forward without any cache and without
Draftscope's attention, one token at a time.
"""

from __future__ import annotations

import copy
import itertools
import json
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
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
)

from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.builders import Chain, best_first
from core.drafting.session import (
    MIN_LISTED,
    NO_STATE,
    Children,
    Covered,
    Drafter,
    DraftSession,
    FactorisedSession,
    PathSession,
)
from core.methods.dart import ContinuityOptions
from core.methods.dart.drafter import DartDrafter
from core.methods.dart.model import DartConfig, DartModel
from core.methods.dart.search import ContinuitySearch
from core.methods.dflash.before import CorrectedDrafter
from core.methods.dflash.drafter import DFlashDrafter
from core.methods.dflash.model import DFlashConfig, DFlashModel
from core.methods.dflash2.drafter import DFlash2Drafter
from core.methods.dflash2.model import DFlash2Config, DFlash2Model
from core.methods.domino.model import DominoConfig, DominoModel
from core.methods.dspark import DSparkOptions
from core.methods.dspark.drafter import DSparkDrafter
from core.methods.dspark.model import DSparkConfig, DSparkModel
from core.methods.eagle2.model import FeatureConfig, FeatureModel
from core.methods.eagle3.drafter import EagleDrafter
from core.methods.eagle3.model import EagleConfig, EagleModel
from core.methods.gemma4_assistant.drafter import AssistantDrafter
from core.methods.gemma4_assistant.model import Assistant, AssistantConfig
from core.methods.hydra.drafter import HydraDrafter, HydraPlusDrafter
from core.methods.hydra.model import HydraConfig, HydraModel, HydraPlusModel, Prefix
from core.methods.lookahead import Lookahead, LookaheadOptions
from core.methods.medusa.drafter import MedusaDrafter
from core.methods.medusa.model import MedusaConfig, MedusaModel
from core.methods.method import DepthOptions
from core.methods.mtp import MtpOptions
from core.methods.mtp.config import MtpConfig
from core.methods.mtp.drafter import MtpDrafter
from core.methods.mtp.model import head_of
from core.methods.ngram_mod import NgramMod, NgramModOptions, Table
from core.methods.peagle.drafter import ParallelDrafter
from core.methods.peagle.model import ParallelConfig, ParallelModel
from core.methods.pld import PldOptions, PromptLookup
from core.methods.sps.drafter import LmDrafter
from core.methods.suffix import SuffixOptions
from core.methods.suffix.automaton import SuffixAutomaton
from core.methods.suffix.drafter import SuffixDrafter
from core.methods.treeflash import TreeFlashOptions
from core.methods.treeflash.drafter import TreeFlashDrafter
from core.methods.treeflash.model import TreeFlashModel
from core.methods.uno import UnoOptions
from core.methods.uno.drafter import UnoDrafter
from core.methods.uno.model import UnoConfig, adapted
from core.methods.xpress.model import XPressConfig, XPressModel
from core.models.adapter import MASK, PARTS
from core.models.hugging_face import ATTENTION
from core.models.recurrent import let_states_fork
from core.models.target import Target
from core.ngram import NgramStore
from core.rounds.draft import Candidates, Draft
from core.rounds.round import Round, Sampling, Times, Verdict, new_tokens
from core.verification.sampling import gumbel_noise
from tests import GOLDEN
from tests.helpers.ngram_reference import count_grams, store_of

VOCABULARY = 48
LAYERS = (0, 2)  # feature layers of every toy drafter
PROMPT = (5, 17, 3, 44, 9, 28, 3, 11)
GREEDY = Sampling()
SAMPLED = Sampling(temperature=0.9, top_k=20, top_p=0.95, seed=11)
HOT = Sampling(temperature=1.3, seed=5)
RULES = {"greedy": GREEDY, "top-k top-p": SAMPLED, "hot": HOT}
FAMILIES = ("llama", "qwen3")


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


@cache
def model(family: str = "llama", seed: int = 0, vocabulary: int = VOCABULARY, dtype=torch.float64):
    """A random causal LM that runs on Draftscope's attention. Shared: never train it."""
    made = _make(family, seed, vocabulary, ATTENTION).to(dtype)
    let_states_fork(made, made.config)
    return made


@cache
def reference(family: str = "llama", seed: int = 0, vocabulary: int = VOCABULARY):
    """The same weights on Hugging Face's own eager attention, in float64."""
    return _make(family, seed, vocabulary, "eager").double()


_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8}
HYBRIDS = {
    "qwen3_next": {"full_attention_interval": 2, "mlp_only_layers": [1]},
    "qwen3_5_text": {"full_attention_interval": 2},
    "qwen3_5_moe_text": {"full_attention_interval": 2},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 2,
        "n_routed_experts": 4,
        "moe_shared_expert_intermediate_size": 24,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 2},
    "kimi_linear": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_layer_types": ["dense", "dense", "sparse", "sparse"],
        "n_routed_experts": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "linear_attn_config": {
            "head_dim": 16,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
            "kda_layers": [1, 3],
            "full_attn_layers": [2, 4],
        },
    },
    "granitemoehybrid": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_local_experts": 4,
        "shared_intermediate_size": 24,
        **_MAMBA,
    },
    "bamba": {"attn_layer_indices": [1, 3], **_MAMBA},
    "falcon_h1": {"mamba_d_ssm": 64, **_MAMBA},
    "lfm3": {
        "layer_types": ["conv", "full_attention", "conv", "sliding_attention"],
        "sliding_window": 6,
    },
    "lara_mini": {
        "layer_types": [
            "linear_attention",
            "full_attention",
            "linear_attention",
            "sliding_attention",
        ],
        "sliding_window": 6,
    },
    "bailing_hybrid": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_layer_types": ["dense", "sparse"] * 2,
        "num_local_experts": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_group": 2,
        "topk_group": 1,
    },
}
"""What a tiny model of each family with recurrent state needs beside ``_SHAPE``."""

_MIXED = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"] * 2}
WINDOWED = {
    "mistral": {"sliding_window": 6},
    "ministral": _MIXED,
    "gemma2": _MIXED,
    "gemma3_text": _MIXED,
    "gemma4_text": {**_MIXED, "num_kv_shared_layers": 0, "global_head_dim": 16,
                    "hidden_size_per_layer_input": 0},
    "cohere2": _MIXED,
    "exaone4": _MIXED,
    "olmo3": _MIXED,
    "gpt_oss": {**_MIXED, "num_local_experts": 4},
    "granite_swa": _MIXED,
    "mimo_v2_flash": _MIXED,
    "llama4_text": {"attention_chunk_size": 6, "num_local_experts": 4},
}  # fmt: skip
"""The same of families with layers that see a window, or a chunk; some with attention sinks."""

_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_HEADS = {"head_dim": 16}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 24,
}
_FAMILY = {"qwen3": _HEADS, "qwen3_moe": {**_HEADS, **_EXPERTS}}


def config(family: str, vocabulary: int = VOCABULARY):
    """The config of a tiny model of a family, by transformers' ``model_type``."""
    hybrid = (HYBRIDS | WINDOWED).get(family)
    own = _FAMILY.get(family, {}) if hybrid is None else {**_HEADS, **_EXPERTS, **_DELTA_NET}
    return AutoConfig.for_model(
        family, vocab_size=vocabulary, **{**_SHAPE, **own, **(hybrid or {})}
    )


def _make(family: str, seed: int, vocabulary: int, attention: str):
    torch.manual_seed(seed)
    experts = {} if family in ("llama", "qwen3") else {"experts_implementation": "eager"}
    made = AutoModelForCausalLM.from_config(
        config(family, vocabulary), attn_implementation=attention, **experts
    )
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in made.named_parameters():
        if name.endswith("A_log"):  # log of a rate of decay, one that a few tokens live through
            parameter.data = torch.rand(parameter.shape, generator=generator) - 2
        elif parameter.ndim > 1:  # wide enough that every token and position matters
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
    kv = [(layer.keys, layer.values) for layer in out.cache.layers]
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


def plain(
    count: int,
    sampling: Sampling = GREEDY,
    prompt: tuple[int, ...] = PROMPT,
    family: str = "llama",
    stop: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """New tokens of plain decoding: whole forwards of the reference model, no cache. One forward
    chooses as many tokens as were guessed rightly, and one more."""
    tokens, guesses = _text_so_far(sampling, prompt, family), _guesses(sampling, prompt, family)
    while len(tokens) - len(prompt) < count:
        guessed = guesses[len(tokens) - len(prompt) :]
        with torch.inference_mode():
            whole = reference(family)(torch.tensor([[*tokens, *guessed]]), use_cache=False).logits
        for place, logits in enumerate(whole[0, len(tokens) - 1 :].numpy()):
            tokens.append(own_choice(logits, sampling, len(tokens)))
            if guessed[place : place + 1] != tokens[-1:]:
                break
    new = tokens[len(prompt) :][:count]
    ends = [at for at, token in enumerate(new, 1) if token in stop]
    return tuple(new[: ends[0]] if ends else new)


@cache
def _text_so_far(sampling: Sampling, prompt: tuple[int, ...], family: str) -> list[int]:
    """A prompt and what ``plain`` has written after it, which grows."""
    return list(prompt)


def _guesses(sampling: Sampling, prompt: tuple[int, ...], family: str) -> list[int]:
    """The text that ``golden/plain.json`` has: where it is right it saves time, and no more."""
    name = next((name for name, rule in RULES.items() if rule == sampling), "")
    return _written().get(f"{family} {name}", []) if prompt == PROMPT else []


@cache
def _written() -> dict[str, list[int]]:
    return json.loads((GOLDEN / "plain.json").read_text("utf-8"))


# ── drafters ─────────────────────────────────────────────────────────────────────────────────────


class ToyDrafter(Drafter):
    """Remembers its context and checks what the loop hands it; ``log_q`` is the subclass's."""

    layers = LAYERS

    def __init__(self, max_depth: int = 7, vocabulary: int = VOCABULARY):
        self.max_depth, self.vocabulary = max_depth, vocabulary
        self.context: list[int] = []
        self.features: list[Tensor] = []
        self.room = 0

    def reset(self, capacity: int) -> None:
        self.context, self.features, self.room = [], [], capacity

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        assert len(tokens) == len(features)
        self.context += list(tokens)
        self.features.append(features)
        assert len(self.context) <= self.room

    def begin(self, root: int, width: int) -> DraftSession:
        return FactorisedSession.of(self.log_q([*self.context, root]), max(width, MIN_LISTED))

    def log_q(self, text: list[int]) -> Tensor:
        """[L, V] for the positions after ``text``, whose last token is the root."""
        raise NotImplementedError

    def noise(self, text: list[int], seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed * 7919 + len(text))
        return torch.randn(self.max_depth, self.vocabulary, generator=generator)


class RandomDrafter(ToyDrafter):
    """Knows nothing."""

    def log_q(self, text: list[int]) -> Tensor:
        return (2 * self.noise(text)).log_softmax(-1)


class OracleDrafter(ToyDrafter):
    """Knows the text to come, and says it with log q = 0: probability exactly one."""

    def __init__(self, text: Sequence[int], max_depth: int = 7):
        super().__init__(max_depth)
        self.text = list(text)  # prompt and continuation

    def future(self, text: list[int]) -> list[int]:
        """The true tokens after ``text``, wrapped at the end of what is known."""
        assert text == self.text[: len(text)], "the loop left the target's own text"
        ahead = self.text[len(text) : len(text) + self.max_depth]
        return ahead + [0] * (self.max_depth - len(ahead))

    def log_q(self, text: list[int]) -> Tensor:
        log_q = torch.full((self.max_depth, self.vocabulary), -torch.inf)
        log_q[torch.arange(self.max_depth), torch.tensor(self.future(text))] = 0.0
        return log_q


class NoisyOracle(OracleDrafter):
    """Right now and then: the true token stands at changing ranks, so paths skip rows."""

    def __init__(self, text: Sequence[int], max_depth: int = 7, boost: float = 2.5):
        super().__init__(text, max_depth)
        self.boost = boost

    def log_q(self, text: list[int]) -> Tensor:
        logits = 1.5 * self.noise(text, seed=3)
        logits[torch.arange(self.max_depth), torch.tensor(self.future(text))] += self.boost
        return logits.log_softmax(-1)


class AdversarialDrafter(OracleDrafter):
    """Never drafts the true token unless the budget forces it to: it stands last at every depth."""

    def log_q(self, text: list[int]) -> Tensor:
        logits = self.noise(text, seed=4)
        logits[torch.arange(self.max_depth), torch.tensor(self.future(text))] = -30.0
        return logits.log_softmax(-1)


class RightUntil(OracleDrafter):
    """Sure and right for the first ``right`` depths, sure and wrong after them."""

    def __init__(self, text: Sequence[int], right: int, max_depth: int = 7):
        super().__init__(text, max_depth)
        self.right = right

    def log_q(self, text: list[int]) -> Tensor:
        tokens = torch.tensor(self.future(text))
        tokens[self.right :] = (tokens[self.right :] + 1) % self.vocabulary
        logits = 0.1 * self.noise(text)
        logits[torch.arange(self.max_depth), tokens] = 12.0
        return logits.log_softmax(-1)


class SameForever(ToyDrafter):
    """Always proposes one token, at every depth."""

    def __init__(self, token: int, max_depth: int = 7):
        super().__init__(max_depth)
        self.token = token

    def log_q(self, text: list[int]) -> Tensor:
        logits = torch.zeros(self.max_depth, self.vocabulary)
        logits[:, self.token] = 9.0
        return logits.log_softmax(-1)


class TableSession(DraftSession):
    """States are a depth and the token before, told the slow way: ``after(depth, token)`` is
    log q′ [V] at a 0-based depth given the token before it; log q [L, V] is the plain one."""

    def __init__(
        self,
        log_q: Tensor,
        after: Callable[[int, int], Tensor],
        root: int,
        candidates: int,
        siblings: int,
        width: int = 16,
        eager: bool = False,
    ):
        best = log_q.topk(min(max(width, MIN_LISTED), log_q.shape[-1]))
        self.by_depth = Candidates(best.indices.numpy(), best.values.numpy())
        self.after, self.siblings, self.eager = after, min(siblings, log_q.shape[-1]), eager
        count = min(candidates, log_q.shape[-1])
        self.chosen = [log_q[depth].topk(count).indices.tolist() for depth in range(len(log_q))]
        self.root, self.count, self.asked = root, count, list[int]()

    @property
    def max_depth(self) -> int:
        return len(self.chosen)

    @property
    def state_count(self) -> int:
        return 1 + (self.max_depth - 1) * self.count

    def expand(self, states: np.ndarray) -> Children:
        if self.eager:
            states = np.arange(self.state_count, dtype=np.int32)
        assert not set(self.asked) & set(states.tolist()), "a state is expanded once"
        self.asked += states.tolist()
        ids, odds, leads = [], [], []
        for state in states.tolist():
            depth, row = (0, -1) if state == 0 else (1 + (state - 1) // self.count, 0)
            token = self.root
            if state:
                row = (state - 1) % self.count
                token = self.chosen[depth - 1][row]
            best = self.after(depth, token).topk(self.siblings)
            ids.append(best.indices.tolist())
            odds.append(best.values.tolist())
            leads.append([self._state(depth, token) for token in ids[-1]])
        return Children(
            states,
            np.array(ids, np.int64),
            np.array(odds, np.float32),
            np.array(leads, np.int32),
        )

    def _state(self, depth: int, token: int) -> int:
        """The state after a token at a 0-based depth."""
        if depth + 1 == self.max_depth or token not in self.chosen[depth]:
            return NO_STATE
        return 1 + depth * self.count + self.chosen[depth].index(token)

    def log_q(self, path: Sequence[int]) -> Tensor:
        return torch.stack([self.after(depth, token) for depth, token in enumerate(path)])


class FunctionSession(PathSession):
    """q depends on the whole path: ``after(path)`` is log q [V] after the tokens of a path, the
    root among them. ``again``: whether a node may be scored twice."""

    again = False

    def __init__(self, after, root: int, max_depth: int, width: int):
        super().__init__(root, max_depth, width)
        self.after, self.paths, self.batches = after, list[tuple[int, ...]](), 0

    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        self.batches += 1
        paths = [
            (*(self.paths[parent] if parent >= 0 else ()), token)
            for token, parent in zip(tokens, parents, strict=True)
        ]
        assert self.again or not set(paths) & set(self.paths), "a node is scored once"
        self.paths += paths
        return torch.stack([self.after(path) for path in paths])


class ConditionalDrafter(OracleDrafter):
    """q′ hangs on the token before: right after the true one, or with ``adversarial`` wrong there
    and nowhere else. The plain q, which the candidates are read off, likes the true token."""

    def __init__(
        self,
        text: Sequence[int],
        max_depth: int = 7,
        adversarial: bool = False,
        candidates: int = 5,
    ):
        super().__init__(text, max_depth)
        self.adversarial, self.candidates = adversarial, candidates

    def log_q(self, text: list[int]) -> Tensor:
        logits = self.noise(text, seed=6)
        logits[torch.arange(self.max_depth), torch.tensor(self.future(text))] += 3.0
        return logits.log_softmax(-1)

    def after(self, text: list[int], depth: int, token: int) -> Tensor:
        """log q′ [V] at a 0-based depth after a token."""
        future = [text[-1], *self.future(text)]
        generator = torch.Generator().manual_seed(len(text) * 613 + depth * 97 + token)
        logits = 1.5 * torch.randn(self.vocabulary, generator=generator)
        if token == future[depth]:
            logits[future[depth + 1]] += -30.0 if self.adversarial else 2.5
        return logits.log_softmax(-1)

    def begin(self, root: int, width: int) -> TableSession:
        text = [*self.context, root]

        def after(depth: int, token: int) -> Tensor:
            return self.after(text, depth, token)

        return TableSession(self.log_q(text), after, root, self.candidates, 9, width)


class PathDrafter(OracleDrafter):
    """q depends on the whole path: right after the true path, noise elsewhere."""

    def __init__(self, text: Sequence[int], max_depth: int = 5, boost: float = 3.0):
        super().__init__(text, max_depth)
        self.boost = boost

    def begin(self, root: int, width: int) -> FunctionSession:
        text = [*self.context, root]
        future = [root, *self.future(text)]

        def after(path: tuple[int, ...]) -> Tensor:
            seed = hash((len(text), path)) % (1 << 31)
            logits = 1.5 * torch.randn(
                self.vocabulary, generator=torch.Generator().manual_seed(seed)
            )
            if list(path) == future[: len(path)]:
                logits[future[len(path)]] += self.boost
            return logits.log_softmax(-1)

        return FunctionSession(after, root, self.max_depth, width)


LAYER = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
"""The sizes of a drafter's layer, by their names in a config."""


def embedding_and_head(family: str = "llama"):
    """The toy target's, which its drafters share."""
    owner = model(family)
    return owner.get_input_embeddings(), owner.get_output_embeddings()


def dflash_config(**changes) -> DFlashConfig:
    """A two-layer DFlash for the toy targets."""
    fields = {
        "num_hidden_layers": 2,
        "vocab_size": VOCABULARY,
        "block_size": 8,
        "num_target_layers": 4,
        "target_layer_ids": LAYERS,
        "mask_token_id": 47,
    }
    return DFlashConfig(**(LAYER | fields | changes))


def dflash_model(seed: int = 0, dtype=torch.float64, **changes) -> DFlashModel:
    """Random weights, gains included: a norm that is skipped or misplaced must show."""
    return _randomised(DFlashModel(dflash_config(**changes)), seed, dtype)


def _randomised(made, seed: int, dtype):
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.2 * noise if parameter.ndim == 2 else 1 + 0.3 * noise
    return made.to(dtype).eval().requires_grad_(False)


def dflash_drafter(family: str = "llama", seed: int = 0, **changes) -> DFlashDrafter:
    return DFlashDrafter(dflash_model(seed, **changes), *embedding_and_head(family))


def dspark_model(seed: int = 0, dtype=torch.float64, **changes) -> DSparkModel:
    """Blocks of 8 with both heads."""
    own = {"markov_rank": 6, "enable_confidence_head": True, "confidence_head_with_markov": True}
    own |= {"sample_from_anchor": True}
    config = DSparkConfig(**(vars(dflash_config()) | own | changes))
    return _randomised(DSparkModel(config), seed + 700, dtype)


def dspark_drafter(seed: int = 0, confidence: float = 0.0, **changes) -> DSparkDrafter:
    made, options = dspark_model(seed, **changes), DSparkOptions(confidence)
    return DSparkDrafter(made, *embedding_and_head(), options)


def dflash2_model(seed: int = 0, dtype=torch.float64, **changes) -> DFlash2Model:
    """Blocks of 8, convolutions over groups of 8 channels, 5 tokens for the selector."""
    own = {"selector_rank": 6, "selector_top_k": 5, "conv_group_size": 8}
    own |= {"sliding": (True, True), "window": 6, "causal": False}
    config = DFlash2Config(**(vars(dflash_config()) | own | changes))
    return _randomised(DFlash2Model(config), seed + 800, dtype)


def dflash2_drafter(seed: int = 0, temperature: float = 1.0, **changes) -> DFlash2Drafter:
    return DFlash2Drafter(dflash2_model(seed, **changes), *embedding_and_head(), temperature)


def _corrected(network, config, own: dict, seed: int, changes: dict) -> CorrectedDrafter:
    """A drafter whose logits are corrected, of a network and config class."""
    temperature, dtype = changes.pop("temperature", 1.0), changes.pop("dtype", torch.float64)
    covered = None
    if ids := changes.pop("ids", None):
        covered, own = Covered(torch.tensor(ids), VOCABULARY), own | {"draft_vocab_size": len(ids)}
    made = network(config(**(vars(dflash_config()) | own | changes)))
    embedding, head = embedding_and_head()
    if covered is not None:
        rows = head.weight[covered.ids]
        head = torch.nn.Linear(32, len(covered.ids), bias=False)
        head.weight = torch.nn.Parameter(rows)
    made = _randomised(made, seed + 900, dtype)
    return CorrectedDrafter(made, embedding, head, temperature, covered=covered)


def xpress_drafter(seed: int = 0, **changes) -> CorrectedDrafter:
    """Blocks of 8; the refiner mixes its rows as strongly as anything else it does."""
    own = {"xpress_rank": 6, "xpress_mlp_ratio": 2}
    made = _corrected(XPressModel, XPressConfig, own, seed, changes)
    made.model.refiner_head.mix_l.data = 0.3 * numbers_like(made.model.refiner_head.mix_l, seed)
    return made


def domino_drafter(seed: int = 0, **changes) -> CorrectedDrafter:
    own = {"emb_dim": 10, "gru_hidden_dim": 6}
    return _corrected(DominoModel, DominoConfig, own, seed, changes)


def numbers_like(tensor, seed: int):
    return torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)).to(tensor.dtype)


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
    made = treeflash_model(seed, zero=zero)
    return TreeFlashDrafter(made, *embedding_and_head(family), TreeFlashOptions(**options))


def dart_config(**changes) -> DartConfig:
    """A DART layer for the toy targets: six masks, seven depths."""
    own = {"draft_vocab_size": VOCABULARY, "draft_length": 6, "target_hidden_size": 32}
    return DartConfig(**(LAYER | {"vocab_size": VOCABULARY} | own | changes))


def dart_model(seed: int = 0, dtype=torch.float64, **changes) -> DartModel:
    """Random weights, gains and mask included."""
    return _randomised(DartModel(dart_config(**changes)), seed + 200, dtype)


def random_head(rows: int, seed: int = 0, dtype=torch.float64) -> torch.nn.Linear:
    made = torch.nn.Linear(32, rows, bias=False, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    made.weight = torch.nn.Parameter(
        torch.randn(made.weight.shape, generator=generator).double(), requires_grad=False
    )
    return made.to(dtype)


def dart_drafter(
    family: str = "llama",
    seed: int = 0,
    ids: Sequence[int] | None = None,
    temperature: float = 1.0,
    **changes,
) -> DartDrafter:
    """``ids``: the tokens of a head of its own."""
    embedding, head = embedding_and_head(family)
    return DartDrafter(
        dart_model(seed, **changes),
        embedding,
        head if ids is None else random_head(len(ids)),
        DartConfig.feature_layers(4),
        temperature,
        covered=None if ids is None else Covered(torch.tensor(list(ids)), VOCABULARY),
    )


def pld_drafter(stops: Sequence[int] = (), **options) -> PromptLookup:
    facts = SimpleNamespace(vocabulary=VOCABULARY, stop_ids=frozenset(stops))
    return PromptLookup(facts, None, PldOptions(**options))


def suffix_drafter(earlier: Sequence[Sequence[int]] = (), **options) -> SuffixDrafter:
    chosen = SuffixOptions(**options)
    store = SuffixAutomaton(chosen.max_tree_depth)
    for text in earlier:
        store.begin()
        store.extend(text)
    return SuffixDrafter(VOCABULARY, chosen, store)


def ngram_mod_drafter(earlier: Sequence[Sequence[int]] = (), **options) -> NgramMod:
    chosen = NgramModOptions(**options)
    table = Table(chosen.n_match)
    for text in earlier:
        table.add(text, 0)
    return NgramMod(VOCABULARY, chosen, table)


def lookahead_drafter(**options) -> Lookahead:
    return Lookahead(SimpleNamespace(vocabulary=VOCABULARY), None, LookaheadOptions(**options))


@cache
def draft_model(noise: float = 0.02):
    """A causal LM that resembles the toy target: the same weights and some noise."""
    made, rng = copy.deepcopy(model()), torch.Generator().manual_seed(7)
    for parameter in made.parameters():
        parameter.data += noise * torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
    return made


def sps_drafter(depth: int = 5, noise: float = 0.02) -> LmDrafter:
    return LmDrafter(draft_model(noise), depth)


def mtp_drafter(
    family: str = "llama",
    dtype=torch.float64,
    vocabulary: int = VOCABULARY,
    depths: int = 1,
    chained: bool = True,
):
    """A random MTP layer of the target's class, five tokens deep, or one for each depth."""
    owner = model(family, vocabulary=vocabulary)
    config = MtpConfig(32, vocabulary, owner.config.rms_norm_eps, depths=depths)
    if not chained:
        config = replace(config, layout=replace(config.layout, chained=False, before_norm=True))
    head = head_of(owner, config)
    head = _randomised(head.to_empty(device="cpu"), 1000, dtype).eval()
    return MtpDrafter(head, owner.get_input_embeddings(), (3,), MtpOptions(5))


UNO_MASK = 0.1 * torch.arange(32, dtype=torch.float64)


def uno_tensors(rank: int = 3, seed: int = 9, size: float = 0.05, family: str = "llama"):
    """Random low-rank pairs for the toy target's projections."""
    rng, made = torch.Generator().manual_seed(seed), {}
    for number, layer in enumerate(model(family).get_decoder().layers):
        for part, at in PARTS.items():
            out, width = getattr(getattr(layer, at), part).weight.shape
            for half, shape in (("a", (rank, width)), ("b", (out, rank))):
                drawn = size * torch.randn(shape, generator=rng, dtype=torch.float64)
                made[f"layers.{number}.{part}.{half}"] = drawn
    return made


def uno_drafter(
    causal: bool = True, masks: int = 0, scale: float = 2.0, family: str = "llama"
) -> UnoDrafter:
    """The toy target with a random adapter, five tokens deep."""
    own = {} if causal else {MASK: UNO_MASK}
    config = UnoConfig(3, scale, None if causal else 1, masks, causal)
    tensors = uno_tensors(family=family) | own
    return UnoDrafter(*adapted(model(family), tensors, config), config, UnoOptions(5))


class ToyKeys:
    """Keys and values for an assistant's layers: the toy target's features by random matrices."""

    layers = LAYERS

    def __init__(self, own, dtype):
        rng = torch.Generator().manual_seed(8)
        self._of = {}
        for kind, each in zip(own.layer_types, own.per_layer_config, strict=True):
            shape = (each.num_key_value_heads, each.head_dim)
            made = torch.randn(2, *shape, 32 * len(LAYERS), generator=rng, dtype=torch.float64)
            self._of[kind] = made.to(dtype) * 0.1

    def hidden(self, features):
        return features[:, -32:]

    def project(self, features, positions):
        turned = {k: torch.einsum("tf,pgdf->pgtd", features, m) for k, m in self._of.items()}
        return {kind: (both[:1], both[1:]) for kind, both in turned.items()}


def assistant_drafter(dtype=torch.float64, vocabulary: int = VOCABULARY, clusters: int = 0):
    """A random assistant of two layers, five tokens deep."""
    text = {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "vocab_size": vocabulary,
        "layer_types": ["sliding_attention", "full_attention"], "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16, "sliding_window": 512,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
        "num_kv_shared_layers": 2,
    }  # fmt: skip
    config = AssistantConfig(32, 24, vocabulary, clusters, 3, text=text)
    made = _randomised(Assistant(config), 1100, dtype).eval()
    keys = ToyKeys(made.model.config, dtype)
    return AssistantDrafter(made, model().get_input_embeddings(), keys, DepthOptions(5))


def eagle_config(**changes) -> EagleConfig:
    """An EAGLE-3 layer for the toy targets."""
    shape = {n: v for n, v in vars(dart_config()).items() if n in EagleConfig.__annotations__}
    return EagleConfig(**(shape | changes))


def eagle_drafter(
    family: str = "llama",
    seed: int = 0,
    ids: Tensor | None = None,
    temperature: float = 1.0,
    dtype=torch.float64,
    **changes,
) -> EagleDrafter:
    """A random EAGLE-3 layer, five tokens deep, with a head of its own: over ``ids``, or all."""
    rows = VOCABULARY if ids is None else len(ids)
    config = eagle_config(**({"draft_vocab_size": rows} | changes))
    made = _randomised(EagleModel(config), seed + 300, dtype)
    head = random_head(rows, seed, dtype)
    layers = config.feature_layers(4)
    options = DepthOptions(5, temperature)
    return EagleDrafter(made, model(family).get_input_embeddings(), head, layers, ids, options)


def parallel_drafter(
    seed: int = 0,
    ids: Tensor | None = None,
    temperature: float = 1.0,
    dtype=torch.float64,
    depth: int = 5,
    **changes,
) -> ParallelDrafter:
    """A random P-EAGLE of two layers, with a head of its own: over ``ids``, or all."""
    rows = changes.get("vocab_size", VOCABULARY) if ids is None else len(ids)
    own = {"draft_vocab_size": rows, "num_hidden_layers": 2, "mask_token_id": 47}
    config = ParallelConfig(**(vars(eagle_config()) | own | changes))
    made = _randomised(ParallelModel(config), seed + 700, dtype)
    head = random_head(rows, seed, dtype)
    layers, options = config.feature_layers(4), DepthOptions(depth, temperature)
    return ParallelDrafter(made, model().get_input_embeddings(), head, layers, ids, options)


def feature_drafter(
    family: str = "llama", seed: int = 0, temperature: float = 1.0, dtype=torch.float64, **changes
) -> EagleDrafter:
    """A random layer of EAGLE-1, five tokens deep."""
    config = FeatureConfig(**(vars(eagle_config()) | changes))
    made = _randomised(FeatureModel(config), seed + 600, dtype)
    layers, options = config.feature_layers(4), DepthOptions(5, temperature)
    return EagleDrafter(made, *embedding_and_head(family), layers, None, options)


def medusa_drafter(family: str = "llama", seed: int = 0, own: bool = False) -> MedusaDrafter:
    """Five random heads of two blocks; ``own``: each with a linear head of its own."""
    config = MedusaConfig(5, 32, 2, VOCABULARY if own else 0)
    made = _randomised(MedusaModel(config), seed + 400, torch.float64)
    return MedusaDrafter(made, model(family).get_output_embeddings(), (3,), torch.float64)


def hydra_drafter(
    family: str = "llama", seed: int = 0, own: bool = False, res_connection: bool = False
) -> HydraDrafter:
    """Four random heads."""
    config = HydraConfig(4, 32, res_connection, VOCABULARY if own else 0)
    made = _randomised(HydraModel(config), seed + 500, torch.float64)
    return HydraDrafter(made, *embedding_and_head(family), (3,))


def hydra_plus_drafter(
    family: str = "llama", seed: int = 0, dtype=torch.float64, vocabulary: int = VOCABULARY
) -> HydraPlusDrafter:
    """Four random heads of three blocks, and the layer before them."""
    c = model(family).config
    width = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    sizes = (c.num_attention_heads * width, c.num_key_value_heads * width)
    config = HydraConfig(4, 32, True, vocabulary, True, 3, Prefix(c.intermediate_size, *sizes))
    made = _randomised(HydraPlusModel(config.made_for(c)), seed + 900, dtype)
    return HydraPlusDrafter(made, *embedding_and_head(family), (3,))


DRAFTERS = {  # a small one of every kind
    "dflash": dflash_drafter,
    "treeflash": treeflash_drafter,
    "dspark": dspark_drafter,
    "dflash2": dflash2_drafter,
    "xpress": xpress_drafter,
    "domino": domino_drafter,
    "dart": dart_drafter,
    "pld": pld_drafter,
    "suffix": suffix_drafter,
    "ngram-mod": ngram_mod_drafter,
    "sps": sps_drafter,
    "lookahead": lookahead_drafter,
    "eagle2": feature_drafter,
    "eagle3": eagle_drafter,
    "peagle": parallel_drafter,
    "medusa": medusa_drafter,
    "hydra": hydra_drafter,
    "mtp": mtp_drafter,
    "gemma4-assistant": assistant_drafter,
    "uno": uno_drafter,
}


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
    return store_of(count_grams([text]), vocabulary)


def continuity(text: Sequence[int] = (), stops: Sequence[int] = (), **weights) -> ContinuitySearch:
    """DART's search over the grams of a text."""
    store = ngram_store(text) if text else NgramStore.empty(VOCABULARY)
    return ContinuitySearch(store, np.array(sorted(stops), np.int64), ContinuityOptions(**weights))


# ── runs and drafts ──────────────────────────────────────────────────────────────────────────────


AR = Decoder("ar")


def tree(drafter) -> Decoder:
    return Decoder("ddtree", drafter, best_first)


def line(drafter) -> Decoder:
    return Decoder("dflash", drafter, Chain())


def run(method: Decoder, count: int = 40, sampling: Sampling = GREEDY, budget: int = 16, **more):
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


def random_draft(seed: int | np.random.Generator, rows: int = 40) -> Draft:
    rng = np.random.default_rng(seed)
    return draft_of(random_parents(rng, rows), rng.integers(0, VOCABULARY, rows))


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
    tokens = np.full(len(draft), -1, np.int64)
    for above, below in itertools.pairwise(path):
        tokens[above] = draft.tokens[below]
    tokens[path[-1]] = bonus
    return Verdict(tuple(path), tokens)


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
