"""The sign of each run or method that stands beside others: a letter and a colour.

They go by the order on view, and are the same in panes, strips, tables, figures and reports. The
studio's stylesheet knows the colours as ``--ds-series-1`` and so on (``app.page_files``).

The first four stay apart for readers with protanopia, deuteranopia and tritanopia (OKLab, Machado's
matrices), mostly by lightness; all have a contrast of 3 : 1 or more on every ground of their theme.
"""

from __future__ import annotations

from collections.abc import Mapping

LETTERS = "ABCD"  # runs that a view shows at once

SERIES: Mapping[str, tuple[str, ...]] = {
    "light": ("#2a7ab8", "#b8620e", "#6a2c82", "#0f5132", "#5a4a00", "#a8325a"),
    "dark": ("#4a9bf6", "#cf7446", "#d6b4e3", "#bff5de", "#f5e58a", "#ee8fa2"),
    # readable on white and on black
    "auto": ("#2a7ab8", "#c2610c", "#a45bbf", "#1f8a5c", "#857300", "#d0486f"),
}


def letter(at: int) -> str:
    """The letter of number ``at``: A to Z, then AA, AB and so on."""
    first, last = divmod(at, 26)
    return (letter(first - 1) if first else "") + chr(ord("A") + last)


def colour(at: int, theme: str = "light") -> str:
    """The colour of number ``at``; after the last they begin again, and the letter tells."""
    return SERIES[theme][at % len(SERIES[theme])]


def variables(theme: str) -> str:
    """The theme's colours as declarations of a stylesheet."""
    return "".join(f"--ds-series-{n}:{c};" for n, c in enumerate(SERIES[theme], 1))
