"""Learn in a browser: keys, playing, links, questions, figures; alone, and as the studio's tab."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("playwright")
pytest.importorskip("gradio")
from playwright.sync_api import Browser, Page, expect

from analysis.numbers import number, share
from app.export.offline import data_block
from app.export.packs import inert
from app.learn.course import course
from app.learn.words import plain
from app.page_files import css
from app.studio.tabs import learn as tab
from tests.browser.steps import (
    FRAMES,
    PROMPT,
    Open,
    frames,
    from_menu,
    modules_at,
    watch,
    with_modules,
)
from tests.helpers.timing import usually

pytestmark = pytest.mark.browser

START = """async () => {
  const course = async () => JSON.parse(document.getElementById("course").textContent);
  const given = { element: document.querySelector("main"), server: { course } };
  (await import("/web/present.js")).listenForPresent();
  window.learn = await (await import("/web/learn/view.js")).mount(given);
}"""


@pytest.fixture(scope="module")
def lessons() -> dict[str, Any]:
    return course()


@pytest.fixture
def learn(browser: Browser, lessons: dict[str, Any]) -> Iterator[Open]:
    """Opens the course on a page of its own; afterwards nothing may have gone wrong in it."""
    faults: list[str] = []
    contexts = []
    own_urls = (modules_at(), "data:", "blob:")
    style, whole = css(tab.TAB.sheets), inert(lessons)

    def open_course(
        hash_: str = "", own: dict[str, Any] | None = None, letters: int = 16, **options: Any
    ) -> Page:
        options.setdefault("viewport", {"width": 1400, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        page = watch(context.new_page(), faults, lambda url: url.startswith(own_urls))
        sizes = {"fontSizes": {"standard": letters}}
        context.new_cdp_session(page).send("Page.setFontSizes", sizes)
        with_modules(page, hash_, style, data_block("course", inert(own) if own else whole))
        page.evaluate(START)
        return page

    yield open_course
    for context in contexts:
        context.close()
    assert not faults


def count(page: Page, text: str) -> None:
    expect(page.locator(".ds-count")).to_have_text(text)


def boxes(page: Page):
    return page.locator(".ds-node:not(.out)")


# ── stepping ─────────────────────────────────────────────────────────────────────────────────────


def test_no_words_show_below_the_steps_of_a_lesson(learn: Open):
    page = learn(viewport={"width": 1440, "height": 900}, letters=24)
    text = page.locator(".ds-lesson-text")
    assert text.evaluate("(e) => e.scrollHeight > e.clientHeight")
    below = "(e) => e.getBoundingClientRect().bottom"
    steps = page.locator(".ds-lesson-controls").evaluate(below)
    assert text.evaluate(below) - steps <= 1


def test_arrows_step_through_chapters_and_the_address_follows(learn: Open):
    page = learn()
    count(page, "1 / 9")
    page.keyboard.press("ArrowRight")
    count(page, "2 / 9")
    assert page.url.endswith("#learn=1.2")
    page.keyboard.press("End")
    expect(page.locator(".ds-question")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".ds-lesson-title")).to_have_text("One list per depth")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".ds-question")).to_be_visible()
    page.keyboard.press("9")  # where something is asked, digits are no chapters
    expect(page.locator(".ds-question")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("9")
    expect(page.locator(".ds-chapter[aria-current=true]")).to_contain_text("Two scores")
    page.keyboard.press("0")
    expect(page.locator(".ds-chapter[aria-current=true]")).to_contain_text("Spiffy")
    page.keyboard.press("Shift+PageUp")
    page.keyboard.press("Shift+PageUp")
    expect(page.locator(".ds-chapter[aria-current=true]")).to_contain_text("Whole path")
    page.keyboard.press("PageDown")  # what a presenter's clicker sends
    assert page.url.endswith("#learn=8.2")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    assert page.url.endswith("#learn=7.12")


def test_a_link_opens_its_step_and_a_broken_one_the_first(learn: Open):
    page = learn("#learn=4.3")
    expect(page.locator(".ds-lesson-title")).to_have_text("The whole tree in one forward pass")
    count(page, "3 / 10")
    page.evaluate("window.location.hash = '#learn=5.2'")
    expect(page.locator(".ds-lesson-title")).to_have_text("The verifier's walk")
    count(learn("#learn=99.99"), "9 / 9")
    count(learn("#learn=<img>"), "1 / 9")


# What every step of the course shows, gathered in one go.
GATHER = """() => learn.course.chapters.map((chapter, at) => chapter.steps.map((_, step) => {
  learn.go(at, step);
  const texts = (where) => [...document.querySelectorAll(where)].map((node) => node.textContent);
  return {
    rows: learn.stage.trees.filter((t) => !t.frameBox.hidden).map((t) => t.round.y.length),
    said: learn.said.textContent, sides: texts(".ds-side-figure").length,
    waiting: texts(".ds-queue:not(.taken) .label"), taken: texts(".ds-queue.taken .label"),
    marked: chapter.steps[step].trees.flatMap((spec, i) => {
      const tree = learn.stage.trees[i], mark = ([row]) => tree.node(tree.shownAs(Number(row)));
      const bare = (entry) => !mark(entry).classList.contains("mark-" + entry[1]);
      return Object.entries(spec.marks).filter(bare);
    }),
  };
}))"""


def test_every_step_draws_its_trees_says_them_in_words_and_shows_its_queue(
    learn: Open, lessons: dict[str, Any]
):
    """The heap's chapter pops node by node."""
    gathered = learn().evaluate(GATHER)
    for chapter, found in zip(lessons["chapters"], gathered, strict=True):
        for step, seen in zip(chapter["steps"], found, strict=True):
            whole = [lessons["trees"][spec["name"]]["tokens"] for spec in step["trees"]]
            wanted = [spec["rows"] or all_ for spec, all_ in zip(step["trees"], whole, strict=True)]
            assert seen["rows"] == list(map(len, wanted))
            assert seen["said"] == step["alt"] and not seen["marked"]
            assert seen["sides"] == (step["side"] is not None)
    for step, seen in zip(lessons["chapters"][2]["steps"], gathered[2], strict=True):
        if step["side"] is None:
            continue
        assert seen["waiting"] == [item["label"] for item in step["side"]["items"]]
        popped = step["side"]["popped"]
        assert seen["taken"] == ([popped["label"]] if popped else [])


