"""Targets with MTP heads among their tensors as they are published, and transformers' own heads."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.cache_utils import DynamicCache, MtpCache
from transformers.modeling_layers import MtpModel

from core.models.hugging_face import ATTENTION
from tests.helpers import toys

SHAPE = {
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
EXPERTS = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
}  # fmt: skip
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
          "v_head_dim": 8, "num_key_value_heads": 4}  # fmt: skip
FAMILIES = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "glm4_moe": lambda: Glm4MoeForCausalLM(
        Glm4MoeConfig(**SHAPE, **EXPERTS, head_dim=16, use_qk_norm=True)
    ),
    "deepseek_v3": lambda: DeepseekV3ForCausalLM(DeepseekV3Config(**SHAPE | EXPERTS | LATENT)),
    # The target's other layers carry a state:
    "qwen3_5_text": lambda: AutoModelForCausalLM.from_config(toys.config("qwen3_5_text", 48)),
    "qwen3_next": lambda: AutoModelForCausalLM.from_config(toys.config("qwen3_next", 48)),
}
# A layer for each depth, and how many:
FAMILIES |= {"glm4_moe 3": FAMILIES["glm4_moe"], "deepseek_v3 2": FAMILIES["deepseek_v3"]}
# The state before the final norm is read off the one after it, as far as ε is nothing:
EARLY = {"mimo": "qwen2", "mimo_v2_flash": "mimo_v2_flash"}


def early(family):
    made = toys.config(EARLY[family], 48)
    made.rms_norm_eps = 1e-9
    return AutoModelForCausalLM.from_config(made)


FAMILIES |= {"mimo": lambda: early("mimo"), "mimo_v2_flash 3": lambda: early("mimo_v2_flash")}
COUNT = dict.fromkeys(("qwen3", "llama", "qwen3_5_text", "qwen3_next"), "mtp_num_hidden_layers")
PLACES = {  # a tensor of MtpModel → its published name, of a target of n layers
    "qwen3": {"layers.0.enorm": "mtp.pre_fc_norm_embedding", "layers.0.eh_proj": "mtp.fc",
              "layers.0.hnorm": "mtp.pre_fc_norm_hidden", "layers.0.post_norm": "mtp.norm",
              "layers.0.mtp_block": "mtp.layers.0"},
    "glm4_moe": {f"layers.{k}.{part}": f"model.layers.{3 + k}.{own}" for k in range(3)
                 for part, own in (("mtp_block.", ""), ("post_norm", "shared_head.norm"),
                                   ("", ""))},
    "mimo": {"layers.0.mtp_block.": "model.mtp_layers.0.",
             "layers.0.enorm": "model.mtp_layers.0.token_layernorm",
             "layers.0.hnorm": "model.mtp_layers.0.hidden_layernorm",
             "layers.0.eh_proj": "model.mtp_layers.0.input_proj",
             "layers.0.post_norm": "model.mtp_layers.0.final_layernorm"},
    "mimo_v2_flash": {f"layers.{k}.{part}": f"model.mtp.layers.{k}.{own}" for k in range(3)
                      for part, own in (
                          ("mtp_block.post_attention_layernorm", "pre_mlp_layernorm"),
                          ("mtp_block.self_attn.sinks", "self_attn.attention_sink_bias"),
                          ("mtp_block.", ""), ("post_norm", "final_layernorm"), ("", ""))},
}  # fmt: skip
PLACES |= dict.fromkeys(COUNT, PLACES["qwen3"]) | {"deepseek_v3": PLACES["glm4_moe"]}


def published(family, folder, single_experts=True):
    """A target with a head among its tensors, as it is published, and transformers' own head."""
    torch.manual_seed(3)
    main = FAMILIES[family]().double().eval()
    main.set_attn_implementation("eager")
    main.set_experts_implementation("eager")  # the others take no float64
    family, _, count = family.partition(" ")
    layers, mimo = int(count or 1), family == "mimo_v2_flash"
    main.config.mtp_hidden_states_first = family == "mimo"
    main.early = family in EARLY
    if main.early:
        rng = torch.Generator().manual_seed(5)
        gains = main.model.norm.weight
        gains.data = 1 + 0.3 * torch.randn(gains.shape, generator=rng, dtype=torch.float64)
    main.config.num_mtp_layers = layers
    main.config.mtp_layer_types = ["sliding_attention" if mimo else "full_attention"] * layers
    main.config.mtp_mlp_layer_types = ["dense" if mimo else "sparse"] * layers
    head = MtpModel(main, layers).double().eval()
    rng = torch.Generator().manual_seed(4)
    own = {n: p for n, p in head.state_dict().items() if n.startswith("layers.")}
    for tensor in own.values():
        noise = torch.randn(tensor.shape, generator=rng, dtype=torch.float64)
        tensor.copy_(0.2 * noise + (tensor.ndim == 1))
    if mimo:  # transformers knows nothing of these
        for name in ("num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"):
            delattr(main.config, name)
    main.save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    for name, tensor in own.items():
        old, new = next((a, b) for a, b in PLACES[family].items() if name.startswith(a))
        state |= _experts(new + name.removeprefix(old), tensor) if single_experts else {
            new + name.removeprefix(old): tensor}  # fmt: skip
    if family in ("glm4_moe", "deepseek_v3"):
        state["model.layers.3.embed_tokens.weight"] = main.get_input_embeddings().weight
        state["model.layers.3.shared_head.head.weight"] = main.lm_head.weight
    save_file({n: t.detach().clone().contiguous() for n, t in state.items()},
              folder / "model.safetensors")  # fmt: skip
    raw = json.loads((folder / "config.json").read_text())
    raw.pop("num_mtp_layers", None)
    if not mimo:
        raw[COUNT.get(family, "num_nextn_predict_layers")] = layers
    (folder / "config.json").write_text(json.dumps(raw))
    return main, head


