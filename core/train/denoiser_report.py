"""How well a denoiser writes: the perplexity of its texts under the target it was made from.

It is reported beside that of the target's own greedy texts and samples on the same prompts, and
beside the share of 4-grams that do not repeat: a loop is easy to predict and no good text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from core.diffusion.denoise import denoise
from core.diffusion.models import DiffusionLanguage, load_diffusion
from core.diffusion.nfe import denoised_tokens
from core.diffusion.request import DenoiseSettings
from core.learning.shards import Document
from core.models.language import load_language
from core.verification.walk import until_stop

NEW_TOKENS = 128


@dataclass(frozen=True)
class Writing:
    """Texts of one writer.

    perplexity  exp of the mean NLL of all tokens, stop included
    fresh       share of the 4-grams that are new in their text
    ended       share of the texts that ended by themselves
    """

    name: str
    texts: int
    tokens: int
    perplexity: float
    fresh: float
    ended: float


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
    perplexity = math.exp(nll / max(1, tokens))
    return Writing(name, texts, tokens, perplexity, fresh / max(1, grams), ended / max(1, texts))


def denoised(
    language: DiffusionLanguage, prompts: Iterable[Sequence[int]], settings: DenoiseSettings
) -> Iterator[list[int]]:
    """The denoiser's answer to each prompt, up to its end-of-text."""
    for prompt in prompts:
        rounds = denoise(language.target, prompt, settings)
        yield until_stop(denoised_tokens(rounds), language.target.stop_ids)


def compare(
    folder: Path, base: str, device: str, own: Mapping[str, Sequence[Document]]
) -> Iterator[Writing]:
    """The target's own texts, then what the denoiser in ``folder`` writes on the same prompts.

    ``base`` is the target's name, path or hub id; it judges them all.
    """
    prompts = [d.tokens[: d.answer].tolist() for d in next(iter(own.values()))]
    language = load_diffusion(str(folder), device)
    length = NEW_TOKENS // language.block * language.block
    settings = DenoiseSettings(length, language.block, ahead=language.ahead)
    texts = list(denoised(language, prompts, settings))
    target = load_language(base, device)
    for name, documents in own.items():
        pairs = ((d.tokens[: d.answer].tolist(), _answer(d)) for d in documents)
        yield judge(name, target.model, pairs, target.stop_ids)
    yield judge("denoiser", target.model, zip(prompts, texts, strict=True), target.stop_ids)


def _answer(document: Document) -> list[int]:
    return document.tokens[document.answer : document.answer + NEW_TOKENS].tolist()
