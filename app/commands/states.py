"""Texts whose hidden states a trainer or an engine kept, in place of a target that runs. Light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.command_line import CommandOptions, option
from core.errors import UserError
from core.ranges import Range

if TYPE_CHECKING:
    from core.decoding.along import Reading
    from core.models.language import Language


@dataclass(frozen=True, kw_only=True)
class StatesOptions(CommandOptions):
    """Files of hidden states."""

    title: ClassVar[str] = "hidden states that were kept"
    states: tuple[Path, ...] = option(
        (),
        "read these texts with the target's hidden states: hs_*.safetensors of speculators, or "
        "what vLLM's extract_hidden_states wrote; files or folders. Only the target's embedding, "
        "final norm and head are loaded",
        metavar="FILE|FOLDER",
    )
    layers: tuple[int, ...] = option(
        (),
        "which states the files hold, in vLLM's numbers, such as 2 16 29 (default: those that the "
        "drafter reads, and the last)",
        Range(0),
    )
    begins: int | None = option(
        None, "number of the answer's first token (default: by the chat template)", Range(1)
    )

    def files(self) -> list[Path]:
        """The files, one for each text; none where no states are named. Raises UserError."""
        if not self.states:
            if self.layers or self.begins is not None:
                raise UserError("--layers and --begins are for the files of --states: name these")
            return []
        from core.decoding.dumps import dump_files

        return dump_files(self.states)

    def read(self, file: Path, language: Language, drafted: Sequence[int]) -> Reading:
        """Read a file of states; ``drafted``: layers that the drafters read. Raises UserError."""
        from core.decoding.dumps import read_dump, reading_of

        return reading_of(read_dump(file), language, drafted, self.layers or None, self.begins)
