"""Requests that are too large, malformed, or break something: ASGI middleware below the guard.

Who asked gets one sentence, the log gets one line. Gradio checks little of what it is sent: what it
raises is about the request, and would be a page of traceback each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import FULL, UserError
from core.visible import flowing

MAX_BODY = 8 << 20  # bytes of a request; a page's table of 200,000 cells has about 5 MB
UPLOAD = "/gradio_api/upload"
IDLE, PATIENCE = 0.1, 10.0  # seconds without a byte, and in all, while a body is thrown away
NO_ROOM = 507  # insufficient storage
MALFORMED = "this is not a request that the page sends"
LOG = logging.getLogger(__name__)


class Malformed(UserError):
    """A request that no page of ours sends."""


class TooLarge(Exception):
    """A body went on beyond its limit."""


@dataclass
class Call:
    """One request on its way: what came of its body, and what is known about its answer.

    most  bytes that its body may have
    """

    receive_next: Receive
    send_on: Send
    most: int
    taken: int = 0
    began: bool = False
    ended: bool = False
    malformed: bool = False

    @property
    def too_large(self) -> bool:
        return self.taken > self.most

    async def receive(self) -> Message:
        message = await self.receive_next()
        if message["type"] == "http.request":
            self.taken += len(message.get("body", b""))
            if self.too_large:
                raise TooLarge
        return message

    async def send(self, message: Message) -> None:
        """Gradio answers every failure with 500, and what a view refuses with 200."""
        if self.too_large and not self.began:
            return  # another answer follows
        if message["type"] == "http.response.start":
            self.began = True
            if self.malformed and message["status"] in (200, 500):
                message = {**message, "status": 400}
        self.ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self.send_on(message)

    async def end(self) -> None:
        """The end of an answer that broke off, which uvicorn would complain about."""
        if self.began and not self.ended:
            await self.send({"type": "http.response.body", "body": b""})


CALL: ContextVar[Call | None] = ContextVar("draftscope_call", default=None)


@dataclass(frozen=True)
class Faults:
    """Answers where the application cannot.

    bodies  how many bytes a request may have, by path; MAX_BODY for any other
    """

    app: ASGIApp
    bodies: Mapping[str, int] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.bodies.get(scope["path"].rstrip("/"), MAX_BODY)
        call = Call(receive, send, most)
        if not _declared(scope) > most:
            CALL.set(call)
            await self._answer(scope, call)
            if not call.too_large:
                return
        note(scope, 413, f"a request of more than {most >> 20} MB")
        await _throw_away(receive)
        if not call.began:
            sentence = f"a request may have at most {most >> 20} MB\n"
            await PlainTextResponse(sentence, 413)(scope, receive, send)

    async def _answer(self, scope: Scope, call: Call) -> None:
        try:
            await self.app(scope, call.receive, call.send)
        except Exception as error:
            if call.too_large:
                return
            note(scope, status_of(error), error)
            if not call.began:
                await failed(Request(scope), error)(scope, call.receive, call.send)
            await call.end()


def _declared(scope: Scope) -> int:
    value = dict(scope["headers"]).get(b"content-length", b"")
    return int(value[:20]) if value.isdigit() else 0


async def _throw_away(receive: Receive) -> None:
    """Read on for a while: who is still sending would see a broken connection and no sentence."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await asyncio.wait_for(receive(), IDLE)
                if message["type"] != "http.request" or not message.get("more_body"):
                    return


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


def refuse(error: Exception) -> str:
    """The sentence for who asked; a malformed request is answered with status 400."""
    if isinstance(error, Malformed) and (call := CALL.get()) is not None:
        call.malformed = True
    if isinstance(error, UserError):
        return flowing(str(error), 1000)
    if status_of(error) == NO_ROOM:
        return "the server's disk is full: nothing was kept"
    return f"the server could not work this out ({type(error).__name__})"


def failed(request: Request, error: Exception) -> Response:
    """The answer where Gradio raised: to what it was sent, unless the system failed it."""
    sentence = MALFORMED if status_of(error) == 400 else refuse(error)
    return JSONResponse({"error": sentence}, status_of(error))


def status_of(error: BaseException) -> int:
    error = _root(error)
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, OSError) and error.errno in FULL:
        return NO_ROOM
    return 500 if isinstance(error, (OSError, MemoryError)) else 400


def _root(error: BaseException) -> BaseException:
    """Return the error raised first; a stream's parts run beside each other, raising a group."""
    inner = getattr(error, "exceptions", (error.__cause__,))[0]
    return error if inner is None else _root(inner)


def note(scope: Mapping[str, Any], status: int, why: str | Exception) -> None:
    """One line in the log; with DRAFTSCOPE_DEBUG=1 also where an error was raised."""
    client = (scope.get("client") or ("?",))[0]
    what = f"{scope.get('method', 'WEBSOCKET')} {scope['path']}"
    said = why if isinstance(why, str) else place_of(why)
    _line(f"{flowing(what, 200)} from {client}: {status}, {said}", why)


def note_bug(what: str, error: Exception) -> None:
    """One line about an error of our own."""
    _line(f"{what}: {place_of(error)}", error)


def _line(text: str, error: str | Exception) -> None:
    traced = error if os.environ.get("DRAFTSCOPE_DEBUG") and not isinstance(error, str) else None
    LOG.warning("%s %s", time.strftime("%H:%M:%S"), " ".join(text.split()), exc_info=traced)


def place_of(error: BaseException) -> str:
    """An error's class and words, and the line that raised it."""
    error = _root(error)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" ({Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})" if at else ""
    return f"{type(error).__name__}: {flowing(str(error), 200)}{where}"
