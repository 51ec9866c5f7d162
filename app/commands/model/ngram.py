"""``model ngram``: count the n-grams of any text into a store, or convert a ``.trie``.

Nothing appears under the final name until it is complete, and Ctrl-C leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.command_line import REQUIRED, CommandOptions, option, words
from app.terminal import ProgressBar, one_line, quiet_libraries
from core.errors import UserError
from core.models.embedded import NAME as EMBEDDED
from core.ranges import Range

if TYPE_CHECKING:
    from core.models.language import Vocabulary
    from core.ngram import BuildOptions, NgramStore
    from core.ngram.documents import Document, Encode
    from core.progress import Progress

MOST_COUNT = 1 << 40  # far above all text there is, and below what a count can hold
NAMED_SOURCES = 8  # how many files the store's metadata names


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Count every gram of 1 to 3 tokens in files of text, or of token ids, into a store.

    Builders read the store. Each text of a .jsonl line is a document, and so is any other text
    file. In a folder all text files at any depth are read. A single .trie file (DART's released
    format) is converted.
    """

    files: tuple[Path, ...] = words("texts whose n-grams are counted")
    out: Path = option(REQUIRED, "the store, NAME.safetensors", metavar="FILE")
    model: str | None = option(
        None,
        f"whose tokens are counted (default {EMBEDDED}; for a .trie: as many as its largest)",
        metavar="NAME|PATH",
    )
    min_count: int = option(1, "drop trigrams rarer than N", Range(1, MOST_COUNT))


def main(args: Options) -> int:
    _check(args)
    from core.ngram.documents import text_files

    files = text_files(args.files)
    if args.out.resolve() in {file.resolve() for file in files}:
        raise UserError(f"{args.out} would be both read and written")
    with ProgressBar("n-grams") as progress:
        store = _store(args, files, progress)
    size, nodes = args.out.stat().st_size, store.nodes
    print(
        f"{one_line(str(args.out), 200)}: {nodes:,} nodes, {size:,} bytes, "
        f"{size / max(nodes, 1):.2f} bytes/node, {store.tokens:,} tokens counted"
    )
    return 0


def _check(args: Options) -> None:
    """Raises UserError for options that are not allowed, before any work.

    Only a store is replaced, so that a slip costs no model and no text.
    """
    from core.ngram import NgramStore

    if args.out.suffix.lower() != ".safetensors":
        raise UserError(f"{args.out} must be named NAME.safetensors")
    if args.out.is_file():
        try:
            NgramStore.open(args.out)
        except UserError:
            raise UserError(f"{args.out} exists and is not an n-gram store") from None


def _store(args: Options, files: Sequence[Path], progress: ProgressBar) -> NgramStore:
    """The store of what the files hold, written to OUT."""
    from core.ngram import build_store, read_trie

    report = progress.at
    if any(file.suffix.lower() == ".trie" for file in files):
        if len(files) > 1:
            raise UserError("a .trie file is converted alone, not with other files")
        own = _vocabulary(args.model, report) if args.model else None
        return read_trie(files[0], args.out, own and own.size, _options(args, own), report)
    own = _vocabulary(args.model or EMBEDDED, report)
    documents = _documents(files, _encoding(own.tokenizer), progress)
    return build_store(documents, args.out, own.size, _options(args, own))


def _options(args: Options, own: Vocabulary | None) -> BuildOptions:
    """The options of building, with where the counts are from."""
    from core.ngram import BuildOptions

    # Names only: a store is passed on, and folders of this machine are private.
    names = [path.resolve().name for path in args.files[:NAMED_SOURCES]]
    if more := len(args.files) - len(names):
        names.append(f"and {more} more")
    sources = ", ".join(names).encode("utf-8", "replace").decode()
    identity = own.identity if own else ""
    return BuildOptions(args.min_count, identity, sources)


def _vocabulary(name: str, report: Progress) -> Vocabulary:
    """The vocabulary of a model by name or path; its weights are not read."""
    report(None, "loading tokenizer")
    quiet_libraries()
    from core.models.language import load_vocabulary

    return load_vocabulary(name, report)


def _encoding(tokenizer: Any) -> Encode:
    """Text that spells a special token is text."""
    how = {"add_special_tokens": False, "split_special_tokens": True}
    how |= {"return_attention_mask": False, "verbose": False}
    return lambda texts: tokenizer(texts, **how).input_ids


def _documents(files: Sequence[Path], encode: Encode, progress: ProgressBar) -> Iterator[Document]:
    """The files' documents; the bar follows the bytes read. Raises UserError when all are empty."""
    from core.ngram.documents import read_documents

    total = max(sum(file.stat().st_size for file in files), 1)
    done = shown = 0

    def passed(count: int) -> None:
        nonlocal done, shown
        done += count
        if (done - shown) * 500 >= total:  # a bar need not move for every line
            shown = done
            progress.at(min(done / total, 1.0), "reading")

    counted = 0
    for document in read_documents(files, encode, passed):
        counted += len(document)
        yield document
    if not counted:
        raise UserError("there is nothing to count: the files hold no token")
