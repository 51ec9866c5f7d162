"""Targets and drafters by their config alone: whether they open, and as which."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.errors import UserError
from core.methods.layouts import looks_like, named_drafter, told_kind
from core.methods.loading import check_checkpoint, check_map, checkpoint_config, form_of
from core.methods.method import drafter_source, find_drafter, lazy
from core.methods.names import DRAFTERS
from core.models import checkpoint, configs, embedded, presets
from core.models.gguf import check_header
from core.models.gguf_layout import GgufHeader
from core.models.hub import CONFIG, WEIGHTS, Source, config_file, loading_model
from core.models.language import target_config
from core.models.outline import Outline, names_language_model, outline
from core.models.presets import Preset
from core.tensor_files import open_tensors

SOME = (48, 64)  # layers of a target, to see what a drafter reads of one


@dataclass(frozen=True)
class OpeningDrafter:
    """A drafter that opens.

    kind        its name in the registry
    of_target   what the target must be like
    layers      after which it reads, of a target with ``count`` layers
    count       None: the target is known, or it reads the same of every target
    depths      it drafts at most; None: as its options say
    parameters  of its network; None: the config alone does not tell
    covers      how many of the target's tokens it drafts; None: all, or its config does not tell
    apart       whether its tokens may be others than the target's: it drafts those that both have
    """

    kind: str
    of_target: Mapping[str, int]
    layers: tuple[int, ...]
    count: int | None
    depths: int | None
    parameters: int | None
    covers: int | None = None
    apart: bool = False


def drafts(
    kind: str, folder: Path, target: str | None = None, layers: int | None = None
) -> OpeningDrafter:
    """The drafter of this kind in a folder, which may hold the config alone.

    target  a target whose tokenizer is here, if one is known
    layers  of the target, if it is known

    Raises UserError, as loading it would.
    """
    config = checkpoint_config(kind, folder)
    check_map(kind, folder, config)
    told = layers or config.of_target.get("layer count")
    first, second = (config.feature_layers(told or count) for count in SOME)
    return OpeningDrafter(
        kind,
        config.of_target,
        tuple(first),
        None if first == second else SOME[0],
        getattr(config, "max_depth", None),
        _parameters(kind, folder, config),
        *form_of(find_drafter(kind)).covers(folder, config, target),
    )


def _parameters(kind: str, folder: Path, config: Any) -> int | None:
    """Its parameters; None where the tensors tell the sizes and are not here."""
    with suppress(UserError):
        network = form_of(find_drafter(kind)).network_of(config, folder)
        return sum(map(prod, checkpoint.shapes(network).values())) or None
    return None


@dataclass(frozen=True)
class Opening:
    """The target and drafters that a name opens as.

    refused  why something of it does not open, as loading says it
    head     why a head that may lie in the target does not open; "": it does, or there is none
    unknown  parts of a preset whose config is not here and cannot be fetched
    """

    target: Outline | None = None
    drafters: tuple[OpeningDrafter, ...] = ()
    refused: tuple[str, ...] = ()
    head: str = ""
    unknown: tuple[str, ...] = ()


def opening(name: str, *dtypes: Any) -> Opening:
    """Open a preset, a folder, a GGUF file or a repository of the hub by its config. Of the hub,
    nothing else is fetched.

    dtypes  for the memory of a target

    Raises UserError when a config cannot be read.
    """
    preset = presets.preset_of(name)
    if preset != presets.Preset(name, preset.target):
        return _of_preset(name, preset, dtypes)
    if preset.target.gguf is not None:
        return _of_file(name, preset.target.gguf, dtypes)
    return _of_folder(name, preset.target.with_config(), dtypes)


def _of_file(name: str, file: Path, dtypes: tuple[Any, ...]) -> Opening:
    """Open a GGUF file by its header: a drafter of llama.cpp, or a target."""
    try:
        with _header_folder(name, file) as made:
            found = _of_folder(name, made, dtypes)
    except UserError as error:
        return Opening(refused=(str(error),))
    refused = tuple(each.replace(str(made), name) for each in found.refused)
    return replace(found, refused=refused, head=found.head.replace(str(made), name))


@contextmanager
def _header_folder(name: str, file: Path, layout: Any = None) -> Iterator[Path]:
    """A folder with the config alone that a GGUF file's header gives. Raises UserError, which names
    the file, also for what is done with the folder."""
    with TemporaryDirectory() as made:
        (Path(made) / CONFIG[0]).write_text(_config_of(name, file, layout))
        try:
            yield Path(made)
        except UserError as error:
            raise UserError(str(error).replace(made, name)) from None


def _config_of(name: str, file: Path, layout: Any) -> str:
    """The config.json that a GGUF file's header gives. ``layout``: the drafter's that it must hold;
    None: it may hold any, or a language model. Raises UserError."""
    check_header(file)
    with loading_model(name):
        header = GgufHeader.of(file)
    own = (each.gguf for kind in DRAFTERS if (each := find_drafter(kind).checkpoint) is not None)
    known = [each for each in map(lazy, filter(None, own)) if each.suits(header)]
    known.sort(key=lambda each: not each.mark)  # plain DFlash suits its relatives' files, too
    if layout or known:
        return json.dumps((layout or known[0]).read_config(file, header))
    config = target_config(name)
    assert config is not None  # only the embedded target may be missing
    return config.to_json_string(use_diff=False)


def _of_folder(name: str, folder: Path, dtypes: tuple[Any, ...]) -> Opening:
    configs.read_config(folder, "model", config_file(folder))
    kind, found, why = told_kind(folder), (), ""
    if kind is not None:
        try:
            found = (drafts(kind, folder),)
        except UserError as error:
            why = str(error)
        if not _may_be_target(kind, folder, refused=bool(why)):
            return Opening(drafters=found, refused=(why,) if why else ())
    try:
        for shard in folder.glob(WEIGHTS[0]):
            with open_tensors(shard, "a safetensors file"):
                pass  # its header is read: a file that was cut is told before it is loaded
        return Opening(outline(name, *dtypes), found, head=why)
    except UserError as error:
        like = looks_like(folder)
        more = f"; it looks like {like}" if like else ""
        return Opening(refused=(f"{error}{more}",))


def _of_preset(name: str, preset: Preset, dtypes: tuple[Any, ...]) -> Opening:
    """Open a preset's target, and its drafters for this target."""
    target, found, refused, unknown = None, list[OpeningDrafter](), list[str](), list[str]()
    config = None
    if not _is_here(preset.target):
        unknown.append("target")
    else:
        try:
            target, config = outline(name, *dtypes), target_config(name)
        except UserError as error:
            refused.append(str(error))
    for kind, source in preset.drafters.items():
        try:
            with _config_folder(drafter_source(find_drafter(kind), source)) as folder:
                if folder is None:
                    unknown.append(kind)
                    continue
                layers = None if target is None else target.layers
                drafter = drafts(kind, folder, _with_tokens(preset.target), layers)
                if config is not None:
                    check_checkpoint(kind, Source(str(folder)), name, config)
                found.append(drafter)
        except UserError as error:
            refused.append(str(error))
    return Opening(target, tuple(found), tuple(refused), unknown=tuple(unknown))


