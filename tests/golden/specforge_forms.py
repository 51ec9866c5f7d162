"""The drafters of SpecForge (0.2.0), and what their classes say along a text."""

# pyright: reportMissingImports=false

from __future__ import annotations

import os

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # its kernels are for GPUs

from collections.abc import Iterator
from typing import Any

import torch
from specforge.modeling import draft
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from transformers import LlamaConfig, Qwen3Config

from tests.golden.publishers import (
    ANCHORS,
    BLOCK,
    DRAFT,
    LAYERS,
    MASK,
    SIZES,
    TEXT,
    Form,
    Said,
    covered,
    randomised,
    target,
    with_ends,
)

STEPS = BLOCK - 1


def eagle3(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """Training's own unrolling, fed with the text: token i + 1 goes with the state at i."""
    length = TEXT - 1
    states = model.project_hidden_states(features[None, :-1])
    mask = model.prepare_decoder_attention_mask(
        torch.ones(1, length, dtype=torch.bool), states, 1, length, 0
    )
    kept: list[list[Tensor]] = [[], []]
    found = []
    for step in range(STEPS):
        shifted = torch.zeros(length, dtype=torch.long)
        shifted[: length - step] = tokens[1 + step :]
        states = model.backbone(
            model.embed_input_ids(shifted[None]), states, kept, mask,
            torch.arange(length)[None],
        )  # fmt: skip
        found.append(model.compute_logits(states)[0, torch.tensor(ANCHORS) - 1])
    return torch.stack(found, 1)


def peagle(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """All depths of one anchor in one pass: what is not known is the mask token and its state."""
    found = []
    for anchor in ANCHORS:
        masks = STEPS - 1
        ids = torch.cat([tokens[1 : anchor + 1], torch.full((masks,), MASK)])
        seen = torch.cat([features[:anchor], model.mask_hidden[0].expand(masks, -1)])
        mask = create_block_mask(
            lambda _b, _h, q, k: q >= k, None, None, len(ids), len(ids), device="cpu"
        )
        states = model.backbone(
            model.embed_input_ids(ids[None]), model.project_hidden_states(seen[None]),
            attention_mask=mask, position_ids=torch.arange(len(ids))[None],
        )  # fmt: skip
        found.append(model.compute_logits(states)[0, anchor - 1 :])
    return torch.stack(found)


def block(model: Any, tokens: Tensor, features: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """At each anchor the states [block, h] and logits of its block, as ``spec_generate`` reads
    them, and the block's tokens if all that is drafted is the text."""
    theirs = target()
    embed, head = theirs.model.embed_tokens, theirs.lm_head
    for anchor in ANCHORS:
        ids = torch.tensor([int(tokens[anchor]), *[MASK] * STEPS])
        states = model(
            target_hidden=features[None, :anchor], noise_embedding=embed(ids[None]),
            position_ids=torch.arange(anchor + BLOCK)[None], is_causal=False,
        )[0]  # fmt: skip
        yield states, head(states), tokens[anchor : anchor + BLOCK]


def dflash(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    return torch.stack([logits[1:] for _, logits, _ in block(model, tokens, features)])


def dspark(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """As it is trained and as engines draft with it: each place, the anchor's too, predicts the
    token after it. (Its own ``spec_generate`` leaves out the anchor's.)"""
    return torch.stack([
        model.apply_logits_head(
            logits[None, None], prev_token_ids=text[None, None], hidden_states=states[None, None]
        )[0, 0]
        for states, logits, text in block(model, tokens, features)
    ])  # fmt: skip


def domino(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    embed, found = target().model.embed_tokens, []
    for states, logits, text in block(model, tokens, features):
        corrected = model.apply_logits_head(
            logits[None, None], prev_token_embeddings=embed(text)[None, None],
            hidden_states=states[None, None],
        )[0, 0]  # fmt: skip
        found.append(corrected[:-1] if model.shift_label else corrected[1:])
    return torch.stack(found)


def eagle(name: str, Model: Any, said: Said, layers: int = 1, **more: Any) -> Form:
    sizes = {**SIZES, "num_hidden_layers": layers, "draft_vocab_size": SIZES["vocab_size"]}
    model = with_ends(randomised(Model(LlamaConfig(**sizes | more)), name))
    if model.draft_vocab_size == len(DRAFT):
        model.t2d, model.d2t = covered()
    return name, model, said


def blocks(name: str, Model: Any, said: Said, layers: int = 1, **own: Any) -> Form:
    config = Qwen3Config(**SIZES, num_hidden_layers=layers)
    config._attn_implementation = "eager"
    config.block_size, config.num_target_layers = BLOCK, LAYERS
    config.dflash_config = {"mask_token_id": MASK, "target_layer_ids": [1, 3, 5], **own}
    return name, randomised(Model(config), name), said


def forms() -> Iterator[Form]:
    """Each is named after its kind."""
    Eagle, Domino = draft.LlamaForCausalLMEagle3, draft.DominoDraftModel
    yield eagle("eagle3", Eagle, eagle3)
    yield eagle("eagle3-fc-norm", Eagle, eagle3, fc_norm=True)
    yield eagle("eagle3-draft-vocabulary", Eagle, eagle3, draft_vocab_size=len(DRAFT))
    yield eagle("peagle", draft.PEagleDraftModel, peagle, 4, mask_token_id=MASK)
    yield blocks("dflash", draft.DFlashDraftModel, dflash, 2)
    for kind in ("vanilla", "gated", "rnn"):
        head = {"markov_rank": 6, "markov_head_type": kind}
        yield blocks(f"dspark-{kind}", draft.DSparkDraftModel, dspark, **head)
    gru = {"emb_dim": 6, "gru_hidden_dim": 5}
    yield blocks("domino", Domino, domino, **gru)
    yield blocks("domino-prefix", Domino, domino, **gru, pure_draft_prefix_len=1)
    yield blocks("domino-shifted", Domino, domino, **gru, shift_label=True)
