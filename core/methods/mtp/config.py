"""The layouts that MTP heads are published in, and the sizes that their configs give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError
from core.methods.mtp import COUNTS
from core.models.adapter import PARTS
from core.models.layer_kinds import SLIDING

KIND, FORMAT = "MTP", "draftscope-last-layer"


@dataclass(frozen=True)
class HeadLayout:
    """A publisher's names for the tensors of MTP heads, and what such heads read.

    layer    what stands before the names of a layer's tensors, with its number
    parts    a pattern of what comes then → our name; other names are the decoder layer's
    outside  of names outside of the layers → our name
    unread   a pattern of what comes then, of a copy of the target's
    behind   whether the numbers count on from the target's layers
    counted  whether the files count the layers, and no field of the config
    several  whether there may be more than one
    hidden_first  whether the projection reads the hidden state before the embedding
    chained  whether a layer reads what the one before it made; if not, each reads the target's
             hidden state
    before_norm  whether the target's hidden state is that before its final norm
    fields   of the target's config, of these layers
    """

    name: str
    layer: str
    parts: Mapping[str, str]
    outside: Mapping[str, str] = field(default_factory=dict)
    unread: str = "$^"
    behind: bool = False
    counted: bool = False
    several: bool = True
    hidden_first: bool = False
    chained: bool = True
    before_norm: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)

    def place(self, name: str, layers: int) -> tuple[int, str] | None:
        """The depth and our name of a tensor, of a target of so many layers; None for one that is
        not a head's."""
        for theirs, mine in self.outside.items():
            if found := re.match(theirs, name):
                return 0, mine + name[found.end() :]
        if (found := re.match(self.layer, name)) is None:
            return None
        depth, rest = int(found[1]) - layers * self.behind, name[found.end() :]
        if depth < 0 or re.match(self.unread, rest):
            return None
        for theirs, mine in self.parts.items():
            if found := re.match(theirs, rest):
                return depth, mine + rest[found.end() :]
        return depth, "layer." + rest

    def ours(self, name: str, config: MtpConfig) -> str | None:
        """Our name of a tensor, or None for one that is not the head's."""
        depth, own = self.place(name, config.layers or 0) or (config.depths, "")
        if depth >= config.depths:
            return None
        return own if depth == 0 else f"further.{depth - 1}.{own}"


_NUMBER = r"(\d{1,4})\."
_QWEN = r"(?:model\.)?mtp\."
_NEXTN = {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj"}
_NAMED = {"token_layernorm": "enorm", "hidden_layernorm": "hnorm", "input_proj": "eh_proj",
          "final_layernorm": "norm"}  # fmt: skip
QWEN = HeadLayout(
    "Qwen",
    _QWEN + r"layers\." + _NUMBER,
    {},
    {_QWEN + "pre_fc_norm_embedding": "enorm", _QWEN + "pre_fc_norm_hidden": "hnorm",
     _QWEN + "fc": "eh_proj", _QWEN + "norm": "norm"},
    several=False,
)  # fmt: skip
LAYOUTS = (
    QWEN,
    HeadLayout(
        "DeepSeek",
        r"(?:model\.)?(?:language_model\.)?layers\." + _NUMBER,
        _NEXTN | {r"shared_head\.norm": "norm"},
        unread=r"shared_head\.head|embed_tokens",
        behind=True,
    ),
    HeadLayout("speculators", r"mtp_layers\." + _NUMBER, _NAMED),
    # In vLLM, by Xiaomi's own hands, the target's norm is the head's alone.
    HeadLayout("MiMo", r"model\.mtp_layers\." + _NUMBER, _NAMED, hidden_first=True,
               before_norm=True),
    # SGLang's worker of several layers, which was made for it, gives each of them the target's
    # state before the final norm.
    HeadLayout(
        "MiMo V2",
        r"model\.mtp\.layers\." + _NUMBER,
        _NEXTN | {"final_layernorm": "norm", "pre_mlp_layernorm": "layer.post_attention_layernorm",
                  r"self_attn\.attention_sink_bias": "layer.self_attn.sinks"},
        counted=True, chained=False, before_norm=True,
        fields={"layer_types": SLIDING, "mlp_layer_types": "dense"},
    ),
)  # fmt: skip
COUNTED = ("mimo_v2_flash",)  # model types whose files alone count the layers


@dataclass(frozen=True)
class MtpConfig:
    """The sizes of a head, as its folder's config gives them, and what it reads.

    layers  of the target, which a nextn head's name counts on; None: it does not say
    depths  its layers, one for each depth; a single one is run again. 0: the files tell
    rank    of the change to the target's last layer, of a head trained here; 0: a published one
    parts   (out, in) of each linear layer that is changed
    layout  of a published one
    """

    hidden_size: int
    vocab_size: int
    rms_norm_eps: float
    layers: int | None = None
    rank: int = 0
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    depths: int = 1
    layout: HeadLayout = QWEN

    def __post_init__(self) -> None:
        sizes = (self.hidden_size, self.rank, *(n for shape in self.parts.values() for n in shape))
        if not (
            all(type(n) is int and n >= 0 for n in sizes) and self.parts.keys() <= PARTS.keys()
        ):
            raise ValueError("rank and parts are whole numbers of known parts")

    @property
    def hidden_first(self) -> bool:
        """As in ``HeadLayout``."""
        return self.layout.hidden_first

    @property
    def max_depth(self) -> int | None:
        """The deepest that it drafts; None: a single layer is run again at each depth."""
        return self.depths if self.depths > 1 else None

    @property
    def of_target(self) -> dict[str, int]:
        found = {"hidden size": self.hidden_size, "vocabulary size": self.vocab_size}
        return found | ({} if self.layers is None else {"layer count": self.layers})

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The last: its output is the last hidden state, after the final norm."""
        return (target_layers - 1,)

    @staticmethod
    def of(raw: dict[str, Any]) -> MtpConfig:
        """Raises UserError for a config that names no head, or several layers in a layout that has
        one."""
        layer = {**raw, **(raw.get("text_config") or raw.get("transformer_layer_config") or {})}
        sizes = (layer["hidden_size"], layer["vocab_size"], layer.get("rms_norm_eps", 1e-6))
        if raw.get("format") == FORMAT:
            parts = {name: (n, m) for name, (n, m) in raw["parts"].items()}
            return MtpConfig(*sizes, rank=raw["rank"], parts=parts)
        count = max((layer.get(name) or 0 for name in COUNTS), default=0)
        if not count and layer.get("model_type") not in COUNTED:
            raise UserError("its config counts no MTP layer")
        if count > 1 and layer.get(COUNTS[0]):
            raise UserError(one_alone(count, QWEN))
        alone = "transformer_layer_config" in raw
        return MtpConfig(*sizes, layers=None if alone else layer["num_hidden_layers"], depths=count)

    def to_json(self) -> dict[str, Any]:
        """The config of a head trained here."""
        return {
            "format": FORMAT,
            "hidden_size": self.hidden_size,
            "vocab_size": self.vocab_size,
            "rms_norm_eps": self.rms_norm_eps,
            "rank": self.rank,
            "parts": {name: list(shape) for name, shape in self.parts.items()},
        }


def one_alone(count: int, layout: HeadLayout) -> str:
    """Why a head of several layers is refused, in words."""
    return f"an MTP head of {count} layers is not supported in {layout.name}'s layout"
