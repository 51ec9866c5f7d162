"""The common part of checkpoints of heads on the target's last hidden state. Light: never torch."""

from __future__ import annotations

import re
from collections.abc import Mapping


class OnLastHidden:
    """Base of such heads' configs. ``vocab_size`` 0: the heads end in the target's own head."""

    hidden_size: int
    vocab_size: int

    @property
    def of_target(self) -> dict[str, int]:
        """The sizes that the target must have, by name; those that are not known are left out."""
        sizes = {"hidden size": self.hidden_size, "vocabulary size": self.vocab_size}
        return {name: size for name, size in sizes.items() if size}

    def feature_layers(self, target_layers: int) -> tuple[int, ...]:
        """The last: its output is the last hidden state."""
        return (target_layers - 1,)


def count_heads(shapes: Mapping[str, tuple[int, ...]], before: str = "") -> int:
    """L, from the names of a file's tensors: after ``before`` comes each one's head's number."""
    found = (re.match(re.escape(before) + r"(\d{1,3})\.", name) for name in shapes)
    return 1 + max(int(each[1]) for each in found if each)
