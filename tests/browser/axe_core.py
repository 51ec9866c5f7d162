"""axe-core on a page, in light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

# What is left out, and why.
LEFT_OUT = {
    # A node is read "accepted, q 59 %", and drawn "✓ q 59%": marks and bars stand for words.
    "label-content-name-mismatch": ".ds-tree",
}

KINDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
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
    found: dict[str, Any] = page.evaluate("(runOnly) => axe.run(document, { runOnly })", only)
    return [
        f"{fault['id']}: {node['target'][0]} {node['failureSummary']}"
        for fault in found["violations"]
        for node in fault["nodes"]
        if not (where := LEFT_OUT.get(fault["id"])) or not within(page, node["target"][0], where)
    ]


def within(page: Page, target: str, where: str) -> bool:
    return page.locator(target).first.evaluate("(node, where) => !!node.closest(where)", where)
