"""Make README's picture anew: the page as it opens, on a run that ships.

    python -m app.maintainers.picture

Needs the requirements of the tests (playwright) and a Chromium.
"""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from pathlib import Path

from app.command_line import CommandOptions, option, run
from app.maintainers import BROWSERS
from core import ASSETS
from core.errors import UserError, as_script

LOADING = 240_000  # ms
DRAWN = 3000  # ms: the first round's path is drawn step by step
COLOURS = 256


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Make README's picture anew: the page as it opens, on a run that ships."""

    out: Path = option(ASSETS / "studio.png", "the picture", metavar="PNG")


def main(args: Options) -> int:
    args.out.write_bytes(smaller(photographed()))
    print(f"{args.out}: {args.out.stat().st_size:,} bytes")
    return 0


def photographed() -> bytes:
    """The page at 1,440 x 900 when its model is there, as PNG."""
    from playwright.sync_api import sync_playwright

    from app.studio.engine import LiveEngine, ModelChoice
    from app.studio.runs import Runs
    from app.studio.server import launch

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise UserError(f"there is no browser here: install {BROWSERS[0]} or {BROWSERS[1]}")
    runs = Runs(LiveEngine(ModelChoice()))
    server = launch(runs, "127.0.0.1", 0)
    runs.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(server.address)
            page.locator(".ds-node").first.wait_for()
            page.get_by_text("model:").wait_for(state="hidden", timeout=LOADING)
            page.wait_for_timeout(DRAWN)
            return page.screenshot()
    finally:
        runs.close()
        server.close()


def smaller(png: bytes) -> bytes:
    """The picture with a palette: a third of the size."""
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(COLOURS).save(made, "PNG", optimize=True)
    return made.getvalue()


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m app.maintainers.picture"))
