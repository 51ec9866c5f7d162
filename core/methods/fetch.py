"""The files and memory that a preset needs on this machine, and fetching them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.files import cache_root
from core.methods.method import drafter_source, find_drafter
from core.models import embedded
from core.models.hub import GGUF, SMALL_FILES, WEIGHTS, Source, matching
from core.models.presets import Ngram, Preset
from core.progress import Progress, silent

STORED = 2  # bytes a parameter takes as published: bfloat16


def ngram_store(name: str, ngram: Ngram) -> Path:
    """The preset's n-gram store, ready to be mapped. Raises UserError when it is not made yet."""
    if not _is_made(ngram):
        raise UserError(
            f"the n-gram store of {name} is not here yet: python -m app model fetch {name} gets "
            "it, or do without: --set ngram_weight=0"
        )
    return _store_path(ngram)


def fetch(preset: Preset, report: Progress = silent) -> None:
    """Bring everything of a preset here; what is here already is left alone. Raises UserError."""
    if preset.target.name == embedded.NAME:
        embedded.prepare(report)
        return
    for _, source in _checkpoints(preset):
        source.full_folder(report)
    if preset.ngram is not None and not _is_made(preset.ngram):
        _make_store(preset, preset.ngram, report)


def _checkpoints(preset: Preset) -> Iterator[tuple[str, Source]]:
    """Its target and drafters. A drafter in the target's own files is fetched with it."""
    yield "target", preset.target
    for kind, each in preset.drafters.items():
        if each != preset.target:
            yield kind, drafter_source(find_drafter(kind), each)


def _store_path(ngram: Ngram) -> Path:
    """Where the store is, or will be once it is converted."""
    folder = ngram.source.folder
    if folder is not None and not ngram.file.endswith(".trie"):
        return folder / ngram.file
    safe = re.sub(r"[^\w.@-]+", "--", f"{ngram.source}/{ngram.file}").strip("-.")
    return cache_root() / "ngram" / f"{Path(safe).stem}.safetensors"


def _is_made(ngram: Ngram) -> bool:
    """Whether the store is there, and no older than the file on this machine it was made from."""
    made, folder = _store_path(ngram), ngram.source.folder
    source = folder / ngram.file if folder is not None else made
    if not (made.is_file() and source.is_file()):
        return made.is_file()
    return made.stat().st_mtime_ns >= source.stat().st_mtime_ns


def _make_store(preset: Preset, ngram: Ngram, report: Progress) -> None:
    """Fetch the file and convert it; the store appears when it is whole."""
    from core.models.language import load_vocabulary
    from core.ngram import BuildOptions, read_trie

    folder = ngram.source.folder or ngram.source.fetch((ngram.file,), report)
    path, final = folder / ngram.file, _store_path(ngram)
    if not path.is_file():
        raise UserError(f"{ngram.source} holds no file {ngram.file}")
    final.parent.mkdir(parents=True, exist_ok=True)
    own = load_vocabulary(str(preset.target))
    options = BuildOptions(
        tokenizer=own.identity, sources=f"{Path(ngram.source.name).name}/{path.name}"
    )
    read_trie(path, final, own.size, options, report)


# ── how much it is ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Part:
    """One thing a preset needs. size: bytes to fetch; None: unknown, the hub cannot be asked."""

    what: str
    source: str
    here: bool
    size: int | None


@dataclass(frozen=True)
class Needs:
    """The files that a preset fetches."""

    parts: tuple[Part, ...]

    @property
    def missing(self) -> int | None:
        """Bytes still to fetch; None where one part's size is unknown."""
        sizes = [part.size for part in self.parts if not part.here]
        return None if None in sizes else sum(size or 0 for size in sizes)


def needs(preset: Preset, ask: Callable[[Source], dict[str, int]] = Source.sizes) -> Needs:
    """List what the preset needs; the hub is asked for sizes where it can be reached."""
    every = (*SMALL_FILES, *WEIGHTS)
    parts = [_part(what, source, every, ask) for what, source in _checkpoints(preset)]
    if preset.target.name == embedded.NAME:
        ready = embedded.is_ready()
        parts = [Part("target", str(preset.target), ready, embedded.WHEEL_BYTES)]
    elif not preset.target.is_local and parts[0].size is None and preset.parameters:
        parts[0] = Part("target", parts[0].source, parts[0].here, preset.parameters * STORED)
    if preset.ngram is not None:
        parts.append(_ngram_part(preset.ngram, ask))
    return Needs(tuple(parts))


def _part(
    what: str, source: Source, patterns: tuple[str, ...], ask: Callable[[Source], dict[str, int]]
) -> Part:
    patterns = patterns if source.gguf is None else (f"*{GGUF}",)
    try:
        sizes = matching(ask(source), patterns)
    except UserError:
        return Part(what, str(source), source.is_local or source.is_whole(), None)
    here = source.is_local or (bool(sizes) and all(map(source.cached, sizes)))
    return Part(what, str(source), here, sum(sizes.values()))


def _ngram_part(ngram: Ngram, ask: Callable[[Source], dict[str, int]]) -> Part:
    found = _part("ngram", ngram.source, (ngram.file,), ask)
    return Part("ngram", f"{ngram.source}/{ngram.file}", _is_made(ngram), found.size)
