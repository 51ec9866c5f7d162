"""DDTree: the most probable prefixes under DFlash's q, as a tree."""

from core.methods.method import Method

METHOD = Method("DDTree", "dflash", "best-first", 64, "the B most probable prefixes, as a tree")