def _experts(name, tensor):
    if name.endswith("experts.gate_up_proj"):
        before = name.removesuffix("gate_up_proj")
        parts = [(n, half) for e, one in enumerate(tensor)
                 for n, half in zip((f"{e}.gate_proj.weight", f"{e}.up_proj.weight"),
                                    one.chunk(2), strict=True)]  # fmt: skip
        return {before + n: part for n, part in parts}
    if name.endswith("experts.down_proj"):
        before = name.removesuffix("down_proj")
        return {f"{before}{e}.down_proj.weight": one for e, one in enumerate(tensor)}
    return {name: tensor}


def language(main, folder):
    """A target as drafters see it, on Draftscope's attention."""
    own = copy.deepcopy(main)
    own.set_attn_implementation(ATTENTION)
    return SimpleNamespace(
        name="toy", model=own, folder=folder, device=torch.device("cpu"),
        embedding=own.get_input_embeddings(), stop_ids=frozenset(),
    )  # fmt: skip


def states(main, tokens):
    """The target's last hidden states [T, h] of a text, as a drafter gets them."""
    return main(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]


def slow_log_q(main, head, tokens, path):
    """log q [V] after a path that begins with the root: transformers' layers, one row at a time, or
    of several layers each over the whole text."""
    count, given = len(head.layers), list[torch.Tensor]()
    hook = main.model.norm.register_forward_hook(lambda module, args, out: given.extend(args))
    hidden = states(main, tokens)
    hook.remove()
    if main.early:
        hidden = given[0][0]  # before the final norm
    if count > 1:
        made, text = hidden, torch.tensor([[*tokens, *path]])
        for layer in range(len(path)):
            rows = torch.arange(layer + 1, layer + 1 + len(tokens))[None]
            made = head.forward_layer(
                layer,
                (hidden if main.early else made)[None],
                rows,
                MtpCache(),
                input_ids=text[:, rows[0]],
            )[0]
        return head.shared_head(made[-1]).float().log_softmax(-1)
    kv, out = DynamicCache(), None
    for at, token in enumerate([*tokens[1:], *path]):
        fed = hidden[at] if at < len(tokens) else out
        out = head.forward_layer(
            0, fed[None, None], torch.tensor([[at + 1]]), kv, input_ids=torch.tensor([[token]])
        )[0, 0]
    return head.shared_head(out).float().log_softmax(-1)
