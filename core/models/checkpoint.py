"""Checkpoint folders: ``config.json`` (``configs.py``) and safetensors, in one file or in shards.

Names and shapes of all tensors are checked when a model is loaded.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from core.errors import UserError, reading
from core.files import replacing
from core.lines import check_regular
from core.models import fp8
from core.models.configs import (
    MAX_TOKENS,
    LayoutError,
    check_numbers,
    checked,
    on_meta,
    parsed,
    parsed_at,
)
from core.models.int8 import compress, expand, expanded_shapes
from core.tensor_files import TensorFile, TensorPlace, open_tensors
from core.visible import visible

OF_WEIGHTS = "a file of weights"
DTYPES = {  # by their name in a safetensors header
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
    "BOOL": torch.bool, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu, "F4": torch.float4_e2m1fn_x2,
}  # fmt: skip

_NAMES = {kind: name for name, kind in DTYPES.items()}
# What a published file may hold beside the network: a head, its token maps, parts of the target.
BESIDE = ("lm_head.weight", "d2t", "t2d", "embed_tokens.weight",
          "verifier_lm_head.weight", "verifier_norm.weight")  # fmt: skip
MAPS = ("d2t", "t2d")
Shapes = Mapping[str, tuple[int, ...]]
C = TypeVar("C")
Model = TypeVar("Model", bound=nn.Module)


class TokenMapError(UserError):
    """A token map of tokens where engines expect offsets. Loading reads it all the same."""


def write(
    folder: Path,
    config: dict[str, Any],
    state: dict[str, Tensor],
    small: bool,
    name: str = "model.safetensors",
) -> None:
    """Write config.json and the safetensors file ``name``, in bf16 or, with ``small``, in int8.

    An int8 file loads as exact bf16 values, so writing it again in bf16, the official form
    (``python -m app model export``), loses nothing. Tensors of integers are not changed. Fields of
    the config that begin with ``_`` are transformers' own notes, such as where a model was loaded
    from; they are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: t.detach().to("cpu", torch.bfloat16 if t.is_floating_point() else t.dtype)
        for name, t in state.items()
    }
    weights = compress(weights) if small else weights
    contiguous = {name: t.contiguous() for name, t in weights.items()}
    with replacing(folder / name) as tensors, replacing(folder / "config.json") as config_file:
        tensors.write_bytes(save(contiguous, metadata={"format": "pt"}))
        public = {name: value for name, value in config.items() if not name.startswith("_")}
        config_file.write_text(json.dumps(public, indent=2) + "\n")


def weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files; raises UserError when there is none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files and (pickles := sorted([*folder.glob("*.bin"), *folder.glob("*.pt")])):
        raise pickle_error(pickles[0], "model.safetensors")
    if not files:
        raise UserError(f"{folder} holds no .safetensors file")
    for file in files:
        with reading(file):
            check_regular(file)
    return files


def pickle_error(file: Path, instead: str) -> UserError:
    return UserError(
        f"{file} is a pickle, which may run any program and is not read: load it with "
        "torch.load(…, weights_only=True) and write a clone() of every tensor with "
        f"safetensors.torch.save_file as {instead} beside its config.json"
    )


def read_tensor(opened: TensorFile, name: str) -> Tensor:
    """A tensor of an open file, in memory of its own. Raises UserError for numbers of a type that
    torch does not know, and for a file that is cut meanwhile."""
    entry = opened.entries[name]
    kind, shape = DTYPES.get(entry.dtype), list(entry.shape)
    if kind is torch.float4_e2m1fn_x2:  # two numbers, side by side, are one of torch's
        kind = None if shape[-1] % 2 else kind
        shape[-1] //= 2
    if kind is None:
        raise UserError(f"{opened.path} holds numbers of the type {visible(entry.dtype, 40)}")
    raw = torch.empty(entry.size, dtype=torch.uint8)
    opened.read_into(name, raw.numpy())
    return raw.view(kind).reshape(shape)


def read_state(folder: Path, wanted: Callable[[str], bool] | None = None) -> dict[str, Tensor]:
    """Every tensor of the folder's safetensors files, int8 ones as bf16, and those in FP8 times
    their scales in float32 (``wanted``: those of some names). Raises UserError."""
    state: dict[str, Tensor] = {}
    for file in weight_files(folder):
        with open_tensors(file, OF_WEIGHTS) as opened:
            names = [n for n in opened.entries if wanted is None or wanted(n)]
            state |= {name: read_tensor(opened, name) for name in names}
    _scale(state, folder)
    try:
        return expand(state)
    except (KeyError, RuntimeError) as error:
        raise UserError(f"{folder}: its int8 weights and exponents do not fit: {error}") from None


