"""Figures for a paper: PDF and outlines by librsvg, grounds, widths and the legend."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from app.cli import main
from app.commands.trace.export import points
from app.export import figure as figures
from app.export.cairo_file import ABSENT, BROKEN
from app.export.figure import figure
from app.view.drawing import MEANINGS, tree_drawing
from app.view.explanation import Explainer
from app.view.shapes import GHOST, INCH, Drawing, Group, Paper, Words
from app.view.svg import svg
from core.errors import UserError
from core.rounds.draft import Draft
from core.rounds.round import ACCEPTED, SIDE, Round, Verdict
from core.traces.reader import read_trace
from core.visible import cells
from tests import ROOT
from tests.helpers.fakes import make_round
from tests.helpers.pdfs import whole
from tests.helpers.small_rounds import TEXTS, side_round, small_round

SPACE = "{http://www.w3.org/2000/svg}"


def page_of(data: bytes) -> tuple[float, float]:
    """The size of a PDF's page in points."""
    box = whole(data).mediabox
    return float(box.width), float(box.height)


@pytest.mark.usefixtures("librsvg")
@pytest.mark.parametrize("hostile", [False, True])
def test_a_pdf_embeds_the_letters_of_every_font(hostile: bool):
    drawing = tree_drawing(make_round(1, 24, hostile), legend=True)
    page = whole(figure(drawing, Paper(), "pdf"))
    assert MEANINGS[ACCEPTED][1] in page.extract_text()
    assert not {"/AA", "/Annots"} & set(page)


@pytest.mark.usefixtures("librsvg")
def test_spaces_and_signs_are_words_of_a_pdf():
    drawing = Drawing(400, 60, "", (Group(10, 10, (Words("a  b <é> ✓", 0, 20),)),))
    assert whole(figure(drawing, Paper(), "pdf")).extract_text().split() == ["a", "b", "<é>", "✓"]
    one, two = (Drawing(90, 60, "", (Group(9, 9, (Words(f"a{n}b", 0, 20),)),)) for n in (" ", "  "))
    assert figure(one, Paper(), "svg") != figure(two, Paper(), "svg")


@pytest.mark.usefixtures("librsvg")
def test_a_figure_is_as_wide_as_its_column():
    drawing = tree_drawing(small_round(), legend=True)
    for width in (234.0, 500.0):
        paper = Paper(width=width)
        wide, high = page_of(figure(drawing, paper, "pdf"))
        assert wide == pytest.approx(width, abs=1)
        assert high == pytest.approx(width * drawing.height / drawing.width, abs=1)
        root = ElementTree.fromstring(svg(drawing, paper))
        assert root.attrib["width"] == f"{width:.2f}pt"
        outlined = ElementTree.fromstring(figure(drawing, paper, "svg"))
        assert float(outlined.attrib["width"].removesuffix("pt")) == pytest.approx(width, abs=1)


@pytest.mark.usefixtures("librsvg")
@pytest.mark.parametrize(
    "text",
    [
        "plain",
        '"',
        "\\",
        '\\"',
        '\\\\"',
        'a" + "b',
        '", pos="1,1',
        "\\n",
        "-3 -x",
        "é␣×",
        "<b>&amp;",
    ],
)
def test_every_letter_of_a_text_is_drawn_and_none_is_markup(text: str):
    drawing = Drawing(400, 60, "", (Group(10, 10, (Words(text, 0, 20),)),))
    page = whole(figure(drawing, Paper(ground="transparent"), "pdf"))
    assert "".join(page.extract_text().split()) == text.replace(" ", "")
    root = ElementTree.fromstring(figure(drawing, Paper(ground="transparent"), "svg"))
    assert list(root.iter(f"{SPACE}path")) and not list(root.iter(f"{SPACE}text"))


@pytest.mark.usefixtures("librsvg")
def test_outlines_are_those_of_large_letters_at_any_width():
    """At the size of print cairo would fit them to pixels."""
    drawing = Drawing(400, 60, "", (Group(10, 10, (Words("a", 0, 20),)),))
    small, large = (figure(drawing, Paper(width=width), "svg") for width in (40.0, 4000.0))
    head = re.compile(rb' width="[^"]*" height="[^"]*"')
    assert head.sub(b"", small, count=1) == head.sub(b"", large, count=1)
    assert b'width="40.00pt" height="6.00pt"' in small


