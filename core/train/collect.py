"""Turn prompts into shards: let the target answer (or read a given answer), keep what it computed.

Generation is batched: the prompts' context is computed once and shared by several continuations
(greedy and sampled). The target's features and top-K distribution fall out of the same forwards,
so self-generated text costs no second pass. Each batch is one shard; a killed run resumes at the
first missing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from core.errors import UserError
from core.models.cache import StaticKV, make_kv, mask_value
from core.models.language import encode_chat
from core.models.target import stop_ids
from core.train.shards import TOP_K, Document, write_shard
from core.train.texts import Sample, is_loop

_PATIENCE = 512  # user turns the target may write without ending one
_AT_ONCE = 256  # positions whose logits [N, V] exist together; each such batch reads the head once


@dataclass(frozen=True)
class CollectSettings:
    """How text is made.

    temperatures  one continuation of each prompt per entry, 0 = greedy
    batch         prompts per shard
    top_k         sampling is among the target's best tokens only; 0 = the whole vocabulary
    cut_loops     an answer that ends in a short cycle keeps 64 tokens: more teaches only looping
    cut_last      a batch ends when fewer than a quarter of its answers go on, to save their time
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


@dataclass(frozen=True)
class _Rows:
    """A batch while it is read: what the target said at each position, rows by time."""

    features: torch.Tensor  # fp16 [R, T, F·h]
    top_ids: torch.Tensor  # int32 [R, T, K]
    top_logp: torch.Tensor  # fp16 [R, T, K]
    best: torch.Tensor  # logits to sample from at the last position [R, K'], and their ids
    best_ids: torch.Tensor


class Collector:
    """Runs one target over batches of prompts. Holds no state between batches."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: CollectSettings
    ):
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.stop = set(stop_ids(model))

    def chat(self, user: str) -> list[int]:
        """Token ids of the prompt, as a run encodes it."""
        return encode_chat(self.tokenizer, user)

    @torch.inference_mode()
    def read(self, samples: Sequence[Sample]) -> list[Document]:
        """Teacher-force finished answers, one batch of right-aligned rows."""
        rows, answers = [], []
        eos, longest = self.tokenizer.eos_token_id, self.settings.max_new_tokens * 2
        for sample in samples:
            prompt = self.chat(sample.user)[-self.settings.max_prompt_tokens :]
            reply = self.tokenizer(sample.answer or "", add_special_tokens=False).input_ids
            whole = eos is not None and len(reply) <= longest  # an answer that is cut does not end
            rows.append(prompt + reply[:longest] + ([eos] if whole else []))
            answers.append(len(prompt))
        forward, pad = self._prefill(rows, extra=0)[:2]
        return [
            self._document(row, answer, forward, i, pad[i])
            for i, (row, answer) in enumerate(zip(rows, answers, strict=True))
        ]

    @torch.inference_mode()
    def answer(self, prompts: Sequence[list[int]], seed: int) -> list[Document]:
        """Continue each prompt once per temperature, up to a stop token or max_new_tokens."""
        settings, device = self.settings, self.model.device
        copies, steps = len(settings.temperatures), settings.max_new_tokens
        first, pad, keep, cache = self._prefill(prompts, extra=steps)
        width = keep.shape[1]
        cache.repeat(copies)  # one prompt's context serves all its continuations
        keep = torch.cat([keep, keep.new_ones(len(prompts), steps)], 1).repeat_interleave(copies, 0)
        temperature = torch.tensor(settings.temperatures * len(prompts), device=device)
        noise = torch.Generator(device).manual_seed(settings.seed * 1_000_003 + seed)
        best = first.best.repeat_interleave(copies, 0)
        best_ids = first.best_ids.repeat_interleave(copies, 0)
        position = keep[:, :width].sum(1)
        sequences = [list(p) for p in prompts for _ in range(copies)]
        alive = torch.ones(len(sequences), dtype=torch.bool)
        fewest = len(sequences) / 4 if settings.cut_last else 1
        parts = []
        for step in range(steps):
            token = _draw(best, best_ids, temperature, noise)
            drawn = token.tolist()  # a GPU is waited for once
            for row in alive.nonzero().flatten().tolist():
                sequences[row].append(drawn[row])
                alive[row] = drawn[row] not in self.stop
            mask = _additive(keep[:, None, None, : width + step + 1], self.model.dtype)
            part = self._forward(token[:, None], mask, position[:, None], cache)
            parts.append(part)
            best, best_ids, position = part.best, part.best_ids, position + 1
            if int(alive.sum()) < fewest:
                break  # the few unfinished rows are kept as they are: unfinished
        documents = []
        for row, sequence in enumerate(sequences):
            prompt = prompts[row // copies]
            if settings.cut_loops and is_loop(sequence[len(prompt) :], period=12, repeats=5):
                sequence = sequence[: len(prompt) + 64]
            whole = _join(first, parts, row, row // copies)
            shift = pad[row // copies]
            documents.append(self._document(sequence, len(prompt), whole, 0, shift))
        return documents

    def synthesise(self, count: int, seed: int) -> list[str]:
        """Prompts the target itself writes: begin the user turn, sample until it ends.

        Raises UserError for a target that does not end it.
        """
        head = _user_turn_head(self.tokenizer)
        texts: list[str] = []
        wasted = 0  # turns without an end since the last that had one
        while len(texts) < count:
            written = [d.tokens[len(head) :].tolist() for d in self.answer([head], seed)]
            ended = [t[:-1] for t in written if len(t) > 5 and t[-1] in self.stop]
            texts += [str(self.tokenizer.decode(t)) for t in ended]
            wasted = 0 if ended else wasted + len(written)
            if wasted >= _PATIENCE:
                raise UserError("the target ends no user turn, so it cannot write prompts")
            seed += 1
        return texts[:count]

    def _prefill(
        self, rows: Sequence[list[int]], extra: int
    ) -> tuple[_Rows, list[int], torch.Tensor, StaticKV]:
        width, device = max(map(len, rows)), self.model.device
        pad = [width - len(row) for row in rows]
        ids = torch.tensor(
            [[0] * p + list(r) for p, r in zip(pad, rows, strict=True)], device=device
        )
        keep = torch.arange(width, device=device)[None] >= torch.tensor(pad, device=device)[:, None]
        causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        mask = _additive(causal[None, None] & keep[:, None, None], self.model.dtype)
        position = (keep.cumsum(1) - 1).clamp(min=0)
        cache = make_kv(self.model, width + extra)
        return self._forward(ids, mask, position, cache), pad, keep, cache

    def _forward(self, ids, mask, position, cache: StaticKV) -> _Rows:
        out = self.model.model(
            ids,
            attention_mask=mask,
            position_ids=position,
            past_key_values=cache,
            output_hidden_states=True,
        )
        cache.commit(ids.shape[1])
        features = torch.cat([out.hidden_states[i + 1] for i in self.settings.layers], -1)
        hidden = out.last_hidden_state
        last = self._logits(hidden[:, -1])
        best = last.topk(self.settings.top_k or last.shape[-1])
        parts = hidden.flatten(0, 1).split(_AT_ONCE) if ids.shape[1] > 1 else ()
        tops = [_tops(self._logits(part)) for part in parts] or [_tops(last)]
        limit = torch.finfo(torch.float16).max
        return _Rows(
            features.clamp(-limit, limit).half().cpu(),
            torch.cat([ids for ids, _ in tops]).view(*ids.shape, TOP_K).cpu(),
            torch.cat([logp for _, logp in tops]).view(*ids.shape, TOP_K).cpu(),
            best.values,
            best.indices,
        )

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model.lm_head(hidden).float()

    def _document(
        self, tokens: list[int], answer: int, rows: _Rows, row: int, pad: int
    ) -> Document:
        """The row's positions without padding."""
        kept = slice(pad, pad + len(tokens))
        return Document(
            torch.tensor(tokens, dtype=torch.int32),
            answer,
            rows.features[row, kept].contiguous(),
            rows.top_ids[row, kept].contiguous(),
            rows.top_logp[row, kept].contiguous(),
        )