def _scale(state: dict[str, Tensor], folder: Path) -> None:
    """Replace numbers in FP8 by the weights that they and their scales are. Raises UserError."""
    kinds = {name: _NAMES.get(tensor.dtype, "") for name, tensor in state.items()}
    if scales := fp8.scales_of(kinds, folder):
        block = fp8.block_of(folder)
        fp8.check(scales, {name: tuple(each.shape) for name, each in state.items()}, block, folder)
        for name, scale in scales.items():
            assert scale is not None, "it was checked"
            state[name] = fp8.weights(state[name], state[scale], block)
        for name in fp8.beside(scales):
            state.pop(name, None)


def fill(model: Model, state: dict[str, Tensor], folder: Path) -> Model:
    """Load weights into a model that was made on the meta device.

    Raises UserError for a missing, surplus or misshapen tensor, or one of another sort of numbers.
    """
    check_state(model, state, folder)
    model.load_state_dict(state, assign=True)
    return model


def check_state(model: nn.Module, state: Mapping[str, Tensor], folder: Path) -> None:
    """Raises UserError for tensors that are not a model's, as ``fill`` does."""
    check_shapes(shapes(model), {name: tuple(p.shape) for name, p in state.items()}, folder)
    for name, own in model.state_dict().items():
        if own.is_floating_point() != state[name].is_floating_point():
            kind = str(state[name].dtype).removeprefix("torch.")
            raise UserError(f"{folder}: tensor {name} holds numbers of the type {kind}: no weights")


def covered(
    d2t: Tensor | None, rows: int, vocabulary: int, folder: Path, t2d: Tensor | None = None
) -> Tensor | None:
    """The target's token of each of a head's rows, int64 [rows]; None: of the whole vocabulary.

    ``d2t`` [rows] holds what is to be added to a row's number (None: nothing), or, by mistake, the
    tokens themselves. Raises UserError where it does not fit the head or the vocabulary.
    """
    sizes = (rows, vocabulary)
    if any(type(size) is not int for size in sizes) or not 1 <= rows <= vocabulary <= MAX_TOKENS:
        raise UserError(
            f"{folder}: a head of {rows} rows does not fit a vocabulary of {vocabulary}"
        )
    ids = torch.arange(rows)
    if d2t is not None:
        if d2t.shape != ids.shape or d2t.is_floating_point():
            raise UserError(f"{folder}: the token map d2t does not fit the head")
        ids = d2t.long() if holds_tokens(d2t, t2d, vocabulary) else ids + d2t
    if not bool(((ids >= 0) & (ids < vocabulary)).all()):
        raise UserError(f"{folder}: the token map d2t does not fit the vocabulary")
    return None if rows == vocabulary and torch.equal(ids, torch.arange(rows)) else ids


def holds_tokens(d2t: Tensor, t2d: Tensor | None, vocabulary: int) -> bool:
    """Whether a head's map d2t [C] certainly holds tokens, not offsets to add to the row numbers.

    With t2d, bool [V]: it marks the stored numbers, and not the sums of number and row. Without: a
    sum is outside the vocabulary, and the stored numbers would be tokens, once each. Real offsets
    repeat wherever two neighbouring tokens are covered.
    """
    if d2t.ndim != 1 or d2t.is_floating_point():
        return False
    tokens, count = d2t.long(), len(d2t)
    whole = bool(((tokens >= 0) & (tokens < vocabulary)).all()) and len(tokens.unique()) == count
    sums = tokens + torch.arange(count)
    if not whole or t2d is None or t2d.ndim != 1 or bool(((t2d != 0) & (t2d != 1)).any()):
        return whole and bool((sums >= vocabulary).any())
    marked = t2d.nonzero().flatten()
    own, other = tokens.sort().values, sums.sort().values
    return torch.equal(own, marked) and not torch.equal(other, marked)


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's tensors."""
    return {name: tuple(p.shape) for name, p in model.state_dict().items()}


