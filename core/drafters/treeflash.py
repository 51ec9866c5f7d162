"""The TreeFlash drafter (arXiv 2606.03819): DFlash and a head that sees the token before.

h′ = h + d(silu(g)·u) with [u, g] = ug([norm(embedding of the token before) ; final norm of h]),
then the final norm and the target's head once more (Equation 1; released checkpoints put the
embedding first). With d = 0 it is DFlash exactly. Parameter names are those of the published
checkpoints.

Shapes: L drafted depths, M candidates per depth, S siblings kept, h hidden width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.builders import Table, best_first_rows
from core.decode import Proposal
from core.drafters import checkpoint
from core.drafters.dflash import KEPT, DFlashConfig, DFlashDrafter, DFlashModel
from core.drafters.layers import RMSNorm
from core.errors import UserError
from core.types import Array, Candidates, Transitions

GUESSED = 128  # q's best tokens that a guess of q′ looks at
NEAR = 64  # none is made where q's best path is NEAR times as rare as one of width nodes
ROUNDING = 1e-5  # what Σ q may lack of 1 though it is whole
EPS = 1e-6  # of the embedding norm, whatever the backbone's


class PairLinear(nn.Linear):
    """A linear layer over [a ; b], as the sum of one over a and one over b."""

    def left(self, a: Tensor) -> Tensor:
        """[..., n] → [..., out]"""
        return F.linear(a, self.weight.chunk(2, -1)[0])

    def right(self, b: Tensor) -> Tensor:
        """[..., n] → [..., out]"""
        return F.linear(b, self.weight.chunk(2, -1)[1], self.bias)


class Halves(nn.Module):
    """A ``PairLinear`` as two layers, which can be packed."""

    def __init__(self, pair: PairLinear):
        super().__init__()
        width, out = pair.in_features // 2, pair.out_features
        self.left = nn.Linear(width, out, bias=False, device="meta")
        self.right = nn.Linear(width, out, device="meta")
        left, right = (w.contiguous() for w in pair.weight.detach().chunk(2, -1))
        self.left.load_state_dict({"weight": left}, assign=True)
        self.right.load_state_dict({"weight": right, "bias": pair.bias.detach()}, assign=True)


class ArApproximation(nn.Module):
    """One SwiGLU over [normed embedding of the token before ; normed hidden row]."""

    def __init__(self, hidden: int, intermediate: int):
        super().__init__()
        self.ug: PairLinear | Halves = PairLinear(2 * hidden, 2 * intermediate)
        self.d = nn.Linear(intermediate, hidden, bias=False)
        self.norm = RMSNorm(hidden, EPS)
        nn.init.zeros_(self.d.weight)

    def forward(self, before: Tensor, normed: Tensor, which: Tensor | None = None) -> Tensor:
        """Embeddings [..., h] and normed rows [..., h], which broadcast → what is added to the
        rows, [..., h]. With ``which``, int64 [..., M], the embeddings are those of T different
        tokens, [T, h], which the first layer, most of the work, then sees once each.
        """
        left = self.ug.left(self.norm(before))
        u, g = ((left if which is None else left[which]) + self.ug.right(normed)).chunk(2, -1)
        return self.d(F.silu(g) * u)

    def halve(self) -> None:
        """Part the first layer for inference; the parameters' names are then not the published."""
        if isinstance(self.ug, PairLinear):
            self.ug = Halves(self.ug)


class TreeFlashModel(nn.Module):
    """Backbone and head; ``model`` is a whole DFlash drafter."""

    def __init__(self, config: DFlashConfig, intermediate: int):
        super().__init__()
        self.config = config
        self.model = DFlashModel(config)
        self.ar_approximation = ArApproximation(config.hidden_size, intermediate)

    def conditioned(self, hidden: Tensor, before: Tensor, which: Tensor | None = None) -> Tensor:
        """Residual rows [..., h] and the embeddings of the tokens before them [..., h] → rows for
        the target's head. The two broadcast. ``which``: see ``ArApproximation.forward``.
        """
        return self.model.norm(
            hidden + self.ar_approximation(before, self.model.norm(hidden), which)
        )


