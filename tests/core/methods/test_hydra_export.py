"""Hydra's heads as ``model export`` writes them, in the reference's modules written anew."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from app.cli import main
from core.errors import UserError
from core.methods.hydra import model as hydra
from core.methods.hydra.drafter import load
from core.methods.method import QOptions
from core.models.language import load_language
from tests.helpers import toys
from tests.helpers.drafter_reference import assert_close, numbers
from tests.helpers.toys_on_disk import BYTES, save_toys

WIDTH, HEADS, PATH = 32, 4, [7, 200, 3, 256]


class Block(nn.Module):
    """Of a hidden state and ``tokens`` embeddings: always with a bias, and with its own matrix for
    the residual where it makes its input narrower."""

    def __init__(self, tokens: int):
        super().__init__()
        self.linear = nn.Linear(WIDTH * (tokens + 1), WIDTH)
        self.res_connection = nn.Linear(WIDTH * (tokens + 1), WIDTH) if tokens else nn.Identity()

    def forward(self, x):
        return self.res_connection(x) + F.silu(self.linear(x))


class Reference(nn.Module):
    """zankner/Hydra's ``mlp`` heads: the i-th reads the hidden state and i + 1 embeddings."""

    def __init__(self, layers: int):
        super().__init__()
        self.hydra_mlp = nn.ModuleList(
            nn.Sequential(Block(i + 1), *[Block(0)] * (layers - 1)) for i in range(HEADS)
        )
        self.hydra_lm_head = nn.ModuleList(nn.Linear(WIDTH, BYTES) for _ in range(HEADS))

    def forward(self, hidden, embedded):
        """[h] and the path's embeddings [i + 1, h] → logits [V] of head i."""
        head = len(embedded) - 1
        x = self.hydra_mlp[head](torch.cat([hidden, *embedded]))
        return self.hydra_lm_head[head](x)


def heads(layers: int, shared: bool = True) -> hydra.HydraModel:
    """Random ones, whose blocks after the first are one, as the reference stores them."""
    made = hydra.HydraModel(hydra.HydraConfig(HEADS, WIDTH, layers=layers))
    rng = torch.Generator().manual_seed(layers)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=rng) * 0.3
    for head in made.hydra_mlp if shared else ():
        for block in head[2:]:
            block.load_state_dict(head[1].state_dict())
    return made


@pytest.mark.parametrize("layers", [1, 3])
def test_the_reference_drafts_what_we_draft(layers, tmp_path, capsys):
    target, _ = save_toys(tmp_path)
    hydra.FORM.save_model(heads(layers), tmp_path / "ours", small=True)
    out, words = tmp_path / "out", ["--kind", "hydra", "--model", str(target)]
    code = main(["model", "export", "--out", str(out), *words, "--drafter", str(tmp_path / "ours")])
    assert code == 0, capsys.readouterr().err
    raw = json.loads((out / "config.json").read_text())
    assert (raw["hydra_num_heads"], raw["hydra_num_layers"]) == (HEADS, layers)
    assert (raw["hydra_head_arch"], raw["grounded_heads"]) == ("mlp", True)

    reference = Reference(layers)
    state = load_file(out / "model.safetensors")
    reference.load_state_dict({n: t.float() for n, t in state.items()}, strict=True)
    language = load_language(str(target), "cpu", fast=False)
    # The heads are the target's in bf16, as every exported tensor.
    weight = language.model.lm_head.weight
    weight.data = weight.data.bfloat16().float()
    mine = {name: load(language, tmp_path / name, QOptions()) for name in ("ours", "out")}
    hidden, embedded = numbers(1, WIDTH).float(), language.embedding(torch.tensor(PATH))
    for drafter in mine.values():
        drafter.extend([5], hidden[None])
        session = drafter.begin(PATH[0], 16)
        for depth in range(HEADS):
            path = PATH[: depth + 1]
            expected = reference(hidden, embedded[: depth + 1]).log_softmax(-1)
            assert_close(session.log_q(path)[-1], expected.detach(), 2e-5)


def test_blocks_that_differ_have_no_official_form(tmp_path, capsys):
    hydra.FORM.save_model(heads(3, shared=False), tmp_path / "ours")
    words = ["--kind", "hydra", "--drafter", str(tmp_path / "ours")]
    assert main(["model", "export", "--out", str(tmp_path / "out"), *words]) == 2
    assert "one block that is applied again" in capsys.readouterr().err


@pytest.mark.parametrize("make", [toys.hydra_drafter, toys.hydra_plus_drafter])
def test_what_is_official_is_written_as_it_is(make, tmp_path):
    plus = make is toys.hydra_plus_drafter
    more = {} if plus else {"own": True, "res_connection": True}
    model = make(**more).model.to(torch.bfloat16)
    for head in model.hydra_mlp if plus else ():
        head[5].load_state_dict(head[3].state_dict())
    hydra.FORM.save_model(model, tmp_path / "ours")

    def refuse():
        raise UserError("no target is needed")

    hydra.export(tmp_path / "ours", tmp_path / "out", refuse)
    written, own = (load_file(tmp_path / n / "model.safetensors") for n in ("out", "ours"))
    added = set() if plus else {f"hydra_lm_head.{i}.bias" for i in range(HEADS)}
    assert written.keys() - own.keys() == added and not own.keys() - written.keys()
    assert all(torch.equal(written[name], own[name]) for name in own)
    assert not any(written[name].any() for name in added)
