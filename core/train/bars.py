"""A progress bar for long stages of training."""

from __future__ import annotations

import sys

from tqdm import tqdm


def progress_bar(total: int, text: str, unit: str) -> tqdm:
    """A bar on a terminal, nothing elsewhere."""
    return tqdm(total=total, desc=text, unit=unit, file=sys.stderr, disable=not sys.stderr.isatty())
