"""The one palette: charts, the studio, exported trees and graphs take their colours from here.

Each run or method beside others has a sign, a letter and a colour, by the order on view. The first
four colours stay apart for readers with protanopia, deuteranopia and tritanopia (OKLab, Machado's
matrices), mostly by lightness; all have a contrast of 3 : 1 or more on every ground of their theme.
Every other colour has a second sign beside it, such as a dash or a mark.

Stylesheets name a colour ``--ds-NAME``; ``app.page_files`` defines those from here. A chart names
it "@NAME", and ``painted`` puts a theme's colour in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from core.rounds.causes import Cause

Theme = Literal["auto", "light", "dark", "page"]

LETTERS = "ABCD"  # runs that a view shows at once

SERIES: Mapping[str, tuple[str, ...]] = {
    "light": ("#2a7ab8", "#b8620e", "#6a2c82", "#0f5132", "#5a4a00", "#a8325a"),
    "dark": ("#4a9bf6", "#cf7446", "#d6b4e3", "#bff5de", "#f5e58a", "#ee8fa2"),
    # readable on white and on black
    "auto": ("#2a7ab8", "#c2610c", "#a45bbf", "#1f8a5c", "#857300", "#d0486f"),
}
SLOTS = len(SERIES["light"])  # colours and signs of series
_NAMED = {  # on light, on dark
    "ground": ("#f5f4ef", "#12151b"),
    "card": ("#fffefb", "#1a1e26"),
    "sunk": ("#faf9f4", "#151920"),
    "band": ("#f1eee4", "#222834"),
    "ink": ("#1b2230", "#e6e9ef"),
    "soft": ("#5d6675", "#9aa4b4"),
    "line": ("#e2dfd5", "#2b313c"),
    "faint": ("#a6adb9", "#5f6978"),
    "accepted": ("#0b67a5", "#62b5f0"),
    "accepted-box": ("#dfeefa", "#143350"),
    "rejected": ("#ad4d12", "#f0a063"),
    "ghost": ("#843b82", "#dc98d6"),
    "good": ("#1f7a4d", "#6fcf9a"),
    "select": ("#e7a100", "#ffc53d"),
    "on-select": ("#1b2230", "#1b2230"),
    "bad": ("#a3261b", "#ff9d8f"),
    "bad-box": ("#fbe9e5", "#3a1d1a"),
    "cause-accepted": ("#0b67a5", "#62b5f0"),
    "cause-outranked": ("#ad4d12", "#f0a063"),
    "cause-pruned": ("#a36ca1", "#ac7aaa"),
    "cause-stopped": ("#8a6d3b", "#c9a96a"),
    "cause-short": ("#7a2f6b", "#7c4276"),
    "cause-unread": ("#6f5ca8", "#9a8ad6"),
    "cause-outside": ("#d0b4cd", "#644c69"),
    "cause-vocabulary": ("#4d2a5e", "#d6b3e6"),
    "cause-beyond": ("#72767d", "#989ca3"),
    "cause-nothing": ("#1b2230", "#e6e9ef"),
    "cause-refused": ("#daae92", "#7a5941"),
    "cause-unknown": ("#b4ad98", "#5a5f55"),
    "cause-unreached": ("#e9e5d8", "#2e3644"),
}
CAUSE_COLOURS: Mapping[Cause, str] = {  # its colour's name; those that are not here are unknown
    Cause.ACCEPTED: "cause-accepted",
    Cause.OUTRANKED: "cause-outranked",
    Cause.PRUNED: "cause-pruned",
    Cause.STOPPED: "cause-stopped",
    Cause.NOT_READ: "cause-unread",
    Cause.SHORT_LIST: "cause-short",
    Cause.OUTSIDE: "cause-outside",
    Cause.VOCABULARY: "cause-vocabulary",
    Cause.BEYOND: "cause-beyond",
    Cause.NO_DRAFT: "cause-nothing",
    Cause.REFUSED: "cause-refused",
    Cause.NOT_TAKEN: "cause-unknown",
    Cause.UNKNOWN: "cause-unknown",
    Cause.TEXT_ENDED: "cause-nothing",
    Cause.UNREACHED: "cause-unreached",
}
# greys that can be read on white and on black alike; the paper is see-through
_AUTO = {
    "ink": "#767676", "soft": "#767676", "line": "rgba(128,128,128,0.25)", "faint": "#8a8a8a",
    "card": "rgba(0,0,0,0)",
}  # fmt: skip


def _palette(theme: Theme, **own: str) -> dict[str, str]:
    colours = {name: codes[theme == "dark"] for name, codes in _NAMED.items()} | own
    return colours | {f"series-{n}": code for n, code in enumerate(SERIES[theme], 1)}


PALETTES: Mapping[Theme, Mapping[str, str]] = {
    "auto": _palette("auto", **_AUTO),
    "light": _palette("light"),
    "dark": _palette("dark"),
    "page": {name: f"var(--ds-{name})" for name in _palette("light")},
}


def letter(at: int) -> str:
    """The letter of number ``at``: A to Z, then AA, AB and so on."""
    first, last = divmod(at, 26)
    return (letter(first - 1) if first else "") + chr(ord("A") + last)


def series_colour(at: int) -> str:
    """The name of number ``at``'s colour; after the last they begin again, and the letter tells."""
    return f"series-{at % SLOTS + 1}"


def variables(theme: Theme) -> str:
    """The theme's colours as declarations of a stylesheet."""
    return "".join(f"--ds-{name}:{code};" for name, code in PALETTES[theme].items())


def causes() -> str:
    """Rules of a stylesheet that give what is of a cause (``.end.CODE``) its colour, --ds-end."""
    rules = (f".end.{cause}{{--ds-end:var(--ds-{name})}}" for cause, name in CAUSE_COLOURS.items())
    return "\n".join(rules)


_WORDS = ("meta", "text", "name", "hovertext", "ticktext", "label", "legendgroup")


def painted(value: Any, paint: Mapping[str, str]) -> Any:
    """Replace names of colours ("@NAME") in a figure by the colours of a palette.

    Names and numbers of people are in ``meta`` and in escaped texts; those are left as they are.
    """
    if isinstance(value, dict):
        return {k: v if k in _WORDS else painted(v, paint) for k, v in value.items()}
    if isinstance(value, list):
        return [painted(each, paint) for each in value]
    return paint[value[1:]] if isinstance(value, str) and value.startswith("@") else value