@pytest.mark.parametrize("unit", ["pt", ""])
def test_outlines_have_their_width_whichever_cairo_drew_them(monkeypatch, unit: str):
    """Version 1.16 writes "pt" behind the size, 1.18 nothing."""
    head = f'<svg xmlns="{SPACE[1:-1]}" width="6400{unit}" height="960{unit}"/>'
    monkeypatch.setattr(figures, "_by_cairo", lambda *_: head.encode())
    drawn = ElementTree.fromstring(figure(Drawing(400, 60, "", ()), Paper(width=40.0), "svg"))
    assert (drawn.attrib["width"], drawn.attrib["height"]) == ("40.00pt", "6.00pt")


@pytest.mark.usefixtures("librsvg")
def test_a_transparent_ground_is_no_ground():
    drawing = tree_drawing(small_round())
    for ground, colour in (("page", "#f5f4ef"), ("white", "#ffffff"), ("transparent", None)):
        root = ElementTree.fromstring(svg(drawing, Paper(ground=ground)))
        assert len(root.findall(f"{SPACE}rect")) == (colour is not None)
        style = root.findtext(f"{SPACE}style")
        assert style and (colour is None or f".ground{{fill:{colour}}}" in style)
    filled, none = (
        figure(drawing, Paper(ground=ground), "pdf") for ground in ("white", "transparent")
    )
    shapes = [whole(data).get_contents().get_data().count(b" re") for data in (filled, none)]
    assert shapes[0] == shapes[1] + 1


def test_the_legend_says_what_is_there_and_nothing_else():
    def told(drawing: Drawing) -> list[str]:
        root = ElementTree.fromstring(svg(drawing))
        texts = [element.text for element in root.iter(f"{SPACE}text")]
        return [words for _, words in MEANINGS.values() if words in texts]

    whole = tree_drawing(small_round(), legend=True)
    assert told(tree_drawing(small_round())) == []
    assert MEANINGS[ACCEPTED][1] in told(whole) and MEANINGS[SIDE][1] not in told(whole)
    assert MEANINGS[SIDE][1] in told(tree_drawing(side_round(), legend=True))
    assert told(tree_drawing(make_round(1, 8, method="ar"), legend=True))[1:2] == ["accepted"]
    assert MEANINGS["root"][1] in told(whole) and MEANINGS["sum"][1] not in told(whole)
    assert MEANINGS["sum"][1] in told(tree_drawing(make_round(1, 64), opened=(), legend=True))
    trace = read_trace(ROOT / "assets" / "traces" / "chat-treeflash.jsonl.gz")
    how = Explainer.of(trace.header)
    help = how.marks(trace.rounds[4]).help
    drawn = svg(tree_drawing(trace.rounds[4], how, legend=True))
    texts = [element.text for element in ElementTree.fromstring(drawn).iter(f"{SPACE}text")]
    assert set(help) == {"▲"} and help["▲"] in texts
    (call, *_) = read_trace(ROOT / "assets" / "traces" / "code-spiffy-10.jsonl.gz").rounds[2:]
    said = told(tree_drawing(call, legend=True))
    assert MEANINGS[ACCEPTED][1] in said and MEANINGS[GHOST][1] not in said  # of a target's tokens
    for group in whole.shapes:
        if isinstance(group, Group):
            assert 0 <= group.x < whole.width and 0 <= group.y < whole.height


# ── lines, for a column ──────────────────────────────────────────────────────────────────────────

COLUMN, PAGE = 3.3 * INCH, 7 * INCH
LETTER = 0.602  # of the size of DejaVu Sans Mono


