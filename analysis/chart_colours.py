"""The colours of charts, by theme: those of runs (``analysis.palette``), and inks and causes, which
the studio's stylesheet states too; a test compares them.

A chart names its colours with "@" before them: ``painted`` puts a theme's in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from analysis.palette import SERIES

Theme = Literal["auto", "light", "dark", "page"]

# What a theme calls its colours, and the studio's stylesheet too, after "--ds-".
_LIGHT = {
    "ink": "#1b2230", "soft": "#5d6675", "line": "#e2dfd5", "faint": "#a6adb9", "card": "#fffefb",
    "cause-accepted": "#0b67a5", "cause-outranked": "#ad4d12", "cause-pruned": "#a36ca1",
    "cause-outside": "#d0b4cd", "cause-beyond": "#72767d", "cause-nothing": "#1b2230",
    "cause-refused": "#daae92", "cause-unreached": "#e9e5d8",
}  # fmt: skip
_DARK = {
    "ink": "#e6e9ef", "soft": "#9aa4b4", "line": "#2b313c", "faint": "#5f6978", "card": "#1a1e26",
    "cause-accepted": "#62b5f0", "cause-outranked": "#f0a063", "cause-pruned": "#ac7aaa",
    "cause-outside": "#644c69", "cause-beyond": "#989ca3", "cause-nothing": "#e6e9ef",
    "cause-refused": "#7a5941", "cause-unreached": "#2e3644",
}  # fmt: skip
# greys and colours that can be read on white and on black alike; the paper is see-through
_AUTO = _LIGHT | {
    "ink": "#767676", "soft": "#767676", "line": "rgba(128,128,128,0.25)", "faint": "#8a8a8a",
    "card": "rgba(0,0,0,0)",
}  # fmt: skip


def _with_series(theme: str, others: Mapping[str, str]) -> dict[str, str]:
    return {**others, **{f"series-{n}": code for n, code in enumerate(SERIES[theme], 1)}}


PALETTES: Mapping[Theme, Mapping[str, str]] = {
    "auto": _with_series("auto", _AUTO),
    "light": _with_series("light", _LIGHT),
    "dark": _with_series("dark", _DARK),
    "page": {name: f"var(--ds-{name})" for name in _with_series("light", _LIGHT)},
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
