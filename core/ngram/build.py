"""Building a store from documents: count the keys of their windows, and cut them into levels.

Every position of a document gives one key: its window of three tokens as 3 × 21 bits, 0 after the
document's end. Sorted keys visit the trie depth first, and the count of a gram is the sum over its
consecutive keys. Memory holds one block of tokens, and each distinct window with its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from core.errors import UserError
from core.files import replacing
from core.ngram.store import (
    CODE_BITS,
    ORDER,
    TENSORS,
    NgramStore,
    check_vocabulary,
    count_limit,
    file_header,
    make_metadata,
    pack_nodes,
)
from core.rounds.draft import Array
from core.tensor_files import TYPES

_BLOCK = 1 << 22  # tokens that are counted at once
_END = np.zeros(ORDER - 1, np.int64)  # after a document: no window reaches into the next one
_LARGEST_LEVEL = (1 << 32) - 1  # starts are uint32


@dataclass(frozen=True)
class BuildOptions:
    """How to build a store.

    min_count  rarer trigrams are dropped; the other counts stay exact
    tokenizer, sources  a hash and free text for the store's metadata
    """

    min_count: int = 1
    tokenizer: str = ""
    sources: str = ""


DEFAULTS = BuildOptions()


def build_store(
    documents: Iterable[Sequence[int] | Array],
    path: Path,
    vocabulary: int,
    options: BuildOptions = DEFAULTS,
) -> NgramStore:
    """Count the grams of all documents (flat rows of token ids) into a store at ``path``.

    The file appears at ``path`` when it is complete. Raises UserError for a token outside the
    vocabulary, for a document that is not a row of integers, and when the file cannot be written.
    """
    check_vocabulary(vocabulary)
    check_place(path)
    runs = [_count_windows(codes) for codes in _blocks(documents, vocabulary)]
    return write_store(_sum_counts(np.concatenate(runs)), path, vocabulary, options)


def check_place(path: Path) -> None:
    """Raises UserError for a path where no file can be."""
    if path.is_dir():
        raise UserError(f"{path} is a folder")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}")


# ── documents → sorted rows ──────────────────────────────────────────────────────────────────────


def _blocks(documents: Iterable[Sequence[int] | Array], vocabulary: int) -> Iterator[Array]:
    """Codes int64 of whole documents: token + 1, and zeros after each document."""
    waiting, size = [_END], 0
    for number, document in enumerate(documents, 1):
        if len(document):
            waiting += [_codes(document, number, vocabulary), _END]
            size += len(document)
        if size >= _BLOCK:
            yield np.concatenate(waiting)
            waiting, size = [_END], 0
    yield np.concatenate(waiting)


def _codes(document: Sequence[int] | Array, number: int, vocabulary: int) -> Array:
    tokens = np.asarray(document)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise UserError(f"document {number} is not a row of token ids")
    for odd in (tokens.min(), tokens.max()):
        if not 0 <= odd < vocabulary:
            raise UserError(
                f"document {number} holds token {odd}, outside the vocabulary of {vocabulary:,}"
            )
    return tokens.astype(np.int64) + 1


def _count_windows(codes: Array) -> Array:
    """Rows (key, count), int64 [n, 2], with ascending keys, of the windows of a block."""
    first, second, third = codes[:-2], codes[1:-1], codes[2:]
    keys = (first << CODE_BITS | second) << CODE_BITS | third
    return np.stack(np.unique(keys[first > 0], return_counts=True), axis=1)


def _sum_counts(rows: Array) -> Array:
    """Rows sorted by key, with the counts of equal keys added."""
    # The stable sort is timsort here, which merges runs that are sorted already.
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    firsts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    return np.stack([rows[firsts, 0], np.add.reduceat(rows[:, 1], firsts)], axis=1)


# ── sorted rows → a store's file ─────────────────────────────────────────────────────────────────


def write_store(rows: Array, path: Path, vocabulary: int, options: BuildOptions) -> NgramStore:
    """Write the store of rows (key, count), int64 [n, 2], with ascending keys, each once.

    A gram counts as often as all keys that begin with it. Raises UserError when the file cannot be
    written.
    """
    levels = list(_levels(rows, options.min_count))
    tensors = _tensors(levels, vocabulary)
    metadata = make_metadata(
        vocabulary,
        int(levels[0][1].sum()),
        min_count=options.min_count,
        tokenizer=options.tokenizer,
        sources=options.sources,
    )
    try:
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            file.write(file_header({name: tensors[name].nbytes for name in TENSORS}, metadata))
            for name in TENSORS:
                file.write(tensors[name].data)
    except OSError as error:
        raise UserError(f"{path} could not be made: {error.strerror or error}") from None
    return NgramStore.open(path)


def _levels(rows: Array, min_count: int) -> Iterator[tuple[Array, Array]]:
    """The grams of 1, 2 and 3 tokens: their codes, ascending, and counts, both int64."""
    for length in range(1, ORDER + 1):
        codes = rows[:, 0] >> (ORDER - length) * CODE_BITS
        firsts = np.flatnonzero(np.diff(codes, prepend=-1))
        codes, counts = codes[firsts], np.add.reduceat(rows[:, 1], firsts)
        kept = codes & (1 << CODE_BITS) - 1 > 0  # the others end before
        if length == ORDER and min_count > 1:  # a released count of 0 was pruned, and is kept
            kept &= counts >= min_count
        if kept.sum() > _LARGEST_LEVEL:
            raise UserError(f"more than {_LARGEST_LEVEL:,} distinct grams of one length")
        yield codes[kept], counts[kept]


def _tensors(levels: Sequence[tuple[Array, Array]], vocabulary: int) -> dict[str, Array]:
    """The arrays of the file (``TENSORS``)."""
    every = np.concatenate([counts for _, counts in levels])
    large = np.flatnonzero(every >= count_limit(vocabulary))
    found = {"large_nodes": large, "large_counts": every[large]}
    for name, (codes, counts) in zip(("unigrams", "bigrams", "trigrams"), levels, strict=True):
        tokens = (codes & (1 << CODE_BITS) - 1) - 1
        found[name] = pack_nodes(tokens, counts, vocabulary)
    for name, ((above, _), (below, _)) in zip(
        ("bigram_starts", "trigram_starts"), pairwise(levels), strict=True
    ):
        found[name] = np.append(np.searchsorted(below >> CODE_BITS, above), len(below))
    return {name: found[name].astype(TYPES[kind]) for name, kind in TENSORS.items()}