def _is_here(target: Source) -> bool:
    """Whether a target's config is here, or the hub gives it."""
    here = target.name == embedded.NAME or target.is_local
    return here or _fetched(target) is not None


def _with_tokens(target: Source) -> str | None:
    """A name of the target by which its tokenizer is read without fetching it; None: it is not
    here."""
    if target.name == embedded.NAME:
        return target.name if embedded.is_ready() else None
    folder = target.here()
    return None if folder is None else str(folder)


@contextmanager
def _config_folder(source: Source) -> Iterator[Path | None]:
    """The folder of its config, of a GGUF file that was not read yet by its header; None: the hub
    does not answer. Raises UserError for a GGUF file that cannot be read."""
    if source.gguf is None or source.here() is not None:
        yield _fetched(source)
        return
    with _header_folder(str(source), source.gguf, source.layout) as folder:
        yield folder


def _fetched(source: Source) -> Path | None:
    try:
        return source.with_config()
    except UserError:
        return None


def _may_be_target(kind: str, folder: Path, refused: bool) -> bool:
    """Whether a folder that tells a kind of drafter may hold a target all the same."""
    info = find_drafter(kind)
    if named_drafter(kind, folder):
        return False
    if info.checkpoint is not None and info.checkpoint.inside:
        return refused or not _is_alone(form_of(info), folder)
    return refused and names_language_model(folder)


def _is_alone(module: Any, folder: Path) -> bool:
    """Whether a folder's files hold the drafter's tensors and no others."""
    if not any(folder.glob(WEIGHTS[0])):
        return False
    every, own = checkpoint.read_shapes(folder), module.read_shapes(folder)
    return sum(map(prod, every.values())) == sum(map(prod, own.values()))
