"""p and q of a step's rows, on their device. Nothing here changes what the engine computes.

Rows of all requests stand one after another; a request's first row is its root. Shapes: R rows, V
vocabulary, K tokens listed. The tensors that come out are small: [R] and [R, K].
"""

from __future__ import annotations

import torch
from torch import Tensor

from .core.drafting.probabilities import Slab, coverage, slabs, tvd
from .core.traces.distributions import COVERAGE


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
            p = p_logits[rows].float().softmax(-1)
            here |= {"tvd": tvd(q.p, p), "coverage": coverage(q.best, q.ids, p)}
        for name, x in here.items():
            parts.setdefault(name, []).append(x)
    return {name: torch.cat(x) for name, x in parts.items()}


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
