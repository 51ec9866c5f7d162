"""The drafters of speculators (0.9.0), and what their classes say along a text."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from speculators import SpeculatorsConfig, VerifierConfig, models
from speculators.losses import resolve_loss_config
from speculators.models.peagle import core as peagle_core
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from transformers import LlamaConfig, Qwen3Config

from tests.golden.publishers import (
    ANCHORS,
    BLOCK,
    DRAFT,
    HIDDEN,
    MASK,
    SIZES,
    TEXT,
    VOCABULARY,
    Form,
    Said,
    covered,
    outputs_of,
    randomised,
    with_ends,
)

WINDOW = 6
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip


def layer(kind: type = Qwen3Config, layers: int = 1, **more: Any) -> Any:
    made = kind(**SIZES, num_hidden_layers=layers, **more)
    made._attn_implementation = "eager"
    return made


def speculators_config(algorithm: str) -> SpeculatorsConfig:
    """Of a target that is in the folder beside: no path is kept."""
    return SpeculatorsConfig(
        algorithm=algorithm,
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=BLOCK - 1)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
    )


# ── what a class says along a text, [A, L, draft vocabulary] logits ─────────────────────────────


def eagle3(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """The steps of training's own unrolling, fed with the text (``shift_batch``: token i + 1 goes
    with the state at i). Only the first step where layers slide: in training all steps keep its
    window, in engines the window goes with the position."""
    steps = 1 if model.uses_sliding_window_attn else BLOCK - 1
    with outputs_of(model.lm_head) as logits:
        model(
            features[None, :-1], tokens[None, 1:], torch.zeros(1, TEXT - 1, dtype=torch.long),
            ttt_steps=steps,
        )  # fmt: skip
    at = torch.tensor(ANCHORS) - 1
    return torch.stack([each[0, at] for each in logits], 1)


def block(model: Any, tokens: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """The states and the logits [A, block, …] of the anchors' blocks. They are trained in one
    pass; anchors whose block leaves the text are not, so the text is drawn out for them."""
    more = torch.zeros(BLOCK + 1, dtype=torch.long)
    mask = torch.zeros(1, TEXT + BLOCK + 1)
    mask[0, list(ANCHORS)] = 1
    features = torch.cat([features, torch.zeros(BLOCK + 1, features.shape[1])])
    hidden, logits, *_ = model._backbone_forward(
        features[None], torch.cat([tokens, more])[None], mask,
        torch.zeros(1, TEXT + BLOCK + 1, HIDDEN),
        torch.zeros(1, TEXT + BLOCK + 1, dtype=torch.long), max_anchors=len(ANCHORS),
    )  # fmt: skip
    shape = (len(ANCHORS), BLOCK, -1)
    return hidden.view(shape), logits.view(shape)


def before(model: Any, tokens: Tensor) -> Tensor:
    """The token before each place of the blocks [A, block], as training reads the text."""
    drawn = torch.cat([tokens, tokens[-1:].expand(BLOCK)])
    own = torch.stack([drawn[a : a + BLOCK] for a in ANCHORS])
    if model.config.sample_from_anchor:
        return own
    return torch.cat([own[:, :1], own[:, :-1]], 1)


def drafted(model: Any, logits: Tensor) -> Tensor:
    """Without the anchor's own place, where nothing is drafted."""
    return logits if model.config.sample_from_anchor else logits[:, 1:]


