"""One HTML file that replays one run, or two side by side, from disk and without any network.

It holds the page's own scripts (``app.page_files``) and what the studio's server would answer: the
view of every round and node, made by ``app.view.rounds`` as the server makes them.

A trace may be hostile: its text is in data blocks only, as JSON without ``<``, or gzipped in
base64. The page's policy allows this one script and this one stylesheet, by their hashes; nothing
can be fetched, embedded or sent.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from app.page_files import css, joined
from app.view.comparison import LETTERS, apart, comparison_view
from app.view.explanation import Explainer
from app.view.rounds import GHOST, drawable, has_stop, header_view, node_view, round_view, why_view
from app.view.statistics import depth_records, numbers_only
from core.errors import UserError
from core.rounds.round import Round
from core.traces.schema import Trace

EACH = 64  # rounds whose nodes' details are unpacked together
# Nodes, and nodes before each of them, of a file that keeps details: about 60 MB unpacked. Each
# node's path is listed, so a chain of n nodes takes n²/2 places.
DETAILED = 1_500_000


def offline_page(traces: Sequence[Trace], plain: bool = False, opens: int = 0) -> str:
    """The file's text. ``plain``: no compression, three to six times larger. ``opens``: the round
    it opens at, from 0.

    Raises UserError for no trace, more than two, or one without rounds.
    """
    if not 1 <= len(traces) <= 2:
        raise UserError("an offline file holds one trace, or two to compare")
    if not all(trace.rounds for trace in traces):
        raise UserError("the trace holds no round: there is nothing to show")
    code, style = joined("offline.js"), css(("offline.css",))
    assert "</" not in style
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = escape(" and ".join(header_view(trace.header)["method"] for trace in traces))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{title} · Draftscope</title><style>{style}</style></head>\n"
        '<body><header class="ds-page-head"><h1>Draftscope</h1><p>a recorded run, offline</p>'
        '<button type="button" id="ds-theme" aria-label="Dark or light"></button></header>'
        '<main id="ds-offline"></main>'
        "<noscript>This page draws its trees with JavaScript.</noscript>\n"
        + "\n".join(_blocks(traces, plain, opens))
        + f"\n<script>{code}</script></body></html>\n"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _blocks(traces: Sequence[Trace], plain: bool, opens: int) -> Iterator[str]:
    runs = [_run(trace) for trace in traces]
    whole = {
        "runs": runs, "each": EACH, "opens": opens,
        "compared": comparison_view([trace.header for trace in traces]),
        "measured": _measured(traces),
    }  # fmt: skip
    yield _block("ds-runs", whole, plain)
    drafts = [drawable(record).draft for trace in traces for record in trace.rounds]
    if sum(int(draft.depths.sum()) + len(draft) for draft in drafts) > DETAILED:
        return
    for run, trace in enumerate(traces):
        for start in range(0, len(trace.rounds), EACH):
            packed = _details(trace, trace.rounds[start : start + EACH])
            yield _block(f"ds-nodes-{run}-{start // EACH}", packed, plain)


def _run(trace: Trace) -> dict[str, Any]:
    explainer = Explainer.of(trace.header)
    return {
        "header": header_view(trace.header),
        "message": trace.remarks,
        "rounds": [
            round_view(r, explainer, first=at == 0) | why_view(trace.rounds, at)
            for at, r in enumerate(trace.rounds)
        ],
    }


def _measured(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return what the runs measure, with figures as tables: the script that draws them is 5 MB."""
    named = dict(zip(LETTERS, traces, strict=False))
    more = apart([trace.header for trace in traces])
    names = {
        at: f"{at} {header_view(trace.header)['method']} {words}".rstrip()
        for (at, trace), words in zip(named.items(), more, strict=False)
    }
    found = depth_records(named, names)
    figures = {name: numbers_only(figure) for name, figure in found["figures"].items()}
    return found | {"figures": figures}


def _details(trace: Trace, rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the inspector's view of every node: the root first, the target's token last."""
    packer, explainer = Packer(), Explainer.of(trace.header)
    places = []
    for record in map(drawable, rounds):
        rows = [*range(len(record.draft)), *([GHOST] if has_stop(record) else [])]
        places.append([packer.put(node_view(record, row, explainer)) for row in rows])
    return {"rounds": places, "table": packer.table, "shapes": packer.shapes}


def _block(name: str, value: Any, plain: bool) -> str:
    """A script element that is never run; no text in it can end it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if plain:
        data, mark = text.replace("<", "\\u003c").replace(">", "\\u003e"), ""
    else:
        packed = gzip.compress(text.encode("ascii"), 9, mtime=0)
        data, mark = base64.b64encode(packed).decode("ascii"), ' data-packed="gzip"'
    return f'<script type="application/json" id="{name}"{mark}>{data}</script>'


class Packer:
    """JSON values, each stored once: nodes of one tree share their paths, lists and labels.

    ``table`` holds scalars as they are, lists as [-1, place, …] and objects as [shape, place, …],
    where ``shapes`` names an object's keys. app/web/offline.js unfolds them.
    """

    def __init__(self) -> None:
        self.table: list[Any] = []
        self.shapes: list[list[str]] = []
        self._places: dict[Any, int] = {}
        self._shapes: dict[tuple[str, ...], int] = {}

    def put(self, value: Any) -> int:
        """The value's place in the table."""
        if isinstance(value, dict):
            keys = tuple(value)
            shape = self._shapes.setdefault(keys, len(self._shapes))
            if shape == len(self.shapes):
                self.shapes.append(list(keys))
            return self._place([shape, *map(self.put, value.values())])
        if isinstance(value, (list, tuple)):
            return self._place([-1, *map(self.put, value)])
        return self._place(value)

    def _place(self, entry: Any) -> int:
        # 1, 1.0 and True are equal to Python, and not the same in JSON
        key = tuple(entry) if isinstance(entry, list) else (type(entry), entry)
        place = self._places.setdefault(key, len(self.table))
        if place == len(self.table):
            self.table.append(entry)
        return place
