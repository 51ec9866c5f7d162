"""The TreeFlash network (arXiv 2606.03819): DFlash and a head that sees the token before.

h′ = h + d(silu(g)·u) with [u, g] = ug([norm(embedding of the token before) ; final norm of h]),
then the final norm and the target's head once more (Equation 1; released checkpoints put the
embedding first). With d = 0 it is DFlash exactly. Parameter names are those of the published
checkpoints.

Shapes: L drafted depths, M candidates per depth, S siblings kept, h hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.methods.dflash.model import DFlashConfig, DFlashModel
from core.models import checkpoint, configs
from core.models.checkpoint import DrafterForm
from core.models.configs import LayoutError
from core.models.language import Language
from core.models.layers import RMSNorm

EPS = 1e-6  # of the embedding norm, whatever the backbone's


class PairLinear(nn.Linear):
    """A linear layer over [a ; b], as the sum of one over a and one over b."""

    def left(self, a: Tensor) -> Tensor:
        """[..., n] → [..., out]"""
        return F.linear(a, self.weight.chunk(2, -1)[0])

    def right(self, b: Tensor) -> Tensor:
        """[..., n] → [..., out]"""
        return F.linear(b, self.weight.chunk(2, -1)[1], self.bias)


class Halves(nn.Module):
    """A ``PairLinear`` as two layers, which can be packed."""

    def __init__(self, pair: PairLinear):
        super().__init__()
        width, out = pair.in_features // 2, pair.out_features
        self.left = nn.Linear(width, out, bias=False, device="meta")
        self.right = nn.Linear(width, out, device="meta")
        left, right = (w.contiguous() for w in pair.weight.detach().chunk(2, -1))
        self.left.load_state_dict({"weight": left}, assign=True)
        self.right.load_state_dict({"weight": right, "bias": pair.bias.detach()}, assign=True)


class ArApproximation(nn.Module):
    """One SwiGLU over [normed embedding of the token before ; normed hidden row]."""

    def __init__(self, hidden: int, intermediate: int):
        super().__init__()
        self.ug: PairLinear | Halves = PairLinear(2 * hidden, 2 * intermediate)
        self.d = nn.Linear(intermediate, hidden, bias=False)
        self.norm = RMSNorm(hidden, EPS)
        nn.init.zeros_(self.d.weight)

    def forward(self, before: Tensor, normed: Tensor) -> Tensor:
        """Embeddings [..., h] and normed rows [..., h], which broadcast → what is added to the
        rows, [..., h]."""
        u, g = (self.ug.left(self.norm(before)) + self.ug.right(normed)).chunk(2, -1)
        return self.d(F.silu(g) * u)

    def halve(self) -> None:
        """Part the first layer for inference; the parameters' names are then not the published."""
        if isinstance(self.ug, PairLinear):
            self.ug = Halves(self.ug)


class TreeFlashModel(nn.Module):
    """Backbone and head; ``model`` is a whole DFlash drafter."""

    def __init__(self, config: DFlashConfig, intermediate: int):
        super().__init__()
        self.config = config
        self.model = DFlashModel(config)
        self.ar_approximation = ArApproximation(config.hidden_size, intermediate)

    def conditioned(self, hidden: Tensor, before: Tensor) -> Tensor:
        """Residual rows [..., h] and the embeddings of the tokens before them [..., h] → rows for
        the target's head. The two broadcast."""
        return self.model.norm(hidden + self.ar_approximation(before, self.model.norm(hidden)))


def initial_model(backbone: DFlashModel) -> TreeFlashModel:
    """A head as wide as the backbone's MLP that changes nothing yet: an exact DFlash."""
    model = TreeFlashModel(backbone.config, backbone.config.intermediate_size)
    model.model.load_state_dict(backbone.state_dict())
    return model.to(backbone.fc.weight.device, backbone.fc.weight.dtype)


def save_model(
    model: TreeFlashModel, folder: Path, small: bool = False, backbone: str | None = None
) -> None:
    """Write the official form, or with ``small`` its int8 one (see ``checkpoint.write``).

    ``backbone``: leave the backbone out and name the folder beside this one that holds it.
    """
    ours: dict[str, Any] = {"ar_approximation": "swiglu", "candidate_tokens": 16}
    state = dict(model.state_dict())
    if backbone is not None:
        ours["backbone"] = backbone
        state = {n: t for n, t in state.items() if not n.startswith("model.")}
    config = model.config.to_json() | {
        "architectures": ["TreeFlashModel"],
        "treeflash_config": ours,
    }
    checkpoint.write(folder, config, state, small)


def parts(folder: Path) -> dict[str, Path]:
    """Folders that hold the tensors, by the prefix their names get.

    One of ours may share its backbone with the DFlash folder beside it. Raises UserError.
    """
    raw = configs.read_config(folder, "TreeFlash")
    with configs.as_user_error(folder, "TreeFlash"):
        own = raw.get("treeflash_config") or {}
        if own.get("ar_approximation", "swiglu") != "swiglu":
            raise UserError(f"the head {own['ar_approximation']!r} is not a SwiGLU")
        shared = own.get("backbone")
    if not isinstance(shared, str):
        return {"": folder}
    if Path(shared).name != shared:
        raise UserError(f"{folder}: its backbone {shared!r} is not a folder beside it")
    return {"": folder, "model.": folder.parent / shared}


class TreeFlashForm(DrafterForm[DFlashConfig]):
    """A backbone with its head, or a head beside the folder of its backbone."""

    def load_config(self, folder: Path) -> DFlashConfig:
        """Raises UserError when the folder holds no readable TreeFlash config."""
        return configs.parsed_at(folder, "TreeFlash", DFlashConfig.from_json)

    def folders(self, folder: Path) -> list[Path]:
        """Every folder that holds the checkpoint's weights."""
        return list(parts(folder).values())

    def read_shapes(self, folder: Path) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all tensors, the backbone's too. Raises UserError."""
        found = ((at, checkpoint.read_shapes(where)) for at, where in parts(folder).items())
        return {at + name: shape for at, shapes in found for name, shape in shapes.items()}

    def outline(self, folder: Path) -> TreeFlashModel:
        """The model a folder's config and headers describe, without weights. Raises UserError."""
        config = self.load_config(folder)
        ug = self.read_shapes(folder).get("ar_approximation.ug.weight", ())
        if len(ug) != 2:
            raise LayoutError(f"{folder}: tensor ar_approximation.ug.weight is missing")
        with configs.on_meta(folder, "TreeFlash"):
            return TreeFlashModel(config, ug[0] // 2)

    def load_model(
        self, folder: Path, dtype: torch.dtype, device: torch.device | str
    ) -> TreeFlashModel:
        """Load a published checkpoint, or one that shares its backbone with a DFlash folder.

        Raises UserError when a tensor is missing, surplus or of another shape.
        """
        model, state = self.outline(folder), dict[str, Tensor]()
        for at, where in parts(folder).items():
            state |= {at + name: tensor for name, tensor in checkpoint.read_state(where).items()}
        return checkpoint.fill(model, state, folder).to(device=device, dtype=dtype).eval()


FORM = TreeFlashForm()


def export(folder: Path, out: Path, load_target: Callable[[], Language]) -> nn.Module:
    """Write a checkpoint of ours in the official form, joined with its backbone."""
    model = FORM.load_model(folder, torch.bfloat16, "cpu")
    save_model(model, out)
    return model
