"""Loading masked-diffusion models into Hugging Face classes. No remote code is ever run.

Three layouts, told apart by ``config.json``:

``llada``        LLaDA-8B (Base, Instruct, 1.5): a Llama with full attention
``a2d-qwen3``    dllm's Qwen3-0.6B-diffusion-bd3lm: a block-causal Qwen3; its mdlm version, which
                 only its name tells apart, has full attention
our adapter      the embedded denoiser: a causal LM and low-rank weights (``adapter.py``)

Names and shapes are checked from the files' headers: a wrong checkpoint is refused with one
sentence before any weight is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from core.diffusion.target import BidirectionalTarget, BlockCausalTarget, BlockLayout
from core.errors import UserError
from core.methods.loading import shipped
from core.models import adapter as adapters
from core.models import checkpoint, configs, embedded, presets
from core.models.fast_layers import use_fast_layers
from core.models.hub import Source, loading_model, shards
from core.models.language import SPLIT, Language, compute_dtype, load_language, pick_device
from core.models.tokenizer_limits import check_tokenizer
from core.progress import Progress, silent

BLOCK = 32  # both public families were trained, or are evaluated, with blocks of 32


@dataclass(frozen=True, eq=False)
class DiffusionLanguage(Language):
    """A loaded diffusion model with its tokenizer.

    block  the block length it was made for
    ahead  the confidence that a position needs to be unmasked before the first masked one; 0: as
           published models are run
    """

    target: BlockCausalTarget | BidirectionalTarget
    block: int
    ahead: float = 0.0


@dataclass(frozen=True)
class CheckpointForm:
    """How a public checkpoint is loaded.

    model_class  the Hugging Face class it fills
    stored_name  our parameter's name → the checkpoint's
    mask_id      None: the tokenizer says
    causal       whether attention is causal between blocks; else everything sees everything
    template     variables of the chat template
    """

    config: PreTrainedConfig
    model_class: type[PreTrainedModel]
    stored_name: Callable[[str], str]
    mask_id: int | None
    block: int
    causal: bool
    template: Mapping[str, Any] = field(default_factory=dict)


def load_diffusion(
    name: str = embedded.NAME,
    device: str = "auto",
    report: Progress = silent,
    shared: bool = False,
) -> DiffusionLanguage:
    """Load the embedded denoiser or a preset by name, any other diffusion model by path or hub id.

    shared  score the drafts of a bidirectional model with the paper's shared context, which is not
            exact. Block-causal models always share it, exactly

    Raises UserError when loading fails.
    """
    if device == SPLIT:
        raise UserError("a diffusion model runs on one device: choose cuda, cuda:1, … or cpu")
    where = pick_device(device)
    if name == embedded.NAME:
        folder = shipped("denoiser", name)
        if folder is None:
            raise UserError(f"no denoiser ships for {name!r}: name a diffusion model's folder")
        return _load_denoiser(name, folder, device, report)
    source = presets.preset_of(name).target
    folder = source.config_folder()
    raw = configs.read_config(folder, "diffusion")
    if raw.get("format") in (adapters.FORMAT, adapters.UNGATED):
        return _load_denoiser(name, folder, device, report)
    form = _checkpoint_form(name, raw)
    tokenizer = _load_tokenizer(name, folder, form)
    generation = _generation_config(name, folder, form, tokenizer)
    mask_id = _mask_id(name, form, tokenizer)
    model = _load_model(source, folder, form, where, report)
    model.generation_config = generation
    target = (
        BlockCausalTarget(model, mask_id)
        if form.causal
        else BidirectionalTarget(model, mask_id, "shared" if shared else "exact")
    )
    return DiffusionLanguage(
        name, model, tokenizer, folder, target, form.block, template=form.template
    )


def _load_denoiser(name: str, folder: Path, device: str, report: Progress) -> DiffusionLanguage:
    """The embedded denoiser's form: an adapter on a causal LM."""
    adapter = adapters.load_adapter(folder)
    config = adapter.config
    if config.base == embedded.NAME and config.base_sha not in (None, embedded.WHEEL_SHA256):
        raise UserError(f"the denoiser in {folder} was made for another {config.base!r}")
    base = load_language(config.base, device, report, fast=False)  # Hugging Face's model
    use_fast_layers(base.model, base.model.dtype, base.model.device)
    layout = BlockLayout(shift=True, clean="causal", left=True)
    gated = adapters.GatedAdapter(base.model, adapter.tensors, config.scale, config.mask_token_id)
    target = BlockCausalTarget(base.model, config.mask_token_id, layout, gated)
    return DiffusionLanguage(
        name, base.model, base.tokenizer, folder, target, config.block_size, config.ahead
    )


