"""A page and its data as a browser reads them."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Elements of a page as a browser's parser finds them: tags, and the text of each script."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        at = len(self.tags) - 1
        if self.inside:
            self.texts[at] = self.texts.get(at, "") + data

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        found = enumerate(self.tags)
        return [(attrs, self.texts.get(at, "")) for at, (name, attrs) in found if name == tag]


def block(page: Page, name: str) -> Any:
    return json.loads(next(text for attrs, text in page.all("script") if attrs.get("id") == name))


def unpacked(block: Any) -> Any:
    """A block of a pack, as app/web/offline/packs.js does it."""
    return json.loads(gzip.decompress(base64.b64decode(block))) if type(block) is str else block


def plain_json(value: object) -> str:
    """As strict as the server's encoder: string keys, no NaN, valid Unicode."""

    def check(part: object) -> None:
        if isinstance(part, dict):
            assert all(type(key) is str for key in part)
            list(map(check, part.values()))
        elif isinstance(part, list):
            list(map(check, part))
        else:
            assert part is None or type(part) in (str, int, float, bool), repr(part)

    check(value)
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    text.encode()
    return text
