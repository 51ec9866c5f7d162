"""What the numbers of a report count and leave out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.measures.tables import Tables


def notes(tables: Tables) -> Iterator[str]:
    """What the numbers count and leave out."""
    from analysis.measures.tables import INTERRUPTED

    runs = tables.runs
    yield (
        "Observed: the parent was accepted; deeper positions count nowhere. Tested: something was "
        "drafted there. τ counts whole accepted paths."
    )
    if cut := int(runs["cut"].sum()):
        yield (
            f"{cut} verified tokens are beyond the end of a text (stop token or token limit): "
            "they count above, and not in the column in text/round."
        )
    if broken := int((runs["ended"] == INTERRUPTED).sum()):
        yield (
            f"{broken} of {len(runs)} runs were interrupted: their whole rounds count, "
            "and they are compared with none."
        )
    if left_out := int(runs["left_out"].sum()):
        yield (
            f"{left_out} rounds are left out: denoising rounds, texts that ended at once, or "
            "rounds that hold what cannot be."
        )
    for name, trace in tables.traces.items():
        if trace.mark:
            yield f"{name}: {trace.mark}."
    if len(tables.rounds) and tables.positions["tvd"].isna().all():
        yield "No trace holds probe numbers: TVD and coverage are not known."
