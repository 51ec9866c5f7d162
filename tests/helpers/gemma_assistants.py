"""Small random targets of Gemma 4 and transformers' own assistants of theirs."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    DynamicCache,
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
)

from core.models.hugging_face import ATTENTION

SHAPE = {
    "vocab_size": 48, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "global_head_dim": 16, "sliding_window": 256, "max_position_embeddings": 512,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
KINDS = ["sliding_attention", "full_attention"]
PLAIN = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
TARGETS = {  # a target whose last layers share keys, one where each has its own, one with K = V
    "shared": {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 4,
               "vocab_size_per_layer_input": 48, "final_logit_softcapping": 30.0},
    "own": {**PLAIN},
    "keys are values": {**PLAIN, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
}  # fmt: skip
ASSISTANTS = {
    "all tokens": {},
    "clusters": {"use_ordered_embeddings": True, "num_centroids": 8,
                 "centroid_intermediate_top_k": 3},
    "a head of its own": {"tie_word_embeddings": False},
}  # fmt: skip


@pytest.fixture(autouse=True)
def layers_without_keys(monkeypatch):
    """transformers 5.23 cannot make its own assistant: its config refuses layers that all read
    others' keys. This is what the check there means to allow."""
    usual = Gemma4TextConfig.kv_sharing_modes.fget

    def modes(self):
        if self.num_kv_shared_layers == self.num_hidden_layers:
            return ["reuse"] * self.num_hidden_layers
        return usual(self)

    monkeypatch.setattr(Gemma4TextConfig, "kv_sharing_modes", property(modes))


def randomised(model, seed):
    rng = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and "inv_freq" not in name and "embed_scale" not in name:
            noise = torch.randn(tensor.shape, generator=rng, dtype=torch.float64)
            tensor.copy_(0.2 * noise + (tensor.ndim < 2))
    return model.double().eval()


def target_of(kind):
    config = Gemma4TextConfig(
        hidden_size=32, num_hidden_layers=6, layer_types=KINDS * 3, **SHAPE | TARGETS[kind]
    )
    made = randomised(Gemma4ForCausalLM(config), 1)
    made.set_attn_implementation("eager")
    return made


def assistant_of(kind, target="shared", **changes):
    more = {} if target != "keys are values" else {
        "attention_k_eq_v": True, "num_global_key_value_heads": 1}  # fmt: skip
    text = Gemma4TextConfig(
        hidden_size=24, num_hidden_layers=4, layer_types=[*KINDS[:1] * 3, KINDS[1]],
        **SHAPE | PLAIN | more | changes,
    )  # fmt: skip
    config = Gemma4AssistantConfig(text_config=text, backbone_hidden_size=32, **ASSISTANTS[kind])
    made = randomised(Gemma4AssistantForCausalLM(config), 2)
    if made.masked_embedding is not None:
        order = torch.randperm(48, generator=torch.Generator().manual_seed(5))
        made.masked_embedding.token_ordering.copy_(order)
    if config.tie_word_embeddings:
        made.tie_weights()
    made.set_attn_implementation("eager")
    return made


def language(owner):
    """A target as drafters see it, on Draftscope's attention."""
    own = copy.deepcopy(owner)
    own.set_attn_implementation(ATTENTION)
    return SimpleNamespace(
        name="toy", model=own, folder=None, device=torch.device("cpu"),
        embedding=own.get_input_embeddings(), stop_ids=frozenset(),
        tokenizer=SimpleNamespace(chat_template=""),
    )  # fmt: skip


def shared_states(owner, tokens):
    """The last hidden state and the keys that transformers' generator hands to an assistant, by a
    forward of the whole text."""
    kv = DynamicCache()
    out = owner(
        torch.tensor([tokens]), cache=kv, output_hidden_states=True,
        return_shared_kv_states=True,
    )  # fmt: skip
    found = dict(out.shared_kv_states or {})
    if not found:  # no layer shares: the last of each kind
        found = {kind: (kv.layers[at].keys, kv.layers[at].values)
                 for at, kind in enumerate(owner.config.layer_types)}  # fmt: skip
    return out.hidden_states[-1][:, -1:], found


def slow_log_q(owner, oracle, tokens, path, more=()):
    """log q [V] after a path that begins with the root, as transformers' generator drafts: one
    token at a time, all at the root's position. ``more``: a token whose keys are there, too."""
    hidden, keys = shared_states(owner, tokens)
    if more:
        keys = shared_states(owner, [*tokens, *more])[1]
    out = None
    for token in path:
        embedded = owner.get_input_embeddings()(torch.tensor([[token]]))
        out = oracle(
            inputs_embeds=torch.cat([embedded, hidden], -1), use_cache=False,
            position_ids=torch.tensor([[len(tokens)]]), shared_kv_states=keys,
        )  # fmt: skip
        hidden = out.last_hidden_state
    return out.logits[0, 0].float().log_softmax(-1)
