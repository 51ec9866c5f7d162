"""How a denoiser writes, judged by the target it was made from.

A text's perplexity under the target says how likely the target finds it. Beside it stand the
target's own greedy text and its own samples on the same prompts, and how much of a text repeats
itself, for a loop is cheap to predict and no good text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from core.diffusion.denoise import Denoising, denoise
from core.diffusion.models import DiffusionLanguage, load_diffusion
from core.diffusion.steps import written
from core.models.language import load_language
from core.train.shards import Document
from core.verification.walk import until_stop

NEW_TOKENS = 128


@dataclass(frozen=True)
class Writing:
    """Texts of one writer. ``perplexity`` is exp of the mean NLL of all tokens, stop included;
    ``fresh`` the share of their 4-grams that stand for the first time in their text."""

    name: str
    texts: int
    tokens: int
    perplexity: float
    fresh: float
    ended: float  # share of texts that ended themselves


@torch.inference_mode()
def judge(
    name: str,
    model: Any,
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    stop: frozenset[int],
) -> Writing:
    """Judge (prompt, answer) token pairs under a causal LM; empty answers count as texts only."""
    nll, tokens, texts, ended, grams, fresh = 0.0, 0, 0, 0, 0, 0
    for prompt, answer in pairs:
        texts += 1
        if not answer:
            continue
        ended += answer[-1] in stop
        ids = torch.tensor([*prompt, *answer], device=model.device)
        logits = model(ids[None], use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        nll += float(F.cross_entropy(logits, ids[len(prompt) :], reduction="sum"))
        tokens += len(answer)
        some = [tuple(answer[i : i + 4]) for i in range(len(answer) - 3)]
        grams, fresh = grams + len(some), fresh + len(set(some))
    return Writing(
        name, texts, tokens, math.exp(nll / max(1, tokens)), fresh / max(1, grams),
        ended / max(1, texts),
    )  # fmt: skip


def denoised(
    language: DiffusionLanguage, prompts: Iterable[Sequence[int]], settings: Denoising
) -> Iterator[list[int]]:
    """What the denoiser writes behind each prompt, up to its end-of-text."""
    for prompt in prompts:
        rounds = denoise(language.target, prompt, settings)
        yield until_stop(written(rounds), language.target.stop_ids)


def compare(
    folder: Path, base: str, device: str, own: Mapping[str, Sequence[Document]]
) -> Iterator[Writing]:
    """The target's own texts, then what the denoiser in ``folder`` writes on the same prompts.

    ``base`` is the target's name, path or hub id; it judges them all.
    """
    prompts = [d.tokens[: d.answer].tolist() for d in next(iter(own.values()))]
    language = load_diffusion(str(folder), device)
    settings = Denoising(NEW_TOKENS // language.block * language.block, language.block)
    texts = list(denoised(language, prompts, settings))
    judged = load_language(base, device)
    stop = judged.stop_ids
    for kind, documents in own.items():
        pairs = ((d.tokens[: d.answer].tolist(), _answer(d)) for d in documents)
        yield judge(kind, judged.model, pairs, stop)
    yield judge("denoiser", judged.model, zip(prompts, texts, strict=True), stop)


def _answer(document: Document) -> list[int]:
    return document.tokens[document.answer : document.answer + NEW_TOKENS].tolist()
