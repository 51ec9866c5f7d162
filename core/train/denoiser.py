"""How the denoiser is trained: the target itself, with attention opened inside a block.

A low-rank adapter and one embedding row for the mask are trained; the target stays frozen. Text
before a block and the known left part of the block are read by the target alone, causally. So the
first masked position has the target's own distribution while nothing behind it is known, and there
is nothing to learn there. All other rows are adapted and see the whole block. Row i − 1 predicts
position i (the target's own shift).

The states are those that decoding meets: a block is unmasked in the denoiser's own order, with the
text's own tokens, and states on the way are learnt. Half the blocks have half the length.

Shapes: A blocks, L positions of a block, S states, R rows of all states, M places that are learnt,
K stored target tokens, h hidden width, V vocabulary.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from core.diffusion.ranking import unmasking_order
from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.shards import Document
from core.learning.student import Labels, Student, Training, TrainingRun, mask_token
from core.models.adapter import (
    MASK,
    AdapterConfig,
    AdapterGate,
    load_adapter,
    projections,
    save_adapter,
)
from core.models.adapter import Adapter as Saved
from core.models.cache import additive_mask
from core.models.target import run_rows
from core.train.options import DENOISER, DenoiserOptions

STATES = 4  # that a step learns of a block: at the start, then about every quarter of it
ROWS = 320  # of a document's states that share a pass, about
AFTER_END = 0.2  # weight of the filler after the end of a text

Context = tuple[tuple[Tensor, Tensor], ...]  # keys and values of every layer


@dataclass(frozen=True)
class BlockStates(Blocks):
    """States of blocks of one document; each state has an anchor, so a block's come several times.

    tokens   int64 [S, L] after the anchor, filled up after the end of the text
    masked   bool [S, L]
    learnt   bool [S, L]: the places of the labels, state by state
    context  what the target has read of the document: the keys and values of all its tokens
    """

    tokens: Tensor
    masked: Tensor
    learnt: Tensor
    context: Context


class TrainableAdapter(nn.Module):
    """W + b·a for every projection of every layer, and the mask token's embedding row."""

    def __init__(self, target: Any, rank: int, mask: Tensor):
        super().__init__()
        self.dtype = target.dtype
        self.mask_embedding = nn.Parameter(mask.clone())
        self.low = nn.ParameterDict()
        for name, linear in projections(target).items():
            key = name.replace(".", "/")
            a = torch.randn(rank, linear.in_features) * linear.in_features**-0.5
            self.low[f"{key}/a"] = nn.Parameter(a.to(mask))
            self.low[f"{key}/b"] = nn.Parameter(mask.new_zeros(linear.out_features, rank))

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        """a and b of a projection, in the precision of the target."""
        key = name.replace(".", "/")
        return self.low[f"{key}/a"].to(self.dtype), self.low[f"{key}/b"].to(self.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the names of the file format."""
        found = {key.replace("/", "."): value.detach() for key, value in self.low.items()}
        return found | {MASK: self.mask_embedding.detach()}

    @torch.no_grad()
    def load(self, saved: Saved) -> None:
        """Take over a saved adapter. Raises UserError for one of another target."""
        own = self.tensors()
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in saved.tensors.items()}:
            raise UserError("the denoiser to start from was made for another target")
        for name, tensor in own.items():
            scale = saved.config.scale if name.endswith(".b") else 1.0
            tensor.copy_(saved.tensors[name].float() * scale)


class DenoiserStudent(Student[TrainableAdapter]):
    """The adapted target. ``stop`` is the token that fills a block after the end of a text.

    The target computes in the precision it comes in; the adapter is float32.
    """

    def __init__(self, language_model: Any, config: AdapterConfig, stop: int):
        mask = language_model.get_input_embeddings().weight.detach().float().mean(0)
        super().__init__(TrainableAdapter(language_model, config.rank, mask), language_model)
        self.language_model, self.config, self.stop = language_model, config, stop
        self._gate = AdapterGate(projections(language_model))

    @property
    def max_depth(self) -> int:
        return self.config.block_size

    def labels(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Labels:
        """Unmask some of the blocks in the denoiser's own order; learn states on the way.

        A position with nothing known to its right learns the target's distribution there. One
        with a known right side learns the token itself, since the target's left-to-right
        distribution does not know that side. After the end of its text a block continues with
        end-of-text tokens, as decoding would fill it; after a text that was cut it ends.

        gamma  a place after g other masked ones weighs exp(−g/γ)
        """
        size = max(2, self.max_depth >> int(torch.randint(2, (), generator=rng)))
        states = self._unmask(self._start(blocks, size, rng), rng)
        document, masked = states.document, states.masked
        inside = states.anchors[:, None] + 1 + torch.arange(size) < len(document)
        ended = int(document.tokens[-1]) == self.stop
        known_right = (~masked).flip(-1).cumsum(-1).flip(-1) > 0
        own = ~known_right & (masked.cumsum(-1) == 1)  # the target's own: nothing to learn
        learnt = masked & ~own & (inside | ended)
        learnt &= (states.anchors + known_left(masked) < len(document))[:, None]
        ids, p, _ = Blocks(document, states.anchors).target_probs(size, top_k)
        ids, p = _or_token(ids, p, states.tokens, known_right | ~inside)
        gap = (masked.cumsum(-1) - 1).clamp_min(0)
        weight = torch.exp(-gap / gamma) * torch.where(inside, 1.0, AFTER_END)
        places = (x[learnt][:, None] for x in (ids, p, weight))
        return Labels(replace(states, learnt=learnt), *places)

    def _start(self, blocks: Blocks, size: int, rng: torch.Generator) -> BlockStates:
        """Some of the blocks, cut to this size, with up to a quarter known from the left."""
        document = blocks.document
        count = max(1, ROWS // (STATES * size // 2))  # a state has some L / 2 rows
        some = torch.randperm(len(blocks.anchors), generator=rng)[:count]
        anchors = blocks.anchors[some.sort().values]
        index = anchors[:, None] + 1 + torch.arange(size)
        inside = index < len(document)
        tokens = document.tokens[index.clamp(max=len(document) - 1)].long()
        left = torch.randint(max(1, size // STATES), (len(anchors), 1), generator=rng)
        return BlockStates(
            document,
            anchors,
            torch.where(inside, tokens, self.stop),
            masked=torch.arange(size) >= left,
            learnt=torch.zeros_like(inside),
            context=self._read(document),
        )

    def _unmask(self, start: BlockStates, rng: torch.Generator) -> BlockStates:
        """``STATES`` states of every block: first all blocks as they are, then one state later.

        State n has about n/STATES of the block's tokens: those that would have been unmasked first
        in the state before. Of the first masked position it knows what the target knows.
        """
        count, size = start.masked.shape
        masked, found = start.masked, [start.masked]
        for _ in range(STATES - 1):
            step = torch.randint(1, max(2, 2 * size // STATES), (count,), generator=rng)
            sure = self._confidence(replace(start, masked=masked, learnt=masked))
            masked = masked.clone()
            for row, p, fresh in zip(masked, sure, step.tolist(), strict=True):
                places = row.nonzero()[:, 0].numpy()
                order = unmasking_order(p[places].numpy(), places, self.config.ahead)
                row[places[order[: min(fresh, len(places) - 1)]]] = False
            found.append(masked)
        return replace(
            start,
            anchors=start.anchors.repeat(STATES),
            tokens=start.tokens.repeat(STATES, 1),
            masked=torch.cat(found),
            learnt=torch.cat(found),
        )

    @torch.no_grad()
    def _confidence(self, states: BlockStates) -> Tensor:
        """max p at every masked position [S, L], −1 at the others."""
        sure = torch.full(states.masked.shape, -1.0)
        logits = self.head(torch.arange(len(self.head_rows)))(self.rows(states)[:, 0])
        sure[states.learnt] = logits.softmax(-1).amax(-1).cpu()
        left = known_left(states.masked)
        alone = states.masked.sum(-1) == states.masked.shape[1] - left  # nothing known behind
        root = (states.anchors + left).clamp(max=len(states.document) - 1)
        first = torch.arange(len(left)), left.clamp(max=states.masked.shape[1] - 1)
        own = states.document.top_logp[root, 0].float().exp()
        sure[first] = torch.where(alone, own, sure[first])
        return sure

    def rows(self, blocks: Blocks) -> Tensor:
        """Rows [M, 1, h] at the learnt places."""
        assert isinstance(blocks, BlockStates)
        with self._gate.open(self.model):
            return self._denoised(blocks)

    @torch.no_grad()
    def _read(self, document: Document) -> Context:
        """The target's keys and values of a whole document."""
        cache, count = DynamicCache(), len(document)
        tokens = document.tokens[None].long().to(self.device)
        causal = torch.ones(count, count, dtype=torch.bool, device=self.device).tril()
        self._forward(self.embedding[tokens], causal, torch.arange(count), cache)
        layers: Any = cache.layers
        return tuple((layer.keys, layer.values) for layer in layers)

    def _denoised(self, states: BlockStates) -> Tensor:
        """One pass over the adapted rows of all states, each state's side by side.

        They begin with the last known token where something is known behind a mask, and else with
        the first mask, as decoding runs them.
        """
        masked, read = states.masked, len(states.document)
        cache = DynamicCache()  # a fresh one: a pass must not see the gradients of another
        for index, (keys, values) in enumerate(states.context):
            cache.update(keys, values, index)
        width = masked.shape[1]
        left = known_left(masked)[:, None]
        known_behind = masked.sum(-1, keepdim=True) < width - left
        place = torch.arange(width + 1)  # of a row: 0 is the anchor, i the block's position i − 1
        begin = left + (~known_behind)
        state, row = (place >= begin).nonzero(as_tuple=True)  # [R]
        tokens = torch.cat(
            [states.document.tokens[states.anchors].long()[:, None], states.tokens], 1
        )
        hidden = torch.cat([torch.zeros_like(known_behind), masked], 1)
        known = self.embedding[tokens[state, row].to(self.device)]
        mask = self.model.mask_embedding.to(known.dtype)
        inputs = torch.where(hidden[state, row, None].to(self.device), mask, known)
        seen = (states.anchors[:, None] + begin)[state]  # context tokens of each row
        allowed = torch.cat([torch.arange(read) < seen, state[:, None] == state[None]], 1)
        where = states.anchors[state] + row
        out = self._forward(inputs[None], allowed.to(self.device), where, cache)
        slot = torch.full((len(masked), width + 1), -1)
        slot[state, row] = torch.arange(len(state))
        return out[0, slot[:, :-1][states.learnt].to(self.device), None]

    def _forward(self, inputs: Tensor, allowed: Tensor, where: Tensor, cache: Any) -> Tensor:
        mask = additive_mask(allowed, self.embedding.dtype)
        model, places = self.language_model.model, where.to(allowed.device)
        return run_rows(model, places, mask, cache, inputs_embeds=inputs).last_hidden_state

    def save(self, folder: Path) -> None:
        save_adapter(folder, self.model.tensors(), self.config, small=False)


def _or_token(ids: Tensor, p: Tensor, tokens: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """Target ids and p [S, L, K], ``where`` [S, L] replaced by the token alone with p = 1."""
    one_token = torch.zeros_like(p)
    one_token[..., 0] = 1.0
    ids = ids.clone()
    ids[..., 0] = torch.where(where, tokens, ids[..., 0])
    return ids, torch.where(where[..., None], one_token, p)


def known_left(masked: Tensor) -> Tensor:
    """How many positions of each state [S, L] are known before its first masked one, [S]."""
    return (~masked).long().cumprod(-1).sum(-1)


class DenoiserTraining(Training):
    """An adapter that changes nothing yet, or the one of a checkpoint."""

    name = DENOISER

    def layers(self, run: TrainingRun, options: DenoiserOptions) -> tuple[int, ...]:
        return ()

    def student(
        self, run: TrainingRun, options: DenoiserOptions, corpus: Corpus
    ) -> DenoiserStudent:
        language, rank = run.language, options.rank
        start = load_adapter(run.start) if run.start else None
        if start is None:
            mask, size = mask_token(language), options.block_size
            config = AdapterConfig(language.name, mask, size, rank, float(rank), options.ahead)
        else:
            config = replace(start.config, alpha=float(start.config.rank))
        model: Any = language.model
        if options.half:
            model = deepcopy(model).to(torch.bfloat16)
        student = DenoiserStudent(model, config, min(language.stop_ids, default=0))
        if start is not None:
            student.model.load(start)
        return student


TRAINING = DenoiserTraining()