def test_playing_moves_on_and_ends_at_the_question(learn: Open):
    page = learn()
    page.clock.install()
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.clock.run_for(300_000)
    expect(page.locator(".ds-question")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_a_node_is_guessed_by_click_key_or_button_and_the_answer_is_told(
    learn: Open, lessons: dict[str, Any]
):
    ask = lessons["chapters"][1]["steps"][2]["ask"]
    right, wrong = ask["answer"], 0
    page = learn("#learn=2.3")
    answer, told = page.locator(".ds-answer"), page.locator(".ds-node.accepted")
    expect(page.locator("text.ds-guess")).to_have_count(len(ask["options"]) - 1)
    expect(answer).to_have_count(0)
    page.keyboard.press("ArrowDown")  # looks at a node, and is no answer
    expect(page.locator(".ds-lesson-note")).not_to_be_empty()
    expect(answer).to_have_count(0)
    page.keyboard.press(str(wrong + 1))
    expect(answer).to_have_text(plain(ask["options"][wrong]["why"]))
    expect(page.locator(".ds-option.wrong")).to_have_count(1)
    expect(told.first).to_be_visible()
    expect(page.locator("text.ds-guess")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(answer).to_be_visible()  # it is as it was left
    expect(page.locator(".ds-lesson-title")).to_be_focused()
    page.keyboard.press("3")  # answered: chosen again
    expect(answer).to_have_text(plain(ask["options"][2]["why"]))
    page.get_by_role("button", name="Best first").click()
    expect(page.locator(".ds-lesson-title")).to_have_text("Ten nodes, best first")
    page.go_back()
    expect(page.locator(".ds-option").first).to_be_visible()
    expect(answer).to_have_count(0)  # another class may be asked
    page = learn("#learn=2.3")
    page.locator(f".ds-node[data-row='{ask['options'][right]['row']}']").click()
    expect(page.locator(".ds-answer")).to_have_text(plain(ask["options"][right]["why"]))
    expect(page.locator(".ds-option.wrong")).to_have_count(0)
    page = learn("#learn=5.5")
    page.get_by_role("button", name="none").click()
    expect(page.locator(".ds-answer")).to_contain_text("Yes.")
    page = learn("#learn=2.3")
    page.keyboard.press("ArrowRight")  # nobody has to answer
    count(page, "4 / 9")


def test_a_node_s_number_leaves_its_sign_in_sight(learn: Open):
    page = learn("#learn=7.9")
    covered = page.locator(".ds-node:has(circle.ds-guess) .cue").evaluate_all(
        """all => all.map((cue) => {
          const number = cue.closest(".ds-node").querySelector("circle.ds-guess");
          return cue.getBoundingClientRect().right > number.getBoundingClientRect().left;
        })"""
    )
    assert covered and not any(covered)


def test_the_budget_s_slider_grows_the_tree_and_keeps_its_place(learn: Open):
    page = learn("#learn=3.14")
    slider = page.get_by_role("slider", name="draft budget B")
    expect(slider).to_have_attribute("aria-valuetext", "10")
    expect(boxes(page)).to_have_count(12)  # the root and the token that was wanted
    slider.focus()
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "40")
    expect(page.locator(".ds-node.accepted")).to_have_count(3)
    expect(page.locator(".ds-slider-says")).to_contain_text("accepts 3")
    page.keyboard.press("Home")
    expect(boxes(page)).to_have_count(3)
    expect(page.locator(".ds-slider-says")).to_contain_text("accepts nothing")
    for _ in range(31):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".ds-node.accepted")).to_have_count(3)
    assert page.url.endswith("#learn=3.14.32")
    page.keyboard.press("PageDown")  # a clicker's keys lead on
    page.keyboard.press("PageUp")
    expect(slider).to_have_attribute("aria-valuetext", "32")
    expect(page.locator(".ds-node.accepted")).to_have_count(3)


def test_temperature_and_seed_change_what_is_judged(learn: Open, lessons: dict[str, Any]):
    step = lessons["chapters"][4]["steps"][-1]
    heat, seed = step["sliders"]
    page = learn("#learn=5.11.7.2")
    tables = page.locator(".noise table")

    def check(at: int) -> None:
        state = step["states"][at]
        view = lessons["trees"][state["trees"][0]["name"]]
        expect(page.locator(".ds-node.accepted")).to_have_count(view["accepted"])
        expect(page.locator(".ds-node.ghost .token")).to_contain_text(view["ghost"]["short"])
        expect(tables).to_have_count(view["accepted"] + 1)

    check(6 * len(seed["values"]) + 1)
    page.get_by_role("slider", name="seed").press("End")
    check(7 * len(seed["values"]) - 1)
    page.get_by_role("slider", name="temperature T").press("Home")
    check(len(seed["values"]) - 1)
    expect(page.locator(".ds-slider-says")).to_contain_text("nothing is random")
    count(learn("#learn=5.11.99.99"), "11 / 12")
    assert heat["values"][0] == "0"


