"""p and q of a step's rows, on their device. Nothing here changes what the engine computes.

Rows of all requests stand one after another; a request's first row is its root. Shapes: R rows, V
vocabulary, K tokens listed. The tensors that come out are small: [R] and [R, K].
"""

from __future__ import annotations

import torch
from torch import Tensor

from .core.drafting.best import top

# Rows of [R, V] in float32 at once: what a CPU's cache holds, or enough for a GPU to be busy.
SLAB_CPU, SLAB = 8, 32
COVERAGE = 16  # K = 1 … 16
LEAST = -1e9  # stands for −inf, whose product with a probability of 0 would be NaN


class Slab:
    """Rows of logits [R, V] in float32, each pass over which is made once.

    x        [R, V], at least ``LEAST``
    p        [R, V]
    ids      [R, K] of the best tokens, and their log p ``best``
    total    [R], the logarithm of Σ exp x
    entropy  [R], nats
    """

    def __init__(self, logits: Tensor, listed: int):
        self.x = logits.float().clamp_min(LEAST)  # a copy: float32 logits are the engine's own
        self.p = self.x.softmax(-1)
        most = top(self.x, max(1, listed))
        likeliest = self.p.gather(1, most.indices[:, :1])[:, 0]
        self.total = most.values[:, 0] - likeliest.log()
        self.ids, self.best = most.indices[:, :listed], self.log_p(most.values[:, :listed])
        self.entropy = self.total - torch.linalg.vecdot(self.p, self.x)

    def log_p(self, logits: Tensor) -> Tensor:
        """Of some of its logits [R, n]."""
        return (logits - self.total[:, None]).masked_fill(logits <= LEAST, -torch.inf)

    def of(self, tokens: Tensor) -> Tensor:
        """log p of a token of each row, [R]."""
        return self.log_p(self.x.gather(1, tokens[:, None]))[:, 0]

    def rank(self, tokens: Tensor) -> Tensor:
        """The place of a token of each row among all by p, [R], from 1."""
        return rank(self.x, self.x.gather(1, tokens[:, None]))


def rank(x: Tensor, held: Tensor) -> Tensor:
    """1 + how many of each row are larger than its ``held`` [R, 1]; [R]."""
    return (x - held).gt_(0).sum(1).int() + 1  # comparing and counting booleans takes twice as long


def slabs(rows: int, device: torch.device) -> list[slice]:
    """The rows in parts that are worked on at once."""
    size = SLAB_CPU if device.type == "cpu" else SLAB
    return [slice(low, low + size) for low in range(0, rows, size)]


@torch.inference_mode()
def target(logits: Tensor, parents: Tensor, tokens: Tensor, listed: int) -> dict[str, Tensor]:
    """p at temperature 1 after every row, and of every row's token given its parent's.

    logits   [R, V] of the target, before any processor
    parents  [R], the row above; −1 for a root
    tokens   [R], the token of each row; a root's is not read
    """
    parts: list[tuple[Tensor, ...]] = []
    parts_of = slabs(len(logits), logits.device)
    for rows in parts_of:
        slab = Slab(logits[rows], listed)
        parts.append((slab.ids.int(), slab.best, slab.entropy, slab.total))
    ids, log_p, entropy, totals = map(torch.cat, zip(*parts, strict=True))
    own, ranks, parent = [], [], parents.clamp_min(0)
    for rows in parts_of:
        above, token = parent[rows], tokens[rows, None].clamp_min(0).long()
        x = logits.index_select(0, above).float()
        held = x.gather(1, token)
        own.append(held[:, 0] - totals[above])
        ranks.append(rank(x, held))
    root = parents < 0
    return {
        "top": ids,
        "top_log_p": log_p,
        "entropy": entropy,
        "log_p": torch.cat(own).masked_fill(root, torch.nan),
        "rank_p": torch.cat(ranks).masked_fill(root, 0),
    }