def initial_model(backbone: DFlashModel) -> TreeFlashModel:
    """A head as wide as the backbone's MLP that changes nothing yet: an exact DFlash."""
    model = TreeFlashModel(backbone.config, backbone.config.intermediate_size)
    model.model.load_state_dict(backbone.state_dict())
    return model.to(backbone.fc.weight.device, backbone.fc.weight.dtype)


@dataclass(frozen=True)
class TreeFlashOptions:
    """Inference parameters: M candidates and S siblings per depth, and q's temperature.

    Raises UserError for an M or S out of range.
    """

    candidates: int = 16
    siblings: int = 16
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for name in ("candidates", "siblings"):
            if not 1 <= (value := getattr(self, name)) <= 1024:
                raise UserError(f"the option {name} must be 1 to 1024, not {value}")


def save_model(
    model: TreeFlashModel, folder: Path, small: bool = False, backbone: str | None = None
) -> None:
    """Write the official form, or with ``small`` its int8 one (see ``checkpoint.write``).

    ``backbone``: leave the backbone out and name the folder beside this one that holds it.
    """
    ours: dict[str, Any] = {"ar_approximation": "swiglu", "candidate_tokens": 16}
    state = dict(model.state_dict())
    if backbone is not None:
        ours["backbone"] = backbone
        state = {n: t for n, t in state.items() if not n.startswith("model.")}
    config = model.config.to_json() | {
        "architectures": ["TreeFlashModel"],
        "treeflash_config": ours,
    }
    checkpoint.write(folder, config, state, small)


def load_config(folder: Path) -> DFlashConfig:
    """Raises UserError when the folder holds no readable TreeFlash config."""
    return checkpoint.load_config(folder, "TreeFlash", DFlashConfig.from_json)


def parts(folder: Path) -> dict[str, Path]:
    """Folders that hold the tensors, by the prefix their names get.

    One of ours may share its backbone with the DFlash folder beside it. Raises UserError.
    """
    raw = checkpoint.read_config(folder, "TreeFlash")
    with checkpoint.understood(folder, "TreeFlash"):
        own = raw.get("treeflash_config") or {}
        if own.get("ar_approximation", "swiglu") != "swiglu":
            raise UserError(f"{folder}: the head {own['ar_approximation']!r} is not a SwiGLU")
        shared = own.get("backbone")
    if not isinstance(shared, str):
        return {"": folder}
    if Path(shared).name != shared:
        raise UserError(f"{folder}: its backbone {shared!r} is not a folder beside it")
    return {"": folder, "model.": folder.parent / shared}


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the checkpoint's tensors, from the files' headers. Raises UserError."""
    found = ((at, checkpoint.read_shapes(where)) for at, where in parts(folder).items())
    return {at + name: shape for at, shapes in found for name, shape in shapes.items()}


def outline(folder: Path) -> TreeFlashModel:
    """The model a folder's config and headers describe, without weights. Raises UserError."""
    config = load_config(folder)
    ug = read_shapes(folder).get("ar_approximation.ug.weight", ())
    if len(ug) != 2:
        raise UserError(f"{folder}: tensor ar_approximation.ug.weight is missing")
    with checkpoint.outlined(folder, "TreeFlash"):
        return TreeFlashModel(config, ug[0] // 2)


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str) -> TreeFlashModel:
    """Load a published checkpoint, or one of ours that shares its backbone with a DFlash folder.

    Raises UserError when a tensor is missing, surplus or of another shape.
    """
    model, state = outline(folder), dict[str, Tensor]()
    for at, where in parts(folder).items():
        state |= {at + name: tensor for name, tensor in checkpoint.read_state(where).items()}
    return checkpoint.fill(model, state, folder).to(device=device, dtype=dtype).eval()


