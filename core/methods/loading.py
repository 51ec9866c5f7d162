"""From a checkpoint folder to a drafter: what every drafter's ``load`` shares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.drafting.network import own_head
from core.drafting.session import Covered, Drafter
from core.errors import UserError
from core.files import sha256
from core.methods.layouts import naming, told_kind
from core.methods.method import DrafterInfo, lazy
from core.methods.registry import find_drafter, shipped
from core.models import checkpoint
from core.models.fast_layers import use_fast_layers
from core.models.hub import WEIGHTS, Source
from core.models.language import Language

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def drafter_folder(kind: str, language: Language, folder: Path | None) -> Path:
    """``folder``, or the shipped one. Raises UserError when there is none."""
    folder = folder or shipped(kind, language.name)
    if folder is None:
        raise none_ships(kind, language.name)
    return folder


def none_ships(kind: str, target: str) -> UserError:
    return UserError(f"no {kind} drafter ships for {target!r}: name a checkpoint with --drafter")


def lies_inside(drafter: DrafterInfo, target: Source) -> bool:
    """Whether the config of a target on this machine says that a drafter of this kind lies among
    its own tensors. Raises UserError for a GGUF file that cannot be read."""
    own = drafter.checkpoint
    if own is None or not own.inside or not target.is_local:
        return False
    return told_kind(target.config_folder()) == drafter.name


def check_checkpoint(kind: str, source: Source, name: str, target: PreTrainedConfig) -> None:
    """Check a checkpoint of this kind against the target ``name``, by configs and file headers.

    No weight is read but a head's map of tokens, and of a hub's repository only its small files are
    fetched. Raises UserError for one that is not such a checkpoint or was made for another target,
    TokenMapError for one that could be loaded all the same.
    """
    folder = source.config_folder()
    config = checkpoint_config(kind, folder)
    _check_target(str(source), name, target, config)
    check_map(kind, folder, config)


def check_map(kind: str, folder: Path, config: Any) -> None:
    """Check the token map of a checkpoint's head, where its weights are here. Raises UserError as
    ``DrafterForm.check_map``."""
    if any(folder.glob(WEIGHTS[0])):
        form_of(find_drafter(kind)).check_map(folder, config)


def checkpoint_config(kind: str, folder: Path) -> Any:
    """The config of a checkpoint of this kind. Where weights lie beside it, their names and shapes
    are compared with it. Raises UserError for a folder that holds no such checkpoint, and for a
    config that names layers which its target has not."""
    info = find_drafter(kind)
    form = form_of(info)
    with naming(info, folder):
        config = form.load_config(folder)
        if count := config.of_target.get("layer count"):
            itself = f"{folder}: its config contradicts itself: the drafter"
            check_layers(itself, config.feature_layers(count), "its target", count)
        if any(folder.glob(WEIGHTS[0])):
            form.check_files(folder)
    return config


def check_fits(folder: Path, language: Language, config: Any) -> None:
    """Raises UserError for a drafter, by its config, that was made for a target of other sizes or
    of more layers."""
    _check_target(str(folder), language.name, language.model.config, config)


def loaded(
    kind: str, form: checkpoint.Form[Any, Any], language: Language, folder: Path | None
) -> tuple[Any, Any, Any, Covered | None]:
    """The network of a kind of drafters at work on the target's device, the target's embedding, the
    head and the tokens that it scores (None: all). Raises UserError."""
    folder = drafter_folder(kind, language, folder)
    found = form.load_checkpoint(folder, language.model.dtype, language.device)
    check_fits(folder, language, found.model.config)
    use_fast_layers(found.model, language.model.dtype, language.device)
    return found.model, language.embedding, *own_head(found, language, folder)


def load_drafter(
    info: DrafterInfo, language: Language, folder: Path | None, options: Any
) -> Drafter:
    """The drafter in ``folder`` (None: the one that ships, or one without weights) at work.

    Raises UserError, which says what the folder looks like where it has another layout, and for an
    object that is no ``Drafter``.
    """
    with nullcontext() if folder is None else naming(info, folder):
        made = lazy(info.load)(language, folder, options)
    if not isinstance(made, Drafter):
        kind = type(made).__name__
        raise UserError(f"the drafter {kind} must be a Drafter of core.drafting.session")
    return made


def weights_digest(kind: str, folder: Path) -> str:
    """A hash of the checkpoint's weight files, in every folder that holds some."""
    whole = hashlib.sha256()
    for part in form_of(find_drafter(kind)).folders(folder):
        for file in checkpoint.weight_files(part):
            whole.update(bytes.fromhex(sha256(file)))
    return whole.hexdigest()[:16]


def form_of(drafter: DrafterInfo) -> checkpoint.DrafterForm[Any]:
    """Raises UserError for a drafter without weights."""
    if drafter.checkpoint is None:
        raise UserError(f"the drafter {drafter.name} has no weights")
    return lazy(drafter.checkpoint.form)


def _check_target(where: str, name: str, target: PreTrainedConfig, drafter: Any) -> None:
    config = target.get_text_config()
    sizes: dict[str, Callable[[], int]] = {
        "hidden size": lambda: config.hidden_size,
        "vocabulary size": lambda: config.vocab_size,
        "layer count": lambda: config.num_hidden_layers,
        "width of all query heads": lambda: _heads(config)[0],
        "width of all key heads": lambda: _heads(config)[1],
    }
    for what, mine in drafter.of_target.items():
        if mine != (theirs := sizes[what]()):
            raise UserError(
                f"the drafter in {where} is for a target of {what} {mine}, "
                f"but {name!r} has {theirs}"
            )
    count = config.num_hidden_layers
    check_layers(f"the drafter in {where}", drafter.feature_layers(count), repr(name), count)


def _heads(config: Any) -> tuple[int, int]:
    """The widths of all query heads and of all key heads. Asked only where a drafter asks: where
    layers have different ones (Gemma 4), transformers' config raises."""
    heads = getattr(config, "num_attention_heads", 0)
    groups = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // max(1, heads)
    return heads * width, groups * width


def check_layers(reader: str, layers: Sequence[int], target: str, count: int) -> None:
    """Raises UserError when a reader of features names a layer that the ``target`` of
    ``count`` layers has not; −1 is what enters the first."""
    if any(not -1 <= layer < count for layer in layers):
        read = ", ".join(map(str, layers))
        raise UserError(
            f"{reader} reads what comes out of the target's layers {read}, "
            f"but {target} has the layers 0 to {count - 1}"
        )
