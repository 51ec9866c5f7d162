"""Files: writing them whole, locks, hashes, and the cache folder. Light: never torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from core.errors import UserError
from core.lines import open_regular

LOCK = "lock"  # the name of a file that a process holds while it works in the folder
TRIES = 5  # at a lock: a file system without steady file numbers must not keep it trying for ever


def cache_root() -> Path:
    """The user's cache folder for Draftscope: ``DRAFTSCOPE_CACHE``, or by the XDG rules.

    By hand, because platformdirs is not installed everywhere ``core`` runs.
    """
    if explicit := os.environ.get("DRAFTSCOPE_CACHE"):
        return Path(explicit).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "draftscope"


def check_place(path: Path) -> None:
    """Raises UserError where nothing can be written at ``path``: asked before long work."""
    place, exists = path.absolute(), os.path.exists  # False also for what may not be looked at
    if not exists(place) or place.is_file():  # a file is replaced, see ``replacing``
        place = next(above for above in place.parents if exists(above))
        if not place.is_dir():
            raise UserError(f"{path} cannot be written: {place} is not a folder")
    if not os.access(place, os.W_OK):
        raise UserError(f"{path} cannot be written: no permission to write in {place}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces ``path`` when the block ends without an error.

    The data is on disk before the rename: a crash leaves the old file or the new one, never a part.
    What a killed process left there is written over. The block writes the file itself: another that
    it renames to that path, as safetensors' ``save_file`` does, is not locked. A device or a pipe
    is written itself. Raises UserError where another process is writing the same file: both would
    write to one temporary path.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    unfinished = path.with_name(f"{path.name}.tmp")
    busy = UserError(f"another process is writing {path}")
    with held(unfinished, busy) if sys.platform != "win32" else nullcontext():
        # (on Windows a file that is open cannot replace another)
        try:
            yield unfinished
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException as error:  # after the rename the path may be another process's
            unfinished.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno and error.filename is None:
                error.filename = str(path)  # of a full disk only who writes knows what it wrote
            raise


def write_json(path: Path, value: Any) -> None:
    """Write plain data as a JSON file, as ``replacing`` does."""
    with replacing(path) as file:
        file.write_text(json.dumps(value, indent=1), "utf-8")


@contextmanager
def held(path: Path, busy: UserError, goes: bool = False) -> Iterator[bool]:
    """Hold a file, which is made if need be, for this process alone, or raise ``busy``. Yields
    whether it is held for sure, as ``hold`` tells; ``goes``: the file is removed at the end.

    What a dead process held is free. Raises OSError for a file that cannot be opened.
    """
    sure = False
    with ExitStack() as stack:
        for _ in range(TRIES):
            lock = stack.enter_context(path.open("ab"))
            sure = hold(lock, busy)
            # Its last holder may have renamed or removed it since it was opened.
            if _is_at(lock, path):
                break
            lock.close()
        try:
            yield sure
        finally:
            if goes and sure and _is_at(lock, path):  # while it is held: nobody else's goes
                with suppress(OSError):
                    path.unlink()


@contextmanager
def scratch(above: Path, prefix: str) -> Iterator[Path]:
    """A folder for this process, below ``above``, that goes at the end. Those that killed processes
    left there under this prefix go, too, where locks tell that they are dead.

    Raises UserError where another process takes the new folder for one that was left.
    """
    above.mkdir(parents=True, exist_ok=True)
    busy = UserError(f"another process is tidying {above}: try again")
    for left in list(above.glob(f"{prefix}*/{LOCK}")):
        with suppress(UserError, OSError), open_regular(left), held(left, busy) as sure:
            if sure:
                shutil.rmtree(left.parent, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=above) as made,
        held(Path(made) / LOCK, busy),
    ):
        yield Path(made)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether the open file is still the one at ``path``."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def hold(lock: IO[bytes], busy: UserError) -> bool:
    """Lock an open file, or raise ``busy``. The lock goes with the process, however that ends.
    False: the file system has no locks, so that another process may work there, too."""
    if sys.platform == "win32":
        import msvcrt

        try:
            lock.seek(0)
            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            raise busy from None
        return True
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise busy from None
    except OSError:
        return False
    return True


def by_name(name: str) -> tuple[list[str | int], str]:
    """Sort by this: numbers in a name are compared as numbers, B16 comes before B128."""
    parts = re.split(r"([0-9]{1,18})", name.casefold())
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], name


def distinct(files: Iterable[Path]) -> dict[str, Path]:
    """The files by the place where their links lead; of several at one place the first."""
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(os.path.realpath(file), file)
    return found


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, as far as that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def sha256(path: Path) -> str:
    """SHA-256 of a file's contents, in hex."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