def check_read(drawing: Drawing, paper: Paper) -> None:
    """All text of the file has 6 pt or more and is inside, and no words or boxes touch others."""
    root = ElementTree.fromstring(svg(drawing, paper))
    pixel = float(root.attrib["width"].removesuffix("pt")) / drawing.width
    sizes = {font: float(size) for font, size in FONT_SIZES.findall(root[0].text or "")}
    words, boxes = list[Area](), list[Area]()
    for group in root.findall(f"{SPACE}g"):
        x, y = map(float, group.attrib["transform"][10:-1].split())
        for text in group.findall(f"{SPACE}text"):
            size = sizes[text.get("class", "")]
            assert size * pixel >= 6
            shown = (text.text or "") + "".join(part.tail or "" for part in text)  # no title
            wide = cells(shown) * LETTER * size
            left = x + float(text.attrib["x"]) - (wide if text.get("text-anchor") else 0)
            base = y + float(text.attrib["y"])
            words.append((left, base - 0.72 * size, left + wide, base))
        for box in group.findall(f"{SPACE}rect"):
            left, top = x + float(box.get("x", 0)), y + float(box.get("y", 0))
            area = left, top, left + float(box.attrib["width"]), top + float(box.attrib["height"])
            (words if box.attrib["class"] in "qp" else boxes).append(area)
    for left, top, right, bottom in words + boxes:
        assert left >= 0 and top >= 0 and right <= drawing.width and bottom <= drawing.height
    assert not touching(words) and not touching(boxes)


Area = tuple[float, float, float, float]  # left, top, right, bottom
FONT_SIZES = re.compile(r"(?:text|\.(\w))\{font(?:-size)?:([\d.]+)px")


def touching(areas: list[Area]) -> list[tuple[Area, Area]]:
    return [
        (one, other)
        for one, other in combinations(areas, 2)
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "assets" / "traces").glob("*.gz")), ids=lambda path: path.name[:-9]
)
def test_every_shipped_round_is_read_in_a_column_and_on_a_page(path: Path):
    trace = read_trace(path)
    how = Explainer.of(trace.header)
    deepest = max(trace.rounds, key=lambda record: int(record.draft.depths.max()))
    for record in (deepest, *trace.rounds[::7]):
        for paper in (Paper(width=COLUMN), Paper(width=PAGE)):
            check_read(tree_drawing(record, how, (), True, paper), paper)


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("budget", [0, 1, 300])
@pytest.mark.parametrize("opened", [None, (), (0, 1)])
def test_lines_hold_any_tree(budget: int, hostile: bool, opened: tuple[int, ...] | None):
    for seed in range(3):
        record = make_round(seed, budget, hostile)
        for width in (COLUMN, PAGE):
            paper = Paper(width=width, nodes="lines")
            check_read(tree_drawing(record, opened=opened, legend=True, paper=paper), paper)


@pytest.mark.parametrize("make", [side_round, small_round])
def test_lines_hold_every_kind_of_row(make: Callable[[], Round]):
    paper = Paper(width=COLUMN, nodes="lines")
    check_read(tree_drawing(make(), legend=True, paper=paper), paper)


