"""Drafters for a loaded target: from a checkpoint folder, or as they ship."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedConfig

from core import ASSETS, embedded
from core.drafters import checkpoint
from core.drafters import dart as darts
from core.drafters import dflash as dflashes
from core.drafters import treeflash as treeflashes
from core.drafters.dart import DartDrafter, Head
from core.drafters.dflash import DFlashDrafter
from core.drafters.treeflash import TreeFlashDrafter, TreeFlashOptions
from core.errors import UserError
from core.hub import WEIGHTS, Source
from core.packed import suit

if TYPE_CHECKING:
    from core.models import Language

# What a kind of checkpoint is read with: load_config, outline and read_shapes.
MODULES: Mapping[str, Any] = {"dflash": dflashes, "treeflash": treeflashes, "dart": darts}


def shipped(kind: str, target: str) -> Path | None:
    """The checkpoint of this kind that ships for the target of this name, if one does."""
    if target != embedded.NAME:  # other names are paths and hub ids: never joined to ours
        return None
    folder = ASSETS / "models" / target / kind
    return folder if (folder / "config.json").is_file() else None


def dflash(
    language: Language, folder: Path | None = None, temperature: float = 1.0
) -> DFlashDrafter:
    """The DFlash drafter in ``folder`` (default: the shipped one) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    check_temperature(temperature)
    folder = _folder("dflash", language, folder)
    model = dflashes.load_model(folder, language.model.dtype, language.device)
    _check_language(folder, language, model.config.of_target)
    suit(model, language.model.dtype, language.device)
    return DFlashDrafter(model, language.embedding, language.head, temperature)


def treeflash(
    language: Language,
    folder: Path | None = None,
    candidates: int = 16,
    siblings: int = 16,
    temperature: float = 1.0,
) -> TreeFlashDrafter:
    """The TreeFlash drafter in ``folder`` (default: the shipped one) on the target's device.

    Raises UserError when there is none, it was made for another target, or M or S is out of range.
    """
    check_temperature(temperature)
    options = TreeFlashOptions(candidates, siblings, temperature)
    folder = _folder("treeflash", language, folder)
    model = treeflashes.load_model(folder, language.model.dtype, language.device)
    _check_language(folder, language, model.config.of_target)
    model.ar_approximation.halve()
    suit(model, language.model.dtype, language.device)
    tied = language.model.config.get_text_config().tie_word_embeddings
    columns = language.embedding if tied else None  # a packed head cannot be read by rows
    return TreeFlashDrafter(model, language.embedding, language.head, options, columns)


def dart(language: Language, folder: Path | None = None, temperature: float = 1.0) -> DartDrafter:
    """The DART drafter in ``folder`` (default: the shipped one) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    check_temperature(temperature)
    folder = _folder("dart", language, folder)
    found = darts.load_checkpoint(folder, language.model.dtype, language.device)
    _check_language(folder, language, found.model.config.of_target)
    if found.head is None:
        head = Head(language.head)
    else:
        module = nn.Linear(*reversed(found.head.shape), bias=False, device="meta")
        module.weight = nn.Parameter(found.head, requires_grad=False)
        wrapped = nn.ModuleList([module])
        suit(wrapped, language.model.dtype, language.device)
        head = Head(wrapped[0], found.ids)
    suit(found.model, language.model.dtype, language.device)
    layers = darts.feature_layers(language.model.config.get_text_config().num_hidden_layers)
    return DartDrafter(found.model, language.embedding, head, layers, temperature)


def check(kind: str, source: Source, name: str, target: PreTrainedConfig) -> None:
    """Check a checkpoint of this kind against the target ``name``, by configs and file headers.

    No weight is read, and of a hub's repository only its small files are fetched. Raises UserError
    for one that is no such checkpoint or was made for another target.
    """
    folder, module = source.light(), MODULES[kind]
    _check_fits(str(source), name, target, module.load_config(folder).of_target)
    if any(folder.glob(WEIGHTS[0])):
        made = checkpoint.shapes(module.outline(folder))
        checkpoint.check_shapes(made, module.read_shapes(folder), folder)


def digest(kind: str, folder: Path) -> str:
    """A hash of the checkpoint's weight files, those of a backbone it shares among them."""
    whole = hashlib.sha256()
    for part in treeflashes.parts(folder).values() if kind == "treeflash" else (folder,):
        for file in checkpoint.weight_files(part):
            with file.open("rb") as weights:
                whole.update(hashlib.file_digest(weights, "sha256").digest())
    return whole.hexdigest()[:16]


def _folder(kind: str, language: Language, folder: Path | None) -> Path:
    folder = folder or shipped(kind, language.name)
    if folder is None:
        raise UserError(
            f"no {kind} drafter ships for {language.name!r}: name a checkpoint with --drafter"
        )
    return folder


def _check_language(folder: Path, language: Language, sizes: Mapping[str, int]) -> None:
    _check_fits(str(folder), language.name, language.model.config, sizes)


def _check_fits(where: str, name: str, config: PreTrainedConfig, sizes: Mapping[str, int]) -> None:
    config = config.get_text_config()
    of_target = {
        "hidden size": config.hidden_size,
        "vocabulary size": config.vocab_size,
        "layer count": config.num_hidden_layers,
    }
    for what, mine in sizes.items():
        if mine != of_target[what]:
            raise UserError(
                f"the drafter in {where} is for a target of {what} {mine}, "
                f"but {name!r} has {of_target[what]}"
            )


def check_temperature(temperature: float) -> None:
    """Raises UserError for a temperature no q is to be divided by."""
    if not 1e-3 <= temperature <= 1e3:
        raise UserError(f"the option temperature must be 0.001 to 1000, not {temperature}")
