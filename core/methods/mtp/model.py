"""MTP heads: the network, and how it is loaded.

Published heads lie among the target's own tensors, so a checkpoint's folder is the target's, or one
that holds the head alone. The layer is of the target's own class, whatever that is: gated
attention, experts, latent attention.

Heads that are trained here share the target's last layer. Their file holds norms, the projection
and a low-rank change b @ a of each linear layer in the config's ``parts``, as
``core.methods.sps.model`` has them. Without parts the layer is the target's own.

Shapes: N rows, S cache rows, h hidden width, V vocabulary, r rank.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.json_input import read_json
from core.methods.loading import check_fits
from core.methods.mtp.config import KIND, LAYOUTS, MtpConfig, one_alone
from core.methods.sps.model import Pair, changed, merge, model_of_layers, shared
from core.models import checkpoint, configs
from core.models.adapter import PARTS
from core.models.cache import StaticKV
from core.models.checkpoint import DrafterForm
from core.models.fast_layers import use_fast_layers
from core.models.language import Language
from core.models.layer_kinds import FULL
from core.models.layers import RMSNorm
from core.models.target import reads_static_kv, run_rows

# ── the network ──────────────────────────────────────────────────────────────────────────────────


class MtpHead(nn.Module):
    """One layer of the target's class with the norms and the projection before it. Embedding, head
    and rotary positions are the target's.

    body     a language model of the target's class with this one layer
    further  the heads of the depths after the first, if it has layers of their own for them
    gains    [h], of the target's final norm, where the head reads its hidden state before it
    """

    def __init__(
        self,
        config: MtpConfig,
        body: Any,
        further: Iterable[MtpHead] = (),
        gains: Tensor | None = None,
    ):
        super().__init__()
        decoder = body.get_decoder()
        self.config = config
        self.norm, (self.layer,) = decoder.norm, decoder.layers
        self.enorm, self.hnorm = copy.deepcopy(self.norm), copy.deepcopy(self.norm)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self._body = (body,)  # not as a part: its tensors are those above, and the target's
        self.further = nn.ModuleList(further)
        self.gains = gains

    @property
    def body(self) -> Any:
        return self._body[0]

    def entering(self, features: Tensor) -> Tensor:
        """The target's last hidden states [N, h], after its final norm, as the head reads them.
        Without the gains they differ from those before the norm by their length, and a norm
        follows."""
        return features if self.gains is None else features / self.gains.to(features)

    def join(self, hidden: Tensor, next_embeddings: Tensor) -> Tensor:
        """Hidden states [N, h] with the embeddings [N, h] of the tokens after them → rows of the
        layer [N, h]."""
        both = [self.enorm(next_embeddings), self.hnorm(hidden)]
        return self.eh_proj(torch.cat(both[::-1] if self.config.hidden_first else both, -1))

    def forward(
        self, rows: Tensor, positions: Tensor, mask: Tensor, kv: StaticKV | Any, keep: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Rows [N, h] at their positions with an additive mask [N, S] → logits [N, V] (of ``keep``
        last rows; 0: all) and their hidden states [N, h], after the norm."""
        wanted = [1] if reads_static_kv(self.body) else True
        out = run_rows(
            self.body, positions, mask, kv,
            inputs_embeds=rows[None], output_hidden_states=wanted, logits_to_keep=keep,
        )  # fmt: skip
        return out.logits[0], out.hidden_states[1][0]


class Stored(nn.Module):
    """The weights that a head trained here adds to the target's last layer, as in its file."""

    def __init__(self, config: MtpConfig):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.enorm, self.hnorm, self.norm = (RMSNorm(width, eps) for _ in range(3))
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        places = {at: nn.ModuleDict() for at in set(PARTS.values())}
        for name, shape in config.parts.items():
            places[PARTS[name]][name] = nn.ModuleDict({"more": Pair(shape, config.rank)})
        self.layer = nn.ModuleDict(places)


