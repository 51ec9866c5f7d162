"""Text and SVG of a round: literal goldens for the text, an XML parser for the SVG."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from app.commands.trace.show import _row
from app.view.drawing import tree_drawing
from app.view.rounds import round_view
from app.view.shapes import Paper
from app.view.svg import svg
from app.view.tree import text_tree
from core.rounds.blocks import BlockDraft, Edit
from core.rounds.draft import Draft
from core.rounds.round import Round, Times, Verdict
from core.visible import fitting, flowing, visible
from tests.helpers.fakes import make_round
from tests.helpers.small_rounds import TEXTS, side_round, small_round


def test_text_tree_is_what_it_is():
    assert text_tree(small_round()) == (
        "round 5 · 5 nodes drafted · 2 accepted + 1 · 41 ms\n"
        "● The\n"
        "├─ ✓ ␣sky  q 60%  p 90%\n"
        "│  ├─ ✓ ␣is  q 50%  p 80%\n"
        "│  │  └─ ◇ ␣blue  target's token, not drafted: outside the candidates\n"
        "│  └─ × ⏎  q 25%  p <0.1%\n"
        "└─ × ␣sea  q 30%  p 5.0%\n"
        "   └─ · ␣was  q 2.0%  p 50%"
    )


def test_times_that_were_not_recorded_are_unknown():
    untimed = replace(small_round(), times=Times())
    assert text_tree(untimed).splitlines()[0] == "round 5 · 5 nodes drafted · 2 accepted + 1"
    assert _row(untimed)[6] == "–" and _row(small_round())[6] == "41"


def test_text_tree_of_a_walk_that_stopped_at_once():
    lines = text_tree(small_round(path=(0,))).splitlines()
    assert lines[2].startswith("├─ × ␣sky")
    assert lines[-1] == "└─ ◇ ␣blue  target's token, not drafted: outside the candidates"


def test_text_tree_of_plain_decoding_and_of_one_token():
    plain = Round(0, 3, Draft.root_only(1), Verdict((0,), np.array([2])), (2,), texts=TEXTS)
    assert text_tree(plain).splitlines()[1:] == [
        "● ␣sky",
        "└─ ◇ ␣sea  target's token, not drafted: this round drafted nothing",
    ]
    alone = Round(0, 3, Draft.root_only(1), Verdict((0,), np.array([-1])), (), texts=TEXTS)
    assert text_tree(alone).splitlines()[1:] == ["● ␣sky"]


def test_every_row_has_one_line_also_in_a_very_deep_chain():
    count = 3000
    draft = Draft.chain([0] * count)
    record = Round(0, 0, draft, Verdict((0,), np.zeros(count, np.int64)), (0,))
    assert len(text_tree(record).splitlines()) == count + 2
    assert "<svg" in svg(tree_drawing(record))


def test_side_rows_have_a_sign_of_their_own():
    lines = text_tree(side_round()).splitlines()
    assert sum("○" in line for line in lines) == 2
    assert 'rect class="side"' in svg(tree_drawing(side_round()))
    view = round_view(side_round())
    assert view["status"] == "aarass"
    assert (view["drafted"], view["offered"], view["depth"]) == (5, 3, 2)


def test_a_draft_graph_is_drawn_with_every_edge_and_each_row_once():
    """Many pathways lead to one state: rows are drawn once, or the drawing would never end."""
    levels, wide = 40, 2
    links: list[tuple[int, ...]] = [()]
    for level in range(levels):
        above = (0,) if level == 0 else tuple(range(len(links) - wide, len(links)))
        links += [above] * wide
    size = len(links)
    one = np.ones(size, np.float32)
    draft = BlockDraft(
        tokens=np.zeros(size, np.int64),
        parents=np.array([above[0] if above else -1 for above in links], np.int32),
        depths=np.array([0, *(1 + n // wide for n in range(size - 1))], np.int32),
        ranks=np.ones(size, np.int32),
        log_q=-one,
        scores=-one,
        links=tuple(links),
        edits=((), *(((Edit(row % 9, 1, 1, 1),)) for row in range(1, size))),
    )
    record = Round(0, 0, draft, Verdict((0, 1), np.full(size, -1)), (), texts=TEXTS)
    assert len(text_tree(record).splitlines()) == size + 1 and "3: ␣sky" in text_tree(record)
    assert len(re.findall(r"C\d", svg(tree_drawing(record)))) == sum(map(len, links))


@pytest.mark.parametrize("dark", [False, True])
def test_svg_is_xml_and_holds_every_node(dark):
    record = make_round(5, 40)
    root = ElementTree.fromstring(svg(tree_drawing(record), Paper(dark)))
    groups = root.findall("{http://www.w3.org/2000/svg}g")
    assert len(groups) == len(record.draft) + 1
    assert root.attrib["width"].isdigit()


def test_hostile_text_stays_text():
    record = make_round(2, 64, hostile=True)
    drawing = svg(tree_drawing(record))
    root = ElementTree.fromstring(drawing)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "style", "rect", "path", "g", "title", "text"}
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    for text in (text_tree(record), "".join(root.itertext())):
        assert "\x1b" not in text and "\u202e" not in text and "\x00" not in text
        assert "A" * 100 not in text
    assert not [c for c in text_tree(record) if unicodedata.category(c) == "Cc" and c != "\n"]


def test_visible_shows_what_cannot_be_seen():
    assert visible(" the") == "␣the"
    assert visible("a b") == "a b"
    assert visible("  ") == "␣␣"
    assert visible("") == "∅"
    assert visible("a\n\tb\r") == "a⏎⇥b␍"
    assert visible("\x1b[31m\x7f") == "␛[31m␡"
    assert visible("\u202eevil\u200b\u00a0") == "\\u{202e}evil\\u{200b}\\u{a0}"
    assert visible("\ud800") == "\\u{d800}"
    assert visible("\u0301") == "◌\u0301"
    assert visible("<b>${x}") == "<b>${x}"
    assert len(visible("A" * 10_000)) == 48 and visible("A" * 10_000).endswith("…")
    assert len(visible("\u202e" * 10_000)) == 48


def test_flowing_keeps_line_breaks_and_has_no_limit_of_its_own():
    assert flowing(" a\n\tb\x1b") == " a\n\tb␛"
    assert len(flowing("x" * 10_000)) == 10_000
    assert len(flowing("x" * 10_000, 400)) == 400


def test_fitting_counts_wide_characters_twice():
    assert fitting("abcdef", 6) == "abcdef"
    assert fitting("abcdefg", 6) == "abcde…"
    assert fitting("漢字漢字", 6) == "漢字…"