def test_a_question_is_answered_by_key_or_click(learn: Open, lessons: dict[str, Any]):
    page = learn()
    quiz = lessons["chapters"][0]["quiz"]
    page.keyboard.press("a")  # no question here: nothing happens
    page.keyboard.press("End")
    page.keyboard.press("a")
    expect(page.locator(".ds-option.wrong")).to_have_count(1)
    expect(page.locator(".ds-answer")).to_have_text(quiz["options"][0]["why"])
    page.locator(".ds-option").nth(quiz["answer"]).click()
    expect(page.locator(".ds-option.right")).to_have_count(1)
    expect(page.locator(".ds-option.wrong")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".ds-chapter[aria-current=true]")).to_contain_text("Marginals")


def test_the_projector_fills_the_window_and_escape_leaves_it(learn: Open):
    page = learn("#learn=3.5")
    before = page.locator(".ds-lesson-words").evaluate(
        "e => parseFloat(getComputedStyle(e).fontSize)"
    )
    page.keyboard.press("p")
    after = page.locator(".ds-lesson-words").evaluate(
        "e => parseFloat(getComputedStyle(e).fontSize)"
    )
    assert after > before * 1.15
    box = page.locator(".ds-learn").bounding_box()
    assert box and (box["width"], box["height"]) == (1400, 900)
    page.keyboard.press("Escape")
    expect(page.locator(".ds-learn.large")).to_have_count(0)


# ── figures ──────────────────────────────────────────────────────────────────────────────────────


def test_the_mask_and_the_tree_point_at_each_other(learn: Open, lessons: dict[str, Any]):
    page, shown = learn("#learn=4.6"), lessons["chapters"][3]["steps"][5]
    labels, depths = shown["side"]["labels"], lessons["trees"][shown["trees"][0]["name"]]["depths"]
    page.locator(".ds-mask .line").nth(6).hover()
    expect(page.locator(".ds-node.selected .token")).to_have_text(labels[6])
    expect(page.locator(".ds-node.lit")).to_have_count(depths[6])  # its ancestors
    page.locator(".ds-node[data-row='7']").hover()
    expect(page.locator(".ds-mask .line.lit")).to_have_attribute("data-row", "7")


def test_the_boxes_show_what_the_queue_orders_by(learn: Open, lessons: dict[str, Any]):
    page, side = learn("#learn=3.11"), lessons["chapters"][2]["steps"][10]["side"]
    for item in side["items"]:
        note = page.locator(f".ds-node[data-row='{item['row']}'] .note")
        expect(note).to_have_text(f"path {share(item['odds'])}")
    labels = page.locator(".ds-queue .label")
    assert labels.evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")


def test_trees_and_the_mask_are_pictures_for_slides(learn: Open, lessons: dict[str, Any]):
    page, tree = learn("#learn=4.6"), lessons["trees"]["ddtree"]
    drafted = {tree["labels"][str(token)] for token in tree["tokens"]}
    for what in ("tree", "mask"):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save this {what} as SVG").click()
        light = Path(saved.value.path()).read_bytes()
        drawn = ElementTree.fromstring(light)
        said = "".join(drawn.itertext())
        assert drawn.tag.endswith("svg") and all(token in said for token in drafted)
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save this {what} as PNG").click()
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
        page.evaluate("document.body.classList.add('dark')")
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save this {what} as SVG").click()
        assert Path(saved.value.path()).read_bytes() == light  # a picture is for a paper
        page.evaluate("document.body.classList.remove('dark')")


def test_the_race_is_played_in_recorded_time_and_again(learn: Open):
    page = learn("#learn=1.1")
    rows = page.locator(".clock .ds-lane")
    expect(rows.nth(0)).to_contain_text("56 tokens")
    expect(rows.nth(1)).to_contain_text("56 tokens")
    expect(page.locator(".ds-pass.later")).to_have_count(0)
    page.get_by_role("button", name="Play again").click()
    expect(page.locator(".ds-pass.later")).not_to_have_count(0)
    expect(page.locator(".ds-pass.later")).to_have_count(0)


def test_nodes_are_reached_by_keys_and_said(learn: Open):
    page = learn("#learn=1.6")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".ds-lesson-note")).not_to_be_empty()
    page.keyboard.press("Shift+ArrowLeft")
    note = page.locator(".ds-lesson-note")
    expect(note).to_contain_text("accepted")
    expect(note).to_have_attribute("aria-live", "polite")
    page.locator(".ds-learn .ds-tree").first.focus()  # which says its own node
    page.keyboard.press("ArrowDown")
    expect(note).to_have_attribute("aria-live", "off")


def test_before_the_verdict_no_node_is_called_rejected(learn: Open):
    page = learn("#learn=1.5")
    labels = boxes(page).evaluate_all("nodes => nodes.map(n => n.getAttribute('aria-label'))")
    assert len(labels) == 11 and not any(re.search("reject|unreach|accept", x) for x in labels)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".ds-node.accepted")).to_have_count(2)


