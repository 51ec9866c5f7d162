"""Writing traces: rounds become lines, each flushed as it is written."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from dataclasses import asdict, astuple
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import writing
from ..rounds.blocks import Block
from ..rounds.draft import Array, Candidates, Draft, Proposal
from ..rounds.round import Probe, Round
from .schema import FORMAT, VERSION, Header, Totals, Trace


class TraceWriter:
    """Appends rounds to a trace file; every line is on its way to disk before ``write`` returns."""

    def __init__(self, path: Path, header: Header):
        self._zipped = path.name.endswith(".gz")
        self._totals = Totals()  # a server's texts are long: the rounds themselves are not kept
        with writing(f"the trace {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._raw: IO[bytes] = path.open("wb")
        self._file: IO[bytes] = (
            gzip.GzipFile(fileobj=self._raw, mode="wb", mtime=0, filename="")  # type: ignore[assignment]
            if self._zipped
            else self._raw
        )
        self._line({"kind": "header", "format": FORMAT, "version": VERSION, **asdict(header)})

    def write(self, record: Round) -> None:
        self._totals.add_round(record)
        self._line({"kind": "round", **round_to_json(record)})

    def finish(self, /, **more: Any) -> None:
        """Write the footer, the run's summary and ``more``, and close the file."""
        self._line({"kind": "footer", **more, **self._totals.summary()})
        self.close()

    def close(self) -> None:
        """Close without a footer: the run was interrupted."""
        try:
            self._file.close()
        finally:  # the disk may be full, and this the last that gzip had to say
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
    line: dict[str, Any] = {
        "index": record.index,
        "position": record.position,
        "nodes": {
            "parents": draft.parents.tolist(),
            "depth": draft.depths.tolist(),
            "token": draft.tokens.tolist(),
            "rank": draft.ranks.tolist(),
            "log_q": _plain(draft.log_q),
            "score": _plain(draft.scores),
            "status": list(record.status),
            "choice": verdict.target_tokens.tolist(),
        },
        "path": list(verdict.path),
        "bonus": verdict.bonus,
        "committed": list(record.committed),
        "times": asdict(record.times),
        "texts": {str(token): text for token, text in record.texts.items()},
    }
    if verdict.bonus_token is not None:
        line["drawn_bonus"] = verdict.bonus_token
    if record.proposal is not None:
        line |= _by_depth(record.proposal)
    elif record.max_depth:
        line["max_depth"] = record.max_depth
    if (probs := record.target_probs) is not None:
        line["nodes"]["log_p"] = _plain(probs.log_p)
        line["nodes"]["rank_p"] = probs.rank.tolist()
        line["nodes"]["entropy"] = _plain(probs.entropy)
        line["target_top"] = {"token": probs.top_ids.tolist(), "log_p": _plain(probs.top_log_p)}
    if record.probe is not None:
        line["probe"] = _probe(record.probe)
    if isinstance(draft, Draft):
        line |= _tree(draft)
    elif record.block is not None:
        line["nodes"]["links"] = [list(parents) for parents in draft.links]
        line["nodes"]["edits"] = [[list(astuple(e)) for e in edits] for edits in draft.edits]
        line["block"] = _block(record.block)
    return line


def _probe(probe: Probe) -> dict[str, Any]:
    measured = {name: value for name, value in vars(probe).items() if name != "vocabulary"}
    known = {} if probe.vocabulary is None else {"vocabulary": probe.vocabulary}
    return {name: _plain(values) for name, values in measured.items()} | known


def _by_depth(proposal: Proposal) -> dict[str, Any]:
    """The lists of each depth, which say how many depths there are, or that number alone."""
    if proposal.by_depth is None:
        return {"max_depth": proposal.max_depth}
    return {"candidates": {**_lists(proposal.by_depth), **_limits(proposal)}}


def _limits(proposal: Proposal) -> dict[str, float]:
    """The limits of the builder whatever its budget."""
    found = {name: getattr(proposal, name) for name in ("read", "beam", "least")}
    return {name: limit for name, limit in found.items() if limit is not None}


def _tree(draft: Draft) -> dict[str, Any]:
    line: dict[str, Any] = {}
    if draft.side:
        line["side"] = sorted(draft.side)
    if draft.notes:
        line["notes"] = {name: _plain(values) for name, values in draft.notes.items()}
    if draft.proposal is not None and not draft.proposal.factorised_lists:
        proposal = draft.proposal
        limits = _limits(proposal) if proposal.by_depth is None else {}
        after = proposal.after.tolist()
        line["offers"] = {**_lists(proposal.lists), "after": after, **limits}
    return line


def _lists(candidates: Candidates) -> dict[str, Any]:
    return {"token": candidates.ids.tolist(), "log_q": _plain(candidates.log_q)}


def _block(block: Block) -> dict[str, Any]:
    return {
        "index": block.index,
        "step": block.step,
        "state": block.state.tolist(),
        "steps": [
            {
                "count": step.count,
                "position": step.ranking.positions.tolist(),
                "token": step.ranking.ids.tolist(),
                "p": _plain(step.ranking.p),
            }
            for step in block.steps
        ],
    }


def _plain(values: Array) -> list[Any]:
    """Nested lists; of floats, the shortest decimals that name the same float32, or null."""
    if values.dtype.kind != "f":
        return values.tolist()
    numbers = values.astype(np.float32)
    plain = np.array([float(str(n)) for n in numbers.ravel()], object).reshape(numbers.shape)
    plain[~np.isfinite(numbers)] = None
    return plain.tolist()
