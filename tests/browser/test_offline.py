"""The offline file and the notebook's frame from disk, permalinks, and everything that is saved."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("gradio")
from playwright.sync_api import Locator, Page, expect

from analysis.numbers import percent
from app.export.offline import offline_page
from app.notebook import View
from app.view.beside import beside_view
from core.rounds.round import Times
from core.traces.schema import Trace
from tests.browser.steps import NODE, Open, at_round, from_menu, run, state, title
from tests.helpers import needs
from tests.helpers.fakes import make_header, make_run

pytestmark = pytest.mark.browser

Put = Callable[..., Page]


def trace(count: int = 6, budget: int = 24, hostile: bool = False, method: str = "ddtree") -> Trace:
    return Trace(make_header("why?", method), tuple(make_run(count, budget, hostile)), {})


def inspector(page: Page) -> Locator:
    return page.locator(".ds-inspector")


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("plain", [False, True])
def test_the_file_replays_steps_and_explains(put: Put, plain: bool):
    recorded = trace()
    page = put(offline_page([recorded], plain))
    expect(title(page)).to_have_text(at_round(1))
    expect(page.locator(".ds-chip").first).to_be_hidden()  # there is no model here
    expect(state(page)).to_have_text("recorded")
    expect(page.locator(".ds-about")).to_contain_text("why?")
    expect(page.locator(".ds-about")).to_contain_text("DDTree B 64 · fake")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(title(page)).to_have_text(at_round(3))
    page.locator(f"{NODE}.ghost").click()
    expect(inspector(page)).to_contain_text(recorded.rounds[2].stop_reason.words)
    expect(inspector(page).locator(".ds-top li")).to_have_count(20)
    page.keyboard.press("ArrowUp")
    expect(inspector(page)).to_contain_text("why it was drafted")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("t")
    expect(page.locator(".ds-found")).to_contain_text("match")
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    expect(title(page)).to_have_text(at_round(6))
    page.locator(".ds-strip .ds-token").first.click()
    expect(title(page)).to_have_text(at_round(1))
    assert float(page.locator(".ds-tile b").first.inner_text()) > 1
    expect(page.get_by_role("button", name="Save trace")).to_be_hidden()


def test_two_runs_side_by_side(put: Put):
    one = trace()
    other = replace(trace(method="dart"), header=make_header("another", "dart"))
    page = put(offline_page([one, other]))
    expect(page.locator(".ds-pane")).to_have_count(2)
    expect(page.locator(".ds-cautions")).to_contain_text("the prompts differ")
    page.locator(".ds-pane").nth(1).locator(NODE).first.click()
    expect(page.locator(".ds-stage aside:visible")).to_contain_text("position")


SHOWN = """() => [...document.querySelectorAll(".ds-beside tbody tr")].map((line) =>
  [...line.children].map((cell) => [...cell.childNodes].map((part) => part.textContent)))"""


def test_one_inspector_shows_p_beside_every_q(put: Put):
    """As the studio's server answers, where a list of ten holds the token."""
    one, other = trace(), trace(method="dart")
    page = put(offline_page([one, other]))
    page.locator(".ds-pane").first.locator(f"{NODE}.ghost").click()
    expect(page.locator(".ds-stage aside:visible")).to_have_count(1)
    expect(page.locator(".ds-beside-notes li")).to_have_count(2)
    record = one.rounds[0]
    end, token = record.verdict.path[-1], record.verdict.bonus
    told = beside_view([(record, end), (other.rounds[0], end)], token)
    wanted = {line["label"]: line for line in told["tokens"]}
    rows = page.evaluate(SHOWN)
    assert rows
    for name, p, *odds in rows:
        line = wanted[name[-1]]
        assert p[0] == percent(line["p"][0])
        kept = zip(odds, line["q"], line["rank"], line["drafted"], strict=True)
        for shown, q, rank, drafted in kept:
            held = line["own"] or drafted or rank is None or rank <= 10
            assert shown[0] == (percent(q) if held else "–")
    assert {row[0][-1] for row in rows} == set(wanted)


def test_statistics_are_tables(put: Put):
    page = put(offline_page([trace(), trace(method="dart")]))
    page.get_by_role("button", name="Stats", exact=True).click()
    table = page.get_by_role("table", name="Acceptance by depth")
    expect(table.locator("th").nth(1)).to_have_text("A DDTree")
    expect(table.locator("tbody tr").first.locator("td").first).to_contain_text("[")
    expect(page.locator(".ds-measures .ds-plot:visible")).to_have_count(0)