# ── public checkpoints ───────────────────────────────────────────────────────────────────────────


def _checkpoint_form(name: str, raw: Mapping[str, Any]) -> CheckpointForm:
    kind = raw.get("model_type")
    if kind not in ("llada", "a2d-qwen3"):
        raise UserError(
            f"{name!r} is not a diffusion model this program knows: its model_type is {kind!r}, "
            "not 'llada' or 'a2d-qwen3'"
        )
    with loading_model(name):
        return _llada(raw) if kind == "llada" else _a2d(name, raw)


_LLADA_NAMES = {
    "model.embed_tokens": "wte",
    "model.norm": "ln_f",
    "lm_head": "ff_out",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
# Options a Llama does not have: the value it needs, and LLaDA's default.
_LLADA_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "block_type": ("llama", "sequential"),
    "activation_type": ("silu", "swiglu"),
    "layer_norm_type": ("rms", "default"),
    "layer_norm_with_affine": (True, True),
    "block_group_size": (1, 1),
    "rope": (True, False),
    "alibi": (False, False),
    "attention_layer_norm": (False, False),
    "include_bias": (False, False),
    "include_qkv_bias": (False, False),
    "input_emb_norm": (False, False),
    "scale_logits": (False, False),
}


def _llada(raw: Mapping[str, Any]) -> CheckpointForm:
    for key, (needed, default) in _LLADA_OPTIONS.items():
        if (found := raw.get(key, default)) != needed:
            raise ValueError(f"{key} must be {needed!r}, not {found!r}")
    if raw.get("bias_for_layer_norm"):
        raise ValueError("bias_for_layer_norm must be false")
    heads = raw["n_heads"]
    config = LlamaConfig(
        vocab_size=raw.get("embedding_size") or raw["vocab_size"],
        hidden_size=raw["d_model"],
        intermediate_size=raw.get("mlp_hidden_size") or raw["mlp_ratio"] * raw["d_model"],
        num_hidden_layers=raw["n_layers"],
        num_attention_heads=heads,
        num_key_value_heads=raw.get("n_kv_heads")
        or (1 if raw.get("multi_query_attention") else heads),
        max_position_embeddings=raw["max_sequence_length"],
        rms_norm_eps=raw.get("rms_norm_eps", 1e-5),
        rope_parameters={"rope_type": "default", "rope_theta": raw["rope_theta"]},
        tie_word_embeddings=raw.get("weight_tying", True),
        eos_token_id=raw.get("eos_token_id"),
        bos_token_id=None,
        pad_token_id=None,
    )
    return CheckpointForm(
        config, LlamaForCausalLM, llada_name, raw.get("mask_token_id"), BLOCK, False
    )


def llada_name(ours: str) -> str:
    """``model.layers.3.mlp.gate_proj.weight`` → ``model.transformer.blocks.3.ff_proj.weight``."""
    module, _, kind = ours.rpartition(".")
    if not module.startswith("model.layers."):
        return f"model.transformer.{_LLADA_NAMES[module]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    return f"model.transformer.blocks.{layer}.{_LLADA_NAMES[part]}.{kind}"