def head_of(model: Any, config: MtpConfig, layer: nn.Module | None = None) -> MtpHead:
    """A head for a target: on ``layer``, or with layers of the target's class without weights."""
    final = model.get_decoder().norm
    bodies = list[Any]()
    for depth in range(config.depths):
        fields = _fields(model, config, depth)
        bodies.append(model_of_layers(model, [layer] if layer else None, fields))
        decoder = bodies[-1].get_decoder()
        decoder.embed_tokens = nn.Identity()
        if layer is not None:
            decoder.norm = copy.deepcopy(final)
    further = (MtpHead(config, body) for body in bodies[1:])
    gains = final.weight.detach() if config.layout.before_norm else None
    return MtpHead(config, bodies[0], further, gains)


def _fields(model: Any, head: MtpConfig, depth: int) -> dict[str, Any]:
    """The config of a model whose one layer is the head's of this depth, as far as it differs from
    the target's."""
    config = model.config.get_text_config()
    fields: dict[str, Any] = {"num_hidden_layers": 1}
    for kinds, own in (
        ("layer_types", "mtp_layer_types"),
        ("mlp_layer_types", "mtp_mlp_layer_types"),
    ):
        if every := getattr(config, kinds, None):
            usual = FULL if kinds == "layer_types" and FULL in every else every[-1]
            usual = head.layout.fields.get(kinds, usual)
            told = (getattr(config, own, None) or [])[depth:]
            fields[kinds] = [told[0] if told else usual]
    if hasattr(config, "first_k_dense_replace"):
        fields["first_k_dense_replace"] = 0  # its feed-forward part is of experts
    return fields


def on_last_layer(model: Any, config: MtpConfig, copied: bool = False) -> MtpHead:
    """A head that shares the target's last layer, or has a copy, with the changes of ``config`` at
    zero."""
    layer = shared(model.get_decoder().layers[-1])
    layer = copy.deepcopy(layer) if copied else layer
    for name in ("layer_idx", "number"):  # in transformers' models, and in ours
        if hasattr(layer.self_attn, name):
            setattr(layer.self_attn, name, 0)
    pairs = {name: Pair(shape, config.rank) for name, shape in config.parts.items()}
    return head_of(model, config, changed(layer, pairs))


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────


class MtpForm(DrafterForm[MtpConfig]):
    """An MTP head, in a folder of its own or among its target's tensors."""

    targets_norms = True

    def load_config(self, folder: Path) -> MtpConfig:
        """Raises UserError for a folder whose config names no head."""
        config = configs.parsed_at(folder, KIND, MtpConfig.of)
        if config.rank or not any(folder.glob("*.safetensors")):
            return config
        names = checkpoint.stored_shapes(folder)
        for layout in LAYOUTS:
            places = [found for name in names if (found := layout.place(name, config.layers or 0))]
            if (0, "eh_proj.weight") not in places:
                continue
            if layout.counted:
                config = replace(config, depths=1 + max(depth for depth, _ in places))
            if config.depths > 1 and not layout.several:
                raise UserError(f"{folder}: {one_alone(config.depths, layout)}")
            return replace(config, layout=layout)
        raise configs.LayoutError(f"{folder} holds no tensor of an MTP head")

    def outline(self, folder: Path) -> nn.Module:
        """The network, or the change to the target's last layer, without its weights."""
        config = self.load_config(folder)
        with configs.on_meta(folder, KIND):
            if config.rank:
                return Stored(config)
            if not config.depths:
                raise UserError(
                    f"how many MTP layers there are stands in the files, which {folder} lacks"
                )
            from transformers import AutoConfig, AutoModelForCausalLM

            raw: dict[str, Any] = dict(read_json(folder / "config.json"))  # type: ignore[call-overload]
            if layer := raw.get("transformer_layer_config"):
                raw = layer
            known = AutoConfig.for_model(**raw).get_text_config()
            known.num_hidden_layers = 1
            return head_of(AutoModelForCausalLM.from_config(_one(known)), config)

    def read_shapes(self, folder: Path) -> dict[str, tuple[int, ...]]:
        """Shapes of the head's tensors by our names, experts together. Raises UserError."""
        config = self.load_config(folder)
        found = checkpoint.read_shapes(folder, self.wanted(folder, config))
        if config.rank:
            return found
        made = _named(found, config)
        return _together(made, lambda every: (len(every), *every[0]),
                         lambda a, b: (a[0], a[1] + b[1], *a[2:]))  # fmt: skip

    def wanted(self, folder: Path, config: MtpConfig) -> Callable[[str], bool] | None:
        """Whether a stored tensor of this name is the head's, where others lie beside it; None: all
        are. Raises UserError."""
        if config.rank:
            return None
        return lambda name: config.layout.ours(name, config) is not None


