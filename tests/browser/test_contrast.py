"""Contrast that axe cannot see: parts of sliders and boxes to tick, by the pixels drawn."""

from __future__ import annotations

import io
from collections import Counter

import pytest

pytest.importorskip("gradio")
from PIL import Image
from playwright.sync_api import Locator, expect

from tests.browser.steps import Open, open_form, tab

pytestmark = [pytest.mark.browser, pytest.mark.parametrize("theme", ["light", "dark"])]

Colour = tuple[int, int, int]

LEAST = 3.0  # contrast of a part that says something, WCAG 1.4.11


def pixels(place: Locator) -> list[list[Colour]]:
    """Return the pixels that are drawn there, row by row."""
    picture = Image.open(io.BytesIO(place.screenshot())).convert("RGB")
    data, wide = picture.tobytes(), 3 * picture.width
    rows = (data[at : at + wide] for at in range(0, len(data), wide))
    return [[(row[x], row[x + 1], row[x + 2]) for x in range(0, wide, 3)] for row in rows]


def contrast(one: Colour, other: Colour) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Colour) -> float:
    parts = (part / 255 for part in colour)
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_the_parts_of_a_slider_can_be_seen(visit: Open, theme: str):
    page = visit(color_scheme=theme)
    open_form(page)
    form = page.locator(".ds-form input[type=range]:visible").first
    tab(page, "whatif")
    knob = page.locator(".ds-knob input[type=range]:visible").first
    expect(knob).to_be_visible()
    found = pixels(knob)
    tab(page, "run")
    open_form(page)
    for drawn in (pixels(form), found):
        ground = drawn[0][-1]
        at = {name: int(share * len(drawn[0])) for name, share in (("filled", 0.04), ("rest", 0.9))}
        for name, x in at.items():
            seen = max(contrast(row[x], ground) for row in drawn)
            assert seen >= LEAST, f"the {name} part of a slider has a contrast of {seen:.1f}"


def test_a_ticked_box_looks_ticked(visit: Open, theme: str):
    page = visit(color_scheme=theme)
    tab(page, "whatif")
    page.get_by_text("Curve of τ over more texts").click()
    box = page.locator(".ds-more-texts").get_by_role("checkbox").first
    expect(box).to_be_visible()
    ground = page.evaluate(GROUND)
    empty = pixels(box)
    box.check()
    page.mouse.move(0, 0)
    ticked = pixels(box)
    inner = [row[3:-3] for row in ticked[3:-3]]
    (fill, _), *_ = Counter(colour for row in inner for colour in row).most_common()
    sign = max(contrast(colour, fill) for row in inner for colour in row)
    assert max(contrast(colour, tuple(ground)) for row in empty for colour in row) >= LEAST
    assert contrast(fill, tuple(ground)) >= LEAST and sign >= LEAST


# The colour of the card that the boxes stand on.
GROUND = """() => {
  let at = document.querySelector(".ds-more-texts");
  const clear = "rgba(0, 0, 0, 0)";
  while (getComputedStyle(at).backgroundColor === clear) at = at.parentElement;
  return getComputedStyle(at).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number);
}"""