def _a2d(name: str, raw: Mapping[str, Any]) -> CheckpointForm:
    foreign = {"model_type", "architectures", "auto_map", "mask_token_id", "block_size"}
    return CheckpointForm(
        config=Qwen3Config(**{key: value for key, value in raw.items() if key not in foreign}),
        model_class=Qwen3ForCausalLM,
        stored_name=str,
        mask_id=raw.get("mask_token_id"),
        block=raw.get("block_size") or BLOCK,
        causal="mdlm" not in Path(name).name.lower(),
        template={"enable_thinking": False},  # as the model's card says
    )


def _load_tokenizer(name: str, folder: Path, form: CheckpointForm) -> PreTrainedTokenizerBase:
    with loading_model(name):
        found = AutoTokenizer.from_pretrained(
            str(folder), config=form.config, trust_remote_code=False
        )
    check_tokenizer(found, name)
    return found


def _generation_config(
    name: str, folder: Path, form: CheckpointForm, tokenizer: PreTrainedTokenizerBase
) -> GenerationConfig:
    """The generation config, with every token that ends a text."""
    with loading_model(name):
        generation = (
            GenerationConfig.from_pretrained(str(folder))
            if (folder / "generation_config.json").is_file()
            else GenerationConfig()
        )
    # LLaDA-Instruct ends its turn with a token that its files do not name as an end.
    turn: Any = tokenizer.get_vocab().get("<|eot_id|>")
    ends: set[Any] = set()
    for named in (tokenizer.eos_token_id, turn, generation.eos_token_id, form.config.eos_token_id):
        ends.update([named] if isinstance(named, int) else named or ())
    generation.eos_token_id = sorted(ends)
    return generation


def _mask_id(name: str, form: CheckpointForm, tokenizer: PreTrainedTokenizerBase) -> int:
    mask = form.mask_id if form.mask_id is not None else tokenizer.mask_token_id
    if type(mask) is not int or not 0 <= mask < form.config.vocab_size:
        raise UserError(f"the model {name!r} has no mask token: {mask!r} is not one of its tokens")
    return mask


def _load_model(
    source: Source, folder: Path, form: CheckpointForm, where: torch.device, report: Progress
) -> PreTrainedModel:
    """The model on its device, in the precision it computes in. Raises UserError."""
    with loading_model(source.name), torch.device("meta"):
        model = form.model_class(form.config)
    shapes = checkpoint.shapes(model)
    ours = {form.stored_name(name): name for name in shapes}
    expected = {stored: shapes[name] for stored, name in ours.items()}
    _fetch_weights(source, folder, expected, form, report)
    found = checkpoint.stored_shapes(folder)
    head = form.stored_name("lm_head.weight")
    tied = form.config.tie_word_embeddings and head not in found
    if tied:
        del expected[head]
    checkpoint.check_shapes(expected, found, folder)
    report(None, "loading weights")
    state = {}
    for file in checkpoint.weight_files(folder):
        with safe_open(file, "pt", device=str(where)) as stored:
            for key in stored.keys():  # noqa: SIM118
                state[ours[key]] = stored.get_tensor(key).to(compute_dtype(where))
    _fill(model, state, tied, where)
    use_fast_layers(model, model.dtype, model.device)
    return model


def _fill(model: Any, state: dict[str, torch.Tensor], tied: bool, where: torch.device) -> None:
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.config.tie_word_embeddings = tied
    decoder = model.base_model
    decoder.rotary_emb = type(decoder.rotary_emb)(model.config).to(where)  # was made on "meta"
    model.eval().requires_grad_(False)


def _fetch_weights(
    source: Source,
    folder: Path,
    expected: checkpoint.Shapes,
    form: CheckpointForm,
    report: Progress,
) -> None:
    """Fetch a hub model's weights, if its index names the expected tensors. Raises UserError."""
    if source.folder is not None:
        return
    if places := shards(folder):
        named = set(places)
        head = form.stored_name("lm_head.weight")
        for key in sorted(named ^ set(expected)):
            if key != head or not form.config.tie_word_embeddings:
                fault = "lacks" if key in expected else "has a surplus tensor"
                raise UserError(f"the model {source.name!r} {fault} {key}")
    source.weights(report=report)
