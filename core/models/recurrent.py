"""Targets whose layers carry a state: gated delta nets, Mamba 2, short convolutions, Kimi's KDA.

Such a layer has no keys to mask, so it runs a tree by depth: the rows of one depth are a batch,
each row with a copy of its parent's state, and the module's own code in transformers makes the
one-token step. All other modules still see one forward of all rows. ``commit`` makes the state
after the last accepted row the state of the text.

States of a draft are kept by row until the commit if they fit in ``KEPT`` bytes. Otherwise only two
depths exist at a time, and the commit repeats the steps of the accepted path.

Shapes: N rows of a draft, n rows of one depth, h hidden size, T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from core.errors import UserError
from core.models.cache import cache_argument
from core.models.hugging_face import HuggingFaceKV
from core.models.layer_kinds import ATTENDING, CARRYING, layer_kinds

KEPT = 256 << 20  # bytes of all states of a draft that are kept rather than made again

# Mixers whose one-token step is tested to continue a state.
MIXERS = frozenset(
    {
        "BailingHybridDeltaAttention",
        "BambaMixer",
        "FalconH1Mixer",
        "GraniteMoeHybridMambaLayer",
        "KimiLinearDeltaAttention",
        "LaraMiniGatedDeltaNet",
        "Lfm2MoeShortConv",
        "Lfm2ShortConv",
        "Lfm3ShortConv",
        "NemotronHMamba2Mixer",
        "OlmoHybridGatedDeltaNet",
        "Qwen3NextGatedDeltaNet",
        "Qwen3_5GatedDeltaNet",
        "Qwen3_5MoeGatedDeltaNet",
    }
)


@dataclass
class States:
    """One layer's states of a batch: what its mixer sees as the cache, by transformers' names.

    conv       the last inputs of the convolution [B, C, kernel]; None: at the start of a text
    recurrent  the state of the recurrence [B, …]; None: at the start, or the layer has none
    """

    conv: Tensor | None = None
    recurrent: Tensor | None = None

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.conv

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.recurrent

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, conv_kernel_size: int = 0, **unused: Any
    ) -> Tensor:
        """Take in inputs [B, C, T]. Returns them after those that the convolution still reads."""
        before = self.conv
        if before is None:
            before = conv_states.new_zeros(*conv_states.shape[:2], conv_kernel_size)
        seen = torch.cat([before, conv_states], -1)
        self.conv = seen[..., -conv_kernel_size:].clone()
        return seen

    def update_recurrent_state(self, states: Tensor, layer_idx: int, **unused: Any) -> Tensor:
        self.recurrent = states
        return states

    def at(self, rows: Tensor) -> States:
        """Copies of the states of these rows [n]: steps write into them."""
        conv, recurrent = self.conv, self.recurrent
        return States(
            None if conv is None else conv.index_select(0, rows.to(conv.device)),
            None if recurrent is None else recurrent.index_select(0, rows.to(recurrent.device)),
        )

    @property
    def bytes_per_row(self) -> int:
        tensors = [t for t in (self.conv, self.recurrent) if t is not None]
        return sum(t[0].numel() * t.element_size() for t in tensors)


@dataclass(frozen=True)
class Level:
    """The rows [n] of one depth, and for each the place of its parent among those of the last."""

    rows: Tensor
    parents: Tensor


@dataclass
class Drafted:
    """One layer's part of a scored draft: the states after each depth, or its inputs [N, h]."""

    levels: list[tuple[Level, States]] = field(default_factory=list)
    inputs: Tensor | None = None


class ForkingMixer(nn.Module):
    """A mixer that can run a tree, when the cache is a ``RecurrentKV`` that branches."""

    def __init__(self, inner: nn.Module, layer: int):
        super().__init__()
        self.inner, self.layer = inner, layer
        self.argument = cache_argument(type(inner))

    def forward(self, hidden_states: Tensor, **options: Any) -> Tensor:
        cache = options.get(self.argument)
        if isinstance(cache, RecurrentKV):
            return cache.mix(self, hidden_states, options)
        return self.inner(hidden_states, **options)

    def run(self, hidden_states: Tensor, states: States, **options: Any) -> Tensor:
        """The mixer [B, T, h] on ``states``, which it moves on."""
        return self.inner(hidden_states, **{**options, self.argument: states})