FORM = MtpForm()


def _one(config: Any) -> Any:
    """A config of one layer."""
    for kinds in ("layer_types", "mlp_layer_types"):
        if every := getattr(config, kinds, None):
            setattr(config, kinds, every[-1:])
    return config


def _named(found: Mapping[str, Any], config: MtpConfig) -> dict[str, Any]:
    named = {config.layout.ours(name, config): each for name, each in found.items()}
    return {name: each for name, each in named.items() if name is not None}


def _together(
    state: Mapping[str, Any], stack: Callable[[list], Any], beside: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    """The tensors of single experts as transformers has them: ``gate_up_proj`` and ``down_proj`` of
    all experts, [E, …]."""
    found, experts = dict[str, Any](), dict[tuple[str, str], dict[int, Any]]()
    for name, each in state.items():
        if parts := re.fullmatch(r"(.*\.experts\.)(\d{1,4})\.(\w+)\.weight", name):
            experts.setdefault((parts[1], parts[3]), {})[int(parts[2])] = each
        else:
            found[name] = each
    for (before, name), every in experts.items():
        found[before + name] = stack([each for _, each in sorted(every.items())])
    for before in {before for before, _ in experts}:
        if (gate := found.pop(before + "gate_proj", None)) is not None:
            found[before + "gate_up_proj"] = beside(gate, found.pop(before + "up_proj"))
    return found


def read_state(folder: Path, config: MtpConfig) -> dict[str, Tensor]:
    """The head's tensors by our names; of a target's folder no other is read. Raises UserError."""
    some = checkpoint.read_state(folder, FORM.wanted(folder, config))
    if config.rank:
        return some
    return _together(_named(some, config), torch.stack, lambda a, b: torch.cat([a, b], 1))


def load_head(language: Language, folder: Path, fast: bool = True) -> MtpHead:
    """The head in ``folder`` on the target's device. Raises UserError as ``load``."""
    config, model = FORM.load_config(folder), language.model
    check_fits(folder, language, config)
    state = read_state(folder, config)
    with configs.on_meta(folder, KIND):
        head = on_last_layer(model, config) if config.rank else head_of(model, config)
        own: nn.Module = Stored(config) if config.rank else head
    checkpoint.check_state(own, state, folder)
    state = {name: each.to(language.device, model.dtype) for name, each in state.items()}
    head.load_state_dict(state, strict=False, assign=True)
    if fast:
        use_fast_layers(head, model.dtype, language.device)
    return head.requires_grad_(False).eval()


def save(head: MtpHead, folder: Path, small: bool = False) -> None:
    """Write what a head trained here adds to the target's last layer (``small``: in int8)."""
    with torch.device("meta"):
        names = checkpoint.shapes(Stored(head.config))
    state = {name: each for name, each in head.state_dict().items() if name in names}
    checkpoint.write(folder, head.config.to_json(), state, small)


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a head trained here in Qwen's layout: a layer of its own, in bf16."""
    language = load_target()
    head = load_head(language, folder, fast=False)
    merge(head.layer)
    write_in_qwens_layout(head, language.model.config.to_dict(), out)
    return head


def write_in_qwens_layout(head: MtpHead, target_config: Mapping[str, Any], out: Path) -> None:
    """Write a head of any target as a folder that holds it alone."""
    theirs = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc",
              "layer": "layers.0"}  # fmt: skip
    state = {}
    for name, each in head.state_dict().items():
        first, rest = name.split(".", 1)
        state[f"mtp.{theirs.get(first, first)}.{rest}"] = each
    checkpoint.write(out, {**target_config, "mtp_num_hidden_layers": 1}, state, small=False)
