"""Draftscope's core: decoding, drafters, traces. No user interface is ever imported here."""

from pathlib import Path

VERSION = "0.2.0"
ASSETS = Path(__file__).resolve().parent.parent / "assets"
