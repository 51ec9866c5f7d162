"""Loading masked-diffusion models onto Hugging Face classes, without remote code.

Three layouts, told apart by ``config.json``:

``llada``        LLaDA-8B (Base, Instruct, 1.5): a Llama whose attention sees everything
``a2d-qwen3``    dllm's Qwen3-0.6B-diffusion-bd3lm: a Qwen3, block-causal; its mdlm sister, told
                 by its name alone, sees everything
our adapter      the embedded denoiser: a causal LM and low-rank weights (``adapter.py``)

Names and shapes are compared from the files' headers first: a wrong checkpoint is refused with one
sentence before any weight is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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

from core.diffusion import adapter as adapters
from core.diffusion.target import BidirectionalTarget, BlockCausalTarget, Layout
from core.errors import UserError
from core.methods.loading import shipped
from core.models import checkpoint, embedded, presets
from core.models.hub import WEIGHTS, Source
from core.models.language import (
    SPLIT,
    Language,
    cannot_load,
    compute_dtype,
    load_language,
    pick_device,
)
from core.models.packing import suit

BLOCK = 32  # both public families were trained, or are evaluated, with blocks of 32


@dataclass(frozen=True, eq=False)
class DiffusionLanguage(Language):
    """A loaded diffusion target with its tokenizer; ``block`` is the length it was made for."""

    target: BlockCausalTarget | BidirectionalTarget
    block: int


@dataclass(frozen=True)
class Published:
    """A public checkpoint's meaning: the class it fills, and where each weight is stored."""

    config: PreTrainedConfig
    family: type[PreTrainedModel]
    stored_name: Callable[[str], str]  # our parameter's name → the checkpoint's
    mask_id: int | None  # None: the tokenizer says
    block: int
    causal: bool  # between blocks; else everything sees everything
    template: Mapping[str, Any] = field(default_factory=dict)


def load_diffusion(
    name: str = embedded.NAME,
    device: str = "auto",
    report: embedded.Report = lambda _: None,
    shared: bool = False,
) -> DiffusionLanguage:
    """The embedded denoiser or a preset by name; any other by its folder or hub id.

    ``shared``: score a bidirectional model's drafts with the paper's shared context (not exact); a
    block-causal model shares it exactly in any case. Raises UserError when loading fails.
    """
    if device == SPLIT:
        raise UserError("a diffusion model runs on one device: choose cuda, cuda:1, … or cpu")
    where = pick_device(device)
    if name == embedded.NAME:
        folder = shipped("denoiser", name)
        if folder is None:
            raise UserError(f"no denoiser ships for {name!r}: name a diffusion model's folder")
        return _denoiser(name, folder, device, report)
    source = presets.find(name).target
    folder = source.light()
    raw = checkpoint.read_config(folder, "diffusion")
    if raw.get("format") == adapters.FORMAT:
        return _denoiser(name, folder, device, report)
    published = _published(name, raw)
    tokenizer, generation = _words(name, folder, published)
    mask_id = _mask(name, published, tokenizer)
    model = _model(source, folder, published, where, report)
    model.generation_config = generation
    target = (
        BlockCausalTarget(model, mask_id)
        if published.causal
        else BidirectionalTarget(model, mask_id, "shared" if shared else "exact")
    )
    return DiffusionLanguage(
        name, model, tokenizer, folder, target, published.block, template=published.template
    )


# ── the embedded denoiser ────────────────────────────────────────────────────────────────────────


def _denoiser(name: str, folder: Path, device: str, report: embedded.Report) -> DiffusionLanguage:
    adapter = adapters.load_adapter(folder)
    config = adapter.config
    if config.base == embedded.NAME and config.base_sha not in (None, embedded.WHEEL_SHA256):
        raise UserError(f"the denoiser in {folder} was made for another {config.base!r}")
    base = load_language(config.base, device, report, pack=False)
    adapters.merge(base.model, adapter)
    suit(base.model, base.model.dtype, base.model.device)
    layout = Layout(config.shift, config.clean)
    target = BlockCausalTarget(base.model, config.mask_token_id, layout)
    return DiffusionLanguage(name, base.model, base.tokenizer, folder, target, config.block_size)


# ── public checkpoints ───────────────────────────────────────────────────────────────────────────


def _published(name: str, raw: Mapping[str, Any]) -> Published:
    kind = raw.get("model_type")
    if kind not in ("llada", "a2d-qwen3"):
        raise UserError(
            f"{name!r} is no diffusion model this program knows: its model_type is {kind!r}, "
            "not 'llada' or 'a2d-qwen3'"
        )
    with understood(name):
        return _llada(raw) if kind == "llada" else _a2d(name, raw)


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Whatever a checkpoint's files make its libraries raise, as one sentence."""
    try:
        yield
    except Exception as error:
        raise cannot_load(name, error) from error


