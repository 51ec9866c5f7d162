"""Draftscope's core: decoding, drafters, traces. No user interface is ever imported here."""

VERSION = "0.1.0"
