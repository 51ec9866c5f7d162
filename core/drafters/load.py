"""Drafters for a loaded target: from a checkpoint folder, or as they ship."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from core import ASSETS, embedded
from core.drafters import dart as darts
from core.drafters import dflash as dflashes
from core.drafters import treeflash as treeflashes
from core.drafters.dart import DartDrafter, Head
from core.drafters.dflash import DFlashConfig, DFlashDrafter
from core.drafters.treeflash import TreeFlashDrafter, TreeFlashOptions
from core.errors import UserError
from core.packed import can_pack, pack_linears

if TYPE_CHECKING:
    from core.models import Language


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
    _check_temperature(temperature)
    folder = _folder("dflash", language, folder)
    model = dflashes.load_model(folder, language.model.dtype, language.device)
    _check_fits(folder, language, _sizes(model.config))
    _pack(model, language)
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
    _check_temperature(temperature)
    for name, value in (("candidates", candidates), ("siblings", siblings)):
        if not 1 <= value <= 1024:
            raise UserError(f"the option {name} must be 1 to 1024, not {value}")
    folder = _folder("treeflash", language, folder)
    model = treeflashes.load_model(folder, language.model.dtype, language.device)
    _check_fits(folder, language, _sizes(model.config))
    _pack(model, language)
    options = TreeFlashOptions(candidates, siblings, temperature)
    return TreeFlashDrafter(model, language.embedding, language.head, options)


def dart(language: Language, folder: Path | None = None, temperature: float = 1.0) -> DartDrafter:
    """The DART drafter in ``folder`` (default: the shipped one) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    _check_temperature(temperature)
    folder = _folder("dart", language, folder)
    found = darts.load_checkpoint(folder, language.model.dtype, language.device)
    own = found.model.config
    sizes = {
        "hidden size": own.target_hidden_size or own.hidden_size,
        "vocabulary size": own.vocab_size,
    }
    _check_fits(folder, language, sizes)
    if found.head is None:
        head = Head(language.head)
    else:
        module = nn.Linear(*reversed(found.head.shape), bias=False, device="meta")
        module.weight = nn.Parameter(found.head, requires_grad=False)
        wrapped = nn.ModuleList([module])
        _pack(wrapped, language)
        head = Head(wrapped[0], found.ids)
    _pack(found.model, language)
    layers = darts.feature_layers(language.model.config.get_text_config().num_hidden_layers)
    return DartDrafter(found.model, language.embedding, head, layers, temperature)


def _folder(kind: str, language: Language, folder: Path | None) -> Path:
    folder = folder or shipped(kind, language.name)
    if folder is None:
        raise UserError(
            f"no {kind} drafter ships for {language.name!r}: name a checkpoint with --drafter"
        )
    return folder


def _sizes(config: DFlashConfig) -> dict[str, int]:
    return {
        "hidden size": config.hidden_size,
        "vocabulary size": config.vocab_size,
        "layer count": config.num_target_layers,
    }


def _check_fits(folder: Path, language: Language, sizes: Mapping[str, int]) -> None:
    config = language.model.config.get_text_config()
    of_target = {
        "hidden size": config.hidden_size,
        "vocabulary size": config.vocab_size,
        "layer count": config.num_hidden_layers,
    }
    for what, mine in sizes.items():
        if mine != of_target[what]:
            raise UserError(
                f"the drafter in {folder} is for a target of {what} {mine}, "
                f"but {language.name!r} has {of_target[what]}"
            )


def _check_temperature(temperature: float) -> None:
    if not 1e-3 <= temperature <= 1e3:
        raise UserError(f"the option temperature must be 0.001 to 1000, not {temperature}")


def _pack(module: nn.Module, language: Language) -> None:
    if can_pack(language.model.dtype, language.device):
        pack_linears(module)
