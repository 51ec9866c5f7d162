"""News of runs as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.studio.routes import MAX_LISTED
from app.studio.runs import Runs

LOOK_EVERY = 0.2  # seconds: a message, and what a page draws of it, costs the decoding a little
BEAT_EVERY = 20  # looks without news before a sign of life: proxies close silent connections
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Events:
    """``GET /events?run=TICKET.SINCE&run=…``: one stream for all runs that a view shows.

    It has a message for each run whenever there is something new: {"ticket", "news"}, the news
    being what the route ``updates`` answers from round SINCE on. A run whose stream is open is
    watched; when the page is closed, that ends at once.
    """

    def __init__(self, runs: Runs):
        self._runs = runs

    async def answer(self, request: Request) -> Response:
        since = _asked(request.query_params.getlist("run"))
        if since is None:
            return Response("there are no such news\n", 400)
        return StreamingResponse(
            self._stream(since), media_type="text/event-stream", headers=HEADERS
        )

    async def _stream(self, since: dict[str, int]) -> AsyncGenerator[bytes, None]:
        """Messages until every run has ended. ``since``: the next round of each."""
        seen: dict[str, object] = {}
        silent = 0
        with self._runs.watching(list(since)):
            yield b": open\n\n"
            while since and not self._runs.closed:
                marks = {ticket: self._runs.mark(ticket) for ticket in since}
                fresh = [ticket for ticket in since if marks[ticket] != seen.get(ticket)]
                seen |= marks
                for ticket in fresh:
                    news = await run_in_threadpool(self._runs.updates, ticket, since[ticket])
                    yield _message(ticket, news)
                    since = _after(since, ticket, news["run"])
                silent = 0 if fresh else silent + 1
                if silent and silent % BEAT_EVERY == 0:
                    yield b": beat\n\n"
                await asyncio.sleep(LOOK_EVERY)


def _after(since: dict[str, int], ticket: str, run: dict[str, Any] | None) -> dict[str, int]:
    """Return what to ask next; an ended run leaves, and one with more rounds than an answer holds
    is asked for by the page itself."""
    rest = {other: at for other, at in since.items() if other != ticket}
    if run is None or run["more"] or run["state"] not in ("waiting", "running"):
        return rest
    return rest | {ticket: since[ticket] + len(run["rounds"])}


def _message(ticket: str, news: dict[str, Any]) -> bytes:
    text = json.dumps({"ticket": ticket, "news": news}, allow_nan=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def _asked(runs: list[str]) -> dict[str, int] | None:
    """TICKET.SINCE of each run; None for anything else."""
    found = {}
    for each in runs[:MAX_LISTED]:
        ticket, _, since = each.rpartition(".")
        if not ticket or not (since.isascii() and since.isdigit() and len(since) < 8):
            return None
        found[ticket] = int(since)
    return found or None