class RecurrentKV(HuggingFaceKV):
    """Keys and values of the layers that attend, and the states of those that carry one.

    Holds one text. A forward outside ``branching`` continues it by a sequence, all of which must be
    committed.
    """

    def __init__(self, kinds: tuple[str, ...], capacity: int, apart: bool = False):
        super().__init__(len(kinds), capacity, apart, [kind in ATTENDING for kind in kinds])
        self._carrying = sum(kind in CARRYING for kind in kinds)
        self._states: dict[int, States] = {}
        self._mixers: dict[int, ForkingMixer] = {}
        self._levels: list[Level] | None = None
        self._drafted: dict[int, Drafted] = {}

    @property
    def state_bytes(self) -> int:
        """One copy of all layers' states; 0 before a text."""
        return sum(states.bytes_per_row for states in self._states.values())

    @contextmanager
    def branching(self, parents: np.ndarray) -> Iterator[None]:
        """In this context a forward's rows are a tree: ``parents`` [N], −1 for the root."""
        self._levels, self._drafted = _levels(parents), {}
        try:
            yield
        finally:
            self._levels = None

    def mix(self, mixer: ForkingMixer, hidden: Tensor, options: dict[str, Any]) -> Tensor:
        """A carrying layer's output [1, T, h], for the rows of a sequence or of a tree."""
        states = self._states.setdefault(mixer.layer, States())
        if self._levels is None:
            return mixer.run(hidden, states, **options)
        self._mixers[mixer.layer] = mixer
        return self._mix_tree(mixer, hidden[0], states)[None]

    def _mix_tree(self, mixer: ForkingMixer, hidden: Tensor, states: States) -> Tensor:
        assert self._levels is not None
        keep = fork_is_kept(states.bytes_per_row * self._carrying, len(hidden))
        drafted = self._drafted[mixer.layer] = Drafted(inputs=None if keep else hidden)
        out = torch.empty_like(hidden)
        for level in self._levels:
            states = states.at(level.parents)
            out[level.rows] = _step(mixer, hidden[level.rows], states)
            if keep:
                drafted.levels.append((level, states))
        return out

    def commit(self, rows: Tensor | int) -> None:
        """Keep the rows of a sequence, or of a tree the path from the root at these rows."""
        super().commit(rows)
        path = list(range(rows)) if isinstance(rows, int) else rows.tolist()
        for layer, drafted in self._drafted.items():
            self._states[layer] = self._after(layer, drafted, path)
        self._drafted = {}

    def _after(self, layer: int, drafted: Drafted, path: list[int]) -> States:
        """The layer's states [1, …] after the rows of ``path``."""
        if drafted.inputs is None:
            level, after = drafted.levels[len(path) - 1]
            return after.at((level.rows == path[-1]).nonzero()[0])
        states = self._states[layer]
        for row in path:
            _step(self._mixers[layer], drafted.inputs[row : row + 1], states)
        return states

    def truncate(self, length: int) -> None:
        """Drop everything. Raises ValueError for a length but 0: a state has no rows to drop."""
        if length:
            raise ValueError("a text that is carried as a state cannot be cut")
        super().truncate(0)
        self._states, self._drafted = {}, {}


def fork_is_kept(state_bytes: int, rows: int) -> bool:
    """Whether the states of a draft of so many rows, root included, are kept until the commit.

    state_bytes  of one copy of all layers' states
    """
    return state_bytes * rows <= KEPT


def _step(mixer: ForkingMixer, hidden: Tensor, states: States) -> Tensor:
    """One token for each row [n, h] of a batch, on its own state."""
    return mixer.run(hidden[:, None], states, attention_mask=None)[:, 0]


def _levels(parents: np.ndarray) -> list[Level]:
    """The rows of a tree by depth. A parent's row is before its children's."""
    depths = np.zeros(len(parents), np.int64)
    places = np.zeros(len(parents), np.int64)
    rows: list[list[int]] = []
    for row, parent in enumerate(parents.tolist()):
        depths[row] = depths[parent] + 1 if parent >= 0 else 0
        if depths[row] == len(rows):
            rows.append([])
        places[row] = len(rows[depths[row]])
        rows[depths[row]].append(row)
    above = np.maximum(parents, 0)
    return [Level(torch.tensor(r), torch.from_numpy(places[above[r]])) for r in rows]


def let_states_fork(model: nn.Module, config: Any) -> None:
    """Wrap the model's carrying mixers, once, so that they run trees.

    Other models stay as they are.

    Raises UserError when a carrying layer has a mixer that is not known.
    """
    wanted = [number for number, kind in enumerate(layer_kinds(config)) if kind in CARRYING]
    found = []
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ in MIXERS:
                layer: Any = child.layer_idx
                found.append(layer)
                if not isinstance(module, ForkingMixer):
                    setattr(module, name, ForkingMixer(child, layer))
    if sorted(found) != wanted:
        raise UserError(
            f"the layers of {type(model).__name__} that carry a state are of a make that is not "
            "known here"
        )
