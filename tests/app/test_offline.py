"""The offline file: what it holds, what it can never do, and how large it is."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pytest

from analysis.measures import acceptance
from analysis.measures.tables import Tables
from app.export.offline import offline_page
from app.export.packs import EACH
from app.notebook import View, show
from app.page_files import WEB, modules
from app.view.explanation import Explainer
from app.view.node import node_view
from app.view.rounds import GHOST, has_stop, round_view, tree_view, why_view
from core.errors import UserError
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.helpers import denoise_fakes
from tests.helpers.fakes import HOSTILE, make_header, make_run
from tests.helpers.pages import Page, block, unpacked
from tests.helpers.small_traces import made

ENTRIES = (
    "offline.js", "report.js", "offline/site.js", "offline/embed.js", "early.js",
    "save/pdf.js", "mounting.js",
    *sorted(view.relative_to(WEB).as_posix() for view in WEB.glob("*/view.js")),
)  # fmt: skip


def plain_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def joined(places: list[Any], nodes: list[Any]) -> list[Any]:
    """As app/web/offline/packs.js does it."""
    found = []
    for node in nodes:
        place = places[node.pop("place")]
        for name in ("target", "drafter"):
            node[name] = [node[name].get(str(at), each) for at, each in enumerate(place[name])]
        found.append(place | node)
    return found


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("hostile", [False, True])
def test_the_file_holds_exactly_what_the_server_would_answer(plain: bool, hostile: bool):
    trace = made(EACH + 1, 1, hostile, method="dart")
    page = Page(offline_page([trace], plain))
    held = block(page, "ds-run-0")
    assert held["each"] == EACH and len(held["trees"]) == len(held["nodes"]) == 2
    explainer = Explainer.of(trace.header)
    views = [
        round_view(r, explainer, first=at == 0) | why_view(r) for at, r in enumerate(trace.rounds)
    ]
    lines = unpacked(held["run"])["rounds"]
    trees = [tree for some in held["trees"] for tree in unpacked(some)]
    assert [line | tree for line, tree in zip(lines, trees, strict=True)] == plain_json(views)
    for at, record in enumerate(trace.rounds):
        packed = unpacked(held["nodes"][at // EACH])
        rows = [*range(len(record.draft)), *([GHOST] if has_stop(record) else [])]
        told = joined(**packed[at % EACH])
        assert told == plain_json([node_view(record, row, explainer) for row in rows])


def test_the_calls_of_a_denoising_hold_what_the_server_would_answer():
    trace = denoise_fakes.traces()[0]
    held = block(Page(offline_page([trace])), "ds-run-0")
    trees = [tree for some in held["trees"] for tree in unpacked(some)]
    explainer = Explainer.of(trace.header)
    for at, (record, tree) in enumerate(zip(trace.rounds, trees, strict=True)):
        before = trace.rounds[at - 1] if at else None
        assert tree == plain_json(tree_view(record, explainer, before) | why_view(record))


@pytest.mark.parametrize("plain", [False, True])
def test_no_text_of_a_trace_becomes_markup(plain: bool):
    text = offline_page([made(3, 32, hostile=True)], plain)
    clean = Page(offline_page([made(3, 32)], plain))
    hostile = Page(text)
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in clean.tags]
    assert text.count("</script") == len(hostile.all("script"))
    for attack in HOSTILE:
        assert "<" not in attack or attack not in text


def test_only_this_script_and_this_style_may_run_and_nothing_is_fetched():
    text = offline_page([made()])
    page = Page(text)
    metas = [attrs for attrs, _ in page.all("meta")]
    policy = next(m["content"] for m in metas if m.get("http-equiv") == "Content-Security-Policy")
    assert policy
    code = [t for attrs, t in page.all("script") if "type" not in attrs]
    styles = [t for _, t in page.all("style")]
    assert len(code) == len(styles) == 1
    for name, body in (("script", code[0]), ("style", styles[0])):
        sha = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{sha}'" in policy
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/)", code[0] + styles[0])
    for _, attrs in page.tags:
        assert not {"src", "href", "style"} & attrs.keys()
        assert not [name for name in attrs if name.startswith("on")]
    told = re.sub(r"//[^\n]*", "", code[0])
    forbidden = r"\b(eval|Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|fetch)\b"
    assert not re.search(forbidden, told)


def test_every_module_of_the_view_is_in_the_file():
    text = offline_page([made()])
    for name in modules("offline.js"):
        code = (WEB / name).read_text("utf-8")
        for each in re.findall(r"^export class (\w+)", code, re.MULTILINE):
            assert f"class {each} " in text
    assert {"tree.js", "studio.js", "compare/together.js"} <= set(modules("offline.js"))
    assert not {"learn/view.js", "run/view.js"} & set(modules("offline.js"))
    written = {str(file.relative_to(WEB).as_posix()) for file in WEB.rglob("*.js")}
    assert written == set(modules(*ENTRIES))


def test_a_module_comes_after_those_it_imports():
    for entry in ENTRIES:
        order = modules(entry)
        for at, name in enumerate(order):
            file = WEB / name
            needs = re.findall(r'from "(\.[^"]+)";$', file.read_text("utf-8"), re.MULTILINE)
            before = {(WEB / each).resolve() for each in order[:at]}
            assert {(file.parent / each).resolve() for each in needs} <= before


def test_statistics_are_tables_of_the_same_numbers_and_no_script_draws_them():
    trace = made(12, 16, hostile=True, method="dart")
    text = offline_page([trace])
    assert "plotly.js v" not in text
    measured = unpacked(block(Page(text), "ds-run-0")["run"])["measured"]
    depths = acceptance.per_depth(Tables.of({"A": trace}), by="run")
    own = depths[depths["tvd"].notna()]
    for figures in (measured["figures"], measured["beside"]):
        data = figures["tvd-by-depth"]["data"]
        (shown,) = [each["meta"] for each in data if "points" in each["meta"]]
        assert [p["x"] for p in shown["points"]] == own["depth"].tolist()
        assert [p["y"] for p in shown["points"]] == pytest.approx(own["tvd"].tolist())
        assert all(set(each) == {"meta"} for each in data)


def test_a_hundred_rounds_of_64_nodes_stay_under_two_megabytes():
    few, more = (len(offline_page([made(rounds, 64)]).encode()) for rounds in (2, 22))
    assert few + 98 * (more - few) / 20 < 2_000_000


def test_every_round_moves_the_progress():
    """Those of 1,024 nodes take half a second each."""
    told: list[float] = []
    offline_page([Trace(make_header(), tuple(make_run(5)), {})], at=told.append)
    assert told == sorted(told) and set(told) == {0, 0.2, 0.4, 0.6, 0.8}


def test_an_interrupted_trace_says_so_and_two_are_compared():
    cut = Trace(make_header("other"), tuple(make_run(2, 4)), None)
    page = Page(offline_page([made(), cut]))
    one, other = (unpacked(block(page, f"ds-run-{at}")["run"]) for at in (0, 1))
    assert "interrupted" in other["message"] and one["message"] == ""
    assert one["facts"]["text"] != other["facts"]["text"] and block(page, "ds-page")["runs"] == 2


@pytest.mark.parametrize("traces", [[], [made()] * 3, [Trace(make_header(), (), {})]])
def test_what_cannot_be_a_page_is_said(traces: list[Trace]):
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        offline_page(traces)


# ── the notebook ─────────────────────────────────────────────────────────────────────────────────


def test_a_notebook_shows_the_file_in_a_sandbox(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    write_trace(path, made(2, 8, hostile=True))
    view = show(path)
    frame = Page(view._repr_html_())
    assert [tag for tag, _ in frame.tags] == ["iframe"]
    attrs = frame.tags[0][1]
    assert attrs["srcdoc"] == view.html and "</iframe" not in view.html
    assert attrs["sandbox"] == "allow-scripts allow-downloads"
    saved = show(str(path), made(), height=400).save(tmp_path / "two.html")
    assert saved.read_text("utf-8").startswith("<!doctype html>")
    assert '"opens":0' in view.html.replace(" ", "")
    assert '"opens":1' in show(path, round=2).html.replace(" ", "")


def test_a_notebook_says_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        show(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="height"):
        View([made()], height=5)
    with pytest.raises(UserError, match="the trace has no round 99"):
        show(made(), round=99)
