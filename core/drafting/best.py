"""Work on long rows of scores: their best tokens, a temperature, and batches of a good size."""

from __future__ import annotations

import torch
from torch import Tensor


def top(rows: Tensor, count: int) -> torch.return_types.topk:
    """The ``count`` largest of each row [R, V], best first, of equals the lowest id: what is listed
    of a row does not depend on ``count``, as with topk it does.

    On a CPU few elements are looked at twice: the best of a row lie in the chunks with the largest
    maxima, so only those are sorted.
    """
    chunk, size = 64, rows.shape[-1]
    count = min(count, size)
    if size % chunk or size // chunk <= count or rows.device.type != "cpu":
        ids = _best(rows, count)
    else:
        chunks = rows.unflatten(-1, (-1, chunk))
        where = _best(chunks.amax(-1), count).sort(-1).values
        few = chunks.gather(1, where[..., None].expand(-1, -1, chunk)).flatten(1)
        best = _best(few, count)
        ids = where.gather(1, best // chunk) * chunk + best % chunk
    return torch.return_types.topk((rows.gather(-1, ids), ids))


def _best(rows: Tensor, count: int) -> Tensor:
    """Places of the best. topk sees whole numbers, no two the same: a float32's bits, which order
    as it does once those of negative ones are turned, and behind them how late its place is."""
    if rows.dtype == torch.float64:
        return rows.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    bits = (rows.float() + 0.0).view(torch.int32)  # −0 becomes 0
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    late = torch.arange(rows.shape[-1] - 1, -1, -1, device=rows.device)
    return (order.long() << 32).add_(late).topk(count).indices


def scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits in float32 over a temperature."""
    logits = logits.float()
    return logits if temperature == 1 else logits / temperature


def worth_a_batch(device: torch.device) -> int | None:
    """``DraftSession.at_once`` on a device: what a CPU takes grows with the rows."""
    return 16 if device.type == "cpu" else None
