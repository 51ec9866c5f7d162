"""The tab that docs/extending.md writes opens in a real page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("gradio")
pytest.importorskip("playwright")

from playwright.sync_api import expect

from app import page_files
from app.studio import server
from app.studio.examples import Examples
from tests.browser.steps import Open, served, tab
from tests.helpers.documents import block, run_block
from tests.helpers.fakes import FakeEngine

pytestmark = pytest.mark.browser


def test_the_tab_in_extending_md_opens(
    visit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = run_block('Tab("shelf"')["TAB"]
    web = tmp_path / "web"
    shutil.copytree(page_files.WEB, web)
    (web / made.script).parent.mkdir()
    (web / made.script).write_text(block("mount", "js"), "utf-8")
    monkeypatch.setattr(page_files, "WEB", web)
    monkeypatch.setattr(server, "TABS", (*server.TABS, made))
    runs = [run for group in Examples().groups(False) for run in group["runs"]]
    with served(FakeEngine()) as address:
        page = visit(address)
        tab(page, made.name)
        lines = page.locator("#ds-shelf li")
        expect(lines).to_have_count(len(runs))
        expect(lines.first).to_have_text(f"{runs[0]['title']}: {runs[0]['words']}")
        expect(page).to_have_url(f"{address}/#view={made.name}")
