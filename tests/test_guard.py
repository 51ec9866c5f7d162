"""Who may talk to the server: hosts, origins, tokens, headers."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.studio.guard import Access, Guard, is_loopback

HOME = "http://127.0.0.1:7860"


async def answer(request):
    return PlainTextResponse(request.headers.get("x-forwarded-host", "none"))


def client(access=Access(), base=HOME):  # noqa: B008 (frozen)
    routes = [Route("/", answer, methods=["GET", "POST"])]
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


def test_forwarded_headers_are_dropped():
    found = client().get("/", headers={"x-forwarded-host": "evil.example"})
    assert found.text == "none"


def test_every_answer_forbids_frames_and_guessing_types():
    for found in (client().get("/"), client().get("/", headers={"host": "evil.example"})):
        assert "frame-ancestors 'self'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"


def test_a_server_others_can_reach_wants_its_token_once():
    access = Access.of("0.0.0.0")
    other = client(access, "http://192.168.0.7:7860")
    assert other.get("/").status_code == 403
    assert other.get("/?token=wrong").status_code == 403
    assert other.get(f"/?token={access.token}").status_code == 200
    assert other.get("/").status_code == 200, "the cookie remembers it"
    assert other.post("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert Access.of("127.0.0.1").token is None
    assert Access.of("0.0.0.0").token != access.token


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("me", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected
