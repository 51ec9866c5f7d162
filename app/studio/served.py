"""The server under the page: a socket, and uvicorn in a thread.

Not by Gradio's ``launch``: as it starts, that asks its own server without a token, and takes a
refusal for a server that cannot be reached.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable

import gradio as gr
import uvicorn
from starlette.types import ASGIApp

from core.errors import UserError, first_line

CLOSING = 5.0  # seconds that open connections may take to end
REACHED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listening on every address: one of this machine


class ServedPage:
    """A page that is served in the background from now on, until it is closed."""

    def __init__(self, page: gr.Blocks, listener: socket.socket, app: ASGIApp):
        host: str
        host, self.port = listener.getsockname()[:2]
        shown = REACHED.get(host, host)
        self.address = f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}"
        self._page = page
        # A proxy's headers are not read: they would change the client, and the scheme of addresses.
        config = uvicorn.Config(app, log_level="warning", proxy_headers=False, server_header=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="draftscope-server", daemon=True
        )
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
            if not self._thread.is_alive():
                raise UserError(f"the studio cannot serve {self.address}")

    def wait(self, between: Callable[[], None] = lambda: None) -> None:
        """Until Ctrl-C, or until the server ends by itself. ``between`` is called all the time."""
        while self._thread.is_alive():
            between()
            self._thread.join(0.2)  # without a limit Ctrl-C would not be heard everywhere

    def close(self) -> None:
        """End the streams and free the port."""
        self._page.close(verbose=False)
        self._server.should_exit = True
        self._thread.join(CLOSING)


def listening(host: str, port: int) -> socket.socket:
    """A socket at the address; a port that is free for 0.

    Raises UserError for an address that cannot be had.
    """
    listener = None
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if os.name == "posix":  # as servers do: a port that was just left is free
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ":" in host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(2048)
        return listener
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        known = isinstance(error, OSError)
        if known and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken: choose another with --port") from None
        why = (known and error.strerror) or first_line(error)
        if known and error.errno == errno.EAFNOSUPPORT and ":" not in host:
            why += "; on a machine with IPv6 alone, choose --host ::1"
        raise UserError(f"the studio cannot listen on {host}: {why}") from None
