"""Addresses of object stores in place of paths: s3://, gs://, hf:// and what else fsspec knows.

What an address names is copied into the cache folder, once, and read there as any other file.
Later only what is new or has changed is copied. Where a store needs a package of its own, such as
s3fs, its name is said; who may read is that package's business.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from app.terminal import ProgressBar
from core.errors import UserError, first_line, writing
from core.files import cache_root, replacing, write_json
from core.journal import alone
from core.json_input import read_json

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://.")
READ = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".safetensors", ".csv", ".log", ".txt")


@dataclass(frozen=True)
class StoredFile:
    """A file of a store.

    address  as its file system names it
    name     within what was asked for, with slashes
    state    changes when the file does
    """

    address: str
    name: str
    size: int
    state: str


def here(text: str) -> Path:
    """The path that a word of a command line names: of an address its copy on this machine. Raises
    UserError."""
    return copied(text) if ADDRESS.match(text) else Path(text)


def copied(text: str) -> Path:
    """The copy of what an address names, brought up to date. Raises UserError."""
    with _as_sentence(text):
        from fsspec.core import url_to_fs

        if "::" in text:
            raise UserError(f"{text} is a chain of addresses: name one store")
        system, path = url_to_fs(text)
        if text.startswith("file://"):
            return Path(path)
        stored = list(_listed(system, path))
    if not stored:
        raise UserError(f"{text} holds no file that is read here ({', '.join(READ)})")
    folder = cache_root() / "stores" / sha256(text.encode()).hexdigest()[:16]
    with ProgressBar(f"copying {text}", late=True) as progress, alone(folder, "copy of a store"):
        _bring(system, stored, folder, text, progress)
    is_file = len(stored) == 1 and stored[0].address == path
    return folder / stored[0].name if is_file else folder


def is_copy(path: Path) -> bool:
    """Whether a path lies among the copies: nothing of a person's own belongs beside it."""
    return path.is_relative_to(cache_root() / "stores")


def _listed(system: Any, path: str) -> Iterator[StoredFile]:
    """The files at a path and below it that commands read. Raises UserError for names that would
    leave their folder."""
    found: Mapping[str, Mapping[str, Any]] = system.find(path, detail=True)
    for address, about in sorted(found.items()):
        last = PurePosixPath(address).name
        name = last if address == path else address.removeprefix(path).lstrip("/")
        if not (address == path or name.lower().endswith(READ)):
            continue
        if ".." in PurePosixPath(name).parts or "\\" in name or not name.isprintable():
            raise UserError(
                f"the store has a file {name[:80]!r}, a name that no file here can have"
            )
        state = sha256(repr(sorted(about.items(), key=str)).encode()).hexdigest()[:32]
        yield StoredFile(address, name, int(about.get("size") or 0), state)


def _bring(
    system: Any, stored: list[StoredFile], folder: Path, text: str, progress: ProgressBar
) -> None:
    """Copy what is not there as it is in the store; remove what the store has no more. A note
    beside the folder keeps the state of each file when it was copied."""
    note = folder.with_name(f"{folder.name}.json")
    old = _noted(note)
    fresh = {each.name: each.state for each in stored}
    known = {n: s for n, s in old.items() if fresh.get(n) == s and (folder / n).is_file()}
    missing = [each for each in stored if each.name not in known]
    for name in old.keys() - fresh.keys():
        (folder / name).unlink(missing_ok=True)
    total, done = sum(each.size for each in missing) or 1, 0
    with writing(folder):
        try:
            for each in missing:
                progress.at(done / total, each.name)
                target = folder / each.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with _as_sentence(text), replacing(target) as unfinished:
                    system.get_file(each.address, str(unfinished))
                known[each.name] = each.state
                done += each.size
        finally:
            write_json(note, known)


def _noted(note: Path) -> dict[str, str]:
    """The states of the copied files, by name; nothing where the note is damaged."""
    try:
        found = read_json(note) if note.is_file() else {}
    except UserError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _as_sentence(text: str) -> Iterator[None]:
    """An error of a store or of its package as a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each store's package has its own
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise  # of the disk here
        raise UserError(f"{text} cannot be read: {first_line(error)}") from error
