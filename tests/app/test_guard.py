"""Who may talk to the server: hosts, origins, tokens, headers."""

import re
import socket
import sys
from dataclasses import dataclass, replace
from subprocess import PIPE
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.studio.access import Access, RequestLimit, Token, is_loopback
from app.studio.guard import Guard
from tests.helpers.processes import running

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
    assert found.status_code == 200 and str(access.token) in found.headers["set-cookie"]
    found = other.get("/")
    assert found.status_code == 200, "the cookie remembers it"
    assert "set-cookie" not in found.headers, "an answer sets what its request brought"
    assert other.post("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert Access.of("127.0.0.1").token is None
    assert str(Access.of("0.0.0.0").token) != str(access.token)


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
        assert str(access.token) not in f"{found.text}{found.headers}"
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


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def on_a_network(clock: Clock, hours: float = 2, **limits) -> Access:
    return Access(frozenset({"here"}), Token.of(hours, clock), RequestLimit(clock=clock, **limits))


def test_a_token_holds_for_its_hours_and_another_follows():
    clock = Clock()
    access = on_a_network(clock)
    here, first = client(access, "http://here"), str(access.token)
    assert here.get(f"/?token={first}").status_code == 200
    clock.now += 2 * 3600 - 1
    assert here.get("/").status_code == 200
    clock.now += 1
    for found in (here.get("/"), here.get(f"/?token={first}")):
        assert found.status_code == 403 and "set-cookie" not in found.headers
        assert found.text == (
            "this token has expired: open the address that the server printed last\n"
        )
    second = str(access.token)
    assert second != first and len(second) == 32
    assert here.get(f"/?token={second}").status_code == 200
    assert here.get("/").status_code == 200, "the page that was open has the new cookie, too"
    clock.now += 10**9
    assert "was printed when" in here.get(f"/?token={first}").text, "forgotten"
    assert here.get(f"/?token={second}").status_code == 403


def test_the_address_is_printed_again_with_each_token(capsys):
    from app.studio.server import AddressTold

    clock = Clock()
    token = Token.of(24, clock)
    tell = AddressTold("http://127.0.0.1:1", "#view=run", token)
    for _ in range(3):
        tell()
    clock.now += 24 * 3600
    tell()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("Draftscope: http://127.0.0.1:1/?token=") and "#view=run" in first
    assert f"the token has expired; the address is now http://127.0.0.1:1/?token={token}" in second
    tell = AddressTold("http://127.0.0.1:1", "", None)
    tell()
    clock.now += 10**9
    tell()
    assert capsys.readouterr().out.splitlines() == [
        "Draftscope: http://127.0.0.1:1/  (Ctrl-C stops it)"
    ]


def test_who_asks_too_often_waits_and_nobody_else(caplog):
    clock = Clock()
    access = on_a_network(clock, most=5, per_second=0.5)
    app = client(access, "http://here").app
    one, other = (TestClient(app, "http://here", client=(name, 5)) for name in ("1.1.1.1", "::1"))
    words = {"cookie": f"draftscope_token={access.token}"}
    assert [one.get("/").status_code for _ in range(7)] == [403] * 5 + [429] * 2
    assert [one.get("/", headers=words).status_code for _ in range(5)] == [200] * 5, "let in"
    found = one.get("/", headers=words)
    assert found.status_code == 429 and found.headers["retry-after"] == "2"
    assert found.text == "too many requests come from your address: try again in 2 s\n"
    assert one.post("/x", headers=words).status_code == 429
    assert other.get("/", headers=words).status_code == 200
    clock.now += 2
    assert [one.get("/", headers=words).status_code for _ in range(2)] == [200, 429]
    clock.now += 10**3
    assert [one.get("/", headers=words).status_code for _ in range(6)] == [200] * 5 + [429]
    said = [record.getMessage() for record in caplog.records if ": 429, " in record.getMessage()]
    assert len(said) == 4, "one line for each time that it began"


def test_a_client_of_ipv6_is_its_network_and_few_clients_are_remembered():
    access = on_a_network(Clock(), most=1, per_second=1, clients=2)
    assert access.wait("2001:db8::1", True) == (0, False)
    assert access.wait("2001:db8::2", True) == (1, True)
    assert access.wait("2001:db8:0:1::2", True) == (0, False)
    assert access.wait("unix", True) == (0, False)
    assert access.wait("2001:db8::3", True) == (0, False), "the first of three was forgotten"


def test_only_a_server_with_a_token_has_a_limit():
    here = client(Access(limit=RequestLimit(most=1, per_second=0)))
    assert {here.get("/").status_code for _ in range(5)} == {200}


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine there")
def test_a_served_page_ends_with_its_token_and_refuses_a_flood():
    """On a second address. A page that was loaded goes on when the new address is opened."""
    from app.studio.runs import Runs
    from app.studio.server import launch
    from tests.helpers.fakes import FakeEngine

    clock = Clock()
    access = replace(Access.of("0.0.0.0"), token=Token.of(1, clock))
    access = replace(access, limit=RequestLimit(9, 1, clock))
    runs = Runs(FakeEngine())
    served = launch(runs, "0.0.0.0", 0, access=access)
    try:
        home = f"http://127.0.0.2:{served.port}"
        with httpx.Client(base_url=home, timeout=60) as other:
            assert other.get(f"/?token={access.token}").status_code == 200
            assert [other.get("/web/page.css").status_code for _ in range(9)] == [200] * 8 + [429]
            clock.now += 3600
            found = other.get("/web/page.css")
            assert found.status_code == 403 and found.text.startswith("this token has expired: ")
            assert other.get(f"/?token={access.token}").status_code == 200
            assert other.get("/web/page.css").status_code == 200
    finally:
        runs.close()
        served.close()


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine there")
def test_a_server_as_it_is_started_lets_in_by_its_token_alone():
    """From a second address of this machine, which the server listens on, too."""
    command = [sys.executable, "-m", "app", "studio", "--host", "0.0.0.0", "--port", "0"]
    with running(command, stdout=PIPE, stderr=PIPE) as server:
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
        *said, last = server.stderr.read().splitlines()
    assert last == "draftscope: stopped"
    assert len(said) == 5 and all(": 403, " in line and token not in line for line in said)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("me", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected
