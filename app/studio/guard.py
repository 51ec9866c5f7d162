"""Who may talk to the server: ASGI middleware around Gradio's application.

A browser that runs the studio also has other pages open. They must not start runs, read them, or
show the studio in a frame. So, as Jupyter does:

- Only the hosts that are served are answered. This stops DNS rebinding.
- A request must come from the studio's own page (``Sec-Fetch-Site``, ``Origin``), unless it
  follows a link to it. Programs that are no browsers send neither header and are answered.
- A server that other machines can reach wants the token of the printed address, once; a cookie
  remembers it.
- ``X-Forwarded-*`` headers are dropped: Gradio would build addresses from them.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
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


@dataclass(frozen=True)
class Access:
    """Which hosts are served, and the token that is needed, if one is.

    hosts  names and addresses without a port; empty: any, since a token is needed
    """

    hosts: frozenset[str] = LOOPBACK
    token: str | None = None

    @staticmethod
    def of(listen: str, more: Iterable[str] = ()) -> Access:
        """For a server that listens on ``listen``; ``more`` are further names it is reached by."""
        names = frozenset(name.strip("[]").lower() for name in more)
        if is_loopback(listen):
            return Access(LOOPBACK | {listen.strip("[]").lower()} | names)
        return Access(names | LOOPBACK if names else frozenset(), secrets.token_urlsafe(24))

    def serves(self, host: str) -> bool:
        return not self.hosts or host in self.hosts

    def knows(self, token: str | None) -> bool:
        wanted = self.token
        return wanted is None or (token is not None and hmac.compare_digest(token, wanted))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


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
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        kept = [(k, v) for k, v in scope["headers"] if not k.startswith(b"x-forwarded")]
        scope = {**scope, "headers": kept}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found.setdefault(name, value)
                if self.access.token is not None:
                    cookie = f"{COOKIE}={self.access.token}; Path=/; HttpOnly; SameSite=Strict"
                    found.append("set-cookie", cookie)
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        """Why a request is refused, or None."""
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self.access.serves(_name(host)):
            return f"this server does not answer for {host[:100]!r}; see --allow-host"
        follows_link = (
            scope["type"] == "http"
            and scope["method"] in SAFE_METHODS
            and headers.get("sec-fetch-mode") == "navigate"
        )
        if not follows_link and not _same_origin(headers, host):
            return "this request comes from another site's page"
        local = scope["type"] == "http" and _is_startup(scope)
        if not local and not self.access.knows(_token(scope, headers)):
            return "open the address that was printed when the server started: it holds the token"
        return None


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a request comes from our own page, or from a program that is no browser."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _is_startup(scope: Scope) -> bool:
    """Gradio's own call to its own server while it starts."""
    client = scope.get("client")
    return bool(client) and is_loopback(client[0]) and scope["path"].endswith("/startup-events")


def _token(scope: Scope, headers: Headers) -> str | None:
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    if "token" in query:
        return query["token"][0]
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


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(why + "\n", 403, HEADERS)(scope, receive, send)
