"""How an MTP head is trained: the target's last layer reads an embedding beside the last hidden
state, and at each further depth the hidden state that it made before (training-time test).

Norms, the projection and low-rank changes of the layer learn, so that what ships is small. The
projection starts as the least squares of what enters the target's last layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.drafting.session import tokens_after
from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.shards import Document
from core.learning.student import DrafterTraining, Student, TrainingRun
from core.methods.mtp import MtpTrainingOptions
from core.methods.mtp.config import MtpConfig
from core.methods.mtp.model import FORM, MtpHead, Stored, on_last_layer, read_state, save
from core.models import checkpoint
from core.models.adapter import PARTS
from core.models.cache import additive_mask
from core.models.language import Language, last_layer

MOST = 512  # documents that the projection's start is fitted to
RIDGE = 2000.0  # tokens: as much as so many hold it where it was


class MtpStudent(Student[MtpHead]):
    gamma = 4.4814  # exp(−1/γ) = 0.8

    def __init__(self, head: MtpHead, target: Any, steps: int):
        """``steps``: the depths that are learnt."""
        super().__init__(head, target)
        self.steps, self.layers = steps, (last_layer(target),)
        with torch.device("meta"):
            ours = checkpoint.shapes(Stored(head.config))
        for name, parameter in head.named_parameters():
            parameter.requires_grad_(name in ours)
        # Its logits are not read, and the target's head may be in another type.
        head.body.set_output_embeddings(nn.Identity())

    @property
    def max_depth(self) -> int:
        return self.steps

    def rows(self, blocks: Blocks) -> Tensor:
        """Step 1 is a causal pass over the text. At a later one each anchor's row sees the rows of
        the text as far as the root's, and its own."""
        from transformers import DynamicCache

        hidden, tokens, anchors = self.given(blocks, self.layers)
        last, kv, count = int(blocks.anchors[-1]), DynamicCache(), len(anchors)
        row = torch.arange(last, device=self.device)
        seen = row[None] <= row[:, None]
        fed = self._step(hidden, tokens[1 : last + 1], row, seen, kv)[anchors - 1]
        paths, found = tokens_after(tokens, anchors, self.steps), [fed]
        own = torch.eye(count, dtype=torch.bool, device=self.device)
        before = row[None] < anchors[:, None]
        for step in range(1, self.steps):
            seen = torch.cat([before, own.repeat(1, step)], 1)
            fed = self._step(fed, paths[:, step], anchors - 1 + step, seen, kv)
            found.append(fed)
        return torch.stack(found, 1)

    def _step(self, hidden: Tensor, tokens: Tensor, where: Tensor, seen: Tensor, kv: Any) -> Tensor:
        """Hidden states [N, h] of rows that see ``seen`` bool [N, S]."""
        rows = self.model.join(hidden, self.embed(tokens).to(hidden.dtype))
        mask = additive_mask(seen, torch.float32)
        return self.model(rows, where + 1, mask, kv, keep=1)[1]

    def save(self, folder: Path) -> None:
        save(self.model, folder)


def new_head(language: Language, change: int) -> MtpHead:
    """The target's last layer. What it reads starts as what the target's reads, as far as the last
    hidden state tells: the final norm is undone, and embeddings are as long, but not read yet.

    Raises UserError for a target whose last layer has other parts.
    """
    target: Any = language.model
    config, decoder = target.config.get_text_config(), target.get_decoder()
    parts = {}
    for name, at in PARTS.items() if change else ():
        if (part := getattr(getattr(decoder.layers[-1], at, None), name, None)) is None:
            raise UserError(f"no MTP head is trained for this target: its last layer has no {name}")
        parts[name] = tuple(part.weight.shape)
    sizes = (config.hidden_size, config.vocab_size, config.rms_norm_eps)
    head = _trainable(target, MtpConfig(*sizes, rank=max(change, 1), parts=parts))
    with torch.no_grad():
        ids = torch.tensor([language.encode_chat("Why is the sky blue?")], device=target.device)
        every = target(ids, output_hidden_states=True).hidden_states
        before, after = (x.float().square().mean(-1).sqrt().median() for x in every[-2:])
        head.hnorm.weight.copy_(before * after / decoder.norm.weight)
        head.enorm.weight.fill_(float(before))
        head.eh_proj.weight.zero_()
        head.eh_proj.weight[:, config.hidden_size :] = torch.eye(config.hidden_size)
    return head


def _trainable(target: Any, config: MtpConfig) -> MtpHead:
    """A head that becomes float32 without its target: on a copy where they differ."""
    return on_last_layer(target, config, copied=target.dtype != torch.float32)


@torch.no_grad()
def fit_projection(
    head: MtpHead, embedding: Tensor, documents: Iterable[Document], last: int
) -> None:
    """Let the projection guess what enters the target's last layer at a token, of its embedding and
    the last hidden state before it: least squares over the documents, drawn to what it was.

    embedding  the target's [V, h]
    last       the number of the target's last layer, at least 1

    Every token counts alike, however long its state is. Raises UserError for documents without the
    features after that layer and the one before.
    """
    projection, gram, cross = head.eh_proj.weight, torch.zeros(()), torch.zeros(())
    count = 0
    for document in documents:
        states = document.features_after((last - 1, last)).to(embedding.device, torch.float32)
        entering, hidden = states[1:].chunk(2, -1)[0], states[:-1].chunk(2, -1)[1]
        tokens = document.tokens[1:].long().to(embedding.device)
        rows = torch.cat([head.enorm(embedding[tokens].float()), head.hnorm(hidden)], -1)
        each = entering.square().mean(-1, keepdim=True).rsqrt()
        missing = (entering - rows @ projection.T) * each
        gram = gram + (rows * each).T.double() @ (rows * each).double()
        cross = cross + (rows * each).T.double() @ missing.double()
        count += len(rows)
    gram.diagonal().add_(RIDGE / count * gram.diagonal().mean())
    projection += torch.linalg.solve(gram, cross).T.to(projection)


class MtpTraining(DrafterTraining):
    name = "mtp"
    builders = ("chain", "best-first")

    def layers(self, run: TrainingRun, options: MtpTrainingOptions) -> tuple[int, ...]:
        """A new head's projection is fitted to what enters the last layer."""
        last = last_layer(run.language.model)
        return tuple(range(last if run.start else max(0, last - 1), last + 1))

    def student(self, run: TrainingRun, options: MtpTrainingOptions, corpus: Corpus) -> MtpStudent:
        target = run.language.model
        if not run.start:
            head = new_head(run.language, options.change)
            student = MtpStudent(head, target, options.steps)
            if (last := last_layer(target)) > 0:
                fit_projection(head, student.embedding, corpus.train[:MOST], last)
            return student
        if not (config := FORM.load_config(run.start)).rank:
            raise UserError(f"{run.start} is a published head, which is not trained on here")
        head = _trainable(target, config)
        head.load_state_dict(read_state(run.start, config), strict=False)
        return MtpStudent(head, target, options.steps)

    def ship(self, trained: Path, folder: Path) -> None:
        config = FORM.load_config(trained)
        checkpoint.write(folder, config.to_json(), read_state(trained, config), small=True)


TRAINING = MtpTraining()