_LLADA = {
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
# What a Llama cannot be told to do otherwise. The second value is LLaDA's default when absent.
_LLADA_FIXED: Mapping[str, tuple[Any, Any]] = {
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


def _llada(raw: Mapping[str, Any]) -> Published:
    for key, (needed, default) in _LLADA_FIXED.items():
        if (found := raw.get(key, default)) != needed:
            raise ValueError(f"{key} must be {needed!r}, not {found!r}")
    if raw.get("bias_for_layer_norm"):
        raise ValueError("bias_for_layer_norm must be false")
    heads = raw["n_heads"]
    shared = 1 if raw.get("multi_query_attention") else heads
    config = LlamaConfig(
        vocab_size=raw.get("embedding_size") or raw["vocab_size"],
        hidden_size=raw["d_model"],
        intermediate_size=raw.get("mlp_hidden_size") or raw["mlp_ratio"] * raw["d_model"],
        num_hidden_layers=raw["n_layers"],
        num_attention_heads=heads,
        num_key_value_heads=raw.get("n_kv_heads") or shared,
        max_position_embeddings=raw["max_sequence_length"],
        rms_norm_eps=raw.get("rms_norm_eps", 1e-5),
        rope_parameters={"rope_type": "default", "rope_theta": raw["rope_theta"]},
        tie_word_embeddings=raw.get("weight_tying", True),
        eos_token_id=raw.get("eos_token_id"),
        bos_token_id=None,
        pad_token_id=None,
    )
    return Published(config, LlamaForCausalLM, llada_name, raw["mask_token_id"], BLOCK, False)


def llada_name(ours: str) -> str:
    """``model.layers.3.mlp.gate_proj.weight`` → ``model.transformer.blocks.3.ff_proj.weight``."""
    module, _, kind = ours.rpartition(".")
    if not module.startswith("model.layers."):
        return f"model.transformer.{_LLADA[module]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    return f"model.transformer.blocks.{layer}.{_LLADA[part]}.{kind}"


def _a2d(name: str, raw: Mapping[str, Any]) -> Published:
    foreign = {"model_type", "architectures", "auto_map", "mask_token_id", "block_size"}
    config = Qwen3Config(**{key: value for key, value in raw.items() if key not in foreign})
    return Published(
        config,
        Qwen3ForCausalLM,
        str,
        raw.get("mask_token_id"),
        raw.get("block_size") or BLOCK,
        causal="mdlm" not in Path(name).name.lower(),
        template={"enable_thinking": False},  # as the model's card asks
    )


def _words(
    name: str, folder: Path, published: Published
) -> tuple[PreTrainedTokenizerBase, GenerationConfig]:
    """The tokenizer and which tokens end a text. Raises UserError when either is unusable."""
    with understood(name):
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), config=published.config, trust_remote_code=False
        )
        generation = (
            GenerationConfig.from_pretrained(str(folder))
            if (folder / "generation_config.json").is_file()
            else GenerationConfig()
        )
    # LLaDA-Instruct ends its turn with a token of its own, which its files do not name as an end.
    turn = tokenizer.get_vocab().get("<|eot_id|>")
    ends = {tokenizer.eos_token_id, turn} - {None}
    for named in (generation.eos_token_id, published.config.eos_token_id):
        ends |= {named} if isinstance(named, int) else set(named or ())
    generation.eos_token_id = sorted(ends)
    return tokenizer, generation


def _mask(name: str, published: Published, tokenizer: PreTrainedTokenizerBase) -> int:
    mask = published.mask_id if published.mask_id is not None else tokenizer.mask_token_id
    if type(mask) is not int or not 0 <= mask < published.config.vocab_size:
        raise UserError(f"the model {name!r} has no mask token: {mask!r} is not one of its tokens")
    return mask


def _model(
    source: Source,
    folder: Path,
    published: Published,
    where: torch.device,
    report: embedded.Report,
) -> PreTrainedModel:
    """The model on its device, in the precision it computes in. Raises UserError."""
    with understood(source.name), torch.device("meta"):
        model = published.family(published.config)
    ours = {published.stored_name(key): key for key in model.state_dict()}
    shapes = {key: tuple(model.state_dict()[mine].shape) for key, mine in ours.items()}
    _weight_files(source, folder, shapes, published)
    found = checkpoint.read_shapes(folder)
    tied = _tie(published, shapes, found)
    checkpoint.check_shapes(shapes, found, folder)
    report(embedded.Progress("loading weights", None))
    state = {}
    for file in checkpoint.weight_files(folder):
        with safe_open(file, "pt", device=str(where)) as stored:
            for key in stored.keys():  # noqa: SIM118
                state[ours[key]] = stored.get_tensor(key).to(compute_dtype(where))
    _fill(model, state, tied, where)
    suit(model, model.dtype, model.device)
    return model


def _tie(
    published: Published, shapes: dict[str, tuple[int, ...]], found: checkpoint.Shapes
) -> bool:
    """Whether the head is the embedding: so says the config, and no head of its own is stored."""
    head = published.stored_name("lm_head.weight")
    tied = published.config.tie_word_embeddings and head not in found
    if tied:
        del shapes[head]
    return tied


def _fill(model: Any, state: dict[str, torch.Tensor], tied: bool, where: torch.device) -> None:
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.config.tie_word_embeddings = tied
    decoder = model.base_model
    decoder.rotary_emb = type(decoder.rotary_emb)(model.config).to(where)  # was on no device
    model.eval().requires_grad_(False)


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def _weight_files(
    source: Source, folder: Path, shapes: checkpoint.Shapes, published: Published
) -> None:
    """Fetch a hub model's weights, after its index has been found to name the right tensors."""
    if source.folder is not None:
        return
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        with understood(source.name):
            named = set(json.loads(index.read_text())["weight_map"])
        head = published.stored_name("lm_head.weight")
        for key in sorted(named ^ set(shapes)):
            if key != head or not published.config.tie_word_embeddings:
                fault = "lacks" if key in shapes else "has a surplus tensor"
                raise UserError(f"the model {source.name!r} {fault} {key}")
    source.fetch(WEIGHTS)
