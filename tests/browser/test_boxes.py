"""The words of a tree's boxes keep clear of each other and of the boxes' edges."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import Browser

from app.page_files import css
from tests.browser.steps import with_modules

pytestmark = pytest.mark.browser

# [words that are too near] of boxes of every shape, at the scales that show numbers: the gaps of
# words to the right, in pixels of the screen.
NEAR = """async ({ scales, least }) => {
  const { chipBox, nodeBox, sizes, squeezed } = await import("/web/tree/boxes.js"),
    { TOKEN } = await import("/web/tree/camera.js"),
    { s } = await import("/web/dom.js");
  const odds = [1, 0.99, 0.084, 0.0004],
    pairs = odds.flatMap((q) => odds.map((p) => [q, p])),
    ROUND = 3, // of a pill, at the height of its sums
    found = [];
  const measure = (size, k, sign, chips) => {
    const round = {
      tokens: pairs.map(() => 0), labels: ["a token of many letters"], short: ["essential-ly…"],
      depths: pairs.map(() => 1), status: "r".repeat(pairs.length),
      q: pairs.map(([q]) => q), p: pairs.map(([, p]) => p),
      signs: sign && pairs.map(() => sign), sign_help: { [sign]: "what it means" },
    };
    const svg = s("svg", { class: "ds-tree" });
    svg.style.setProperty("--token", `${TOKEN / k}px`);
    svg.append(...pairs.slice(1).map((_, i) => nodeBox(size, round, i + 1, `n${i}`, [0, 0])));
    const chip = { parent: 0, nodes: 16, words: "+16 rejected" };
    if (chips) svg.append(...pairs.map(([q, p]) => chipBox(size, { ...chip, q, p }, [0, 0])));
    document.querySelector("main").replaceChildren(svg);
    for (const node of svg.children) {
      const texts = [...node.querySelectorAll("text")].map((text) => [text, text.getBBox()]),
        right = ({ x, width }) => x + width;
      for (const [text, box] of texts) {
        const level = ([other, { x, y }]) =>
            other !== text && x > box.x && Math.abs(y - box.y) < 7,
          ends = texts.filter(level).map(([, { x }]) => x);
        const edge = node.matches(".ds-node") ? size.boxW : size.boxW - ROUND;
        const gap = (Math.min(edge, ...ends) - right(box)) * k;
        if (gap < least) found.push([node.textContent, text.textContent, k, size.boxW, gap]);
      }
    }
  };
  for (const shape of ["", "flat", "narrow", "large", "slim"])
    for (const k of scales)
      for (const sign of [null, "n2"]) measure(sizes(null, shape, true), k, sign, true);
  for (const shape of ["narrow", "slim", "flat"]) {
    const size = sizes(null, shape, true);
    for (const k of scales)
      for (const sign of [null, "▲"])
        measure(
          squeezed(size, { columns: 6, rows: 1 }, { wide: 6 * size.least + 45 }), k, sign, false);
  }
  return found;
}"""


@pytest.mark.parametrize("look", ["ds-scope", "ds-scope ds-presenting"])
def test_words_keep_clear_of_each_other_and_of_the_edge(browser: Browser, look: str):
    page = with_modules(browser.new_page(), style=css())
    page.locator("main").evaluate("(main, look) => (main.className = look)", look)
    found = page.evaluate(NEAR, {"scales": [0.82, 0.95, 1.5], "least": 0.5})
    page.close()
    assert not found


# Labels above a tree that run into the label before them: "TVD 0.75" and a "35" read as 0.735.
COLLIDE = """async ({ step, presents }) => {
  const { TreeAxis } = await import("/web/tree/axis.js"),
    { s } = await import("/web/dom.js");
  const axis = new TreeAxis(),
    columns = { lead: 0, here: 2, labels: ["32 ␣River", "33 .", "34 <|im_end…", "35", "36 ␣In"] };
  const svg = s("svg", { class: "ds-tree", width: 1400, height: 100 });
  svg.append(axis.labels);
  const main = document.querySelector("main");
  main.className = presents ? "ds-scope ds-presenting" : "ds-scope";
  main.replaceChildren(svg);
  axis.draw(
    { round: { tvd: [0.35, 0.81, 0.75, 0.9] }, width: 500, boxW: 80, stepX: step },
    columns,
  );
  axis.place({ stepX: step, boxW: 80 }, { kx: 1, x: 40 }, columns);
  const boxes = [...axis.labels.children].map((label) => label.getBoundingClientRect());
  const seen = boxes.filter(({ width }) => width);
  return seen.slice(1).filter(({ left }, at) => left < seen[at].right + 2).length;
}"""


def test_no_label_above_a_tree_runs_into_the_next(browser: Browser):
    page = with_modules(browser.new_page(viewport={"width": 1440, "height": 900}), style=css())
    found = {
        (step, presents): page.evaluate(COLLIDE, {"step": step, "presents": presents})
        for step in range(60, 260, 10)
        for presents in (False, True)
    }
    page.close()
    assert not any(found.values()), found


# Parts of a band in the text that are narrower than a letter: a space alone at a line's end.
SLIVERS = """async (width) => {
  const { Strip } = await import("/web/strip.js");
  const words = "Drinking enough water is essential for maintaining optimal health . It helps us";
  const tokens = words.split(" ").map((word, at) => [at ? ` ${word}` : word, "a", at]);
  const strip = new Strip(() => {}),
    text = (at) => tokens.slice(at, at + 3);
  strip.append([0, 3, 6, 9, 12].map((at) => ({ text: text(at) })), 0);
  const main = document.querySelector("main");
  main.className = "ds-scope";
  main.style.width = `${width}px`;
  main.replaceChildren(strip.element);
  const parts = strip.bands.flatMap((band) => [...band.getClientRects()]);
  return [strip.bands.length, parts.filter((part) => part.width < 6).length];
}"""


def test_no_space_alone_stands_at_a_line_s_end(browser: Browser):
    page = with_modules(browser.new_page(), style=css())
    found = [page.evaluate(SLIVERS, width) for width in range(120, 420, 7)]
    page.close()
    assert found == [[5, 0]] * len(found), found


APART = """async ([names, lines]) => {
  const { namesApart } = await import("/web/apart.js");
  const annotations = names.map(([y, text]) => ({ y, text }));
  return namesApart({ annotations, yaxis: { range: [0, 1] } }, lines).map(({ y, text }) =>
    [y, 1.25 / (lines - 4.5) * text.split("<br>").length, text]);
}"""


def test_names_at_the_ends_of_lines_never_overlap_and_are_not_moved_without_need(browser: Browser):
    page, chance = with_modules(browser.new_page()), random.Random(5)
    for _ in range(60):
        ends = [chance.random() for _ in range(chance.randint(2, 5))]
        names = [[end, chance.choice(("one", "one<br>two"))] for end in ends]
        found = page.evaluate(APART, [names, 22])
        spans = sorted((y - high / 2, y + high / 2) for y, high, _ in found)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
        assert all(low >= -1e-9 and high <= 1 + 1e-9 for low, high in spans)
        if all(b - a > 0.2 for a, b in pairwise(sorted(ends))):
            inside = {y for y, *_ in found if 0.15 < y < 0.85}
            assert inside <= set(ends)
    page.close()
