"""Gemma 4's assistant: the network, by transformers' own layers, and how it is loaded.

Shapes: R rows, T context tokens, h the assistant's width, H the target's, V vocabulary, G groups of
keys of D numbers, C clusters of V/C tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.models import checkpoint
from core.models.checkpoint import Form
from core.models.layer_kinds import SLIDING

# By kind of attention, keys and values [1, G, T, D].
KeysAndValues = Mapping[str, tuple[Tensor, Tensor]]
REFUSED = {  # fields of transformers' layers that an assistant's have not
    "hidden_size_per_layer_input": (256, "embeddings of its own in every layer"),
    "vocab_size_per_layer_input": (1, "embeddings of its own in every layer"),
    "enable_moe_block": (False, "experts"),
    "use_double_wide_mlp": (False, "wider feed-forward layers"),
}


@dataclass(frozen=True)
class AssistantConfig:
    """``text``: the fields of its layers, as transformers' ``Gemma4TextConfig`` takes them.

    backbone_hidden_size  H
    clusters  of the tokens, of which each row's best are scored; 0: all tokens are
    best      how many clusters are scored
    tied      whether its head is its embedding, which nothing else reads
    """

    backbone_hidden_size: int
    hidden_size: int
    vocab_size: int
    clusters: int = 0
    best: int = 32
    tied: bool = True
    text: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clusters and (
            self.vocab_size % self.clusters or not 0 < self.best <= self.clusters
        ):
            raise ValueError("its clusters do not fit the vocabulary")

    @property
    def of_target(self) -> dict[str, int]:
        return {"hidden size": self.backbone_hidden_size, "vocabulary size": self.vocab_size}

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The last. It also reads what enters the layers whose keys it needs, which the target's
        own config tells (``keys.TargetKeys``)."""
        return (target_layers - 1,)

    @staticmethod
    def of(raw: dict[str, Any]) -> AssistantConfig:
        """Raises UserError for another model, and for layers that an assistant has not."""
        if (kind := raw.get("model_type")) != "gemma4_assistant":
            raise UserError(f"an assistant of the type {kind!r} is not supported")
        text = raw["text_config"]
        for name, (usual, what) in REFUSED.items():
            if text.get(name, usual):
                raise UserError(f"an assistant with {what} ({name}) is not supported")
        layers = text["num_hidden_layers"]
        if text.get("num_kv_shared_layers", 0) not in (0, layers):
            raise UserError("an assistant with keys of its own is not supported")
        clusters = raw.get("num_centroids", 2048) if raw.get("use_ordered_embeddings") else 0
        return AssistantConfig(
            raw["backbone_hidden_size"],
            text["hidden_size"],
            text["vocab_size"],
            clusters,
            raw.get("centroid_intermediate_top_k", 32),
            raw.get("tie_word_embeddings", True),
            text,
        )

    def layers(self) -> Any:
        """transformers' config of its layers, which all read keys of others."""
        from transformers import Gemma4TextConfig

        from core.models.hugging_face import ATTENTION

        class QueriesOnly(Gemma4TextConfig):
            """transformers 5.23 refuses layers that all read others' keys, as these do."""

            @property
            def kv_sharing_modes(self) -> list[str | None]:
                return ["reuse"] * self.num_hidden_layers

        fields = {n: v for n, v in self.text.items() if n not in ("model_type", "dtype")}
        made = QueriesOnly(**fields | {"num_kv_shared_layers": fields["num_hidden_layers"]})
        made._attn_implementation = ATTENTION
        return made


class Clusters(nn.Module):
    """A head that scores the tokens of each row's best clusters alone.

    token_ordering  int64 [V], the tokens cluster by cluster
    """

    token_ordering: Tensor

    def __init__(self, config: AssistantConfig):
        super().__init__()
        self.best = config.best
        self.centroids = nn.Linear(config.hidden_size, config.clusters, bias=False)
        self.register_buffer("token_ordering", torch.zeros(config.vocab_size, dtype=torch.long))

    def forward(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Logits [R, V] of rows [R, h] by a head's weight [V, h]; a token that is not scored has
        one less than the row's least, as in transformers."""
        order = self.token_ordering.view(self.centroids.out_features, -1)
        tokens = order[self.centroids(hidden).topk(self.best).indices].flatten(1).long()
        scores = (weight[tokens] @ hidden[:, :, None])[:, :, 0]
        least = scores.amin(-1, keepdim=True) - 1
        return least.repeat(1, len(weight)).scatter(1, tokens, scores)


class Assistant(nn.Module):
    """The layers between two projections, and a head over all tokens or over some clusters."""

    def __init__(self, config: AssistantConfig):
        super().__init__()
        from transformers.models.gemma4.modeling_gemma4 import Gemma4TextModel

        self.config, width = config, config.hidden_size
        self.model: Any = Gemma4TextModel(config.layers())
        self.pre_projection = nn.Linear(2 * config.backbone_hidden_size, width, bias=False)
        self.post_projection = nn.Linear(width, config.backbone_hidden_size, bias=False)
        self.lm_head = None if config.tied else nn.Linear(width, config.vocab_size, bias=False)
        self.masked_embedding = Clusters(config) if config.clusters else None

    def forward(
        self, embedded: Tensor, hidden: Tensor, position: int, keys: KeysAndValues
    ) -> tuple[Tensor, Tensor]:
        """Rows of tokens' embeddings [R, H] beside their parents' states [R, H], at one position →
        logits [R, V] and states [R, H]."""
        rows = self.pre_projection(torch.cat([embedded, hidden], -1))
        out = self.model(
            inputs_embeds=rows[None],
            attention_mask=dict.fromkeys(keys),  # every row sees all keys
            position_ids=torch.full((1, len(rows)), position, device=rows.device),
            shared_kv_states={kind: self._near(kind, both) for kind, both in keys.items()},
            use_cache=False,
            logits_to_keep=slice(None),  # a whole number lets it leave out rows
        ).last_hidden_state[0]
        weight = (self.lm_head or self.model.embed_tokens).weight
        scored = self.masked_embedding
        logits = out @ weight.mT if scored is None else scored(out, weight)
        return logits, self.post_projection(out)

    def _near(self, kind: str, both: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values that lie in the layers' own window."""
        if kind != SLIDING:
            return both
        rows = self.model.config.sliding_window + 1
        return both[0][:, :, -rows:], both[1][:, :, -rows:]


FORM: Form[AssistantConfig, Assistant] = Form("Gemma 4 assistant", AssistantConfig.of, Assistant)


def load_assistant(folder: Path, dtype: torch.dtype, device: torch.device) -> Assistant:
    """The network in ``folder``. Raises UserError for tensors that do not fit its config."""
    made = checkpoint.fill(FORM.outline(folder), checkpoint.read_state(folder), folder)
    body = made.model
    # Its angles are in no file, and in bfloat16 they would be wrong.
    rotary, body.rotary_emb = type(body.rotary_emb)(body.config), None
    body.embed_tokens.embed_scale = torch.ones(())  # it is a head alone
    made.to(device=device, dtype=dtype)
    body.rotary_emb = rotary.to(device)
    return made.requires_grad_(False).eval()
