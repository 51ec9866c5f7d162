"""Whom a server answers: its hosts, the token that a network needs, and how often one may ask."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import math
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EARLIER = 8  # tokens that are told to have expired; a still older one is unknown
Clock = Callable[[], float]  # seconds that never go back


@dataclass(frozen=True)
class Token:
    """The secret word of the printed address: another one every ``hours``.

    Each is made of a secret and of how many there were before, so none has to be kept.
    """

    hours: float
    clock: Clock
    start: float
    secret: bytes = field(repr=False)

    @staticmethod
    def of(hours: float, clock: Clock = time.monotonic) -> Token:
        return Token(hours, clock, clock(), secrets.token_bytes(32))

    def __str__(self) -> str:
        """The word that holds now."""
        return self._word(self._number)

    @property
    def _number(self) -> int:
        return int((self.clock() - self.start) // (3600 * self.hours))

    def _word(self, number: int) -> str:
        made = hmac.digest(self.secret, b"%d" % number, hashlib.sha256)
        return base64.urlsafe_b64encode(made[:24]).decode()

    def is_now(self, word: str) -> bool:
        return hmac.compare_digest(word.encode(), str(self).encode())

    def was(self, word: str) -> bool:
        """Whether it is one of the last that have expired."""
        now = self._number
        earlier = (self._word(number).encode() for number in range(max(0, now - EARLIER), now))
        return any(hmac.compare_digest(word.encode(), each) for each in earlier)


@dataclass
class Sent:
    """The requests of a client of late: less those that time has forgiven."""

    requests: float
    at: float
    refused: bool = False


@dataclass(frozen=True)
class RequestLimit:
    """How often each client may ask: ``most`` requests at once, ``per_second`` in the long run.

    A page takes 80 requests to load, some 15 for a run and one more for each step through it: 30 a
    second while a key is held. So a class of 70 may open the page at once behind one address.
    """

    most: int = 6000
    per_second: float = 100.0
    clock: Clock = time.monotonic
    clients: int = 10_000  # that are remembered: those that asked last
    _sent: dict[str, Sent] = field(default_factory=dict, repr=False)

    def refuses(self, client: str) -> tuple[int, bool]:
        """Count a request. Seconds to wait, 0 where it may pass, and whether this is the first that
        is refused after others passed."""
        now = self.clock()
        sent = self._sent.pop(client, None) or Sent(0.0, now)
        self._sent[client] = sent
        if len(self._sent) > self.clients:
            del self._sent[next(iter(self._sent))]
        sent.requests = max(0.0, sent.requests - (now - sent.at) * self.per_second)
        sent.at = now
        was, sent.refused = sent.refused, sent.requests + 1 > self.most
        if not sent.refused:
            sent.requests += 1
            return 0, False
        return math.ceil((sent.requests + 1 - self.most) / self.per_second), not was


@dataclass(frozen=True)
class Access:
    """Which hosts are served, and on a network the token that is needed and the limit on requests.

    hosts  names and addresses without a port; the address that a connection came to is served, too
    """

    hosts: frozenset[str] = LOOPBACK
    token: Token | None = None
    limit: RequestLimit = field(default_factory=RequestLimit)

    @staticmethod
    def of(listen: str, more: Iterable[str] = (), hours: float = 24) -> Access:
        """Make it for a server that listens on ``listen``; ``more`` are further names of it."""
        named = {name.strip("[]").lower() for name in (listen, *more)}
        if is_loopback(listen):
            return Access(LOOPBACK | named)
        own = socket.gethostname().lower()
        names = {own, f"{own.partition('.')[0]}.local"}
        return Access(LOOPBACK | named | names, Token.of(hours))

    def serves(self, name: str, address: str) -> bool:
        """Whether a host is served on a connection to ``address``.

        No other site's page can have an address as its name: the Host header holds the name, and
        not the address that it is bound to.
        """
        return name in self.hosts or (_is_address(address) and name == address)

    def lacks(self, word: str | None) -> str | None:
        """Why a request with this word for the token is refused, or None."""
        if self.token is None or (word is not None and self.token.is_now(word)):
            return None
        if word is not None and self.token.was(word):
            return "this token has expired: open the address that the server printed last"
        return "open the address that was printed when the server started: it holds the token"

    def wait(self, address: str, let_in: bool) -> tuple[int, bool]:
        """Count a request as ``RequestLimit.refuses`` does, where there is a token. Those that are
        not let in are counted apart: strangers behind one proxy with others take nothing from
        them."""
        if self.token is None:
            return 0, False
        return self.limit.refuses(f"{_network(address)} {let_in}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _network(address: str) -> str:
    """Give what one client has: an address, and of IPv6 all that its network may give it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 32 if found.version == 4 else 64), strict=False))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
