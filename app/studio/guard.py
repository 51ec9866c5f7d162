"""Who may talk to the server: ASGI middleware around everything that it answers.

A browser that runs the studio also has other pages open. They must not start runs, read them, or
show the studio in a frame. So, as Jupyter does:

- Only the hosts that are served are answered, with a token or without. This stops DNS rebinding.
- A request must come from the studio's own page (``Sec-Fetch-Site``, ``Origin``), unless it
  follows a link to it. Programs other than browsers send neither header and are answered.
- A server that other machines can reach wants the token of the printed address, once; a cookie
  remembers it. Nobody is let in without it: behind a proxy or tunnel on this machine every client
  seems to be local. An answer sets only the token that its request brought. Some hours later the
  token has expired, and another is printed. Each client may send so many requests.
- Of a request's headers only ``PASSED`` reach the application: Gradio would build addresses from
  ``X-Forwarded-Host``, ``X-Forwarded-Proto`` and ``X-Gradio-Server``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.studio.access import Access
from app.studio.faults import note

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "draftscope_token"
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",  # Gradio's templates need both
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "SAMEORIGIN",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
PASSED = frozenset(
    b"host content-type content-length transfer-encoding accept accept-encoding accept-language "
    b"user-agent range if-range if-none-match if-modified-since".split()
)


@dataclass(frozen=True)
class Guard:
    """Answers requests that may pass, and refuses the others with one sentence."""

    app: ASGIApp
    access: Access = field(default_factory=Access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        client = (scope.get("client") or ("",))[0]
        seconds, first = self.access.wait(client, refusal is None)
        if seconds:
            sentence = f"too many requests come from your address: try again in {seconds} s"
            if first:  # one line for all of them
                note(scope, 429, sentence)
            await _refuse(scope, receive, send, sentence, 429, {"retry-after": str(seconds)})
            return
        if refusal is not None:
            note(scope, 403, refusal)
            await _refuse(scope, receive, send, refusal)
            return
        passed = [(name, value) for name, value in scope["headers"] if name in PASSED]
        brought = _asked_with(scope) if self.access.token is not None else None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found.setdefault(name, value)
                if brought is not None:
                    cookie = f"{COOKIE}={brought}; Path=/; HttpOnly; SameSite=Strict"
                    found.append("set-cookie", cookie)
            await send(message)

        await self.app({**scope, "headers": passed}, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        """Why a request is refused, or None."""
        host = headers.get("host", "")
        address = (scope.get("server") or ("",))[0]
        if len(headers.getlist("host")) != 1 or not self.access.serves(_name(host), address):
            return f"this server does not answer for {host[:100]!r}; see --allow-host"
        follows_link = (
            scope["type"] == "http"
            and scope["method"] in SAFE_METHODS
            and headers.get("sec-fetch-mode") == "navigate"
        )
        if not follows_link and not _same_origin(headers, host):
            return "this request comes from another site's page"
        return self.access.lacks(_asked_with(scope) or _remembered(headers))


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a request comes from our own page, or from a program other than a browser."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _asked_with(scope: Scope) -> str | None:
    """The token of the printed address."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), errors="replace")
    return query["token"][0] if "token" in query else None


def _remembered(headers: Headers) -> str | None:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return cookie.value if cookie is not None else None


def _name(host: str) -> str:
    """The name of a Host header without its port; empty for one that is malformed."""
    if set(host) & set("@/\\?# \t"):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


async def _refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    why: str,
    status: int = 403,
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    own = {**HEADERS, **more}
    if dict(scope["headers"]).get(b"content-type") == b"application/json":  # Gradio reads it
        answer: Response = JSONResponse({"error": why}, status, own)
    else:
        answer = PlainTextResponse(why + "\n", status, own)
    await answer(scope, receive, send)
