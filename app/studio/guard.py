"""Who may talk to the server: ASGI middleware around everything that it answers.

A browser that runs the studio also has other pages open. They must not start runs, read them, or
show the studio in a frame. So, as Jupyter does:

- Only the hosts that are served are answered, with a token or without. This stops DNS rebinding.
- A request must come from the studio's own page (``Sec-Fetch-Site``, ``Origin``), unless it
  follows a link to it. Programs other than browsers send neither header and are answered.
- A server that other machines can reach wants the token of the printed address, once; a cookie
  remembers it. Nobody is let in without it: behind a proxy or tunnel on this machine every client
  seems to be local. An answer sets only the token that its request brought.
- Of a request's headers only ``PASSED`` reach the application: Gradio would build addresses from
  ``X-Forwarded-Host``, ``X-Forwarded-Proto`` and ``X-Gradio-Server``.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.studio.faults import note

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
PASSED = frozenset(
    b"host content-type content-length transfer-encoding accept accept-encoding accept-language "
    b"user-agent range if-range if-none-match if-modified-since".split()
)


@dataclass(frozen=True)
class Access:
    """Which hosts are served, and the token that is needed, if one is.

    hosts  names and addresses without a port; the address that a connection came to is served, too
    """

    hosts: frozenset[str] = LOOPBACK
    token: str | None = None

    @staticmethod
    def of(listen: str, more: Iterable[str] = ()) -> Access:
        """For a server that listens on ``listen``; ``more`` are further names it is reached by."""
        named = {name.strip("[]").lower() for name in (listen, *more)}
        if is_loopback(listen):
            return Access(LOOPBACK | named)
        own = socket.gethostname().lower()
        names = {own, f"{own.partition('.')[0]}.local"}
        return Access(LOOPBACK | named | names, secrets.token_urlsafe(24))

    def serves(self, name: str, address: str) -> bool:
        """Whether a host is served on a connection to ``address``.

        No other site's page can have an address as its name: the Host header holds the name, and
        not the address that it is bound to.
        """
        return name in self.hosts or (_is_address(address) and name == address)

    def knows(self, token: str | None) -> bool:
        if self.token is None:
            return True
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
            note(scope, 403, refusal)
            await _refuse(scope, receive, send, refusal)
            return
        passed = [(name, value) for name, value in scope["headers"] if name in PASSED]
        brought = self.access.token is not None and _asked_with(scope) is not None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found.setdefault(name, value)
                if brought:
                    cookie = f"{COOKIE}={self.access.token}; Path=/; HttpOnly; SameSite=Strict"
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
        if not self.access.knows(_asked_with(scope) or _remembered(headers)):
            return "open the address that was printed when the server started: it holds the token"
        return None


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


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(why + "\n", 403, HEADERS)(scope, receive, send)
