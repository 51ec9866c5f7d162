"""axe-core on a page, in light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

KINDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
# Who speaks to the page says what can be read on it.
NAMES = "label-content-name-mismatch"
CUT = "(node) => node.textContent.includes('…')"  # a token that its box cuts is named in full
CONTRAST = {"type": "rule", "values": ["color-contrast"]}


def check(page: Page, axe: Path) -> None:
    """axe finds no fault on the light page, nor of contrast once it is dark; then it is light."""
    page.add_script_tag(path=axe)
    assert faults(page, KINDS) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body.dark")).to_have_count(1)
    page.evaluate(
        """() => {
          const ends = ({ effect }) => effect.getComputedTiming().endTime < Infinity;
          const moving = document.getAnimations().filter(ends);
          return Promise.allSettled(moving.map((each) => each.finished));
        }"""
    )
    assert faults(page, CONTRAST) == []
    page.emulate_media(color_scheme="light")
    expect(page.locator("body.dark")).to_have_count(0)


def faults(page: Page, only: object) -> list[str]:
    """List the faults that axe finds by these rules, a line for each element."""
    run = (
        "([runOnly, name]) => axe.run(document, { runOnly, rules: { [name]: { enabled: true } } })"
    )
    found: dict[str, Any] = page.evaluate(run, [only, NAMES])
    return [
        f"{fault['id']}: {node['target'][0]} {node['failureSummary']}"
        for fault in found["violations"]
        for node in fault["nodes"]
        if fault["id"] != NAMES or not page.locator(node["target"][0]).first.evaluate(CUT)
    ]