@dataclass(frozen=True, eq=False)
class Conditioner:
    """The head at work: from a pass's residual rows to q and q′. Decoding and what-if share it.

    embed    token ids [...] → the target's embeddings [..., h]
    head     rows [N, h] → logits [N, V], the target's
    columns  token ids [...] → what the head multiplies for them, [..., h], where it can be read:
             on a CPU a search then foresees which rows of q′ it will reach
    """

    model: TreeFlashModel
    embed: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]
    options: TreeFlashOptions = TreeFlashOptions()
    columns: Callable[[Tensor], Tensor] | None = None

    def proposal(self, hidden: Tensor, root: int, width: int) -> Proposal:
        """q from residual rows [L, h], its M best tokens, and q′ behind each (Figure 8, part 1)."""
        rows = self.head(self.model.model.norm(hidden))
        log_q = self._log_softmax(rows)
        kept = max(width, KEPT, self.options.candidates)
        best = top(log_q, max(kept, GUESSED))
        tables = _Tables(self.options, log_q, best, width)
        transitions = self._transitions(hidden, root, tables, rows)
        ids, values = (_array(x[:, :kept]) for x in (best.indices, best.values))
        candidates = Candidates(ids, values, transitions)
        if hidden.device.type == "cpu":
            # Rows of the head are what q′ costs here: only those that the search will reach.
            best_first_rows(Table.of(candidates), width)
        else:
            transitions.need_all()
        return Proposal(candidates, lambda path: self._along(hidden, path))

    def _transitions(self, hidden: Tensor, root: int, tables: _Tables, rows: Tensor) -> Transitions:
        """Tables as transitions, from residual rows [L, h] and the head's logits of them [L, V]."""
        before = tables.chosen.roll(1, 0)
        before[0] = root
        guessed = hidden.new_empty(0, *before.shape[1:], hidden.shape[-1])
        if self.columns is not None and hidden.device.type == "cpu":
            # A short head for every row of q′ that is near: the whole one is what costs.
            near = tables.near
            tokens, which = before[:near].unique(return_inverse=True)  # at all depths the same few
            guessed = self._conditioned(hidden[:near, None], tokens, which)
            short = self.columns(tables.best.indices[:near])
            tables.guess(guessed @ short.mT, rows[:near])

        @torch.inference_mode()
        def evaluate(depths: Array, places: Array) -> None:
            at = tuple(torch.from_numpy(x).to(hidden.device) for x in (depths, places))
            split = int(np.searchsorted(depths, len(guessed)))
            near, far = tuple(x[:split] for x in at), tuple(x[split:] for x in at)
            asked = [guessed[near]]
            if split < len(depths):
                asked.append(self._conditioned(hidden[far[0]], before[far]))
            tables.put(self.head(torch.cat(asked)), depths, places)

        known = np.zeros(tables.follow.shape[:2], np.bool_)
        known[0, 1:] = True  # behind the root: the first row's copies
        return Transitions(
            tables.ids, tables.log_q, tables.marginal, tables.follow, known, evaluate
        )

    def _along(self, hidden: Tensor, path: Sequence[int]) -> Tensor:
        """log q′ [d, V] at depths 1 … d, each given its token before: [root, x_1, …, x_{d−1}]."""
        before = torch.tensor(path, device=hidden.device)
        return self._log_softmax(self.head(self._conditioned(hidden[: len(path)], before)))

    def _conditioned(self, hidden: Tensor, before: Tensor, which: Tensor | None = None) -> Tensor:
        return self.model.conditioned(hidden, self.embed(before).to(hidden.dtype), which)

    def _log_softmax(self, logits: Tensor) -> Tensor:
        return (logits.float() / self.options.temperature).log_softmax(-1)


