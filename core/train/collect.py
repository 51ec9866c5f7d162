"""Turn prompts into shards: the target answers them, or reads the answers they come with.

Generation is batched: the prompts' context is computed once and shared by several continuations
(greedy and sampled). The same forwards give the target's features and top-K distribution, so
self-generated text needs no second pass. Each batch is one shard; a killed run resumes at the first
missing one.

Shapes: R rows of a batch, T positions, F·h width of the features, K stored tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from core.chat import user_turn
from core.errors import UserError
from core.journal import alone
from core.learning.shards import TOP_K, Document, write_shard
from core.models.cache import StaticKV, additive_mask, cache_argument
from core.models.chat_template import render_chat
from core.models.language import MARKER, Language
from core.models.layer_kinds import carries_state
from core.models.layer_masks import layer_masks
from core.models.target import make_kv
from core.progress import Steps
from core.samples import Sample

_PATIENCE = 512  # user turns the target may write without ending one
_AT_ONCE = 256  # positions whose logits [N, V] exist together; each such batch reads the head once
COLLECTING = "collection"  # in messages: what is at work in a folder
_LOOP_LENGTH = 64  # tokens of an answer that ends in a loop


@dataclass(frozen=True)
class CollectSettings:
    """How text is made.

    temperatures  one continuation of each prompt per entry, 0 = greedy
    batch         prompts per shard
    top_k         sampling is among the target's best tokens only; 0 = the whole vocabulary
    cut_loops     an answer that ends in a short cycle is cut at 64 tokens
    cut_last      a batch ends when fewer than a quarter of its answers go on, to save time
    """

    layers: tuple[int, ...]
    temperatures: tuple[float, ...] = (0.0, 0.8)
    batch: int = 32
    max_new_tokens: int = 144
    max_prompt_tokens: int = 256
    top_k: int = 50
    seed: int = 0
    cut_loops: bool = True
    cut_last: bool = True


class _StoredColumns(NamedTuple):
    """The columns of the store, for each position of a batch."""

    features: Tensor  # fp16 [R, T, F·h]
    top_ids: Tensor  # int32 [R, T, K]
    top_logp: Tensor  # fp16 [R, T, K]


class _Best(NamedTuple):
    """Logits to sample from after the last position, best first, and their ids [R, K']."""

    logits: Tensor
    ids: Tensor


@dataclass(frozen=True)
class _Prompts:
    """A batch of prompts once it is read, padded on the left.

    pad   padding of each row
    real  bool [R, T], which positions are not padding
    """

    columns: _StoredColumns
    best: _Best
    pad: list[int]
    real: Tensor
    cache: StaticKV


class Collector:
    """Runs one target over batches of prompts. Holds no state between batches.

    Raises UserError for a target that carries a state: prompts of a batch are padded on the left,
    and a state would take the padding in.
    """

    def __init__(self, language: Language, settings: CollectSettings):
        if carries_state(language.model.config):
            raise UserError(
                f"the target {language.name!r} has layers that carry a state along the text, and "
                "training text cannot be collected from these in batches"
            )
        self.language, self.settings = language, settings
        self.model, self.tokenizer = language.model, language.tokenizer
        self.stop = set(language.stop_ids)

    def chat(self, user: str) -> list[int]:
        """Token ids of the prompt, as a run encodes it."""
        return self.language.encode_chat(user)

    @torch.inference_mode()
    def read(self, samples: Sequence[Sample]) -> list[Document]:
        """Teacher-force finished answers, in one batch."""
        rows, answers = [], []
        eos, longest = self.tokenizer.eos_token_id, self.settings.max_new_tokens * 2
        for sample in samples:
            prompt = self.chat(sample.user)[-self.settings.max_prompt_tokens :]
            reply = self.tokenizer(sample.answer or "", add_special_tokens=False).input_ids
            whole = eos is not None and len(reply) <= longest  # a cut answer has no end
            rows.append(prompt + reply[:longest] + ([eos] if whole else []))
            answers.append(len(prompt))
        prompts = self._prefill(rows, extra=0)
        return [
            self._document(row, answer, [column[i, prompts.pad[i] :] for column in prompts.columns])
            for i, (row, answer) in enumerate(zip(rows, answers, strict=True))
        ]

    @torch.inference_mode()
    def answer(self, prompts: Sequence[list[int]], seed: int) -> list[Document]:
        """Continue each prompt once per temperature, up to a stop token or max_new_tokens."""
        settings, copies = self.settings, len(self.settings.temperatures)
        first = self._prefill(prompts, extra=settings.max_new_tokens)
        sequences = [list(prompt) for prompt in prompts for _ in range(copies)]
        parts = self._continue(first, sequences, seed)
        documents = []
        for row, sequence in enumerate(sequences):
            source = row // copies
            length = len(prompts[source])
            if settings.cut_loops and is_loop(sequence[length:]):
                sequence = sequence[: length + _LOOP_LENGTH]
            whole = [
                torch.cat([before[source, first.pad[source] :], *(part[row] for part in after)])
                for before, *after in zip(first.columns, *parts, strict=True)
            ]
            documents.append(self._document(sequence, length, whole))
        return documents

    def _continue(
        self, first: _Prompts, sequences: list[list[int]], seed: int
    ) -> list[_StoredColumns]:
        """Extend the sequences, several of each prompt, until they end; columns of each step."""
        settings, device = self.settings, self.model.device
        prompts, width = first.real.shape
        copies = len(sequences) // prompts
        first.cache.repeat(copies)  # one prompt's context serves all its continuations
        real = torch.cat([first.real, first.real.new_ones(prompts, settings.max_new_tokens)], 1)
        real = real.repeat_interleave(copies, 0)
        position = real[:, :width].sum(1)
        temperature = torch.tensor(settings.temperatures * prompts, device=device)
        noise = torch.Generator(device).manual_seed(settings.seed * 1_000_003 + seed)
        best = _Best(*(part.repeat_interleave(copies, 0) for part in first.best))
        alive = torch.ones(len(sequences), dtype=torch.bool)
        fewest = len(sequences) / 4 if settings.cut_last else 1
        parts: list[_StoredColumns] = []
        while len(parts) < settings.max_new_tokens and int(alive.sum()) >= fewest:
            token = _draw(best, temperature, noise)
            drawn = token.tolist()  # waits for a GPU once
            for row in alive.nonzero().flatten().tolist():
                sequences[row].append(drawn[row])
                alive[row] = drawn[row] not in self.stop
            mask = additive_mask(real[:, None, None, : width + len(parts) + 1], self.model.dtype)
            columns, best = self._forward(token[:, None], mask, position[:, None], first.cache)
            parts.append(columns)
            position = position + 1
        return parts

    def synthesise(self, count: int, seed: int) -> list[str]:
        """Prompts that the target itself writes: begin the user turn, sample until it ends.

        Raises UserError for a target that never ends one.
        """
        head = _user_turn_head(self.tokenizer)
        texts: list[str] = []
        wasted = 0  # turns without an end since the last that had one
        while len(texts) < count:
            turns = [d.tokens[len(head) :].tolist() for d in self.answer([head], seed)]
            ended = [t[:-1] for t in turns if len(t) > 5 and t[-1] in self.stop]
            texts += [str(self.tokenizer.decode(t)) for t in ended]
            wasted = 0 if ended else wasted + len(turns)
            if wasted >= _PATIENCE:
                raise UserError("the target ends no user turn, so it cannot write prompts")
            seed += 1
        return texts[:count]

    def _prefill(self, rows: Sequence[list[int]], extra: int) -> _Prompts:
        """Read rows in one forward, with room in the cache for ``extra`` more positions."""
        width, device = max(map(len, rows)), self.model.device
        pad = [width - len(row) for row in rows]
        padded = [[0] * p + list(row) for p, row in zip(pad, rows, strict=True)]
        real = torch.arange(width, device=device)[None] >= torch.tensor(pad, device=device)[:, None]
        causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        mask = additive_mask(causal[None, None] & real[:, None, None], self.model.dtype)
        position = (real.cumsum(1) - 1).clamp(min=0)
        cache = make_kv(self.model, width + extra)
        ids = torch.tensor(padded, device=device)
        return _Prompts(*self._forward(ids, mask, position, cache), pad, real, cache)

    def _forward(
        self, ids: Tensor, mask: Tensor, position: Tensor, cache: StaticKV
    ) -> tuple[_StoredColumns, _Best]:
        body = self.model.model
        out = body(
            ids,
            **{cache_argument(type(body)): cache},
            attention_mask=layer_masks(self.model.config, mask),
            position_ids=position,
            output_hidden_states=True,
        )
        cache.commit(ids.shape[1])
        hidden = out.last_hidden_state
        wanted = [out.hidden_states[i + 1] for i in self.settings.layers]
        features = torch.cat(wanted, -1) if wanted else hidden[..., :0]
        last = self._logits(hidden[:, -1])
        parts = hidden.flatten(0, 1).split(_AT_ONCE) if ids.shape[1] > 1 else ()
        tops = [_tops(self._logits(part)) for part in parts] or [_tops(last)]
        top_ids, top_logp = (
            torch.cat(part).view(*ids.shape, TOP_K) for part in zip(*tops, strict=True)
        )
        limit = torch.finfo(torch.float16).max
        features = features.clamp(-limit, limit).half()
        columns = _StoredColumns(features.cpu(), top_ids.cpu(), top_logp.cpu())
        return columns, _Best(*last.topk(self.settings.top_k or last.shape[-1]))

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.language.logits(hidden).float()

    def _document(self, tokens: list[int], answer: int, columns: Sequence[Tensor]) -> Document:
        """Columns [T, …] begin with the first token; what they hold after the last is cut."""
        rows = (column[: len(tokens)].contiguous() for column in columns)
        ids = torch.tensor(tokens, dtype=torch.int32)
        return Document(ids, answer, *rows, layers=self.settings.layers)


def synthesis_settings(settings: CollectSettings) -> CollectSettings:
    """Settings for ``synthesise``: many short continuations of one head, at temperature 1."""
    return replace(settings, temperatures=(1.0,) * settings.batch * 2, max_new_tokens=96)


def _user_turn_head(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the token ids that the chat template puts before a user's words.

    Raises UserError without a template.
    """
    if not tokenizer.chat_template:
        raise UserError("the target has no chat template, so it cannot write prompts: name files")
    text = render_chat(tokenizer, user_turn(MARKER), answer=False)
    return tokenizer(text.split(MARKER)[0], add_special_tokens=False).input_ids


def _tops(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable tokens after some positions, [N, V] → their ids and log p, [N, K]."""
    top = logits.topk(TOP_K)
    return top.indices.int(), (top.values - logits.logsumexp(-1, keepdim=True)).half()


def _draw(best: _Best, temperature: Tensor, noise: torch.Generator) -> Tensor:
    """Sample each row from its best logits at its temperature; 0 is the argmax. → [R]"""
    uniform = torch.rand(best.ids.shape, generator=noise, device=best.ids.device)
    gumbel = -torch.log(-torch.log(uniform.clamp_min(1e-20)))
    heat = temperature[:, None]
    scores = torch.where(heat > 0, best.logits / heat.clamp_min(1e-6) + gumbel, best.logits)
    return best.ids.gather(1, scores.argmax(-1, keepdim=True)).squeeze(1)


def batches(settings: CollectSettings, samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples in batches, sorted by length within windows, for little padding."""
    window = settings.batch * 16
    order = [
        sample
        for low in range(0, len(samples), window)
        for sample in sorted(
            samples[low : low + window], key=lambda s: len(s.user) + len(s.answer or "")
        )
    ]
    return [order[low : low + settings.batch] for low in range(0, len(order), settings.batch)]


def collect(
    collector: Collector, samples: Sequence[Sample], folder: Path, name: str
) -> Iterator[int]:
    """Write ``folder/name-00000.safetensors`` and so on; yields the answer tokens of each batch.

    Samples with an answer are read, those without are answered (never both in one call). Existing
    shards are skipped. Raises UserError where another process is making shards there.
    """
    made = [
        (folder / f"{name}-{number:05d}.safetensors", number, chosen)
        for number, chosen in enumerate(batches(collector.settings, samples))
    ]
    whole = all(path.exists() for path, _, _ in made)
    with nullcontext() if whole else alone(folder, COLLECTING, resumes=True):
        for path, number, chosen in made:
            if path.exists():
                yield 0
                continue
            if chosen[0].answer is not None:
                documents = collector.read(chosen)
            else:
                prompts = [collector.chat(s.user) for s in chosen]
                prompts = [p for p in prompts if len(p) <= collector.settings.max_prompt_tokens]
                if not prompts:
                    continue
                documents = collector.answer(prompts, seed=number)
            write_shard(path, documents)
            yield sum(len(d) - d.answer for d in documents)


def collect_all(
    collector: Collector,
    samples: Sequence[Sample],
    folder: Path,
    name: str,
    title: str,
    report: Steps,
) -> None:
    """``collect`` to its end."""
    count, tokens = len(batches(collector.settings, samples)), 0
    for done, fresh in enumerate(collect(collector, samples, folder, name), 1):
        tokens += fresh
        report(done / count, f"{title}, {tokens} answer tokens")


def is_loop(tokens: list[int]) -> bool:
    """Whether the text ends in five turns of a cycle of at most twelve tokens."""
    for size in range(1, 13):
        tail = tokens[-size * 5 :]
        if len(tail) == size * 5 and tail == tail[:size] * 5:
            return True
    return False