def test_hostile_tokens_stay_text(learn: Open, lessons: dict[str, Any]):
    hostile = "<img src=x onerror=alert(1)>${alert(2)}"
    tree = {**lessons["trees"]["ddtree?"]}
    tree["labels"] = dict.fromkeys(tree["labels"], hostile)
    step = {**lessons["chapters"][1]["steps"][3], "text": [[{"token": hostile}, {"term": hostile}]]}
    step["side"] = {**step["side"], "product": [hostile, "=", hostile]}
    own = {
        "trees": {**lessons["trees"], "ddtree?": tree},
        "chapters": [{**lessons["chapters"][0], "title": hostile, "steps": [step]}],
    }
    page = learn(own=own)
    expect(page.locator(".ds-lesson-title")).to_have_text(hostile)
    expect(page.locator("img")).to_have_count(0)


# ── sizes, and the studio ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", usually((360, 1024), (360, 768, 1024, 3840)))
def test_nothing_overflows(learn: Open, lessons: dict[str, Any], width: int):
    page = learn(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    wide = """() => learn.course.chapters.map((chapter, at) =>
      [...chapter.steps.keys(), chapter.steps.length].map((step) => {
        learn.go(at, step);
        return document.documentElement.scrollWidth - innerWidth;
      }))"""
    assert max(max(chapter) for chapter in page.evaluate(wide)) <= 0
    for chapter in range(len(lessons["chapters"])):
        page.evaluate(f"learn.go({chapter}, 2)")
        expect(page.get_by_role("button", name="Step after")).to_be_in_viewport()


# Every step on a phone, after a press on the button that leads to it: the buttons' place, where its
# words begin, boxes that are not in sight of their tree, and whether q and p are drawn.
WALKED = (
    f"async () => {{ const drawn = {frames(10)};"
    + """
  const next = document.querySelector("[aria-label='Step after']"), out = [];
  for (let steps = 0; steps < 300; steps++) {
    await drawn();
    const bar = document.querySelector(".ds-lesson-controls").getBoundingClientRect();
    const inside = (tree) => {
      const room = tree.getBoundingClientRect();
      return [...tree.querySelectorAll(".ds-node:not(.out) .box")].every((box) => {
        const { left, right, top, bottom } = box.getBoundingClientRect();
        return left >= room.left && right <= room.right && top >= room.top && bottom <= room.bottom;
      });
    };
    const trees = [...document.querySelectorAll(".ds-lesson-tree:not([hidden]) .ds-tree")];
    out.push({
      at: `${learn.chapter + 1}.${learn.step + 1}`,
      left: bar.left, below: innerHeight - bar.bottom,
      least: Math.min(...[...document.querySelectorAll(".ds-lesson-controls button")]
        .filter((b) => b.getClientRects().length && !b.matches(".ds-dot"))
        .map((b) => Math.min(b.offsetHeight, b.offsetWidth))),
      words: document.querySelector(".ds-lesson-words").getBoundingClientRect().top / innerHeight,
      top: document.querySelector(".ds-kicker").getBoundingClientRect().top,
      end: document.querySelector(".ds-lesson-figure").getBoundingClientRect().bottom - innerHeight,
      wide: document.documentElement.scrollWidth - innerWidth,
      trees: trees.every(inside), read: !document.querySelector(".ds-learn .ds-tree.far .odds"),
      letter: Math.min(99, ...trees.map((tree) =>
        tree.querySelector(".ds-scene").getCTM().a * 13)),
    });
    if (next.disabled) return out;
    window.scrollTo(0, document.documentElement.scrollHeight);
    next.click();
  }
}"""
)


@pytest.mark.parametrize("width, height", usually(((360, 740),), ((390, 844), (360, 740))))
def test_on_a_phone_a_press_brings_the_next_words_and_the_whole_tree(
    learn: Open, lessons: dict[str, Any], width: int, height: int
):
    size = {"width": width, "height": height}
    page = learn(viewport=size, has_touch=True, reduced_motion="reduce")
    walked = page.evaluate(WALKED)
    assert len(walked) == sum(len(each["steps"]) + 1 for each in lessons["chapters"])
    for step in walked:
        assert (step["left"], step["below"], step["wide"] <= 0) == (0, 0, True), step
        assert step["least"] >= 44 and 0 <= step["words"] < 0.5, step
        assert step["trees"] and step["read"] and step["letter"] > 9, step
    for step in walked[1:]:  # the figure has the room below the words
        assert step["top"] < 10 or step["end"] <= 0, step


@pytest.mark.parametrize(
    "width, height, letters", [(1024, 768, 16), (1280, 720, 16), (1280, 720, 24)]
)
def test_no_tree_hides_its_numbers_in_a_small_window(
    learn: Open, width: int, height: int, letters: int
):
    size = {"width": width, "height": height}
    page = learn(viewport=size, letters=letters, reduced_motion="reduce")
    hidden = [step["at"] for step in page.evaluate(WALKED) if not step["read"]]
    assert hidden == []


def test_a_lesson_s_buttons_are_whole_below_a_long_text_in_large_letters(learn: Open):
    page = learn("#learn=8.8", viewport={"width": 1280, "height": 720}, letters=24)
    lesson = page.locator(".ds-lesson").bounding_box()
    button = page.get_by_role("button", name="Step after").bounding_box()
    assert lesson and button
    assert button["y"] + button["height"] < lesson["y"] + lesson["height"]


# Steps of the studio's course of which a part is out of sight.
CUT = (
    f"async () => {{ const drawn = {frames(10)};"
    + """
  const parts = [".ds-lesson-text", ".ds-lesson-side", ".ds-chapters", ".ds-side-figure .label"];
  const cut = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
  const box = (e) => e.getBoundingClientRect();
  const isOut = {
    ".ds-said.token": (e) => box(e).right > box(e.closest(".ds-lesson")).right + 1,
    ".ds-lesson-words .ds-said.token": (e) =>
      box(e).right > box(e.closest(".ds-lesson-words")).right + 1,
    ".ds-axis text:not(.gone)": (e) => box(e).height && box(e).top < box(e.closest("svg")).top,
  };
  const out = [];
  for (let chapter = 1; chapter <= 11; chapter++) for (let step = 1; step <= 99; step++) {
    const hash = window.location.hash = `#learn=${chapter}.${step}`;
    await drawn();
    if (window.location.hash !== hash) break;
    document.querySelector(".ds-option")?.click();
    if (document.documentElement.scrollHeight > innerHeight) out.push(hash);
    const bad = parts.filter((part) => [...document.querySelectorAll(part)].some(cut));
    for (const [part, out] of Object.entries(isOut))
      if ([...document.querySelectorAll(part)].some(out)) bad.push(part);
    out.push(...bad.map((part) => hash + part));
  }
  return out;
}"""
)


@pytest.mark.parametrize(
    "width, height", usually([(1280, 720), (1440, 900)], [(1280, 720), (1440, 900), (1920, 1080)])
)
def test_no_step_is_cut_off_on_a_projector(visit: Open, width: int, height: int):
    page = visit(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator(".ds-lesson-title")).to_be_visible()
    assert page.evaluate(CUT) == []
    page.keyboard.press("p")
    assert page.evaluate(CUT) == []


# Whether a table's numbers leave it, and bars that have no colour of their own.
SPILT = """() => [...document.querySelectorAll(".ds-lists table")].some((table) => {
  const room = table.getBoundingClientRect();
  return [...table.querySelectorAll("td")].some((cell) =>
    cell.getBoundingClientRect().right > room.right + 1);
})"""
BARE = """() => [...document.querySelectorAll(".ds-side-figure .fill, .part")].filter((bar) => {
  const { backgroundColor, backgroundImage } = getComputedStyle(bar),
    ground = getComputedStyle(document.querySelector(".ds-side-figure")).backgroundColor;
  return [ground, "rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"].includes(backgroundColor) &&
    backgroundImage === "none";
}).length"""
# Parts of a lesson that scroll within it, and what lies behind the buttons at the end of the page.
HIDDEN = """() => {
  const cut = ["-text", "-figure", "-side"].filter((part) => {
    const { scrollHeight, clientHeight } = document.querySelector(`.ds-lesson${part}`);
    return scrollHeight > clientHeight + 1;
  });
  for (const page of [document.documentElement, window.learn?.root])
    if (page) page.scrollTop = page.scrollHeight;
  const bar = document.querySelector(".ds-lesson-controls").getBoundingClientRect();
  const ends = ["-words", "-side"].map((part) => document.querySelector(`.ds-lesson${part}`))
    .map((part) => part.getBoundingClientRect())
    .filter(({ left, right }) => left < bar.right && right > bar.left);
  return [...cut, ...ends.filter(({ bottom }) => bottom > bar.top + 1)];
}"""


# Boxes of the tree, and what the words speak of beside it, that are out of sight; and words that
# leave their box.
UNSEEN = """() => {
  const within = (part, room) => {
    const { left, right, top, bottom } = part.getBoundingClientRect(),
      at = room.getBoundingClientRect();
    return left >= at.left - 1 && right <= at.right + 1 && top >= at.top && bottom <= at.bottom + 1;
  };
  const tree = document.querySelector(".ds-lesson-tree:not([hidden]) .ds-tree");
  const side = document.querySelector(".ds-lesson-side");
  const boxes = [...tree.querySelectorAll(".ds-node:not(.out) .box")],
    spoken = [...side.querySelectorAll(".ds-product, .ds-list li, .ds-queue li, .ds-mask .line")];
  return [
    ...boxes.filter((box) => !within(box, tree)),
    ...spoken.filter((part) => !within(part, side)),
    ...boxes.flatMap((box) => [...box.parentNode.querySelectorAll(".note")]
      .filter((note) => note.getClientRects().length && !within(note, box))),
  ].map((part) => part.getAttribute("class"));
}"""


def test_trees_and_what_the_words_speak_of_are_in_sight_at_1024_by_768(learn: Open):
    page = learn("#learn=3.14.40", viewport={"width": 1024, "height": 768}, reduced_motion="reduce")
    expect(page.locator(".ds-node.accepted")).to_have_count(3)
    assert page.evaluate(UNSEEN) == []
    steps = [(1, n) for n in (4, 5, 6)] + [(2, n) for n in range(12)] + [(3, n) for n in range(9)]
    for chapter, step in (*steps, (8, 6), (9, 4)):
        page.evaluate(f"learn.go({chapter}, {step})")
        page.evaluate(FRAMES)
        assert page.evaluate(UNSEEN) == [], (chapter + 1, step + 1)


# Parts of a lesson that do not show all they hold.
SCROLLING = """() => [...document.querySelectorAll(".ds-lesson-text, .ds-lesson-side")]
  .filter(({ scrollHeight, clientHeight }) => scrollHeight > clientHeight + 1)
  .map(({ className }) => className)"""


def test_no_words_and_no_table_scroll_when_presented_at_1024_by_768(visit: Open, address: str):
    size = {"width": 1024, "height": 768}
    page = visit(address + "#learn=1.1", viewport=size, reduced_motion="reduce")
    expect(page.locator(".ds-lesson-title")).to_be_visible()
    page.keyboard.press("p")
    expect(page.locator(".ds-learn.ds-presenting")).to_be_visible()
    for step in ("1.1", "1.6", "3.1", "5.10", "8.7", "8.8", "11.5"):
        page.evaluate(f"window.location.hash = '#learn={step}'")
        number = step.split(".")[1]
        expect(page.locator(".ds-count")).to_have_text(re.compile(f"^{number} / "))
        page.evaluate(FRAMES)
        assert page.evaluate(SCROLLING) == [], step


# How much of its room a figure takes, across and down: its boxes, or its masks.
FILLED = """() => {
  const room = document.querySelector(".ds-lesson-figure").getBoundingClientRect();
  const all = [...document.querySelectorAll(
    ".ds-lesson-tree:not([hidden]) .ds-node:not(.out) .box, .ds-lesson-side .ds-block > *"
  )].map((each) => each.getBoundingClientRect());
  const side = (from, to, whole) =>
    (Math.max(...all.map((b) => b[to])) - Math.min(...all.map((b) => b[from]))) / whole;
  return [side("left", "right", room.width), side("top", "bottom", room.height)];
}"""


@pytest.mark.parametrize(
    "step, across, down", [("7.8", 0.9, 0.85), ("7.11", 0.9, 0.4), ("10.1", 0.9, 0.2),
                           ("10.2", 0.9, 0.4)]
)  # fmt: skip
def test_a_figure_fills_its_slide(learn: Open, step: str, across: float, down: float):
    page = learn(f"#learn={step}", viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page.evaluate(FRAMES)
    wide, high = page.evaluate(FILLED)
    assert wide >= across and high >= down


@pytest.mark.parametrize("width, height", [(1280, 720), (1920, 1080)])
def test_a_chart_and_a_text_fill_the_hall_s_screen(learn: Open, width: int, height: int):
    page = learn("#learn=11.5", viewport={"width": width, "height": height})
    page.keyboard.press("p")
    plot = page.locator(".ds-learn .ds-plot").bounding_box()
    assert plot and plot["height"] > 0.65 * height
    letters = "e => parseFloat(getComputedStyle(e).fontSize)"
    for words in page.locator(".ds-learn .ds-figure :is(h3, .ds-says):visible").all():
        assert words.evaluate(letters) >= 0.012 * width  # as the chart's own
    page = learn("#learn=1.3", viewport={"width": width, "height": height}, reduced_motion="reduce")
    figure = page.locator(".ds-side-figure").bounding_box()
    boxes = page.locator(".ds-boxes").bounding_box()
    assert figure and boxes and boxes["width"] > 0.97 * figure["width"]
    letters = page.locator(".ds-pass").first.evaluate(
        "e => parseFloat(getComputedStyle(e).fontSize)"
    )
    assert letters > 0.013 * width


def test_words_in_presented_boxes_are_as_large_as_numbers_and_a_long_token_fills_its_box(
    learn: Open,
):
    page = learn("#learn=8.5", viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    page.keyboard.press("p")
    page.evaluate(FRAMES)
    heights = page.locator(".ds-node .note").evaluate_all(
        "all => all.map((each) => each.getBoundingClientRect().height)"
    )
    assert heights and min(heights) > 17
    token, box = (
        page.locator(f".ds-node.root {part}").bounding_box() for part in (".token", ".box")
    )
    assert token and box and 0.75 < token["width"] / box["width"] < 0.96


@pytest.mark.parametrize("step", ["7.7", "8.2", "8.7", "9.4"])
@pytest.mark.parametrize("width", [960, 1024])
def test_a_token_without_room_is_whole_in_narrower_letters(learn: Open, step: str, width: int):
    size = {"width": width, "height": 768}
    page = learn(f"#learn={step}", viewport=size, reduced_motion="reduce")
    page.evaluate(FRAMES)
    nodes = page.locator(".ds-lesson-tree:not([hidden]) .ds-node:not(.out)")
    said = nodes.locator(".token").all_text_contents()
    assert said and not [each for each in said if "…" in each]
    out = """all => all.filter((node) => {
      const [token, box] = [".token", ".box"].map((name) =>
        node.querySelector(name).getBoundingClientRect());
      return token.right > box.right - 1;
    }).length"""
    assert nodes.evaluate_all(out) == 0


def test_tokens_are_whole_where_there_is_room_beside_them(learn: Open):
    page = learn("#learn=9.4", viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    tokens = page.locator(".ds-lesson-tree:not([hidden]) .ds-node:not(.out) .token")
    for chapter, step in ((8, 3), (7, 1)):
        page.evaluate(f"learn.go({chapter}, {step})")
        page.evaluate(FRAMES)
        said = tokens.all_text_contents()
        assert said and not [each for each in said if "…" in each]
    page.evaluate("learn.go(6, 6)")  # 7.7: its lower tree is wide: the height is spent on the boxes
    page.evaluate(FRAMES)
    below = """all => all.map((bar) => bar.closest(".ds-node").querySelector(".box")
      .getBoundingClientRect().bottom - bar.getBoundingClientRect().bottom)"""
    tree = page.locator(".ds-lesson-tree:not([hidden])").last
    assert min(tree.locator(".ds-node.large:not(.out) .bar").evaluate_all(below)) > 3
    controls = page.locator(".ds-lesson-controls")
    page.set_viewport_size({"width": 911, "height": 600})  # zoomed
    keys, present = (controls.get_by_role("button", name=n) for n in ("Keys", "Present"))
    places = [each.bounding_box() for each in (keys, present)]
    assert places[0] and places[1] and places[0]["y"] == places[1]["y"]


@pytest.mark.parametrize("step", ["7.7", "8.9"])
def test_boxes_below_one_another_have_air_between_them_on_a_laptop(learn: Open, step: str):
    page = learn(f"#learn={step}", viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    count(page, f"{step.partition('.')[2]} / {12 if step == '7.7' else 9}")
    apart = """trees => trees.flatMap((tree) => {
      const all = [...tree.querySelectorAll(".ds-node:not(.out) .box")]
        .map((each) => each.getBoundingClientRect());
      return all.flatMap((one) => all
        .filter((other) => Math.abs(other.left - one.left) < 2 && other.top > one.top)
        .map((other) => other.top - one.bottom));
    })"""
    gaps = page.locator(".ds-lesson-tree:not([hidden])").evaluate_all(apart)
    assert len(gaps) > 10 and min(gaps) > 3


def test_the_whole_tree_is_in_sight_once_a_phone_presents(learn: Open):
    page = learn("#learn=5.10", viewport={"width": 390, "height": 844}, reduced_motion="reduce")
    page.keyboard.press("p")
    expect(page.locator(".ds-learn.ds-presenting")).to_be_visible()
    page.evaluate(FRAMES)
    assert page.evaluate(UNSEEN) == []


# How far a tree's uppermost box is below the labels, how far it is from the middle, and how much
# of a letter there is between q and its bar.
PLACED = """() => {
  const tree = document.querySelector(".ds-lesson-tree:not([hidden])"), room = at(tree);
  function at(e) { return e.getBoundingClientRect(); }
  const boxes = [...tree.querySelectorAll(".ds-node:not(.out) .box")].map(at);
  const labels = [...tree.querySelectorAll(".ds-axis text:not(.gone)")].map(at);
  const odds = tree.querySelector(".large .odds"), bar = tree.querySelector(".large .bar.q");
  return {
    below: Math.min(...boxes.map((b) => b.top)) - Math.max(...labels.map((b) => b.bottom)),
    aside: Math.min(...boxes.map((b) => b.left)) - room.left -
      (room.right - Math.max(...boxes.map((b) => b.right))),
    tail: bar ? (bar.getAttribute("y") - odds.getAttribute("y")) / 17 : null,
  };
}"""


@pytest.mark.parametrize("width, height", usually([(1280, 720)], [(1280, 720), (1920, 1080)]))
def test_a_presented_tree_stands_in_the_middle_and_below_its_labels(
    learn: Open, width: int, height: int
):
    page = learn("#learn=2.8", viewport={"width": width, "height": height}, reduced_motion="reduce")
    page.keyboard.press("p")
    for chapter, step in ((1, 1), (1, 7), (4, 0), (4, 2), (4, 9), (5, 3)):
        page.evaluate(f"learn.go({chapter}, {step})")
        page.evaluate(FRAMES)
        placed = page.evaluate(PLACED)
        assert placed["below"] >= 0, (chapter, step)
        if chapter > 1 and step:  # the whole tree
            assert abs(placed["aside"]) < 4, (chapter, step)
        assert placed["tail"] is None or placed["tail"] > 0.27, (chapter, step)
    page.evaluate("learn.go(9, 1)")
    blanks = page.locator(".ds-blank").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect().top)"
    )
    assert len(blanks) == 4 and len(set(blanks)) == 1


def test_on_a_phone_on_its_side_no_tree_stands_on_what_is_below_it(learn: Open):
    size = {"width": 844, "height": 390}
    page = learn("#learn=5.10", viewport=size, has_touch=True, reduced_motion="reduce")
    page.keyboard.press("p")
    expect(page.locator(".ds-learn.ds-presenting")).to_be_visible()
    page.evaluate(FRAMES)
    assert page.evaluate(UNSEEN) == []
    tree, side = (page.locator(f".ds-lesson-{part}").bounding_box() for part in ("trees", "side"))
    assert tree is not None and side is not None
    assert tree["y"] + tree["height"] <= side["y"] + 1


def test_on_a_phone_on_its_side_every_box_shows_its_numbers(learn: Open):
    size = {"width": 844, "height": 390}
    page = learn("#learn=5.10", viewport=size, has_touch=True, reduced_motion="reduce")
    for chapter, step in ((4, 9), (6, 6), (6, 9), (9, 5), (9, 12)):
        page.evaluate(f"learn.go({chapter}, {step})")
        page.evaluate(FRAMES)
        odds = page.locator(".ds-lesson-tree:not([hidden]) .ds-node:not(.out) .odds")
        assert odds.count(), (chapter, step)
        for each in odds.all():
            expect(each).to_be_visible()


def test_tables_bars_and_words_are_seen_in_small_windows_and_in_forced_colours(learn: Open):
    # a window that fills the screen takes no other size: a page for each
    page = learn("#learn=5.10", viewport={"width": 1024, "height": 768})
    expect(page.locator(".ds-lists table")).to_have_count(3)
    assert not page.evaluate(SPILT)
    page.keyboard.press("p")
    assert not page.evaluate(SPILT)
    page = learn("#learn=5.10", viewport={"width": 390, "height": 844})
    page.keyboard.press("p")
    page.evaluate(FRAMES)
    assert page.evaluate(HIDDEN) == []
    page = learn("#learn=1.1", viewport={"width": 853, "height": 533})
    page.emulate_media(forced_colors="active")
    for chapter, step in ((1, 1), (4, 2), (8, 2), (8, 3), (8, 6)):
        page.evaluate(f"learn.go({chapter}, {step})")
        assert page.locator(".ds-side-figure :is(.fill, .part)").count()
        assert page.evaluate(BARE) == 0, (chapter, step)


def test_the_page_scrolls_to_a_lesson_s_end_at_150_percent(visit: Open, address: str):
    page = visit(address + "#learn=1.1", viewport={"width": 853, "height": 533})  # of 1280 × 800
    for step in ("1.1", "5.8", "11.1"):
        page.goto(f"{address}#learn={step}")
        expect(page.locator(".ds-chapters [aria-current=true]")).to_contain_text(step.split(".")[0])
        page.evaluate(FRAMES)
        assert page.evaluate(HIDDEN) == [], step


def test_measurements_are_figures_with_a_table_and_a_file(learn: Open, lessons: dict[str, Any]):
    page, steps = learn("#learn=1.1"), lessons["chapters"][10]["steps"]
    page.keyboard.press("0")
    page.keyboard.press("Shift+PageDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")  # of a tree that is not in sight
    expect(page.locator(".ds-lesson-note")).to_be_empty()
    (drawn,) = steps[1]["side"]["figures"]
    figure = page.locator(".ds-figure")
    expect(figure.locator("h3")).to_have_text(drawn["layout"]["meta"]["title"])
    expect(figure.locator(".scatterlayer .points path")).to_have_count(3 * 3)
    expect(figure.locator(".xtick")).to_have_text(["math", "code", "chat"])
    from_menu(figure, "As a table").click()
    first = figure.locator("tbody tr").first
    expect(first.locator("th")).to_have_text("math")
    tau = drawn["data"][0]["meta"]["points"][0]["y"]
    expect(first.locator("td").first).to_contain_text(number(tau))
    with page.expect_download() as saved:
        from_menu(figure, "Save the numbers").click()
    text = Path(saved.value.path()).read_text("utf-8")
    assert text.count("\n") == 10 and "TreeFlash,chat," in text
    page.keyboard.press("9")
    expect(page.locator(".ds-figure")).to_have_count(0)
    expect(page.locator(".ds-lesson-trees")).to_be_visible()


def test_a_link_to_a_tab_that_a_narrow_window_keeps_in_a_menu(visit: Open, address: str):
    page = visit(viewport={"width": 390, "height": 800})
    page.goto(address + "#learn=11.1")
    page.reload()
    expect(page.locator(".ds-lesson-title")).to_have_text("What the shipped drafters reach")


def test_a_chapter_leads_to_run_with_its_settings_and_back(
    visit: Open, address: str, lessons: dict[str, Any]
):
    asked = lessons["chapters"][6]["run"]["filling"]
    page = visit(address + "#learn=7.1")
    prompt, settings = page.locator(PROMPT), page.locator("#ds-open-settings")
    page.get_by_role("button", name="Follow along in Run").click()
    expect(prompt).to_have_value(asked["prompt"])
    expect(prompt).to_be_focused()
    expect(settings).to_contain_text(f"TreeFlash B {asked['0.budget']}")
    expect(page.locator("#ds-settings")).to_be_hidden()  # it would lie over the examples
    line = page.locator(".ds-from-course")
    expect(line).to_contain_text("Press Start to follow along.")
    page.get_by_role("button", name="Start", exact=True).locator("visible=true").click()
    expect(line).to_have_text("From chapter 7.Back to the course")
    page.get_by_role("button", name="Back to the course").click()
    count(page, "1 / 12")
    expect(page.locator(".ds-lesson-title")).to_be_focused()
    expect(page.locator(".ds-learn")).to_be_visible()
    page.get_by_role("button", name="Your own prompt").click()
    expect(prompt).to_have_value("")
    expect(prompt).to_be_focused()
    page.go_back()
    expect(page.locator(".ds-learn")).to_be_visible()
    count(page, "1 / 12")
    page.keyboard.press("p")
    page.wait_for_function("() => document.fullscreenElement")
    page.get_by_role("button", name="Your own prompt").click()
    expect(prompt).to_be_focused()  # what is typed is the prompt: it would press keys of the view
    page.get_by_role("button", name="Back to the course").click()
    expect(page.locator(".ds-learn.ds-presenting")).to_be_visible()


def test_where_no_run_can_start_the_command_is_told(learn: Open, lessons: dict[str, Any]):
    page = learn("#learn=7.1")
    page.evaluate("learn.goTo = null; learn.go(6, 0)")
    command = lessons["chapters"][6]["run"]["command"]
    expect(page.locator(".ds-onward code")).to_have_text(command)
    assert command.startswith("python -m app run treeflash --budget 10 ")


def test_it_stands_in_the_studio(visit: Open):
    page = visit()
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator(".ds-lesson-title")).to_have_text("One pass, several tokens")
    page.keyboard.press("3")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".ds-queue.taken")).to_be_visible()
    page.get_by_role("tab", name="Run").click()
    page.keyboard.press("ArrowRight")  # not in sight: not for the course
    page.get_by_role("tab", name="Learn").click()
    count(page, "2 / 15")
