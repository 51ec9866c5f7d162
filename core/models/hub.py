"""Where a checkpoint's files are: a folder on this machine, or a repository of a model hub.

The hub's library is imported only when it is needed. No code of a repository is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from core.errors import UserError, first_line
from core.json_input import read_json
from core.progress import Progress, silent

if TYPE_CHECKING:
    from core.models.gguf import FileLayout

# Config and tokenizer: fetched and checked first.
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "tokenizer.model", "mask_embedding.pt")
# The config of a model, or of an adapter in PEFT's layout, which may lie in a folder of its own.
CONFIG = ("config.json", "adapter_config.json", "adapter/adapter_config.json")
WEIGHTS = ("*.safetensors",)
GGUF = ".gguf"
INDEX = "model.safetensors.index.json"
_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")  # what a repository's id looks like


def config_file(folder: Path) -> str:
    """The name of a folder's config; that of a model where there is none."""
    return next((name for name in CONFIG if (folder / name).is_file()), CONFIG[0])


@dataclass(frozen=True)
class Source:
    """A folder, a GGUF file, or a hub id with a revision.

    revision  a branch, tag or commit; None: the newest
    layout    how a drafter lies in a GGUF file; None: it holds what transformers reads
    """

    name: str
    revision: str | None = None
    layout: FileLayout | None = None

    @staticmethod
    def of(text: str | Path) -> Source:
        """The source of a folder's path or ``org/name@revision``; a folder has precedence."""
        text = str(text)
        if not Source(text).is_local:
            name, at, revision = text.partition("@")
            if at and name and revision:
                return Source(name, revision)
        return Source(text)

    @staticmethod
    def checked(text: str) -> Source:
        """Like ``of``. Raises UserError for a missing GGUF file, and for a missing folder whose
        name cannot be a hub id."""
        source = Source.of(text)
        if source.name.endswith(GGUF) and source.gguf is None:
            raise UserError(f"there is no file {source.name}")
        if not source.is_local and not _ID.fullmatch(source.name):
            raise UserError(f"there is no folder {source.name}")
        return source

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one on this machine."""
        with suppress(OSError, RuntimeError, ValueError):  # a name that no folder can have
            path = Path(self.name).expanduser()
            return path if path.is_dir() else None
        return None

    @property
    def gguf(self) -> Path | None:
        """The GGUF file, if it is one on this machine."""
        path = Path(self.name).expanduser()
        return path if path.suffix == GGUF and path.is_file() else None

    @property
    def is_local(self) -> bool:
        """Whether it is a folder or a GGUF file on this machine."""
        return self.folder is not None or self.gguf is not None

    @property
    def reference(self) -> str:
        """The folder or hub id that transformers' loaders take beside ``revision``."""
        return str(self.folder or self.name)

    def config_folder(self) -> Path:
        """The folder with config and tokenizer, fetched if it is not here. Raises UserError."""
        return self.made() or self.fetch(SMALL_FILES)

    def with_config(self) -> Path:
        """The folder with the config alone, fetched if it is not here. Raises UserError."""
        return self.made() or self.fetch(CONFIG)

    def full_folder(self, report: Progress = silent) -> Path:
        """The folder with the weights too, fetched if they are not here. Raises UserError."""
        return self.made(report) or self.fetch((*SMALL_FILES, *WEIGHTS), report)

    def weights(
        self, wanted: Container[str] | None = None, report: Progress = silent
    ) -> list[Path]:
        """The files with the ``wanted`` tensors (None: with all) by the index, fetched if they are
        not here; without an index all files. Raises UserError, also for an index that names a file
        that is outside of the folder or not there."""
        folder = self.config_folder()
        places = shards(folder)
        held = (file for key, file in (places or {}).items() if wanted is None or key in wanted)
        files = tuple(sorted(set(held)))
        if not self.is_local:
            folder = self.fetch(WEIGHTS if places is None else files, report)
        if absent := next((f for f in files if not (folder / f).is_file()), None):
            raise UserError(f"{folder} lacks {absent[:80]!r}, which its index names")
        return sorted(folder.glob(WEIGHTS[0])) if places is None else [folder / f for f in files]

    def made(self, report: Progress = silent) -> Path | None:
        """The folder, or the one that is made of the GGUF file, if it names either. Raises
        UserError for a file that cannot be read."""
        if self.gguf is None:
            return self.folder
        from core.models import gguf

        with loading_model(self):
            return gguf.prepare(self.gguf, report, self.layout)

    def fetch(self, patterns: tuple[str, ...], report: Progress = silent) -> Path:
        """The folder with the files of these names, from the hub or its cache. ``report`` hears of
        what comes from the hub. Raises UserError."""
        from huggingface_hub import snapshot_download

        with loading_model(self):
            found = snapshot_download(
                self.name,
                revision=self.revision,
                allow_patterns=list(patterns),
                tqdm_class=_bar(self, patterns, report),
            )
        _clear(Path(found).parent.parent / "blobs")
        return Path(found)

    def here(self) -> Path | None:
        """The folder, or the hub's cache of it, if it is on this machine."""
        if self.gguf is not None:
            from core.models import gguf

            made = gguf.folder_of(self.gguf, self.layout)
            return made if gguf.is_whole(made) else None
        if self.folder is not None:
            return self.folder
        from huggingface_hub import snapshot_download

        with suppress(Exception):  # the hub's library raises many types
            return Path(snapshot_download(self.name, revision=self.revision, local_files_only=True))
        return None

    def cached(self, file: str) -> bool:
        """Whether the hub's cache on this machine holds a file of this repository."""
        from huggingface_hub import try_to_load_from_cache

        try:
            return isinstance(try_to_load_from_cache(self.name, file, revision=self.revision), str)
        except ValueError:  # not a name the hub could have
            return False

    def is_whole(self) -> bool:
        """Whether config and weights are on this machine; the hub is not asked. A fetch that was
        killed leaves some files of a repository, each of them whole."""
        folder = self.here()
        if folder is None or not (folder / config_file(folder)).is_file():
            return False
        named = set((shards(folder) or {}).values())
        if not named and any(folder.glob("*-of-*.safetensors")):
            return False
        return all((folder / n).is_file() for n in named) and any(folder.glob(WEIGHTS[0]))

    def sizes(self) -> dict[str, int]:
        """Bytes of every file, by name. Raises UserError when the hub cannot be reached."""
        if self.folder is not None:
            return {f.name: f.stat().st_size for f in self.folder.iterdir() if f.is_file()}
        if self.gguf is not None:
            return {self.gguf.name: self.gguf.stat().st_size}
        from huggingface_hub import HfApi

        with loading_model(self):
            found = HfApi().model_info(self.name, revision=self.revision, files_metadata=True)
        return {file.rfilename: file.size or 0 for file in found.siblings or ()}

    def missing(self, patterns: tuple[str, ...]) -> int:
        """Bytes of the files of these names that are not on this machine; 0 where the hub does not
        say."""
        with suppress(UserError):
            sizes = matching(self.sizes(), patterns)
            return sum(size for name, size in sizes.items() if not self.cached(name))
        return 0

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