def check_shapes(expected: Shapes, found: Shapes, folder: Path) -> None:
    """Raises UserError for the first missing, surplus or misshapen tensor; one that has no tensor
    or more than one of another name is a LayoutError."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            other = expected.keys() != found.keys()
            wanted = expected.get(name, "none of this name")
            told = f"has shape {found[name]}, expected {wanted}" if name in found else "is missing"
            raise (LayoutError if other else UserError)(f"{folder}: tensor {name} {told}")


def read_shapes(
    folder: Path, wanted: Callable[[str], bool] | None = None
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what ``read_state`` reads, from the files' headers alone. Raises
    UserError."""
    stored = {n: e for n, e in _stored(folder).items() if wanted is None or wanted(n)}
    found = {name: tuple(entry.shape) for name, entry in stored.items()}
    kinds = {name: entry.dtype for name, entry in stored.items()}
    if scales := fp8.scales_of(kinds, folder):
        fp8.check(scales, found, fp8.block_of(folder), folder)
        found = {name: shape for name, shape in found.items() if name not in fp8.beside(scales)}
    return expanded_shapes(found)


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of every tensor as it is stored, scales too. Raises UserError."""
    return {name: tuple(entry.shape) for name, entry in _stored(folder).items()}


def _stored(folder: Path) -> dict[str, TensorPlace]:
    found = dict[str, TensorPlace]()
    for file in weight_files(folder):
        with open_tensors(file, OF_WEIGHTS) as opened:
            found |= opened.entries
    return found


# ── kinds of checkpoints ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class WithHead(Generic[Model]):
    """A loaded folder.

    head  [C, h] on the drafter's device; None: the target's, or its rows of ``ids``
    ids   int64 [C], the target's token of each row of the head; None: the whole vocabulary
    """

    model: Model
    head: Tensor | None = None
    ids: Tensor | None = None


class DrafterForm(ABC, Generic[C]):
    """One kind of checkpoint folders, read by their configs and the headers of their files. What
    reads a folder raises UserError.

    targets_norms  whether its norms are of the target's class
    unread         names of tensors that a file may hold and no drafter reads
    """

    targets_norms = False
    unread: tuple[str, ...] = ()

    @abstractmethod
    def load_config(self, folder: Path) -> C:
        """Read the config; it has ``of_target``, what the target must be like, and
        ``feature_layers(target_layers)``, the layers after which it reads."""

    @abstractmethod
    def outline(self, folder: Path) -> nn.Module:
        """Make the network on the meta device."""

    @abstractmethod
    def read_shapes(self, folder: Path) -> dict[str, tuple[int, ...]]:
        """Names and shapes of its tensors, by the network's names."""

    def network_of(self, config: C, folder: Path) -> nn.Module:
        """As ``outline``, where the config is known and may be all that lies in the folder."""
        return self.outline(folder)

    def folders(self, folder: Path) -> Sequence[Path]:
        """Every folder that holds its weights."""
        return (folder,)

    def wanted(self, folder: Path, config: C) -> Callable[[str], bool] | None:
        """Whether a stored tensor of this name is its own; None: all are."""
        return None

    def covers(self, folder: Path, config: C, target: str | None) -> tuple[int | None, bool]:
        """How many tokens it drafts (None: all, or not known), and whether they are of a tokenizer
        of its own. ``target`` names the target, if it is known."""
        part, whole = (getattr(config, name, None) for name in ("draft_vocab_size", "vocab_size"))
        return (part if part and part != whole else None), False  # 0: all

    def check_map(self, folder: Path, config: C) -> None:
        """Raises TokenMapError for a head's map that loads, and that engines read otherwise."""

    def check_files(self, folder: Path) -> None:
        """Raises UserError where the headers of a folder's files list other tensors than the
        network of its config has."""
        check_shapes(shapes(self.outline(folder)), self.read_shapes(folder), folder)


