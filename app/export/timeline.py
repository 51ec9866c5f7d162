"""A run's stage times in the Trace Event format, for ui.perfetto.dev and chrome://tracing.

One complete event ("X") per round with its stages inside, in µs, and counters ("C") for τ so far
and for accepted nodes. A trace says how long stages took, not when: rounds follow without gaps.
A stage without a time, which zero stands for, has no event, nor has a round without any; the file's
``otherData`` says how many those are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from app.view.rounds import header_view
from core.errors import UserError
from core.rounds.round import Round
from core.traces.schema import Trace
from core.visible import flowing

PROCESS, THREAD = 1, 1
MICRO = 1e6
LONGEST = 3600.0  # seconds a stage may take here: a trace may hold any number


def perfetto(trace: Trace) -> str:
    """The file's text. Raises UserError where no round was timed."""
    left = sum(1 for record in trace.rounds if record.times.recorded is None)
    if left == len(trace.rounds):
        raise UserError("the trace holds no times of its rounds: there is no timeline to write")
    about = header_view(trace.header)
    events = list(_events(trace.rounds, f"{about['method']} · {about['model']}"))
    other = {
        "made by": "Draftscope",
        "time": "rounds follow each other; gaps are not recorded",
        "left out": f"{left} of {len(trace.rounds)} rounds, whose stages were not timed",
    }
    file = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    return json.dumps(file, allow_nan=False, separators=(",", ":"))


def _events(rounds: tuple[Round, ...], name: str) -> Iterator[dict[str, Any]]:
    yield _at(0.0, "M", "process_name", args={"name": name})
    yield _at(0.0, "M", "thread_name", args={"name": "rounds"})
    start, lengths, ran = 0.0, 0, 0
    for record in rounds:
        if record.committed:  # τ so far, as core.traces.schema.summary counts it
            lengths, ran = lengths + record.accepted + 1, ran + 1
        if record.times.recorded is None:
            continue
        stages = {k: min(v, LONGEST) * MICRO for k, v in asdict(record.times).items() if v}
        whole = sum(stages.values())
        facts = _facts(record)
        yield _at(start, "X", f"round {record.number}", dur=whole, cat="round", args=facts)
        at = start
        for stage, length in stages.items():
            yield _at(at, "X", stage, dur=length, cat="stage")
            at += length
        yield _at(start, "C", "accepted", args={"accepted": record.accepted})
        if record.committed:
            yield _at(start, "C", "τ", args={"τ": lengths / ran})
        start += whole


def _facts(record: Round) -> dict[str, Any]:
    text = flowing("".join(map(record.text, record.committed)), 200)
    return {"nodes": record.draft.nodes, "accepted": record.accepted, "text": text}


def _at(ts: float, phase: str, name: str, **more: Any) -> dict[str, Any]:
    """One event at ``ts`` µs; "M" names things, "X" has a duration ``dur``, "C" is a counter."""
    return {"ph": phase, "name": name, "pid": PROCESS, "tid": THREAD, "ts": ts, **more}
