"""How EAGLE-3 is trained: training-time test. Each step reads the features made at the step before
(arXiv 2503.01840, §3.2), and depth k weighs 0.8^(k−1).

The head is the target's, frozen, over the most frequent tokens of the training text.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.learning.corpus import Blocks, Corpus, frequent_tokens
from core.learning.student import (
    DrafterTraining,
    Head,
    Labels,
    Student,
    TrainingRun,
    start_as_last_layer,
    target_shape,
)
from core.methods.eagle3 import EagleTrainingOptions
from core.methods.eagle3.model import (
    FORM,
    EagleConfig,
    EagleModel,
    default_layers,
    save,
)
from core.models.checkpoint import WithHead
from core.models.language import Language

OUTSIDE = -1e4  # a logit that no softmax sees, and that times p = 0 is 0


class EagleStudent(Student[EagleModel]):
    """p and the softmax of the loss are restricted to the draft vocabulary."""

    gamma = 4.4814  # exp(−1/γ) = 0.8

    def __init__(self, found: WithHead[EagleModel], target: Any, steps: int):
        """``steps``: the depths that are learnt."""
        super().__init__(found.model, target)
        config, size = target.config.get_text_config(), len(self.embedding)
        self.steps, self.ids = steps, found.ids
        self.layers = found.model.config.feature_layers(config.num_hidden_layers)
        ids = torch.arange(size) if found.ids is None else found.ids.cpu()
        self.column = torch.full((size,), -1)  # each token's row of the head
        self.column[ids] = torch.arange(len(ids))
        own = found.head
        self.own_head = self.head_rows[ids.to(self.device)] if own is None else own.to(self.device)
        of_target = own is None and (found.ids is None or config.tie_word_embeddings)
        self.saved_head = None if of_target else self.own_head

    def embed(self, ids: Tensor) -> Tensor:
        """The network's own embeddings [..., h] of tokens, which stay as they are, else the
        target's."""
        own = self.model.embed_tokens
        return super().embed(ids) if own is None else own.weight.detach()[ids.to(self.device)]

    @property
    def max_depth(self) -> int:
        return self.steps

    def rows(self, blocks: Blocks) -> Tensor:
        features, tokens, anchors = self.given(blocks, self.layers)
        return self.model.rows_at(self.embed, tokens, features, anchors, self.steps)

    def labels(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Labels:
        """Nothing is learnt where the target's best token is outside the draft vocabulary."""
        found = super().labels(blocks, top_k, rng, gamma)
        inside = self.column[found.ids] >= 0
        p = found.p * inside
        p *= found.p.sum(-1, keepdim=True) / p.sum(-1, keepdim=True).clamp_min(1e-9)
        return replace(found, p=p, weight=found.weight * inside[..., 0])

    def head(self, ids: Tensor) -> Head:
        column = self.column[ids].to(self.device)
        rows, outside = self.own_head[column.clamp(min=0)], column < 0
        return lambda x: (x @ rows.to(x.dtype).T).float().masked_fill(outside, OUTSIDE)

    def save(self, folder: Path) -> None:
        save(WithHead(self.model, self.saved_head, self.ids), folder)


def new_start(
    language: Language, options: EagleTrainingOptions, corpus: Corpus
) -> WithHead[EagleModel]:
    """A layer that starts as the target's last one, over the text's most frequent tokens."""
    shape = target_shape(language)
    count = min(options.draft_vocabulary, shape["vocab_size"])
    ids = frequent_tokens(corpus.train, shape["vocab_size"])[:count].sort().values
    config = EagleConfig(**shape, draft_vocab_size=count, target_hidden_size=shape["hidden_size"])
    model = EagleModel(config)
    start_as_last_layer(model.fc, model.midlayer, language.model)
    with torch.no_grad():
        model.norm.weight.copy_(language.model.model.norm.weight)
    whole = count == shape["vocab_size"]
    return WithHead(model, None, None if whole else ids.to(language.device))


class EagleTraining(DrafterTraining):
    name = "eagle3"

    def layers(self, run: TrainingRun, options: EagleTrainingOptions) -> tuple[int, ...]:
        count = run.language.model.config.get_text_config().num_hidden_layers
        return (
            FORM.load_config(run.start).feature_layers(count)
            if run.start
            else default_layers(count)
        )

    def student(
        self, run: TrainingRun, options: EagleTrainingOptions, corpus: Corpus
    ) -> EagleStudent:
        language = run.language
        # a run that goes on keeps its draft vocabulary, also when its text has grown
        start = run.checkpoint(self.name) or run.start
        if start:
            found = FORM.load_checkpoint(start, torch.float32, language.device)
        else:
            found = new_start(language, options, corpus)
        return EagleStudent(found, language.model, options.steps)

    def ship(self, trained: Path, folder: Path) -> None:
        save(FORM.load_checkpoint(trained, torch.float32, "cpu"), folder, small=True)


TRAINING = EagleTraining()