def test_the_table_of_rounds_shows_what_was_not_recorded_as_unknown(put: Put):
    rounds = make_run(6, 24, hostile=True)
    bare = [replace(record, probe=None, times=Times()) for record in rounds[:3]]
    page = put(offline_page([Trace(make_header(), (*bare, *rounds[3:]), {})]))
    page.get_by_role("button", name="Rounds", exact=True).click()
    table = page.get_by_role("grid", name="Rounds")
    expect(table.locator("tbody tr")).to_have_count(6)
    for name in ("tvd", "tvd_path", "c1", "c16", "ms"):
        cells = table.locator(f"tbody .of-{name}").all_inner_texts()
        assert cells[:3] == ["–"] * 3 and not set("–") & set("".join(cells[3:])), name
    page.get_by_label("Filter the rounds").fill("ms == unknown")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(page.locator(".ds-rounds-sums")).to_contain_text("TVD 1 – (n 0)")


def test_hostile_text_stays_text(put: Put):
    page = put(offline_page([trace(3, 64, hostile=True)]))
    expect(page.locator(f"{NODE}.root")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(inspector(page)).to_be_visible()
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    expect(page.locator("main script, main img, main iframe")).to_have_count(0)


def test_dark_light_and_a_phone(put: Put):
    page = put(offline_page([trace()]), color_scheme="dark", viewport={"width": 360, "height": 740})
    expect(page.locator("body.dark")).to_have_count(1)
    page.get_by_role("button", name="Dark or light").click()
    expect(page.locator("body.dark")).to_have_count(0)
    page.locator(f"{NODE}.root").click()
    expect(inspector(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_without_a_way_to_unpack_the_file_says_so(put: Put):
    text = offline_page([trace(1, 2)])
    # As an old browser would see it; the policy has to let the changed script run.
    changed = text.replace("DecompressionStream", "NoSuchStream")
    page = put(
        changed[: changed.index("<meta http-equiv")] + changed[changed.index('<meta name="view') :]
    )
    expect(page.get_by_role("alert")).to_contain_text("cannot unpack")


# ── links ────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_opens_its_round_and_node_and_the_address_follows(put: Put):
    page = put(offline_page([trace()]), "#round=4&node=2")
    expect(title(page)).to_have_text(at_round(4))
    expect(inspector(page)).to_be_visible()
    expect(page.locator(f"{NODE}.selected")).to_have_attribute("data-row", "2")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("#round=5$"))
    page.evaluate("location.hash = '#round=2&node=ghost'")
    expect(title(page)).to_have_text(at_round(2))
    expect(page.locator(f"{NODE}.ghost.selected")).to_have_count(1)


@pytest.mark.parametrize(
    "hash_",
    [
        "#round=99&node=5", "#round=-1", "#round=1e9&node=__proto__", "#node=99999",
        "#" + "a=b&" * 200, "#round=<img src=x onerror=window.__pwned=1>",
        "#__proto__=x&constructor=y", "#trace=../../x",
        "#run=" + "x" * 300, "#view=javascript:window.__pwned=1", "#%00%ff=&&&==", "#round=2=3",
    ],
)  # fmt: skip
def test_a_hostile_link_does_nothing(put: Put, hash_: str):
    page = put(offline_page([trace(3, 8)]), hash_)
    expect(title(page)).to_have_text(at_round(1))
    expect(inspector(page)).to_be_hidden()


# ── a notebook ───────────────────────────────────────────────────────────────────────────────────


def test_two_frames_on_one_page_do_not_collide(put: Put):
    frames = [View([trace()])._repr_html_(), View([trace(hostile=True)])._repr_html_()]
    page = put(
        "<!doctype html><title>notebook</title>" + "".join(f"<div>{f}</div>" for f in frames)
    )
    one, two = (page.frame_locator("iframe").nth(i) for i in (0, 1))
    expect(one.locator(".ds-round-title")).to_have_text(at_round(1))
    page.locator("iframe").nth(1).scroll_into_view_if_needed()
    expect(two.locator(".ds-round-title")).to_have_text(at_round(1))
    one.locator(".ds-tree").focus()
    page.keyboard.press("ArrowRight")
    expect(one.locator(".ds-round-title")).to_have_text(at_round(2))
    expect(two.locator(".ds-round-title")).to_have_text(at_round(1))
    two.locator(f"{NODE}.root").click()
    expect(two.locator(".ds-inspector")).to_be_visible()
    expect(one.locator(".ds-inspector")).to_be_hidden()
    expect(one.get_by_role("button", name="Copy a link to this view")).to_be_hidden()


# ── saving ───────────────────────────────────────────────────────────────────────────────────────


def saved(page: Page, line: str, button: str) -> tuple[str, bytes]:
    """Press a button of the menu; the file's name and bytes."""
    group = page.locator(".ds-save").first.get_by_role("group", name=line)
    with page.expect_download() as given:
        group.get_by_role("button", name=button, exact=True).click()
    return given.value.suggested_filename, Path(given.value.path()).read_bytes()


def test_pictures_of_the_whole_tree_and_of_the_view(put: Put):
    recorded = trace(2, 200, hostile=True)
    page = put(offline_page([recorded]))
    page.locator(".ds-tree").focus()
    page.keyboard.press("s")
    name, whole = saved(page, "Whole tree", "SVG")
    assert name == "draftscope-round-1-tree.svg"
    root = ElementTree.fromstring(whole)
    svg = "{http://www.w3.org/2000/svg}"
    boxes = [r for r in root.iter(svg + "rect") if r.get("rx")]
    assert len(boxes) == 201 + 1  # every row, and the target's token
    assert not [e for e in root.iter() if e.tag.rpartition("}")[2] not in
                {"svg", "g", "rect", "path", "text", "tspan"}]  # fmt: skip
    assert all(not name.startswith("on") for e in root.iter() for name in e.attrib)
    _, shown = saved(page, "Tree as shown", "SVG")
    assert len([r for r in ElementTree.fromstring(shown).iter(svg + "rect") if r.get("rx")]) < 100
    for line in ("Whole tree", "Tree as shown"):
        name, data = saved(page, line, "PNG")
        assert name.endswith(".png") and data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 5000


def test_every_file_of_a_studio_s_run(visit: Open, put: Put):
    page = visit()
    run(page, "hello")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.locator(".ds-tree").first.focus()
    page.keyboard.press("s")
    assert b"digraph" in saved(page, "This round's draft", "DOT")[1]
    assert b"<graphml" in saved(page, "This round's draft", "GraphML")[1]
    figure = saved(page, "This round for a paper", "SVG")[1]
    assert b"<svg" in figure and b"accepted</text>" in figure
    if needs.has_librsvg():
        name, data = saved(page, "This round for a paper", "PDF")
        assert name.endswith("round-2.pdf") and data.startswith(b"%PDF-")
        for line in ("Whole tree", "Tree as shown"):
            assert saved(page, line, "PDF")[1].startswith(b"%PDF-")
    lines = list(csv.reader(io.StringIO(saved(page, "Table of rounds", "CSV")[1].decode())))
    assert lines[0][:2] == ["round", "index"] and len(lines) > 3
    assert saved(page, "Table of nodes", "Parquet")[1][:4] == b"PAR1"
    assert json.loads(saved(page, "The run", "Perfetto timeline")[1])["traceEvents"]
    name, data = saved(page, "The run", "One HTML file")
    assert name == "draftscope-ddtree-run.html" and data.startswith(b"<!doctype html>")
    shown = put(data.decode())  # at the round that was on view
    expect(title(shown)).to_have_text(at_round(2))
    expect(shown.locator(".ds-about")).to_contain_text("hello")
    expect(shown.locator("#ds-theme")).to_be_visible()
    shown.get_by_role("button", name="Present").click()
    expect(shown.locator(".ds-presenting .ds-tree")).to_be_visible()
    shown.keyboard.press("Escape")
    expect(shown.locator(".ds-presenting")).to_have_count(0)


def test_a_shared_run_can_be_watched_and_not_stopped(visit: Open):
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    run(page, "slow tale", wait="running")
    from_menu(page, "Copy a link to this view").click()
    expect(page.get_by_role("button", name="Copy a link to this view").first).to_have_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    tickets = page.evaluate("sessionStorage.getItem('draftscope-tickets-run')")
    assert "run=" in link and tickets not in link
    other = visit(link)
    expect(state(other).first).to_have_attribute("data-state", "running")
    tries_to_stop(other, page)
    other.get_by_role("button", name="Examples").click()
    other.get_by_role("dialog").get_by_role("region", name="Opened in this tab").get_by_role(
        "button"
    ).click()
    expect(other.get_by_role("dialog")).to_have_count(0)
    tries_to_stop(other, page)
    assert tickets not in other.evaluate("Object.values(sessionStorage).join()")
    page.locator("#ds-stop").click()
    expect(state(page).first).to_have_attribute("data-state", "stopped")
    expect(state(other).first).to_have_attribute("data-state", "stopped")


def tries_to_stop(other: Page, page: Page) -> None:
    """Press Stop on one page: the run on the other goes on."""
    with other.expect_response(lambda answer: '"stop"' in (answer.request.post_data or "")):
        other.locator("#ds-stop").click()
    rounds = page.locator(".ds-band").count()
    expect(page.locator(".ds-band").nth(rounds + 1)).to_be_visible()  # two came after
    expect(state(page).first).to_have_attribute("data-state", "running")
