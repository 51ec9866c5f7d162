"""MTP heads in llama.cpp's files of Qwen3.5 and later, as Qwen publishes them.

Its converter writes a head behind the target's layers, or with the ends alone (``--mtp``); of
either file nothing else is read. Other architectures are refused: nothing here opens a target of
theirs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.methods.mtp import COUNTS
from core.methods.mtp.config import KIND, MtpConfig
from core.models.configs import as_user_error
from core.models.gguf import HEAD, ORIGIN, WITH_HEAD, read_config, write_head
from core.models.gguf import LAYOUT as WRITTEN
from core.models.gguf_layout import GgufHeader
from core.progress import Progress

FIRST = "blk.0.attn_norm.weight"  # of a target's own layers


class HeadFile:
    """A kind of drafter in llama.cpp's files, as ``core.models.gguf_layout.GgufLayout``."""

    architecture, mark = "an MTP head", ""

    def suits(self, header: GgufHeader) -> bool:
        """Whether a file holds a head and no target."""
        return (
            header.architecture in WITH_HEAD
            and FIRST not in header.tensors
            and any(".nextn." in name for name in header.tensors)
        )

    def read_config(self, file: Path, header: GgufHeader) -> dict[str, Any]:
        """The object of config.json: the target's, which counts the head. Raises UserError for a
        file without a head that is read."""
        with as_user_error(file, KIND):
            if header.architecture not in WITH_HEAD:
                raise UserError(
                    f"it holds a model of the architecture {header.architecture[:60]!r}, and of "
                    f"GGUF files an MTP head is read in llama.cpp's {' and '.join(WITH_HEAD)}"
                )
            if not any(".nextn." in name for name in header.tensors):
                raise UserError("it holds no MTP head")
        raw: dict[str, Any] = read_config(file).to_dict()
        raw |= {"architectures": ["Qwen3_5MTP"], COUNTS[0]: header.fields["nextn_predict_layers"]}
        with as_user_error(file, KIND):
            MtpConfig.of(raw)
        return raw

    def write(self, file: Path, made: Path, report: Progress) -> None:
        """Write the file's head in Qwen's layout into ``made``. Raises as ``read_config``."""
        from gguf import GGUFReader

        config = self.read_config(file, GgufHeader.of(file))
        made.mkdir(parents=True)
        write_head(GGUFReader(str(file)), config["num_hidden_layers"], made / HEAD, report)
        (made / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (made / ORIGIN).write_text(json.dumps({"file": file.name, "layout": WRITTEN}, indent=1))


LAYOUT = HeadFile()