@dataclass(frozen=True)
class Form(DrafterForm[C], Generic[C, Model]):
    """A folder that holds one network and what may stand beside it.

    kind     what messages call it
    parse    config.json's object → the config, which has ``of_target`` and ``feature_layers``
    network  the config → the network, whose attribute ``config`` it becomes
    sizes    the tensors' shapes and what ``parse`` found → the config, where published configs do
             not say all; what ``parse`` found serves alone only before the weights are fetched
    beside   names of tensors that are not the network's: a head, its token maps, an embedding
    unread   names of tensors that a file may hold and no drafter reads
    rename   a stored tensor's name → the network's name of it
    pickles  files that hold a tensor of their stem's name and are not read: it must lie in a
             safetensors file
    """

    kind: str
    parse: Callable[[dict[str, Any]], C]
    network: Callable[[C], Model]
    sizes: Callable[[Shapes, C], C] | None = None
    beside: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    rename: Callable[[str], str] = str
    pickles: tuple[str, ...] = ()

    def load_config(self, folder: Path) -> C:
        """Raises UserError when the folder holds no such checkpoint."""
        config = parsed_at(folder, self.kind, self.parse)
        if not any(folder.glob("*.safetensors")):
            return config
        return self._sized(config, folder, lambda: self.read_shapes(folder))

    def _sized(self, config: C, where: Path, read: Callable[[], Shapes]) -> C:
        """The config with what the shapes of the network's tensors say. Raises UserError."""
        sizes = self.sizes
        if sizes is None:
            return config
        return checked(where, self.kind, lambda: sizes(read(), config))

    def outline(self, folder: Path) -> Model:
        """The network without weights. Raises UserError."""
        config = self.load_config(folder)
        if self.sizes is not None:
            weight_files(folder)  # raises where there are none: the config alone makes no network
        return self.network_of(config, folder)

    def network_of(self, config: C, folder: Path) -> Model:
        with on_meta(folder, self.kind):
            return self.network(config)

    def check(self, raw: dict[str, Any], found: Shapes, where: Path) -> None:
        """Raises UserError for a config and tensors that are not a checkpoint of this kind.

        found  names and shapes of all tensors that lie in the file ``where``
        """
        check_numbers(raw, f"{where} holds no {self.kind} checkpoint")
        own = self._own(found)
        config = self._sized(parsed(raw, where, self.kind, self.parse), where, lambda: own)
        check_shapes(shapes(self.network_of(config, where)), own, where)

    def read_shapes(self, folder: Path) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the network's tensors, from the files' headers. Raises UserError."""
        found = read_shapes(folder)
        for name in self.pickles:
            if (folder / name).exists() and Path(name).stem not in found:
                raise pickle_error(folder / name, f"{Path(name).stem}.safetensors")
        return self._own(found)

    def _own(self, found: Shapes) -> dict[str, tuple[int, ...]]:
        """The network's tensors among a file's, by the network's names."""
        others = (*self.beside, *self.unread)
        return {self.rename(name): shape for name, shape in found.items() if name not in others}

    def load_checkpoint(
        self, folder: Path, dtype: torch.dtype, device: torch.device | str
    ) -> WithHead[Model]:
        """Load a published checkpoint or one of ours, checking every name and shape.

        Raises UserError when a tensor is missing, surplus or of another shape, or when the head's
        token map leaves the vocabulary.
        """
        unused = {*self.unread, *self.beside} - {"lm_head.weight", *MAPS}  # some take a gigabyte
        model = self.outline(folder)
        state = read_state(folder, lambda name: name not in unused)
        beside = {name: state.pop(name, None) for name in self.beside}
        state = {self.rename(n): tensor for n, tensor in state.items() if n not in self.unread}
        model = fill(model, state, folder).to(device=device, dtype=dtype).eval()
        config: Any = model.config
        if "lm_head.weight" not in beside or not getattr(config, "draft_vocab_size", 0):
            return WithHead(model)  # a head that may stand there is a copy of the target's
        head, rows = beside["lm_head.weight"], config.draft_vocab_size
        if head is not None:
            if head.shape != (rows, config.hidden_size):
                raise UserError(f"{folder}: tensor lm_head.weight has shape {tuple(head.shape)}")
            head = head.to(device=device, dtype=dtype)
        ids = covered(beside["d2t"], rows, config.vocab_size, folder, beside["t2d"])
        return WithHead(model, head, None if ids is None else ids.to(device))

    def check_map(self, folder: Path, config: Any) -> None:
        """Raises TokenMapError for a map that holds tokens: loading reads these, and engines add
        the row's number. UserError where a file cannot be read."""
        held = read_state(folder, lambda name: name in MAPS and name in self.beside)
        d2t = held.get("d2t")
        if d2t is not None and holds_tokens(d2t, held.get("t2d"), config.vocab_size):
            raise TokenMapError(
                f"{folder}: d2t holds token ids, and engines add each row's number to it: write "
                "d2t[i] − i there (diagnose measures it so)"
            )

    def load_model(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> Model:
        """The network of ``load_checkpoint``. Raises UserError."""
        return self.load_checkpoint(folder, dtype, device).model

    def save_model(self, model: Model, folder: Path, small: bool = False) -> None:
        """Write the network alone (see ``write``)."""
        write(folder, model.config.to_json(), dict(model.state_dict()), small)  # type: ignore[operator]
