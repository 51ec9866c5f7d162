"""Who may talk to the server: hosts, origins, tokens, headers."""

import re
import socket
import sys
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.studio.guard import Access, Guard, is_loopback

HOME = "http://127.0.0.1:7860"


async def answer(request):
    return PlainTextResponse(" ".join(request.headers))


def client(access=Access(), base=HOME):  # noqa: B008 (frozen)
    routes = [Route("/{path:path}", answer, methods=["GET", "POST"])]
    return TestClient(Guard(Starlette(routes=routes), access), base_url=base)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7860", 200),
        ("localhost:7860", 200),
        ("LOCALHOST", 200),
        ("[::1]:7860", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:7860", 403),
        ("localhost@evil.example", 403),
        ("evil.example:7860@127.0.0.1:x", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_only_hosts_that_are_served_are_answered(host, status):
    for method in ("GET", "POST"):
        assert client().request(method, "/", headers={"host": host}).status_code == status


def test_further_hosts_may_be_allowed():
    access = Access.of("127.0.0.1", ["Tree.example"])
    assert client(access).get("/", headers={"host": "tree.example"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # no browser
        ({"origin": HOME}, 200),
        ({"origin": HOME, "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8000"}, 403),
        ({"origin": HOME, "sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example", "content-type": "text/plain"}, 403),
        ({"origin": "http://evil.example", "content-type": "multipart/form-data; boundary=x"}, 403),
    ],
)
def test_only_our_own_page_is_answered_and_links_to_it_open(headers, status):
    link = {"sec-fetch-mode": "navigate"}
    for method in ("GET", "POST"):
        assert client().request(method, "/", headers=headers).status_code == status
    assert client().get("/", headers=headers | link).status_code == 200
    assert client().post("/", headers=headers | link).status_code == status


def test_only_known_headers_reach_the_application():
    """Gradio and frameworks build addresses and identities from the others."""
    names = (
        "forwarded", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for", "x-real-ip",
        "x-forwarded-prefix", "x-script-name", "x-original-url", "x-gradio-server",
        "x-gradio-user", "x-http-method-override", "authorization", "cookie", "origin",
    )  # fmt: skip
    found = client().get("/", headers=dict.fromkeys(names, HOME) | {"range": "bytes=0-1"})
    assert set(found.text.split()) == {"host", "range", "accept", "accept-encoding", "user-agent"}


def test_every_answer_forbids_frames_and_guessing_types():
    for found in (client().get("/"), client().get("/", headers={"host": "evil.example"})):
        assert "frame-ancestors 'self'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"


def test_a_server_others_can_reach_wants_its_token_once():
    access = Access.of("0.0.0.0")
    other = client(access, "http://192.168.0.7:7860")
    assert other.get("/").status_code == 403
    for wrong in ("wrong", "%C3%A9", "%ED%A0%80", "", f"{access.token}&token=x"[1:]):
        assert other.get(f"/?token={wrong}").status_code == 403
        assert other.get("/", headers={"cookie": f"draftscope_token={wrong}"}).status_code == 403
    found = other.get(f"/?token={access.token}")
    assert found.status_code == 200 and access.token in found.headers["set-cookie"]
    found = other.get("/")
    assert found.status_code == 200, "the cookie remembers it"
    assert "set-cookie" not in found.headers, "an answer sets what its request brought"
    assert other.post("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert Access.of("127.0.0.1").token is None
    assert Access.of("0.0.0.0").token != access.token


@pytest.mark.parametrize("path", ["/startup-events", "/gradio_api/startup-events", "/config", "/"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "192.168.0.7"])
def test_nobody_gets_in_or_gets_the_token_without_it(path, host):
    """As from this machine itself: so a proxy's and a tunnel's clients seem to be."""
    access = Access.of("0.0.0.0")
    app = client(access, f"http://{host}:7860").app
    local = TestClient(app, base_url=f"http://{host}:7860", client=("127.0.0.1", 5))
    for headers in ({}, {"origin": f"http://{host}:7860"}, {"sec-fetch-mode": "navigate"}):
        found = local.get(path, headers=headers)
        assert found.status_code == 403
        assert access.token not in f"{found.text}{found.headers}"
    assert local.get(path).status_code == 403


def test_hosts_are_checked_with_a_token_too():
    """An address that a name was bound to is served by its own name alone."""
    access = Access.of("0.0.0.0", ["tree.example"])
    here = client(access, "http://192.168.0.7:7860")
    asked = f"/?token={access.token}"
    hosts = ["192.168.0.7", "localhost:7860", "127.0.0.1", "tree.example", socket.gethostname()]
    for host in hosts:
        assert here.get(asked, headers={"host": host}).status_code == 200
    for host in ("evil.example", "192.168.0.8", "192.168.0.7.evil.example", "[::2]:7860", "x" * 99):
        found = here.get(asked, headers={"host": host})
        assert found.status_code == 403 and "set-cookie" not in found.headers
    assert client(access, "http://evil.example").get(asked).status_code == 403


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine there")
def test_a_server_as_it_is_started_lets_in_by_its_token_alone():
    """From a second address of this machine, which the server listens on, too."""
    command = [sys.executable, "-m", "app", "studio", "--host", "0.0.0.0", "--port", "0"]
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            home = re.search(r"http://\S+", line)[0]
            token = home.partition("?token=")[2]
            other = httpx.Client(base_url=f"http://127.0.0.2:{urlsplit(home).port}", timeout=60)
            for path in ("/gradio_api/startup-events", "/x/startup-events", "/config", "/"):
                found = other.get(path)
                assert found.status_code == 403 and token not in f"{found.text}{found.headers}"
            assert other.get(f"/?token={token}", headers={"host": "a.example"}).status_code == 403
            trusted = ("x-gradio-server", "x-forwarded-host", "x-forwarded-proto", "forwarded")
            headers = dict.fromkeys(trusted, "https") | {"cookie": f"draftscope_token={token}"}
            config = other.get("/config", headers=headers)
            assert config.status_code == 200 and "set-cookie" not in config.headers
            assert config.json()["root"] == str(other.base_url).rstrip("/")
        finally:
            server.terminate()
        said = server.stderr.read().splitlines()
    assert len(said) == 5 and all(": 403, " in line and token not in line for line in said)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("me", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected
