"""How DFlash is trained (DFlash §4): every masked position of a block learns the target's
distribution.

Shapes: T tokens of a text, A anchors, L drafted depths, h hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.student import (
    DrafterTraining,
    Student,
    TrainingRun,
    mask_token,
    target_shape,
)
from core.methods.dflash import DFlashTrainingOptions
from core.methods.dflash.model import (
    FORM,
    DFlashConfig,
    DFlashModel,
    default_layer_ids,
)
from core.models.language import Language


class DFlashStudent(Student[DFlashModel]):
    form = FORM

    def rows(self, blocks: Blocks) -> Tensor:
        return self.model.norm(backbone_rows(self, self.model, blocks))


def backbone_rows(student: Student, model: DFlashModel, blocks: Blocks) -> Tensor:
    """The residual stream of a DFlash backbone's masked positions, [A, L, h]."""
    features, tokens, anchors = student.given(blocks, model.config.target_layer_ids)
    return model.rows_at(student.embed, tokens, features, anchors)


def new_config(language: Language, options: DFlashTrainingOptions) -> DFlashConfig:
    """A drafter as wide as its target. The last feature is the one its first layer starts from.

    Raises UserError for more layers than the target can start.
    """
    count = language.model.config.get_text_config().num_hidden_layers
    entering = count - options.draft_layers - 1
    if entering < 0:
        raise UserError(
            f"the target's {count} layers cannot start {options.draft_layers} of a drafter"
        )
    spread = default_layer_ids(count, 5)[:-1]
    default = sorted({*(i for i in spread if 0 <= i < entering), entering})
    return DFlashConfig(
        **target_shape(language),
        num_hidden_layers=options.draft_layers,
        block_size=options.block_size,
        num_target_layers=count,
        target_layer_ids=tuple(options.target_layers or default),
        mask_token_id=mask_token(language),
    )


def initial_model(config: DFlashConfig, target: Any, text: Tensor) -> DFlashModel:
    """A drafter that starts as the target's last layers, reading the feature that enters them.

    ``fc`` is the identity on the last feature, ``hidden_norm`` the first copied layer's input norm,
    and the q/k norm gains are the target's own head RMS on the token ids ``text`` [1, T].
    """
    model = DFlashModel(config)
    source = target.model.layers[-config.num_hidden_layers :]
    rms = _head_rms(target, source, text)
    with torch.no_grad():
        for layer, old, (q_rms, k_rms) in zip(model.layers, source, rms, strict=True):
            new, own = layer.state_dict(), old.state_dict()
            new["self_attn.q_norm.weight"].fill_(q_rms)
            new["self_attn.k_norm.weight"].fill_(k_rms)
            layer.load_state_dict({n: own.get(n, p) for n, p in new.items()})
        model.norm.weight.copy_(target.model.norm.weight)
        model.hidden_norm.weight.copy_(source[0].input_layernorm.weight)
        model.fc.weight.zero_()
        model.fc.weight[:, -config.hidden_size :] = torch.eye(config.hidden_size)
    return model


@torch.inference_mode()
def _head_rms(target: Any, layers: Any, text: Tensor) -> list[tuple[float, float]]:
    """Root mean square of each layer's queries and keys on a text."""
    measured: dict[nn.Module, float] = {}

    def measure(module: nn.Module, _: Any, out: Tensor) -> None:
        measured[module] = out.float().square().mean().sqrt().item()

    hooks = [
        proj.register_forward_hook(measure)
        for layer in layers
        for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj)
    ]
    target(text, use_cache=False)
    for hook in hooks:
        hook.remove()
    return [(measured[x.self_attn.q_proj], measured[x.self_attn.k_proj]) for x in layers]


class DFlashTraining(DrafterTraining):
    name, form = "dflash", FORM
    builders = ("chain", "best-first")

    def layers(self, run: TrainingRun, options: DFlashTrainingOptions) -> tuple[int, ...]:
        config = FORM.load_config(run.start) if run.start else new_config(run.language, options)
        return config.target_layer_ids

    def student(
        self, run: TrainingRun, options: DFlashTrainingOptions, corpus: Corpus
    ) -> DFlashStudent:
        language = run.language
        if run.start:
            model = FORM.load_model(run.start, torch.float32, language.device)
        else:
            config = new_config(language, options)
            text = corpus.train[0].tokens[None].long().to(language.device)
            random = options.random_start
            model = DFlashModel(config) if random else initial_model(config, language.model, text)
        return DFlashStudent(model, language.model)

    def variants(self, layers: tuple[int, ...]) -> Mapping[str, Mapping[str, Any]]:
        changes: dict[str, dict[str, Any]] = {
            "base": {},
            "start: random weights": {"random_start": True},
            "features: the last layer's": {"target_layers": layers[-1:]},
            "features: the last three layers'": {"target_layers": layers[-3:]},
            "block 4": {"block_size": 4},
            "block 16": {"block_size": 16},
            "1 layer": {"draft_layers": 1},
            "2 layers": {"draft_layers": 2},
            "5 layers": {"draft_layers": 5},
        }
        return {name: {"target_layers": layers} | change for name, change in changes.items()}


TRAINING = DFlashTraining()