def dflash(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    return drafted(model, block(model, tokens, features)[1])


def dflash2(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """The selector's scores of its candidates; others are never drafted."""
    hidden, logits = block(model, tokens, features)
    candidates, scores = model.candidate_selector.select(logits, hidden, before(model, tokens))
    chosen = torch.full_like(logits, -torch.inf).scatter(-1, candidates, scores)
    return drafted(model, chosen)


def dspark(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    hidden, logits = block(model, tokens, features)
    previous = before(model, tokens)
    head = model.markov_head
    return drafted(model, logits + head.block_bias(prev_token_ids=previous, hidden_states=hidden))


def xpress(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """The anchor's own place is given the token before it, as in training's first pass."""
    hidden, logits = block(model, tokens, features)
    previous = before(model, tokens)
    if not model.config.sample_from_anchor:
        previous[:, 0] = tokens[torch.tensor(ANCHORS) - 1]
    return drafted(model, logits + model.refiner_head.block_bias(previous, hidden))


def peagle(model: Any, tokens: Tensor, features: Tensor) -> Tensor:
    """All depths in one pass, with no place left out."""
    at, depths, length = torch.tensor(ANCHORS) - 1, BLOCK - 1, TEXT - 1 + BLOCK
    places = torch.cat([torch.arange(length), at.repeat(depths - 1)])
    depth = torch.cat([torch.zeros(length), torch.arange(1, depths).repeat_interleave(len(at))])
    drawn_at_random = peagle_core.generate_cod_sample_indices
    peagle_core.generate_cod_sample_indices = lambda **_: (places, depth.long())
    drawn = torch.cat([tokens[1:], torch.zeros(BLOCK, dtype=torch.long)])
    seen = torch.cat([features[:-1], torch.zeros(BLOCK, features.shape[1])])
    try:
        with outputs_of(model.lm_head) as logits:
            model(
                seen[None], drawn[None], torch.zeros(1, length, dtype=torch.long),
                verifier_last_hidden_states=torch.zeros(1, length, HIDDEN), num_depths=depths,
                loss_config=resolve_loss_config("kl_div", "eager"),
            )  # fmt: skip
    finally:
        peagle_core.generate_cod_sample_indices = drawn_at_random
    first, later = logits[0][0, :length][at], logits[0][0, length:]
    return torch.cat([first[:, None], later.view(depths - 1, len(at), -1).transpose(0, 1)], 1)


# ── the forms ────────────────────────────────────────────────────────────────────────────────────


EAGLE = {"draft_vocab_size": VOCABULARY, "eagle_aux_hidden_state_layer_ids": [2, 4, 6]}
BLOCKS = {
    "draft_vocab_size": VOCABULARY, "aux_hidden_state_layer_ids": [2, 4, 6], "block_size": BLOCK,
    "mask_token_id": MASK,
}  # fmt: skip
SELECTOR = {"conv_group_size": 4, "selector_rank": 5, "selector_top_k": 7}
REDUCED = {"draft_vocab_size": len(DRAFT)}

KINDS: dict[str, tuple[type, type, Said, dict[str, Any]]] = {
    "eagle3": (models.Eagle3SpeculatorConfig, models.Eagle3DraftModel, eagle3, EAGLE),
    "peagle": (
        models.PEagleSpeculatorConfig, models.PEagleDraftModel, peagle,
        EAGLE | {"mask_token_id": MASK},
    ),
    "dflash": (models.DFlashSpeculatorConfig, models.DFlashDraftModel, dflash, BLOCKS),
    "dflash2": (
        models.DFlash2SpeculatorConfig, models.DFlash2DraftModel, dflash2, BLOCKS | SELECTOR,
    ),
    "dspark": (
        models.DSparkSpeculatorConfig, models.DSparkDraftModel, dspark, BLOCKS | {"markov_rank": 6},
    ),
    "xpress": (
        models.XPressSpeculatorConfig, models.XPressDraftModel, xpress, BLOCKS | {"xpress_rank": 6},
    ),
}  # fmt: skip


def forms() -> Iterator[Form]:
    """Each is named after its kind."""
    llama = layer(LlamaConfig)
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "eagle3": (llama, {}),
        "eagle3-qwen3": (layer(), {"norm_before_residual": True}),
        "eagle3-draft-vocabulary": (llama, REDUCED),
        "eagle3-defaults": (sliding(1), {"norm_before_fc": True, "norm_output": True}),
        "eagle3-norm-output": (llama, {"norm_before_fc": True, "norm_output": True}),
        "eagle3-two-layers": (layer(LlamaConfig, 2), {"fc_norm": True}),
        "eagle3-embedding": (layer(), {"eagle_aux_hidden_state_layer_ids": [0, 4, 6, 8]}),
        "eagle3-llama3-positions": (layer(LlamaConfig, rope_parameters=LLAMA3), {}),
        "peagle": (llama, {}),
        "peagle-sliding": (sliding(2), {"norm_before_fc": True}),
        "dflash": (layer(layers=2), {}),
        "dflash-sliding": (sliding(2), {}),
        "dflash-draft-vocabulary": (layer(), REDUCED),
        "dflash-yarn-positions": (layer(rope_parameters=YARN), {}),
        "dflash2": (layer(), {}),
        "dflash2-sliding": (sliding(2), {"sliding_window_non_causal": True}),
        "dspark-vanilla": (layer(), {"markov_head_type": "vanilla"}),
        "dspark-gated": (layer(), {"markov_head_type": "gated"} | REDUCED),
        "dspark-rnn": (sliding(2), {"markov_head_type": "rnn"}),
        "xpress": (layer(), {}),
        "xpress-from-anchor": (layer(), {"sample_from_anchor": True}),
    }
    for name, (own, more) in made.items():
        kind = name.partition("-")[0]
        Config, Model, said, common = KINDS[kind]
        config = Config(
            transformer_layer_config=own, speculators_config=speculators_config(kind),
            **common | more,
        )  # fmt: skip
        model = with_ends(randomised(Model(config), name))
        if model.use_draft_vocab:
            model.load_vocab_mappings(*covered())
        yield name, model, said


def sliding(layers: int) -> Any:
    """The last layer slides, as all do by default."""
    types = ["full_attention"] * (layers - 1) + ["sliding_attention"]
    more = {"use_sliding_window": True, "max_window_layers": 0}
    return layer(layers=layers, sliding_window=WINDOW, layer_types=types, **more)