def matching(sizes: Mapping[str, int], patterns: Sequence[str]) -> dict[str, int]:
    """The files whose names fit one of the patterns."""
    return {n: size for n, size in sizes.items() if any(fnmatch(n, each) for each in patterns)}


def _bar(source: Source, patterns: tuple[str, ...], report: Progress) -> Any:
    """The class of the progress bars that the hub's library makes for a fetch: they show nothing,
    and report how much of the missing files has come.

    Some of its bars count files. Those of bytes learn of a file when it begins, so the hub is asked
    once for all sizes; two of them may count the same bytes.
    """
    from huggingface_hub.utils import tqdm

    title, most = f"fetching {source}", 0.0
    telling = RLock()  # files come in threads of their own, and what is told only grows
    total: int | None = None  # 0: the hub does not say

    class Bar(tqdm):
        def __init__(self, *args: Any, unit: str = "it", **more: Any):
            self.counts, self.came = unit == "B", 0
            super().__init__(*args, unit=unit, **{**more, "disable": True})

        def update(self, n: float | None = 1) -> None:
            nonlocal total, most
            if not self.counts:
                return
            with telling:
                if total is None:
                    report(None, title)
                    total = source.missing(patterns)
                self.came += n or 0
                if self.came > most:
                    most = self.came
                    report(min(1.0, most / total) if total else None, title)

    return Bar


def _clear(blobs: Path) -> None:
    """Remove what killed fetches left of files that are whole by now: the hub's library gives each
    process a name of its own and takes none of them up."""
    for part in blobs.glob("*.incomplete"):
        if (blobs / part.name.partition(".")[0]).is_file():
            with suppress(OSError):
                part.unlink()


def shards(folder: Path) -> dict[str, str] | None:
    """Which file of the folder holds each tensor, by its index; None: it has no index.

    Raises UserError for an index that does not say it, or that names a file outside of the folder.
    """
    if not (folder / INDEX).is_file():
        return None
    index = read_json(folder / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise UserError(f"{folder / INDEX} does not say where the tensors are")
    if odd := next((file for file in places.values() if Path(file).name != file), None):
        raise UserError(f"{folder / INDEX} names a file outside of its folder, {odd[:80]!r}")
    return places


@contextmanager
def loading_model(name: object) -> Iterator[None]:
    """Turn any error inside into a UserError, one sentence: for a broken file, for no network and
    for what they do not know, the libraries raise any type."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = first_line(error)
        if isinstance(error, KeyError):  # as of a table of a model's own attentions
            why = f"its code in transformers knows no {why}"
        raise UserError(f"the model {str(name)!r} cannot be loaded: {why}") from error
