"""One HTML file that replays one run, or two side by side, from disk and without any network.

It holds the page's own scripts (``app.page_files``) and a pack of each run (``app.export.packs``).

A trace may be hostile: its text is in data blocks only, as JSON without ``<``, or gzipped in
base64. The page's policy allows this one script and this one stylesheet, by their hashes; nothing
can be fetched, embedded or sent.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from app.export.packs import DETAILED, inert, packed_run, weight
from app.page_files import LOGO, css, enclosed
from app.view.comparison import CAUTIONS, apart
from app.view.rounds import header_view
from core.errors import UserError
from core.progress import At, silent
from core.traces.schema import Trace

STYLES = ("offline.css",)
TOOLS = (  # of a page of runs, at the right of its head
    '<button type="button" id="ds-present" aria-label="Present" title="Present (p)"></button>'
    '<button type="button" id="ds-theme" aria-label="Dark or light"></button>'
)


def offline_page(
    traces: Sequence[Trace], plain: bool = False, opens: int = 0, at: At = silent
) -> str:
    """The file's text. ``plain``: no compression, about ten times larger. ``opens``: the round
    it opens at, from 0. ``at``: is told how much is done, of 1.

    Raises UserError for no trace, more than two, or one without rounds.
    """
    if not 1 <= len(traces) <= 2:
        raise UserError("an offline file holds one trace, or two to compare")
    if not all(trace.rounds for trace in traces):
        raise UserError("the trace holds no round: there is nothing to show")
    headers = [trace.header for trace in traces]
    detailed = sum(map(weight, traces)) <= DETAILED
    told = {"runs": len(traces), "opens": opens, "apart": apart(headers), "cautions": CAUTIONS}
    packs = [
        packed_run(trace, plain, detailed, lambda done, n=n: at((n + done) / len(traces)))
        for n, trace in enumerate(traces)
    ]
    blocks = [data_block("ds-page", inert(told))]
    blocks += [data_block(f"ds-run-{at}", text) for at, text in enumerate(packs)]
    title = " and ".join(header_view(header)["method"] for header in headers)
    before, after = frame(title)
    return before + "\n".join(blocks) + after


def frame(title: str) -> tuple[str, str]:
    """Return what stands before and after the data blocks of a page of runs."""
    return page(
        title,
        enclosed("offline.js"),
        css(STYLES),
        f"<p>a recorded run, offline</p>{TOOLS}",
        '<main id="ds-offline"></main>',
    )


def page(
    title: str, code: str, style: str, head: str, body: str, scripts: str = ""
) -> tuple[str, str]:
    """A page that runs this script and has this style, before and after its data blocks; the title
    is text, ``head`` and ``body`` are markup. ``scripts``: further sources of scripts."""
    assert "</" not in style
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'{scripts}; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)} · Draftscope</title><style>{style}</style></head>\n"
        f'<body><header class="ds-page-head"><div class="ds-brand">{LOGO}<h1>Draftscope</h1></div>'
        f"{head}</header>{body}"
        "<noscript>This page draws its trees with JavaScript.</noscript>\n",
        f"\n<script>{code}</script></body></html>\n",
    )


def data_block(name: str, text: str) -> str:
    """A script element that is never run; ``text`` is ``inert``, so nothing in it can end it."""
    return f'<script type="application/json" id="{name}">{text}</script>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
