"""A model hub on this machine, for tests: repositories are folders."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
PART = 4096  # bytes of a file before the hub stands still


class Hub(ThreadingHTTPServer):
    """Answers as huggingface.co does, as far as its library asks when it fetches.

    root     holds the repositories, ``org/name``
    stalled  the hub stands still within a file that it holds
    sent     the files that were begun, in order
    """

    daemon_threads = True

    def __init__(self, root: Path):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.sent = root, list[str]()
        self.stalled, self._freed, self._held = threading.Event(), threading.Event(), ""

    def hold(self, file: str) -> None:
        """Send a part of this file and then stand still, until ``let_go``."""
        self.stalled.clear()
        self._freed.clear()
        self._held = file

    def let_go(self) -> None:
        self._held = ""
        self._freed.set()

    def wait_within(self, file: str) -> None:
        """Where this file is held, stand still."""
        if file == self._held:
            self.stalled.set()
            self._freed.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(root: Path) -> Iterator[Hub]:
    hub = Hub(root)
    thread = threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.let_go()
        hub.shutdown()
        hub.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/\w+|/tree/\w+)?", path):
            self._say(found[1], (found[2] or "").startswith("/tree"))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/\w+/(.+)", path):
            self._file(f"{found[1]}/{found[2]}")
        else:
            self.send_error(404)

    def _say(self, name: str, tree: bool) -> None:
        folder = self.server.root / name
        if not folder.is_dir():
            return self.send_error(404)
        files = {f.name: f.stat().st_size for f in sorted(folder.iterdir())}
        entries = [{"rfilename": name, "size": size} for name, size in files.items()]
        answer: Any = {"id": name, "sha": COMMIT, "siblings": entries}
        if tree:
            answer = [
                {"type": "file", "path": name, "size": size, "oid": _etag(folder / name)}
                for name, size in files.items()
            ]
        body = json.dumps(answer).encode()
        self._head(len(body), {"Content-Type": "application/json"})
        self.wfile.write(body)

    def _file(self, name: str) -> None:
        path = self.server.root / name
        if not path.is_file():
            return self.send_error(404)
        size = path.stat().st_size
        self._head(size, {"ETag": f'"{_etag(path)}"', "X-Repo-Commit": COMMIT})
        if self.command == "HEAD":
            return
        self.server.sent.append(name)
        body = path.read_bytes()
        with suppress(OSError):  # who asked was killed
            self.wfile.write(body[:PART])
            self.server.wait_within(name)
            self.wfile.write(body[PART:])

    def _head(self, length: int, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()
