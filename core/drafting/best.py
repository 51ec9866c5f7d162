"""Work on long rows of scores: their best tokens, a temperature, and batches of a good size."""

from __future__ import annotations

import torch
from torch import Tensor


def top(rows: Tensor, count: int) -> torch.return_types.topk:
    """The ``count`` largest of each row [R, V], best first: topk, looking at few elements
    twice.

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


def scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits in float32 over a temperature."""
    logits = logits.float()
    return logits if temperature == 1 else logits / temperature


def worth_a_batch(device: torch.device) -> int | None:
    """``DraftSession.at_once`` on a device: what a CPU takes grows with the rows."""
    return 16 if device.type == "cpu" else None