class _Tables:
    """The arrays of ``Transitions``, which hold plain q, or a guess, until q′ is put into a row.

    log_q  [L, V] of the plain q; ``best`` its best tokens, at least M of them
    width  nodes of the tree that is to be made
    """

    def __init__(
        self,
        options: TreeFlashOptions,
        log_q: Tensor,
        best: torch.return_types.topk,
        width: int,
    ):
        kept = min(options.siblings, log_q.shape[-1])
        if best.values.shape[-1] < kept:
            best = top(log_q, kept)
        self.temperature, self._plain, self.best = options.temperature, log_q, best
        self.chosen = best.indices[:, : options.candidates]
        depths, count = self.chosen.shape
        self._width = width

        def for_all(rows: Array) -> Array:
            """[L or 1, S] → [L, M, S], a copy."""
            return np.array(np.broadcast_to(rows[:, None], (depths, count, kept)), order="C")

        self.ids = for_all(_array(best.indices[:, :kept]))
        self.log_q = for_all(_array(best.values[:, :kept]))
        self.marginal = self.log_q.copy()
        places = np.arange(kept, dtype=np.int32)
        self.follow = for_all(np.where(places < count, places, -1)[None])
        self._all = (self.ids, self.log_q, self.marginal, self.follow)

    @property
    def near(self) -> int:
        """Depths 1 … near are those where the tree is likely to end."""
        above = self.best.values[:-1, 0].cumsum(0)  # log q of the best path to a depth's rows
        return 1 + int((above > -math.log(NEAR * self._width)).sum())

    def put(self, logits: Tensor, depths: Array, rows: Array) -> None:
        """q′ from the head's logits [n, V] into rows (depths from 0 [n], rows [n])."""
        logits = logits.float()
        if self.temperature != 1:
            logits = logits / self.temperature
        best = top(logits, self.ids.shape[-1])
        depth = torch.from_numpy(depths).to(logits.device)
        same = best.indices[..., None] == self.chosen[depth][:, None]
        place = torch.where(same.any(-1), same.int().argmax(-1), -1)
        self.ids[depths, rows] = _array(best.indices)
        self.log_q[depths, rows] = _array(best.values - logits.logsumexp(-1, keepdim=True))
        self.marginal[depths, rows] = _array(self._plain[depth[:, None], best.indices])
        self.follow[depths, rows] = _array(place)
        self._first_row_for_all()

    def guess(self, logits: Tensor, plain: Tensor) -> None:
        """q′ at the near depths from the logits of q's best tokens alone, [near, M, K]: all others
        are thought to have gained on q what the lesser half of these have on average.

        plain  q's logits [near, V]
        """
        ids, log_q = (x[: len(logits)] for x in (self.best.indices, self.best.values))
        norm = plain.gather(-1, ids[:, :1]).float() / self.temperature - log_q[:, :1]
        found = logits.float() / self.temperature - norm[..., None]  # as shares of q's whole
        lesser = (found - log_q[:, None])[..., log_q.shape[-1] // 2 :]
        gained = lesser.logsumexp(-1) - math.log(lesser.shape[-1])
        others = F.threshold(1 - log_q.exp().sum(-1), ROUNDING, 0).log()[:, None] + gained
        found = found - torch.logaddexp(found.logsumexp(-1), others)[..., None]
        values, places = found.topk(self.ids.shape[-1])
        depth = torch.arange(len(ids))[:, None, None]
        follow = torch.where(places < self.chosen.shape[1], places, -1)
        made = (ids[depth, places], values, log_q[depth, places], follow)
        for table, rows in zip(self._all, made, strict=True):
            table[: len(ids)] = _array(rows)

    def _first_row_for_all(self) -> None:
        """Behind the root stands one row, M times."""
        for table in self._all:
            table[0, 1:] = table[0, 0]


class TreeFlashDrafter(DFlashDrafter):
    """DFlash's pass, then q′ behind each of the M candidates of every depth, in one batch."""

    def __init__(
        self,
        model: TreeFlashModel,
        embedding: nn.Module,
        head: nn.Module,
        options: TreeFlashOptions = TreeFlashOptions(),
        columns: Callable[[Tensor], Tensor] | None = None,
    ):
        """``columns``: see ``Conditioner``."""
        super().__init__(model.model, embedding, head, options.temperature)
        self.conditioner = Conditioner(model, embedding, head, options, columns)

    def offer(self, hidden: Tensor, root: int, width: int) -> Proposal:
        """q, and q′ behind its M best tokens of every depth."""
        return self.conditioner.proposal(hidden, root, width)


def top(rows: Tensor, count: int) -> torch.return_types.topk:
    """The ``count`` largest of each row [R, V], best first: topk, looking at few elements twice.

    The best of a row lie in the chunks with the largest maxima, so only those are sorted.
    """
    chunk, size = 64, rows.shape[-1]
    count = min(count, size)
    if size % chunk or size // chunk <= count or rows.device.type != "cpu":
        return rows.topk(count)
    chunks = rows.unflatten(-1, (-1, chunk))
    where = chunks.amax(-1).topk(count).indices.sort(-1).values
    few = chunks.gather(1, where[..., None].expand(-1, -1, chunk)).flatten(1)
    best = few.topk(count)
    ids = where.gather(1, best.indices // chunk) * chunk + best.indices % chunk
    return torch.return_types.topk((best.values, ids))


def _array(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
