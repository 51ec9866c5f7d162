"""Layouts of checkpoints that are published and not read here, by the names in their files.

Where a folder is refused, the sentence says what its files look like, and whose layouts are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.json_input import read_json
from core.methods.method import DrafterInfo, find_drafter, lazy
from core.methods.names import DRAFTERS
from core.models import checkpoint
from core.models.configs import LayoutError
from core.models.hub import config_file

LONGEST = 60  # characters of a name out of a file


@dataclass(frozen=True)
class Look:
    """A layout, and what gives it away: any one of these.

    tensor  a pattern that some tensor's name holds
    file    a pattern of a file's name
    """

    what: str
    tensor: str = ""
    file: str = ""


LOOKS = (
    Look("an EAGLE-4 drafter", r"^efficient_lm_head"),
    Look("a native MTP head in Qwen's layout", r"(^|\.)mtp\.(fc|layers|pre_fc)"),
    Look("a native MTP head in speculators' layout", r"^mtp_layers\."),
    Look("a native MTP head in DeepSeek's layout", r"\.(eh_proj|enorm|hnorm)\."),
    Look("a PEFT adapter", r"\.lora_[AB]\.", file=r"^adapter_config\.json$"),
    Look("a drafter with latent attention (MLA)", r"\.kv_a_proj"),
    Look("a drafter with a mixture of experts", r"\.experts\."),
    Look("a drafter with attention sinks", r"\.(sinks|attention_sink_bias)$"),
    Look("GGUF", file=r"(?i)\.gguf$"),
)


@contextmanager
def naming(drafter: DrafterInfo, folder: Path) -> Iterator[None]:
    """Add to the error of a folder that does not have a drafter's layout what it looks like."""
    try:
        yield
    except LayoutError as error:
        found = looks_like(folder) or _other_kind(folder, drafter) or _own_words(folder)
        if not found or drafter.checkpoint is None:
            raise
        told = f"{drafter.name} is read in {drafter.checkpoint.layouts}"
        raise UserError(f"{error}; it looks like {found}, and {told}") from None


def looks_like(folder: Path) -> str:
    """Which layout of ``LOOKS`` a folder has, or speculators'; "" for none of them."""
    raw, names, files = _config(folder), _tensors(folder), [f.name for f in _files(folder)]
    for look in LOOKS:
        every = ((look.tensor, names), (look.file, files))
        if any(pattern and re.search(pattern, n) for pattern, some in every for n in some):
            return look.what
    kind = raw.get("speculators_model_type")
    return f"speculators' {_said(kind)}" if isinstance(kind, str) else ""


def told_kind(folder: Path) -> str | None:
    """The drafter whose checkpoint a folder's config says it holds; None: it says of none."""
    lines = "\n".join(marks(_config(folder)))
    told = None
    for name in DRAFTERS:
        own = find_drafter(name).checkpoint
        if own is not None and re.search(own.told, lines, re.MULTILINE):
            told = name
    return told


def named_drafter(kind: str, folder: Path) -> bool:
    """Whether the architectures that a folder's config names are a drafter's of this kind."""
    listed, own = _config(folder).get("architectures"), find_drafter(kind).checkpoint
    names = listed if isinstance(listed, list) else []
    lines = [f"={_said(name)}" for name in names if isinstance(name, str)]
    return bool(lines) and own is not None and all(re.search(own.told, line) for line in lines)


def marks(raw: Mapping[str, Any]) -> list[str]:
    """List what a config says of itself, a line each.

    First ``=WORD`` for the architectures, model type and the like that it names, then
    ``FIELD=VALUE`` for its own fields and ``PART.FIELD=VALUE`` for those of a part.
    """
    lines = [f"={_said(word)}" for word in _words(raw)]
    for name, value in raw.items():
        inner = value if isinstance(value, dict) else {}
        lines += _fields({name: value}) + [f"{_said(name)}.{line}" for line in _fields(inner)]
    return lines


def _fields(raw: Mapping[str, Any]) -> list[str]:
    plain = (str, int, float)
    return [f"{_said(n)}={_said(str(v))}" for n, v in raw.items() if isinstance(v, plain)]


def _other_kind(folder: Path, drafter: DrafterInfo) -> str:
    """A drafter whose layout the folder has: "a checkpoint of NAME", or ""."""
    for name in DRAFTERS:
        own = find_drafter(name).checkpoint
        if name == drafter.name or own is None:
            continue
        with suppress(UserError):
            lazy(own.form).check_files(folder)
            return f"a checkpoint of {name}"
    return ""


def _own_words(folder: Path) -> str:
    """Return the names that the config gives its own model, joined by commas."""
    return ", ".join(dict.fromkeys(map(_said, _words(_config(folder)))))


def _words(raw: Mapping[str, Any]) -> list[str]:
    """The architectures, model types and projector type that a config names, and its own code's."""
    inner, code = (raw.get(n) if isinstance(raw.get(n), dict) else {} for n in _NESTED)
    listed = raw.get("architectures")
    found = [*(listed if isinstance(listed, list) else ()), raw.get("model_type")]
    found += [raw.get("speculators_model_type")]
    found += [inner.get("projector_type"), *code.values()]  # type: ignore[union-attr]
    return [word for word in found if isinstance(word, str)]


_NESTED = ("dflash_config", "auto_map")


def _said(word: str) -> str:
    """A word out of a file, as a sentence may hold it."""
    return "".join(c for c in word if c.isprintable())[:LONGEST]


def _config(folder: Path) -> dict[str, Any]:
    with suppress(UserError):
        raw = read_json(folder / config_file(folder))
        return raw if isinstance(raw, dict) else {}
    return {}


def _tensors(folder: Path) -> list[str]:
    with suppress(UserError):
        return list(checkpoint.stored_shapes(folder))
    return []


def _files(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []
