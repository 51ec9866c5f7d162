"""The colours of charts, by theme: those of runs (``analysis.charts.palette``), inks and causes.

The studio's stylesheet states the inks and causes too; a test compares them.

A chart names its colours with "@" before them: ``painted`` puts a theme's in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from analysis.charts.palette import SERIES

Theme = Literal["auto", "light", "dark", "page"]

# What a theme calls its colours, and the studio's stylesheet too, after "--ds-": on light, on dark.
_NAMED = {
    "ink": ("#1b2230", "#e6e9ef"),
    "soft": ("#5d6675", "#9aa4b4"),
    "line": ("#e2dfd5", "#2b313c"),
    "faint": ("#a6adb9", "#5f6978"),
    "card": ("#fffefb", "#1a1e26"),
    "cause-accepted": ("#0b67a5", "#62b5f0"),
    "cause-outranked": ("#ad4d12", "#f0a063"),
    "cause-pruned": ("#a36ca1", "#ac7aaa"),
    "cause-unread": ("#6f5ca8", "#9a8ad6"),
    "cause-outside": ("#d0b4cd", "#644c69"),
    "cause-vocabulary": ("#4d2a5e", "#d6b3e6"),
    "cause-beyond": ("#72767d", "#989ca3"),
    "cause-nothing": ("#1b2230", "#e6e9ef"),
    "cause-refused": ("#daae92", "#7a5941"),
    "cause-unknown": ("#b4ad98", "#5a5f55"),
    "cause-unreached": ("#e9e5d8", "#2e3644"),
}
# greys and colours that can be read on white and on black alike; the paper is see-through
_AUTO = {
    "ink": "#767676", "soft": "#767676", "line": "rgba(128,128,128,0.25)", "faint": "#8a8a8a",
    "card": "rgba(0,0,0,0)",
}  # fmt: skip


def _palette(theme: str, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """``others``: names whose colours the theme has of its own."""
    own = {name: codes[theme == "dark"] for name, codes in _NAMED.items()}
    return (
        own | dict(others or {}) | {f"series-{n}": code for n, code in enumerate(SERIES[theme], 1)}
    )


PALETTES: Mapping[Theme, Mapping[str, str]] = {
    "auto": _palette("auto", _AUTO),
    "light": _palette("light"),
    "dark": _palette("dark"),
    "page": {name: f"var(--ds-{name})" for name in _palette("light")},
}

_WORDS = ("meta", "text", "name", "hovertext", "ticktext", "label", "legendgroup")


def painted(value: Any, paint: Mapping[str, str]) -> Any:
    """The same with a palette's colours in place of their names, which begin with "@".

    Names and numbers of people are in ``meta`` and in escaped texts; those are left as they are.
    """
    if isinstance(value, dict):
        return {k: v if k in _WORDS
                else painted(v, paint) for k, v in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [painted(each, paint) for each in value]
    return paint[value[1:]] if isinstance(value, str) and value.startswith("@") else value