def synthesis_settings(settings: CollectSettings) -> CollectSettings:
    """Settings for ``synthesise``: many short continuations of one head, at temperature 1."""
    return replace(settings, temperatures=(1.0,) * settings.batch * 2, max_new_tokens=96)


def _user_turn_head(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What stands in the chat template before a user's words.

    Raises UserError for a model without a template: it cannot be asked to write a user turn.
    """
    if not tokenizer.chat_template:
        raise UserError("the target has no chat template, so it cannot write prompts: name files")
    marker = "\ue000"
    text = tokenizer.apply_chat_template([{"role": "user", "content": marker}], tokenize=False)
    return tokenizer(str(text).split(marker)[0], add_special_tokens=False).input_ids


def _join(first: _Rows, parts: list[_Rows], row: int, prompt_row: int) -> _Rows:
    def along(name: str) -> torch.Tensor:
        pieces = [getattr(first, name)[prompt_row]] + [getattr(p, name)[row] for p in parts]
        return torch.cat(pieces)[None]

    return _Rows(along("features"), along("top_ids"), along("top_logp"), first.best, first.best_ids)


def _tops(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The most probable tokens after some positions, [N, V] → their ids and log p, [N, K]."""
    top = logits.topk(TOP_K)
    return top.indices.int(), (top.values - logits.logsumexp(-1, keepdim=True)).half()


def _draw(best, best_ids, temperature, noise) -> torch.Tensor:
    """Sample each row from its K' best logits at its temperature; 0 is the argmax. → [R]"""
    uniform = torch.rand(best.shape, generator=noise, device=best.device).clamp_min(1e-20)
    gumbel = -torch.log(-torch.log(uniform))
    hot = temperature[:, None].clamp_min(1e-6)
    scores = torch.where(temperature[:, None] > 0, best / hot + gumbel, best)
    return best_ids.gather(1, scores.argmax(-1, keepdim=True)).squeeze(1)


def _additive(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(
        ~allowed, mask_value(dtype)
    )


def batches(settings: CollectSettings, samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples of one kind in batches, sorted by length within windows: little padding."""
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

    Samples with an answer are read, those without are answered (never both kinds at once).
    Existing shards are skipped.
    """
    for number, chosen in enumerate(batches(collector.settings, samples)):
        path = folder / f"{name}-{number:05d}.safetensors"
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
        write_shard(path, documents, collector.settings.layers)
        yield sum(len(d) - d.answer for d in documents)
