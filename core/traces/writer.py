"""Writing traces: rounds become lines, each flushed as it is written."""

from __future__ import annotations

import gzip
import json
import math
from contextlib import closing
from dataclasses import asdict, astuple
from pathlib import Path
from typing import IO, Any

import numpy as np

from core.errors import UserError
from core.rounds.blocks import Block, BlockDraft
from core.rounds.draft import Array, Draft, Proposal
from core.rounds.round import Round
from core.traces.schema import FORMAT, VERSION, Header, Trace, summary


class TraceWriter:
    """Appends rounds to a trace file; every line is on its way to disk before ``write`` returns."""

    def __init__(self, path: Path, header: Header):
        self._zipped = path.name.endswith(".gz")
        self._rounds: list[Round] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._raw: IO[bytes] = path.open("wb")
        except OSError as error:
            raise UserError(f"the trace {path} cannot be written: {error.strerror}") from None
        self._file: IO[bytes] = (
            gzip.GzipFile(fileobj=self._raw, mode="wb", mtime=0, filename="")  # type: ignore[assignment]
            if self._zipped
            else self._raw
        )
        self._line({"kind": "header", "format": FORMAT, "version": VERSION, **asdict(header)})

    def write(self, record: Round) -> None:
        self._rounds.append(record)
        self._line({"kind": "round", **round_to_json(record)})

    def finish(self, /, **more: Any) -> None:
        """Write the footer, the run's summary and ``more``, and close the file."""
        self._line({"kind": "footer", **more, **summary(self._rounds)})
        self.close()

    def close(self) -> None:
        """Close without a footer: the run was interrupted."""
        self._file.close()
        self._raw.close()

    def _line(self, value: dict[str, Any]) -> None:
        # ASCII output: no line separator that some reader splits at can stand in a line
        self._file.write(json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n")
        self._file.flush()  # for gzip a sync flush: what is written so far can be read
        self._raw.flush()


def write_trace(path: Path, trace: Trace) -> None:
    """Write a whole run, with what its footer says beside the summary, if it has one."""
    with closing(TraceWriter(path, trace.header)) as writer:
        for record in trace.rounds:
            writer.write(record)
        if trace.footer is not None:
            writer.finish(**trace.footer)


def round_to_json(record: Round) -> dict[str, Any]:
    """Plain lists and numbers; float32 values are written so that they read back exactly."""
    draft, verdict = record.draft, record.verdict
    nodes: dict[str, Any] = {
        "parents": draft.parents.tolist(),
        "depth": draft.depths.tolist(),
        "token": draft.tokens.tolist(),
        "rank": draft.ranks.tolist(),
        "log_q": _floats(draft.log_q),
        "score": _floats(draft.scores),
        "status": list(record.status),
        "choice": verdict.target_tokens.tolist(),
    }
    line: dict[str, Any] = {
        "index": record.index,
        "position": record.position,
        "nodes": nodes,
        "path": list(verdict.path),
        "bonus": verdict.bonus,
        "committed": list(record.committed),
        "times": asdict(record.times),
        "texts": {str(token): text for token, text in record.texts.items()},
    }
    if record.target_probs is not None:
        probs = record.target_probs
        nodes |= {"log_p": _floats(probs.log_p), "rank_p": probs.rank.tolist()}
        nodes |= {"entropy": _floats(probs.entropy)}
        line["target_top"] = {
            "token": probs.top_ids.tolist(),
            "log_p": _floats(probs.top_log_p),
        }
    if record.probe is not None:
        line["probe"] = {
            "tvd": _floats(record.probe.tvd),
            "coverage": _floats(record.probe.coverage),
            "entropy_q": _floats(record.probe.entropy_q),
            "rank_q": record.probe.rank_q.tolist(),
        }
    if verdict.bonus_token is not None:
        line["drawn_bonus"] = verdict.bonus_token
    if isinstance(draft, Draft):
        line |= _tree_to_json(draft)
    if record.block is not None and isinstance(draft, BlockDraft):
        nodes["links"] = [list(parents) for parents in draft.sources]
        nodes["edits"] = [[list(astuple(e)) for e in edits] for edits in draft.edits]
        line["block"] = _block_to_json(record.block)
    return line


def _tree_to_json(draft: Draft) -> dict[str, Any]:
    line: dict[str, Any] = {}
    if draft.notes:
        line["notes"] = {name: _floats(values) for name, values in draft.notes.items()}
    if draft.side:
        line["side"] = sorted(draft.side)
    if draft.proposal is not None:
        line |= _proposal_to_json(draft.proposal)
    return line


def _proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    """Lists by depth as "candidates", any others as "offers"."""
    line: dict[str, Any] = {}
    if (by_depth := proposal.by_depth) is not None:
        read = {} if proposal.read is None else {"read": proposal.read}
        line["candidates"] = {
            "token": by_depth.ids.tolist(), "log_q": _floats(by_depth.log_q), **read
        }  # fmt: skip
    else:
        line["max_depth"] = proposal.max_depth
    if not proposal.factorised_lists:
        line["offers"] = {
            "token": proposal.lists.ids.tolist(),
            "log_q": _floats(proposal.lists.log_q),
            "after": proposal.after.tolist(),
        }
    return line


def _block_to_json(block: Block) -> dict[str, Any]:
    return {
        "index": block.index,
        "step": block.step,
        "state": block.state.tolist(),
        "steps": [
            {
                "count": step.count,
                "position": step.ranking.positions.tolist(),
                "token": step.ranking.ids.tolist(),
                "p": _floats(step.ranking.p),
            }
            for step in block.steps
        ],
    }


def _floats(values: Array) -> Any:
    """Nested lists of the shortest decimals that name the same float32; NaN and ±inf as null."""
    if values.ndim > 1:
        return [_floats(row) for row in values]
    out = []
    for value in values.astype(np.float32):
        number = float(str(value))
        out.append(number if math.isfinite(number) else None)
    return out