def test_lines_are_as_wide_as_their_column_at_any_depth():
    paper = Paper(width=COLUMN)
    for depth in (9, 40, 300):
        draft = Draft.chain(list(range(depth)))
        nothing = np.zeros(len(draft), np.int64)
        record = Round(0, 0, draft, Verdict(tuple(range(depth // 2)), nothing), (0,), texts=TEXTS)
        check_read(tree_drawing(record, legend=True, paper=paper), paper)


def test_boxes_are_drawn_where_they_are_read():
    small = make_round(1, 1)
    for paper, lines in ((Paper(), False), (Paper(width=PAGE), False), (Paper(width=90.0), True)):
        drawing = tree_drawing(small, paper=paper)
        assert (drawing == tree_drawing(small, paper=replace(paper, nodes="lines"))) == lines
        assert (drawing == tree_drawing(small, paper=replace(paper, nodes="boxes"))) != lines


# ── pictures of the page ─────────────────────────────────────────────────────────────────────────

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'


@pytest.mark.usefixtures("librsvg")
def test_a_pixel_of_a_picture_is_three_quarters_of_a_point():
    words = '<text y="12" font-size="9px" fill="rgba(0, 0, 0, 0.5)">ab</text>'
    page = whole(figures.pdf(SVG.format(words).encode()))
    assert page.mediabox[2:] == [30, 15] and page.extract_text().strip() == "ab"


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "words",
        "<html/>",
        SVG.format("<g>"),
        SVG.format('<image href="file:///etc/hostname"/>'),
        SVG.format('<image href="data:image/png;base64,AAAA"/>'),
        SVG.format('<use href="#a"/>'),
        SVG.format('<linearGradient href="http://127.0.0.1/x.svg#a"/>'),
        SVG.format('<pattern xmlns:x="http://www.w3.org/1999/xlink" x:href="other.svg#a"/>'),
        SVG.format("<script>1</script>"),
        SVG.format('<s:image xmlns:s="http://www.w3.org/2000/svg" href="a.png"/>'),
        SVG.format("<foreignObject/>"),
        SVG.format("&lol;"),
        '<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/hostname">]>' + SVG.format("&a;"),
        '<?xml-stylesheet href="http://127.0.0.1/a.css"?>' + SVG.format(""),
        '<?xml version="1.0" encoding="UTF-7"?>' + SVG.format(""),
    ],
)
def test_what_no_page_saves_is_refused_unread(hostile: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "_by_cairo", None)
    for data in (hostile.encode(), hostile.encode("utf-16")):
        with pytest.raises(UserError, match=r"^this is not a picture that the page saves$"):
            figures.pdf(data)


@pytest.mark.usefixtures("librsvg")
def test_a_style_fetches_nothing(tmp_path: Path):
    """Else it would hide the letters."""
    (tmp_path / "a.css").write_text("text { display: none }")
    style = f'<style>@import url("{(tmp_path / "a.css").as_uri()}");</style><text y="9">seen</text>'
    assert "seen" in whole(figures.pdf(SVG.format(style).encode())).extract_text()


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (f"raise SystemExit({ABSENT})", "the library librsvg is not installed"),
        (f"raise SystemExit({BROKEN})", "librsvg could not draw this figure"),
        ("import os; os.abort()", "librsvg could not draw this figure"),
        ("while True: pass", "drawing the figure was stopped after 0.5 seconds"),
    ],
)
def test_why_there_is_no_figure_is_one_sentence(
    script: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "script.py").write_text(script)
    monkeypatch.setattr(figures, "SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(figures, "SECONDS", 0.5 if "while" in script else 30)
    with pytest.raises(UserError, match=rf"^{sentence}[^\n]*$"):
        figure(tree_drawing(small_round()), Paper(), "pdf")


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def export(*words: object) -> int:
    return main(["trace", "export", *map(str, words)])


@pytest.mark.usefixtures("librsvg")
def test_a_round_becomes_a_figure_of_a_column(trace_file: Path, tmp_path: Path, capsys):
    words = ("--round", 2, "--column", "3.25in", "--ground", "white", "--legend")
    assert export(trace_file, "--to", "pdf", *words) == 0
    said = capsys.readouterr()
    assert "run-round-2.pdf" in said.out and not said.err
    assert (tmp_path / "run-round-2.pdf").read_bytes().startswith(b"%PDF-")
    assert export(trace_file, "--to", "svg", "--outlined", *words) == 0
    assert b"<text" not in (tmp_path / "run-round-2.svg").read_bytes()


def test_lengths_have_units():
    assert points("3.25in") == 234 and points("234pt") == 234
    assert points("82.55mm") == pytest.approx(234) and points("8.255cm") == pytest.approx(234)
    for text in ("", "in", "3", "3px", "-1in", "0in", "nanin", "infin", "1e9in", "3.25 inches"):
        with pytest.raises(ValueError):
            points(text)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--column", "3"], "must be a length"),
        (["--dark", "--ground", "white"], "leave one out"),
    ],
)
def test_what_is_amiss_is_one_sentence(trace_file: Path, capsys, words: list[str], sentence: str):
    assert export(trace_file, "--to", "svg", *words) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