@torch.inference_mode()
def drafter(
    q_logits: Tensor, p_logits: Tensor | None, tokens: Tensor, wanted: Tensor, listed: int
) -> dict[str, Tensor]:
    """q at every place that was drafted, beside p there.

    q_logits  [D, V'] of the drafter at D places; V' ≤ V
    p_logits  [D, V] of the target at the same places; None: no TVD and no coverage
    tokens    [D], what was drafted there
    wanted    [D], the target's own token there; −1: not known
    """
    most, width = max(listed, COVERAGE), q_logits.shape[1]
    parts: dict[str, list[Tensor]] = {}
    for rows in slabs(len(q_logits), q_logits.device):
        q, token = Slab(q_logits[rows], most), wanted[rows].long()
        held = token.clamp(0, width - 1)
        known = (token >= 0) & (token < width)
        place = q.rank(held).masked_fill(q.of(held) == -torch.inf, 0)
        here = {
            "q_top": q.ids[:, :listed].int(),
            "q_top_log": q.best[:, :listed],
            "log_q": q.of(tokens[rows].long()),
            "rank_q": torch.where(known, place, -1),
            "entropy_q": q.entropy,
        }
        if p_logits is not None:
            here |= _beside(q, p_logits[rows].float().softmax(-1))
        for name, x in here.items():
            parts.setdefault(name, []).append(x)
    return {name: torch.cat(x) for name, x in parts.items()}


def _beside(q: Slab, p: Tensor) -> dict[str, Tensor]:
    """TVD and coverage. A drafter with a shorter vocabulary gives the rest nothing."""
    own = p[:, : q.p.shape[1]]
    covered = (own.gather(1, q.ids) * (q.best > -torch.inf))[:, :COVERAGE].cumsum(1)
    short = COVERAGE - covered.shape[1]
    covered = torch.cat([covered, covered[:, -1:].expand(-1, short)], 1)
    tvd = 1 - torch.minimum(q.p, own).sum(-1)
    return {"tvd": tvd.clamp_min(0), "coverage": covered}


@torch.inference_mode()
def candidates(scores: Tensor, tokens: Tensor, beams: Tensor, chosen: Tensor) -> dict[str, Tensor]:
    """Read q of EAGLE-2's candidates after every row of a draft, those not drafted too.

    The drafter lists k tokens after the root and after each of its beams, the best candidates of a
    depth. J lists in all; candidate c stands in list c // k.

    scores  [B, J, k], product of q along each candidate's path
    tokens  [B, J, k]
    beams   [B, J], the candidate after which each list stands; −1: the root
    chosen  [B, N − 1], the candidates that are drafted: row n + 1 is chosen[n]

    Returns, of rows [B·N] one request after another: ``asked``, whether the drafter was asked
    there; ``q_top`` and ``q_top_log`` [B·N, k], its list there, best first; ``log_q``, log q of the
    row's token.
    """
    size, _, k = scores.shape
    paths = scores.flatten(1).float().log()  # [B, C]
    above = beams.gather(1, chosen // k)  # the candidate above each row
    before = paths.gather(1, above.clamp_min(0)).masked_fill(above < 0, 0)
    log_q = paths.gather(1, chosen) - before
    rows = torch.cat([chosen.new_full((size, 1), -1), chosen], 1)  # as candidates
    same = rows[:, :, None] == beams[:, None, :]  # [B, N, J]
    at = same.int().argmax(-1)[..., None].expand(-1, -1, k)
    own = paths.gather(1, rows.clamp_min(0)).masked_fill(rows < 0, 0)
    listed = paths.view_as(scores).gather(1, at) - own[..., None]
    best = listed.nan_to_num(-torch.inf, neginf=-torch.inf).sort(-1, descending=True)
    ids = tokens.gather(1, at).gather(-1, best.indices)
    return {
        "asked": same.any(-1).flatten(),
        "q_top": ids.int().flatten(0, 1),
        "q_top_log": best.values.flatten(0, 1),
        "log_q": torch.cat([log_q.new_full((size, 1), torch.nan), log_q], 1).flatten(),
    }


@torch.inference_mode()
def parents(first_child: Tensor, next_sibling: Tensor) -> Tensor:
    """Find the row above each row of trees that are told by their links, [B, N]; −1: a root, or a
    row that nothing links to. The device is not waited for.

    first_child, next_sibling  [B, N], rows of the same tree; −1: none
    """
    size, count = first_child.shape
    none = first_child.new_full((size, count + 1), -1)  # the last column takes what links nowhere
    rows = torch.arange(count, device=first_child.device).expand(size, -1).to(first_child.dtype)

    def inverse(links: Tensor) -> Tensor:
        held = none.scatter(1, torch.where(links < 0, count, links).long(), rows)
        held[:, count] = -1
        return held

    above = inverse(first_child)  # of first children alone
    before = inverse(next_sibling)
    itself = torch.arange(count + 1, device=rows.device, dtype=rows.dtype)
    eldest = torch.where(before < 0, itself, before)
    for _ in range(count.bit_length()):  # each pass doubles how far it leads
        eldest = eldest.gather(1, eldest.long())
    return above.gather(1, eldest.long())[:, :count]
