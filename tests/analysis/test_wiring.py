"""The wiring probe: planted mistakes are named, healthy drafters are not accused.

The drafters are toys that learnt one text by heart, so they depend on how they are fed.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import DynamicCache

from analysis.drafters import measuring, wiring
from analysis.drafters.expected import Expected, errors, reported
from analysis.drafters.measuring import HEATS, Kept, Measured, measure, passage_of
from analysis.drafters.mistakes import MISTAKES, NO_FEATURES, OWN_STATE
from analysis.drafters.signatures import BAD, BETTER, GOOD, NAMED, NOTHING, Signature, Wiring
from analysis.drafters.trials import Subject, Trial
from analysis.drafters.wiring import CONFIGURED, Healthy, ProbePlan, WiringProbe, to_json
from app.cli import main
from app.studio.engine import CollectRequest, DiagnoseRequest, LiveEngine, ModelChoice
from core.drafting.session import Covered, FactorisedSession
from core.errors import UserError
from core.methods.dart.drafter import DartDrafter
from core.methods.dart.model import DartModel
from core.methods.dflash.before import CorrectedDrafter
from core.methods.dflash.drafter import DFlashDrafter
from core.methods.dflash.model import DFlashModel
from core.methods.dflash2.drafter import DFlash2Drafter
from core.methods.dflash2.model import DFlash2Model
from core.methods.domino.model import DominoModel
from core.methods.dspark.drafter import DSparkDrafter
from core.methods.dspark.model import DSparkModel
from core.methods.eagle3.drafter import EagleDrafter
from core.methods.eagle3.model import EagleModel, save
from core.methods.hydra.drafter import HydraDrafter, HydraPlusDrafter
from core.methods.hydra.model import HydraConfig, HydraModel, HydraPlusModel, Prefix
from core.methods.medusa.drafter import MedusaDrafter
from core.methods.medusa.model import MedusaConfig, MedusaModel
from core.methods.method import DepthOptions
from core.methods.mtp import MtpOptions
from core.methods.mtp.config import MtpConfig
from core.methods.mtp.drafter import MtpDrafter
from core.methods.mtp.model import head_of
from core.methods.peagle.drafter import ParallelDrafter
from core.methods.xpress.model import XPressModel
from core.models.cache import additive_mask
from core.models.checkpoint import WithHead
from core.models.language import Language
from core.models.layers import MLP, Attention, RMSNorm, Rope
from core.models.target import Target
from core.progress import silent
from core.traces.schema import Header
from tests.helpers import toys
from tests.helpers.toys_on_disk import BYTES, save_toys

PROMPTS = ("What now? 12345",)
PLAN = ProbePlan(new_tokens=96, stride=1)  # a text with the places of two costs half as much
SHORT = {"prompts": (*PROMPTS, "abcdefg hijk"), "plan": ProbePlan(new_tokens=48, stride=1)}
STEPS, DEPTH = 120, 3
UNTAUGHT = {"steps": 0}
TEXTS = Kept()  # what the target writes and reads is the same for every drafter


@cache
def language() -> Language:
    model = toys.language_model().requires_grad_(False)
    return Language("toy", model, toys.tokenizer(), None)


def frames(drafter, language):
    """The trials in other frames of the prompt, by their names."""
    rows = [row for row in MISTAKES if row.mistake == "chat template"]
    subject = Subject(drafter, language, 100)
    return {trial.name: trial for row in rows for trial in row.trials(subject)}


@cache
def passages(frame: str = ""):
    """Return what the probe reads; ``frame``: the trial of this name, which frames the prompts."""
    trials = frames(toys.RandomDrafter(), language())
    framed = trials[frame].frame if frame else language().encode_chat
    texts = [TEXTS.text(language(), prompt, PLAN.new_tokens, silent) for prompt in PROMPTS]
    return [passage_of(language(), framed(text.prompt), text.answer) for text in texts]


def learn(network: nn.Module, logits, layers, targets=0, frame="", steps=STEPS) -> nn.Module:
    """The network after it learnt p along both texts; ``logits(features, tokens, anchors)`` gives
    [A, L, V]. ``layers`` None: features before the final norm. ``targets``: labels so many tokens
    further. ``frame``: of the prompts, as ``passages`` takes it."""
    torch.manual_seed(0)
    for parameter in network.parameters():
        if parameter.ndim == 2:
            parameter.data = torch.randn(parameter.shape) * parameter.shape[1] ** -0.5
        parameter.requires_grad_(True)
    adam = torch.optim.Adam(network.parameters(), 6e-3, fused=True)
    given = [
        (p, (p.before if layers is None else p.after(layers)).clone()) for p in passages(frame)
    ]
    for _ in range(steps):
        loss = torch.zeros(())
        for passage, features in given:
            first, last = passage.answer + 1, len(passage.tokens) - DEPTH - 1 - max(0, targets)
            anchors = torch.arange(first, last)
            found = logits(features, passage.tokens.clone(), anchors).float().log_softmax(-1)
            at = anchors[:, None] + torch.arange(found.shape[1]) - passage.answer + targets
            p = passage.p.clone()[at.clamp(0, len(passage.p) - 1)]
            loss = loss - (p * found).sum(-1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return network.eval().requires_grad_(False)


def embed(ids):
    return language().embedding(ids)


def shapes(**more):
    return dict(vocab_size=toys.LANGUAGE_SIZE, **more)


@cache
def dflash(targets=0) -> DFlashDrafter:
    return block_drafter(DFlashModel, toys.dflash_config, DFlashDrafter, steps=150, targets=targets)


def by_rows(network, *depth):
    """The network with what every drafter of its kind has, after it learnt by its rows."""
    head, layers = language().head, (0, 1, 2)

    def logits(features, tokens, anchors):
        return head(network.rows_at(embed, tokens, features, anchors, *depth))

    learn(network, logits, layers)
    return network, language().embedding, head, layers


@cache
def dart() -> DartDrafter:
    config = toys.dart_config(**shapes(draft_vocab_size=toys.LANGUAGE_SIZE, draft_length=DEPTH - 1))
    return DartDrafter(*by_rows(DartModel(config)))


@cache
def eagle3(layers=1) -> EagleDrafter:
    size = shapes(draft_vocab_size=toys.LANGUAGE_SIZE, num_hidden_layers=layers)
    made = by_rows(EagleModel(toys.eagle_config(**size)), DEPTH)
    return EagleDrafter(*made, options=DepthOptions(DEPTH, 1.0))


@cache
def eagle3_layers() -> EagleDrafter:
    """Of three layers: the first reads an embedding beside a feature, the others do not."""
    return eagle3.__wrapped__(3)


@cache
def medusa() -> MedusaDrafter:
    network, head = MedusaModel(MedusaConfig(DEPTH, 32, 2)), language().head
    learn(network, lambda features, tokens, at: head(network(features[at - 1])), (3,))
    return MedusaDrafter(network, head, (3,), torch.float32)


@cache
def hydra() -> HydraDrafter:
    network, head = HydraModel(HydraConfig(DEPTH, 32)), language().head

    def logits(features, tokens, anchors):
        rows = []
        for count in range(1, DEPTH + 1):
            path = embed(tokens[anchors[:, None] + torch.arange(count)])
            rows.append(head(network(features[anchors - 1], path)))
        return torch.stack(rows, 1)

    learn(network, logits, (3,))
    return HydraDrafter(network, language().embedding, head, (3,))


@cache
def hydra_plus() -> HydraPlusDrafter:
    config, head = (
        HydraConfig(DEPTH, 32, True, layers=2, prefix=Prefix(48, 32, 16)),
        language().head,
    )
    network = HydraPlusModel(config.made_for(language().model.config))

    def logits(features, tokens, anchors):
        context = network.project(features, torch.arange(len(features)))
        hidden, rows = network.attend(features[anchors - 1], anchors - 1, context), []
        for count in range(1, DEPTH + 1):
            path = embed(tokens[anchors[:, None] + torch.arange(count)])
            rows.append(head(network(hidden, path)))
        return torch.stack(rows, 1)

    learn(network, logits, (3,))
    return HydraPlusDrafter(network, language().embedding, head, (3,))


@cache
def jetspec() -> DFlashDrafter:
    """A block whose rows see only those before them."""
    return block_drafter(DFlashModel, toys.dflash_config, DFlashDrafter, causal=True)


def corrected(network, normed, paths):
    return network.correction(normed, paths, embed)


@cache
def dspark() -> DSparkDrafter:
    return block_drafter(DSparkModel, spark_config, DSparkDrafter, corrected)


@cache
def xpress() -> CorrectedDrafter:
    return block_drafter(XPressModel, xpress_config, CorrectedDrafter, corrected)


@cache
def domino() -> CorrectedDrafter:
    return block_drafter(DominoModel, domino_config, CorrectedDrafter, corrected)


@cache
def peagle() -> ParallelDrafter:
    """Its masked places are told apart by nothing but where they are."""
    size = shapes(draft_vocab_size=toys.LANGUAGE_SIZE, mask_token_id=258)
    made = by_rows(toys.parallel_drafter(dtype=torch.float32, **size).model, DEPTH)
    return ParallelDrafter(*made, None, DepthOptions(DEPTH, 1.0))


@cache
def mtp() -> MtpDrafter:
    """A layer for each depth."""
    own = MtpConfig(32, toys.LANGUAGE_SIZE, 1e-6, depths=DEPTH)
    network = head_of(language().model, own).to_empty(device="cpu")
    for parameter in network.parameters():
        parameter.data = torch.ones(parameter.shape)

    def logits(features, tokens, anchors):
        given, rows = features, []
        for depth, head in enumerate([network, *network.further]):
            where = torch.arange(depth + 1, len(tokens))
            joined = head.join(given[: len(where)], embed(tokens[where]))
            seen = torch.ones(len(where), len(where), dtype=torch.bool).tril()
            mask = additive_mask(seen, torch.float32)
            found, given = head(joined, where, mask, DynamicCache())
            rows.append(found[anchors - 1])
        return torch.stack(rows, 1)

    learn(network, logits, (3,))
    return MtpDrafter(network, language().embedding, (3,), MtpOptions(DEPTH))


def mtp_with(**changes):
    made = copy.copy(mtp())
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@cache
def dflash2() -> DFlash2Drafter:
    """With a window, convolutions and a selector that says nothing."""
    made = block_drafter(DFlash2Model, flash2_config, DFlash2Drafter, window=16)
    for parameter in made.model.candidate_selector.parameters():
        parameter.data.zero_()
    return made


def spark_config(**changes):
    return toys.dspark_model(**changes).config


def xpress_config(**changes):
    return toys.xpress_drafter(**changes).model.config


def domino_config(**changes):
    return toys.domino_drafter(**changes).model.config


def flash2_config(**changes):
    return toys.dflash2_model(selector_top_k=16, **changes).config


def block_drafter(network, config, drafter, bias=None, steps=STEPS, targets=0, **changes):
    """A trained drafter of a kind that drafts in blocks; ``bias``: of the normed rows and the
    paths, each from the token before its root on."""
    size = {"mask_token_id": 258, "target_layer_ids": toys.LAYERS}
    first = config().first_row
    made = network(config(**shapes(**size), block_size=DEPTH + first, **changes))
    head = language().head

    def logits(features, tokens, anchors):
        normed = made.norm(made.rows_at(embed, tokens, features, anchors))
        found = head(normed[:, -DEPTH:])  # some also read rows that predict nothing
        if bias is not None:
            paths = tokens[(anchors[:, None] + torch.arange(-1, DEPTH)).clamp(min=0)]
            found = found + bias(made, normed, paths)
        return found

    learn(made, logits, toys.LAYERS, targets=targets, steps=steps)
    return drafter(made, language().embedding, head)


HEALTHY = {
    "dflash": dflash, "dart": dart, "eagle3": eagle3, "medusa": medusa, "hydra": hydra,
    "hydra++": hydra_plus,
    "jetspec": jetspec, "dspark": dspark, "dflash2": dflash2,
    "eagle3 of three layers": eagle3_layers, "peagle": peagle, "xpress": xpress, "domino": domino,
    "mtp by depth": mtp,
}  # fmt: skip


def untaught(kind, monkeypatch):
    """A drafter of this kind with random weights, where nobody asks what it knows."""
    real = learn
    with monkeypatch.context() as patched:
        patched.setitem(globals(), "learn", lambda *given, **more: real(*given, **more | UNTAUGHT))
        return HEALTHY[kind].__wrapped__()


def quiet(done, what):
    """Nobody listens."""


def run(drafter, **more):
    report = more.pop("report", quiet)
    more = {"kept": replace(TEXTS, measured={}), "prompts": PROMPTS, "plan": PLAN} | more
    return WiringProbe(language(), drafter, **more).run(report)


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_drafter_is_not_accused(kind):
    found = run(HEALTHY[kind]())
    assert found.configured.tau > 2  # or nothing would be tested
    assert found.faults == ()
    assert len(found.mistakes) > 8


@pytest.mark.parametrize(
    ("chance", "free", "quantile"),  # of printed tables
    [(0.05, 5, 2.015), (0.025, 10, 2.228), (0.005, 10, 3.169), (0.001, 30, 3.385)],
)
def test_a_chance_is_student_s_of_as_many_stretches(chance, free, quantile):
    assert errors(chance, np.arange(free + 1).repeat(3)) == pytest.approx(quantile, rel=2e-3)


def test_a_drafter_that_knows_nothing_is_not_accused_either():
    """Nothing fits it better, so nothing is named."""
    made = copy.deepcopy(dflash())
    for parameter in made.model.layers.parameters():
        parameter.data = torch.randn(parameter.shape)
    found = run(DFlashDrafter(made.model, language().embedding, language().head))
    assert found.configured.tau < 1.3 and found.nearest is None


# ── planted ──────────────────────────────────────────────────────────────────────────────────────


def other(drafter, **config):
    """A copy with another config, which shares nothing that a plant changes."""
    made = copy.copy(drafter)
    made.model = copy.deepcopy(drafter.model)
    made.model.config = replace(made.model.config, **config)
    return made


copied = other  # under a name that no argument hides


def at_layers(layers):
    return other(dflash(), target_layer_ids=layers)


def dart_at(layers):
    made = other(dart())
    made.layers = layers
    return made


def shifted_features(step):
    """It is handed features that come ``step`` tokens late."""
    made = other(dart())
    plain = made.log_q_at

    def log_q_at(tokens, features, anchors):
        rows = (torch.arange(len(features)) - step).clamp(0, len(features) - 1)
        return plain(tokens, features[rows], anchors)

    made.log_q_at = log_q_at
    return made


def moved_context(kind, step):
    made = other(kind())
    project = made.model.project
    moved = lambda *given: project(*given[:-1], given[-1] + step)  # noqa: E731
    object.__setattr__(made.model, "project", moved)
    return made


def a_norm_too_much():
    """``fc`` brings its norm along, so the next one comes a second time."""
    made = other(dflash())
    extra = copy.deepcopy(made.model.hidden_norm)
    made.model.fc = nn.Sequential(made.model.fc, extra)
    noise = torch.Generator().manual_seed(1)
    gain = 1 + 2 * torch.rand(32, generator=noise)
    made.model.hidden_norm.weight.data = gain
    return made


def a_norm_too_little():
    """The healthy one multiplies by g; with gains √g it has to be applied twice."""
    made = other(dflash())
    noise = torch.Generator().manual_seed(2)
    scale = torch.exp(1.5 * torch.randn(32, generator=noise))
    norm = made.model.hidden_norm
    for layer in made.model.layers:  # keys and values as they were
        for linear in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            linear.weight.data = linear.weight / scale
            linear.weight.data *= (norm.weight.abs() * scale).sqrt().square().mean().sqrt()
    norm.weight.data = (norm.weight.abs() * scale).sqrt() * norm.weight.sign()
    return made


def noisy_past(size):
    """Old context is noise: a drafter that was trained with a window."""
    made = other(dflash())
    for layer in made.model.layers:
        attention = layer.self_attn
        plain = attention.attend

        def attend(queries, context, near, visible, hidden=None, plain=plain):
            count, rows = visible.sum(-1), torch.arange(context.rows)
            found = []
            for a in range(len(queries)):  # each block has another past
                old = (rows < count[a] - size)[None, :, None]
                noise = torch.Generator().manual_seed(0)
                junk = 3 * torch.randn(context.keys.shape, generator=noise)
                some = type(context)(
                    torch.where(old, junk, context.keys), torch.where(old, junk, context.values)
                )
                own = slice(a * queries.shape[1], (a + 1) * queries.shape[1])
                block = type(near)(near.keys[:, own], near.values[:, own])
                found.append(plain(queries[a : a + 1], some, block, visible[a : a + 1], hidden))
            return torch.cat(found)

        object.__setattr__(attention, "attend", attend)
    return made


def shaped(kind, **config):
    """A copy whose layers are made for another config, as a checkpoint is read by it."""
    made = copy.copy(kind())
    made.model = type(made.model)(replace(made.model.config, **config))
    made.model.load_state_dict(kind().model.state_dict())
    made.model.eval().requires_grad_(False)
    return made


def junk_ahead(causal):
    """It was trained with rows that see so much of their block: any other view is junk to it."""
    made = shaped(jetspec if causal else dflash, causal=not causal)
    for layer in made.model.layers:
        plain = layer.self_attn.attend

        def attend(queries, context, near, visible, hidden=None, plain=plain):
            found = plain(queries, context, near, visible, hidden)
            if (hidden is not None) == causal:
                return found
            noise = torch.Generator().manual_seed(0)
            return found + 2 * torch.randn(found.shape[1:], generator=noise)

        object.__setattr__(layer.self_attn, "attend", attend)
    return made


def wrong_map():
    ids = torch.randperm(toys.LANGUAGE_SIZE, generator=torch.Generator().manual_seed(0))
    made = other(dart())
    made.covered = Covered(ids, toys.LANGUAGE_SIZE)
    return made


def absolute_map():
    """d2t held token ids: the loader added each row's number."""
    rows = torch.arange(100)
    tokens = rows * 3 // 2
    head = nn.Linear(32, 100, bias=False)
    head.weight = nn.Parameter(language().head.weight[tokens], requires_grad=False)
    made = other(dart())
    made.head, made.covered = head, Covered(tokens + rows, toys.LANGUAGE_SIZE)
    return made


def anchor_first():
    made = other(dflash())
    plain = made.model.forward
    rolled = lambda *args, **more: plain(*args, **more).roll(-1, dims=1)  # noqa: E731
    object.__setattr__(made.model, "forward", rolled)
    return made


def before_the_norm():
    """It learnt from the state before the target's final norm."""
    network, head = MedusaModel(MedusaConfig(DEPTH, 32, 2)), language().head
    logits = lambda features, tokens, at: head(network(features[at - 1]))  # noqa: E731
    learn(network, logits, None, steps=600)
    return MedusaDrafter(network, head, (3,), torch.float32)


def turned(kind, change):
    """A copy whose weights are stored otherwise: ``change(its modules)``."""
    made = other(kind())
    for module in made.model.modules():
        change(module)
    return made


def stacked():
    """``fc`` reads a number of each layer, then the next of each."""
    made = other(dart())
    weight = made.model.fc.weight.data
    made.model.fc.weight.data = weight.unflatten(1, (3, -1)).mT.flatten(1).contiguous()
    return made


def neighbours(module):
    """Rows of each head as Meta's files have them: 0, 0', 1, 1', …"""
    if isinstance(module, Attention):
        for linear in (module.q_proj, module.k_proj):
            heads = linear.weight.data.unflatten(0, (-1, 2, module.shape.head_dim // 2))
            linear.weight.data = heads.transpose(1, 2).flatten(0, 2).contiguous()


def gates(module):
    if isinstance(module, MLP):
        module.gate_proj, module.up_proj = module.up_proj, module.gate_proj


def feature_first(module):
    if isinstance(module, Attention) and module.shape.inputs > module.shape.hidden:
        for linear in (module.q_proj, module.k_proj, module.v_proj):
            linear.weight.data = torch.cat([*reversed(linear.weight.data.chunk(2, 1))], 1)


def gained(step):
    def change(module):
        if isinstance(module, RMSNorm):
            module.weight.data = module.weight.data + step

    return change


def blunted():
    """A config that names an epsilon as large as what the norms read."""
    made = other(eagle3(), rms_norm_eps=1.0)
    for module in made.model.modules():
        if isinstance(module, RMSNorm):
            module.eps = 1.0
    return made


def map_off(step):
    """The map is right, but for a shift by so many rows."""
    tokens = torch.randperm(toys.LANGUAGE_SIZE, generator=torch.Generator().manual_seed(0))
    head = nn.Linear(32, toys.LANGUAGE_SIZE, bias=False)
    head.weight = nn.Parameter(language().head.weight[tokens], requires_grad=False)
    made = other(dart())
    made.head, made.covered = head, Covered(tokens.roll(step), toys.LANGUAGE_SIZE)
    return made


def embeddings_without_scale():
    made = other(dflash())
    made.embedding = copy.deepcopy(made.embedding)
    made.embedding.weight.data = made.embedding.weight / 32**0.5
    return made


def masked_with_the_end():
    """It learnt with the text's end as its mask, and its config names another token."""
    made = other(dflash(), mask_token_id=257)
    made.embedding = copy.deepcopy(made.embedding)
    rows = made.embedding.weight.data
    rows[256], rows[257] = rows[258].clone(), -3 * rows[258]
    return made


def junk_in_blocks_but(size):
    """It was trained in blocks of so many rows: another number is junk to it."""
    made = other(dflash(), block_size=2 * size)
    for layer in made.model.layers:
        plain = layer.self_attn.attend

        def attend(queries, context, near, visible, hidden=None, plain=plain):
            found = plain(queries, context, near, visible, hidden)
            if queries.shape[1] == size:
                return found
            noise = torch.Generator().manual_seed(0)
            return found + 2 * torch.randn(found.shape[1:], generator=noise)

        object.__setattr__(layer.self_attn, "attend", attend)
    return made


def heads_exchanged(layer, one, other, names):
    """A copy whose file has two heads of a layer exchanged, in these projections."""
    made = copied(dflash())
    attention = made.model.layers[layer].self_attn
    for name in names:
        linear, axis = getattr(attention, name), int(name == "o_proj")
        heads = linear.weight.data.unflatten(axis, (-1, attention.shape.head_dim))
        order = list(range(heads.shape[axis]))
        order[one], order[other] = order[other], order[one]
        linear.weight.data = heads.index_select(axis, torch.tensor(order)).flatten(axis, axis + 1)
    return made


def in_turns():
    """Query heads stored as another program has them: those of one key head take turns."""
    made = copied(dflash())
    for layer in made.model.layers:
        shape, attention = layer.self_attn.shape, layer.self_attn
        order = torch.arange(shape.heads).view(shape.groups, -1).T.flatten()
        for linear, axis in ((attention.q_proj, 0), (attention.o_proj, 1)):
            heads = linear.weight.data.unflatten(axis, (shape.heads, -1))
            linear.weight.data = heads.index_select(axis, order).flatten(axis, axis + 1)
    return made


def layers_exchanged(kind, one, other):
    """A copy whose file has the numbers of two layers exchanged."""
    made = copied(kind())
    layers = made.model.layers
    layers[one], layers[other] = layers[other], layers[one]
    return made


PLANTED = {
    "layers.0 and layers.1 exchanged": lambda: layers_exchanged(dflash, 0, 1),
    "layers.1 and layers.2 exchanged": lambda: layers_exchanged(eagle3_layers, "1", "2"),
    "layers in the order [0, 1, 2]": lambda: dart_at((2, 0, 1)),
    "layers.0: queries of heads 0 and 3 exchanged": lambda: heads_exchanged(0, 0, 3, ["q_proj"]),
    "layers.1: keys and values of heads 0 and 1 exchanged": lambda: heads_exchanged(
        1, 0, 1, ["k_proj", "v_proj"]
    ),
    "query heads in turns": in_turns,
    "features stacked": stacked,
    "gains + 1": lambda: turned(dflash, gained(-1)),
    "gains − 1": lambda: turned(dflash, gained(1)),
    "rms_norm_eps 1e-06": blunted,
    "rotary pairs of neighbours": lambda: turned(dflash, neighbours),
    "gate and up exchanged": lambda: turned(dflash, gates),
    "embedding and feature exchanged": lambda: turned(eagle3, feature_first),
    "block of 4": lambda: junk_in_blocks_but(DEPTH + 1),
    "mask token 256": masked_with_the_end,
    "embeddings times √h": embeddings_without_scale,
    "d2t one row up": lambda: map_off(1),
    "d2t one row down": lambda: map_off(-1),
    "layers [1, 3] − 1": lambda: at_layers((1, 3)),
    "layers [-1, 1] + 1": lambda: at_layers((-1, 1)),
    "layer 2 for 1": lambda: at_layers((0, 1)),
    "layers in reverse order": lambda: dart_at((2, 1, 0)),
    "features of the token after": lambda: shifted_features(1),
    "features of the token before": lambda: shifted_features(-1),
    "features before the target's final norm": before_the_norm,
    "context one position nearer": lambda: moved_context(dflash, -1),
    "context one position further off": lambda: moved_context(eagle3, 1),
    "rope_theta 10000": lambda: other(dart(), rope=Rope(1e6)),
    "hidden_norm skipped": a_norm_too_much,
    "hidden_norm twice": a_norm_too_little,
    "norm_before_residual=false": lambda: other(eagle3(), norm_before_residual=True),
    "norm_output=false": lambda: other(eagle3(), norm_output=True),
    "context in a window of 16": lambda: noisy_past(16),
    "window as full attention": lambda: shaped(dflash, sliding=(True,) * 2, window=5, causal=False),
    "block causal": lambda: junk_ahead(causal=True),
    "block seen whole": lambda: junk_ahead(causal=False),
    "d2t ignored": wrong_map,
    "d2t as token ids": absolute_map,
    "anchor first": anchor_first,
    "rows one token further": lambda: dflash(targets=1),
    "rows one token nearer": lambda: dflash(targets=-1),
}


IN_HYDRA_PLUS = {
    "context one position nearer": lambda: moved_context(hydra_plus, -1),
    "rope_theta 10000": lambda: other(hydra_plus(), rope=Rope(1e6)),
    "rotary pairs of neighbours": lambda: turned(hydra_plus, neighbours),
    "gate and up exchanged": lambda: turned(hydra_plus, gates),
}
IN_OTHERS = {
    "mtp: layers of the depths in the order [2, 1, 3]": lambda: mtp_with(
        heads=[mtp().heads[at] for at in (1, 0, 2)]
    ),
    "mtp: layers read each other": lambda: mtp_with(chained=False),
    "xpress: context one position nearer": lambda: moved_context(xpress, -1),
    "domino: context one position further off": lambda: moved_context(domino, 1),
    "xpress: gate and up exchanged": lambda: turned(xpress, gates),
    "domino: rotary pairs of neighbours": lambda: turned(domino, neighbours),
    "peagle: context one position nearer": lambda: moved_context(peagle, -1),
    "peagle: embedding and feature exchanged": lambda: turned(peagle, feature_first),
    "peagle: norm_before_residual=false": lambda: other(peagle(), norm_before_residual=True),
}
EVERY = [*PLANTED.items(), *IN_HYDRA_PLUS.items(), *IN_OTHERS.items()]


@pytest.mark.parametrize(("name", "plant"), EVERY, ids=[name for name, _ in EVERY])
def test_a_planted_mistake_is_named(name, plant):
    found = run(plant())
    assert found.nearest is not None
    name = name.rpartition(": ")[2] if name in IN_OTHERS else name
    assert found.nearest.trial.name == name
    assert found.faults[0].startswith(f"{name} accepts")


@pytest.mark.parametrize("frame", ["no chat template", "chat template of Vicuna"])
def test_a_drafter_trained_in_another_frame_is_told_so(frame):
    made = MedusaModel(MedusaConfig(DEPTH, 32, 2))
    head = language().head
    learn(made, lambda f, t, at: head(made(f[at - 1])), (3,), frame=frame, steps=400)
    found = run(MedusaDrafter(made, head, (3,), torch.float32))
    assert found.nearest.trial.name == frame


def test_templates_are_tried_whose_marks_the_tokenizer_has():
    tokenizer = copy.deepcopy(toys.tokenizer())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    own = Language("toy", language().model, tokenizer, None)
    names = frames(medusa(), own)
    assert names.keys() == {
        "no chat template", "chat template of ChatML", "chat template of Vicuna",
    }  # fmt: skip
    ids = names["chat template of ChatML"].frame("a <|im_end|>")
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text == "<|im_start|>user\na <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 1  # the user's are words
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}{{ '<|im_start|>assistant\n' }}"
    )
    own = Language("toy", language().model, tokenizer, None)
    assert "chat template of ChatML" not in frames(medusa(), own)


@pytest.mark.parametrize("kind", ["dflash", "dart"])
def test_a_mask_that_is_zero_already_is_told(kind):
    made = other(HEALTHY[kind]())
    if kind == "dart":
        made.model.midlayer.mask_rep.data.zero_()
    else:
        made.embedding = copy.deepcopy(made.embedding)
        made.embedding.weight.data[258] = 0
    assert [each.trial.name for each in run(made).moot] == ["mask embedding zero"]


def test_texts_too_short_for_a_verdict_are_known_before_they_are_written():
    def report(done, what):
        raise AssertionError("nothing is to be written")

    for most, error, words in (
        (56 + DEPTH, UserError, "at most 7 stretches"),
        (57 + DEPTH, AssertionError, "written"),
    ):
        with pytest.raises(error, match=words):
            run(dflash(), plan=ProbePlan(new_tokens=most, stride=1), report=report)


def test_only_what_leaves_q_as_it_is_changes_nothing():
    """A q that is nowhere near p, or flat, is as far from p after any change."""
    for right in (np.zeros((200, 3), bool), np.random.default_rng(0).random((200, 3)) < 0.5):
        found = seen(right)
        (other,) = found.mistakes
        assert found.unchanged(other)
        for name in ("best", "sure"):
            assert not found.unchanged(replace(other, **{name: getattr(other, name) + 0.01}))


def test_features_that_a_flat_q_hardly_shows_are_not_called_lost(monkeypatch):
    some = [row for row in wiring.MISTAKES if row.mistake == "features unused"]
    monkeypatch.setattr(wiring, "MISTAKES", some)
    made = other(dflash())
    made.head = copy.deepcopy(made.head)
    made.head.weight.data *= 1e-4
    assert run(made).moot == ()


def test_features_that_never_arrive_are_told():
    made = other(dflash())
    made.model.fc.weight.data.zero_()
    assert "features all zero" in [each.trial.name for each in run(made).moot]


def test_thinking_is_turned_over_where_the_template_has_it():
    tokenizer = copy.deepcopy(toys.tokenizer())
    tokenizer.chat_template = toys.TEMPLATE + "{% if enable_thinking is not false %}hm{% endif %}"
    own = Language("toy", language().model, tokenizer, None)
    names = frames(medusa(), own)
    assert names.keys() == {
        "no chat template", "chat template of Vicuna", "enable_thinking=false",
    }  # fmt: skip
    assert own.text(names["enable_thinking=false"].frame("hi")) == "user\nhi\nassistant\n"
    assert own.text(own.encode_chat("hi")).endswith("hm")


def seen(right, features=None):
    """A configuration whose best tokens are right [P, L], beside zero features."""
    right, at = np.array(right, bool), np.arange(len(right))
    none = np.array(right if features is None else features, bool)
    same = np.zeros(right.shape)
    costs = np.zeros((*right.shape, len(HEATS)))
    parts = [Measured(at, x, 1 - x.astype(np.float32), same, same, costs) for x in (right, none)]
    trial = Trial("features unused", NO_FEATURES, "they are wrong")
    own = Signature(**vars(parts[0]), trial=CONFIGURED)
    other = Signature(**vars(parts[1]), trial=trial)
    return Wiring(own, (other,), at // 4, np.zeros(3), np.zeros(3))


@pytest.mark.parametrize(("sharper", "says"), [(3.0, "sharp"), (1 / 3, "flat"), (1.0, "")])
def test_a_q_of_another_temperature_is_told_though_its_chain_is_the_same(sharper, says):
    """Best tokens and τ do not show it: the cost of coding p does."""
    made = other(dflash())
    made.temperature /= sharper
    notes = [note for note in run(made).notes if note.startswith("q is too")]
    assert [note.split(":")[0] for note in notes] == ([f"q is too {says}"] if says else [])


def test_notes_say_what_no_mistake_explains():
    rng = np.random.default_rng(0)
    gentle = rng.random((200, 5)) < (0.8, 0.7, 0.6, 0.5, 0.45)
    assert seen(gentle, rng.random((200, 5)) < 0.1).notes == ()
    cliff = rng.random((200, 5)) < (0.8, 0.7, 0.6, 0.02, 0.02)
    (note,) = seen(cliff, np.zeros((200, 5))).notes
    assert note.startswith("a cliff at depth 4") and "depth 3" in note
    chance = rng.random((200, 5)) < (0.8, 0.5, 0.17, 0.15, 0.1)  # hardly below the 0.4 of a cliff
    assert chance[:, 2].mean() < 0.4 * chance[:, 1].mean() and seen(chance, chance & 0).notes == ()
    steep = rng.random((200, 4)) < (0.8, 0.2, 0.05, 0.01)  # as heads are
    assert seen(steep, np.zeros((200, 4))).notes == ()
    (note,) = seen(gentle, np.roll(gentle, 1, 0)).notes
    assert note.startswith("the features help little") and "1.00×" in note
    dead = np.zeros((200, 3), bool)
    dead[:5, 0] = True
    (note,) = seen(dead, np.roll(dead, 9, 0)).notes  # not that its features help little
    assert note.startswith("q hardly follows p")
    (note,) = seen(np.zeros((200, 3), bool)).notes
    assert note.startswith("q hardly follows p")
    beside = seen(gentle & (rng.random((200, 5)) < 0.7), gentle)
    head = replace(beside.mistakes[0], trial=Trial("shifted features", OWN_STATE))
    beside = replace(beside, mistakes=(head,))
    assert [note.startswith(f"beside the {OWN_STATE}") for note in beside.notes] == [True]
    assert replace(beside, expected=expected(0.56, 0.49, 0.42, 0.35, 0.3)).notes == ()  # healthy


def expected(*shares):
    """A training report's figures."""
    right = np.array([shares])
    return Expected("its report", right, right.cumprod(1))


def test_a_verdict_is_no_surer_than_what_a_healthy_drafter_reaches():
    """Shares of right tokens at 400 places; the verdict in each of four cases."""
    rng = np.random.default_rng(0)
    own, mended = rng.random((400, 3)) < 0.3, rng.random((400, 3)) < 0.6
    plain, better = seen(own, np.zeros((400, 3))), seen(own, mended)
    assert (plain.verdict, better.verdict) == (NOTHING, NAMED)  # nothing is known
    assert replace(plain, expected=expected(0.3, 0.3, 0.3)).verdict == GOOD
    itself = replace(plain, expected=replace(expected(0.3, 0.3, 0.3), itself=True))
    assert itself.verdict == GOOD and "It is its report" in itself.said[0]
    assert "below" not in itself.said[0]
    assert replace(better, expected=expected(0.6, 0.6, 0.6)).verdict == NAMED
    far = replace(better, expected=expected(0.8, 0.8, 0.8))
    poor = replace(better, configured=seen(own & False, own).configured)
    assert poor.nearest is not None and not poor.notes  # what has a name needs no other cause
    assert far.verdict == BETTER and far.faults == () and "Better, not yet good" in far.said[0]
    assert 0.5 < far.made_good < 0.65 and far.cause is far.nearest
    bad = replace(plain, expected=expected(0.31, 0.9, 0.9))
    assert bad.verdict == BAD and bad.short.depth == 2
    assert bad.short.tau == pytest.approx(1 + own.cumprod(1).sum(1).mean())
    assert bad.short.expected_tau == pytest.approx(1 + 0.31 * (1 + 0.9 + 0.81))
    few = seen(own[:12], np.zeros((12, 3)))
    assert replace(few, expected=expected(0.5, 0.5, 0.5)).verdict == GOOD  # it may be chance
    none = [seen(np.zeros((n, 3), bool)) for n in (12, 40)]  # 0 of 12 may be 20 % by chance
    assert [(each.verdict, len(each.notes)) for each in none] == [(NOTHING, 0), (BAD, 1)]


def test_what_makes_good_a_small_part_of_what_is_missing_is_told_and_no_cause_is_named():
    """EAGLE-3 with attention that hardly counts gained a quarter of it by features of the token
    after, and was said to be trained so."""
    rng = np.random.default_rng(0)
    own, mended = rng.random((400, 3)) < 0.3, rng.random((400, 3)) < 0.6
    wanted = expected(0.9, 0.9, 0.9)
    found = replace(seen(own, mended), expected=wanted)
    before, after = (1 + each.cumprod(1).sum(1).mean() for each in (own, mended))
    part = (after - before) / (wanted.tau - before)
    assert found.made_good == pytest.approx(part) and 0.3 < part < 0.5
    assert found.verdict == BAD and found.cause is None and found.nearest is not None
    (said,) = found.said
    assert f"makes good {part:.0%} of what is missing, so it is not the mistake" in said
    assert "they are wrong" not in said and "beyond what chance explains" not in said
    assert found.faults == () and found.rivals == ()
    shares = replace(wanted, alive=np.full((1, 3), np.nan))  # of all places, as some trainers log
    told = replace(found, expected=shares).made_good
    assert told == pytest.approx((mended.mean() - own.mean()) / (0.9 - own.mean()))
    few = np.tile(rng.random((400, 1)) < 0.06, 3)
    dead = seen(own & False, few)  # at its best it is still dead
    assert dead.nearest is not None and dead.verdict == BAD and np.isnan(dead.made_good)
    assert "With it its best token at depth 1 is right at" in dead.said[0]


def test_mistakes_that_fit_as_well_as_the_best_are_named_beside_it():
    """Of a base of 10 million both 10,000 and 100,000 were better, and it was said which it was."""
    rng = np.random.default_rng(0)
    own, mended = rng.random((400, 3)) < 0.3, rng.random((400, 3)) < 0.6
    close, far = mended.copy(), mended.copy()
    close[:2], far[::4] = False, False  # at 2 places, and at a hundred
    found = seen(own, mended)
    for name, right in (("close", close), ("far", far)):
        (other,) = seen(own, right).mistakes
        other = replace(other, trial=replace(other.trial, name=name))
        found = replace(found, mistakes=(*found.mistakes, other))
    assert [each.trial.name for each in found.rivals] == ["close"]
    assert ": they are wrong. It may as well be close (τ 2.3" in found.said[0]
    assert all(map(found.better, found.mistakes)) and "far" not in " ".join(found.said)
    assert to_json(found)["rivals"] == ["close"]


def test_a_mistake_that_was_ruled_out_early_is_not_named_for_a_larger_gain_there():
    rng = np.random.default_rng(0)
    own, mended = rng.random((400, 3)) < 0.3, rng.random((400, 3)) < 0.6
    own[:40] = False
    found = seen(own, mended)
    (best,) = found.mistakes
    few = {
        name: getattr(best, name)[:40] for name in ("at", "right", "tvd", "best", "sure", "cross")
    }
    early = replace(best, **few, trial=replace(best.trial, name="early"))
    found = replace(found, mistakes=(best, early))
    assert found.gain(early).mean() > found.gain(best).mean() and found.nearest is best
    assert found.ratio(early) == np.inf  # at its own places the configuration accepts nothing


def test_what_has_a_name_is_much_better_beyond_the_chance_of_all_trials_and_decodes():
    rng = np.random.default_rng(0)
    own, mended = rng.random((400, 3)) < 0.3, rng.random((400, 3)) < 0.6
    slight, deep = own.copy(), mended.copy()
    slight[np.flatnonzero(~own[:, 0])[::20], 0] = True  # at 14 places
    deep[:, 0] = False
    nothing = np.zeros((400, 3))
    assert seen(own, slight).nearest is None and seen(nothing, deep).nearest is None
    lucky = nothing[:48].copy()
    lucky[:32:4, 0] = True
    found = seen(nothing[:48], lucky)
    (best,) = found.mistakes
    assert found.nearest is best and replace(found, mistakes=60 * (best,)).nearest is None


def test_the_nearest_is_nearest_in_tvd_and_is_none_where_an_input_is_not_read():
    rng = np.random.default_rng(0)
    own, mended = rng.random((400, 3)) < 0.3, rng.random((400, 3)) < 0.6
    deep = mended | [False, True, True]  # nearer, though it accepts less
    deep[:, 0] = own[:, 0] | (rng.random(400) < 0.1)
    found, (other,) = seen(own, mended), seen(own, deep).mistakes
    found = replace(found, mistakes=(*found.mistakes, other))
    assert found.nearest is other and other.tau < found.mistakes[0].tau
    unread = replace(
        other, **vars(found.configured) | {"trial": Trial("x", "mask", moot="not read")}
    )
    found = replace(found, mistakes=(*found.mistakes, unread))
    assert found.nearest is None and found.faults == ("mask: not read",)


def test_acceptance_at_a_depth_is_of_the_places_that_came_there():
    one = seen([[1, 0], [1, 1], [0, 1], [0, 0]]).configured
    assert one.acceptance.tolist() == [0.5, 0.5] and one.tau == 1.75


def test_a_temperature_that_saves_little_is_not_told():
    found = seen(np.ones((200, 2), bool))
    for saved, told in ((0.05, 0), (0.2, 1)):
        costs = np.ones((200, 2, len(HEATS)))
        costs[:, :, 2] -= saved
        cheaper = replace(found, configured=replace(found.configured, cross=costs))
        assert sum("q is too sharp" in note for note in cheaper.notes) == told
    elsewhere = seen(np.zeros((200, 2)))
    cross = cheaper.configured.cross
    (note,) = replace(elsewhere, configured=replace(elsewhere.configured, cross=cross)).notes
    assert note.startswith("q hardly follows p")  # a q that is elsewhere is always too sharp


def test_the_report_beside_a_checkpoint_says_what_is_expected(tmp_path):
    assert reported(tmp_path) is None
    (tmp_path / "accuracy.json").write_text('{"val/full_acc_0": 0.8, "val/full_acc_1": 0.5}')
    found = reported(tmp_path)
    np.testing.assert_allclose(found.right, [[0.8, 0.5]])
    assert np.isnan(found.tau)  # shares after a right prefix are not told
    plain = seen(np.random.default_rng(0).random((400, 2)) < (0.8, 0.1), np.zeros((400, 2)))
    poor = replace(plain, expected=found)
    assert poor.verdict == BAD and poor.short.depth == 2 and "τ" not in poor.said[0].split("No")[0]


# ── the numbers ──────────────────────────────────────────────────────────────────────────────────


def test_every_number_is_that_of_a_slow_independent_reading():
    """Whole forwards of transformers, a drafter that is asked place by place, sums in numpy."""
    drafter = dflash()
    passage = passages()[0]
    places = np.arange(1, 9)
    found = measure(drafter, passage, CONFIGURED, places)
    right, far, best, sure = found.right, found.tvd, found.best, found.sure
    tokens = passage.tokens.tolist()
    with torch.inference_mode():
        out = language().model(passage.tokens[None], output_hidden_states=True, use_cache=False)
    p = out.logits[0].double().softmax(-1).numpy()
    features = torch.cat([out.hidden_states[i + 1][0] for i in toys.LAYERS], -1)
    for n, place in enumerate(places.tolist()):
        root = passage.answer + place
        drafter.reset(len(tokens))
        drafter.extend(tokens[:root], features[:root])
        q = drafter.begin(tokens[root], 4).log_q(tokens[root : root + DEPTH]).exp().numpy()
        for depth in range(DEPTH):
            assert right[n, depth] == (q[depth].argmax() == tokens[root + 1 + depth])
            distance = np.abs(q[depth].astype(float) - p[root + depth]).sum() / 2
            assert far[n, depth] == pytest.approx(distance, abs=1e-4)
            assert best[n, depth] == q[depth].argmax()
            assert sure[n, depth] == pytest.approx(np.log(q[depth].max()), abs=1e-3)


def test_two_texts_are_measured_as_each_alone(monkeypatch):
    monkeypatch.setattr(wiring, "MISTAKES", ())
    prompts = SHORT["prompts"]
    both = run(eagle3(), prompts=prompts)
    alone = [run(eagle3(), prompts=(prompt,)) for prompt in prompts]
    right = np.concatenate([each.configured.right for each in alone])
    np.testing.assert_array_equal(both.configured.right, right)
    tvd = np.concatenate([each.configured.tvd for each in alone])
    np.testing.assert_allclose(both.configured.tvd, tvd, atol=1e-4)
    first, second = (each.units for each in alone)
    np.testing.assert_array_equal(both.units, [*first, *(second + first.max() + 1)])
    np.testing.assert_array_equal(both.used, alone[0].used + alone[1].used)


def test_no_trial_leaves_a_trace():
    """After every trial the drafter answers as before."""
    for kind in ("dflash", "dart", "eagle3", "hydra++"):
        drafter = HEALTHY[kind]()
        before = run(drafter)
        again = run(drafter)
        np.testing.assert_array_equal(before.configured.tvd, again.configured.tvd)
        subject = Subject(drafter, language(), 60)
        for row in MISTAKES:
            for trial in row.trials(subject):
                with ExitStack() as stack:
                    stack.enter_context(trial.change())
        assert run(drafter).configured.tau == before.configured.tau


@pytest.mark.parametrize("make", [dflash, lambda: at_layers((1, 3))])
def test_what_a_few_places_rule_out_stays_at_them(make, monkeypatch):
    """All else rests on all places and has the numbers of a probe that has one pass only."""
    found = run(make())
    monkeypatch.setattr(wiring, "EARLY", 10_000)
    whole = run(make())
    assert whole.faults == found.faults
    everywhere = np.arange(len(found.units))
    np.testing.assert_array_equal(found.configured.at, everywhere)
    np.testing.assert_allclose(found.configured.tvd, whole.configured.tvd, atol=1e-4)
    early = 0
    for some, all_ in zip(found.mistakes, whole.mistakes, strict=True):
        assert some.trial.name == all_.trial.name
        np.testing.assert_allclose(some.tvd, all_.tvd[some.at], atol=1e-4)
        np.testing.assert_array_equal(some.right, all_.right[some.at])
        if len(some.at) < len(everywhere):
            early += 1
            assert all_ is not whole.nearest
    assert early > len(found.mistakes) / 2  # or it would save nothing


class Halt(Exception):
    pass


def halt_after(count):
    left = iter(range(count))

    def report(done, what):
        if next(left, None) is None:
            raise Halt

    return report


def test_a_probe_can_be_stopped_anywhere_and_leaves_the_drafter_as_it_was():
    """It reports before every token of a text and every forward of a trial, ever further on."""
    drafter, heard = eagle3(), list[tuple[float, str]]()
    before = run(drafter, report=lambda *news: heard.append(news), kept=Kept())
    shares = [done for done, _ in heard]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1
    tokens = sum(what.startswith("the target's text") for _, what in heard)
    assert tokens >= sum(len(passage.tokens) - passage.answer for passage in passages()) - 2
    assert {each.trial.name for each in before.mistakes} <= {what for _, what in heard}
    for at in range(0, len(heard), len(heard) // 8):
        with pytest.raises(Halt):
            run(drafter, report=halt_after(at), kept=Kept())
    np.testing.assert_array_equal(run(drafter).configured.tvd, before.configured.tvd)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_stop_is_heard_within_two_forwards(kind, monkeypatch):
    """Of the target, or of some drafts."""
    passes = list[str]()
    drafter = HEALTHY[kind]()
    for owner, name in ((Target, "score"), (Target, "prefill"), (type(drafter), "log_q_at")):
        real = getattr(owner, name)

        def counted(*given, real=real, name=name, **more):
            passes.append(name)
            return real(*given, **more)

        monkeypatch.setattr(owner, name, counted)

    def report(done, what):
        assert len(passes) <= 2, f"{what}: {passes}"
        passes.clear()

    run(drafter, report=report, kept=Kept())


def test_what_a_stopped_probe_measured_is_kept(monkeypatch):
    """Stopped again and again it measures every trial once, and finds the same."""
    drafter, counts = eagle3(), Counter[tuple]()
    whole = to_json(run(drafter, **SHORT))
    real = measuring.measure

    def counted(drafter, passage, trial, places, tick):
        found = real(drafter, passage, trial, places, tick)
        counts[trial.name, len(passage.tokens), tuple(places)] += 1
        return found

    monkeypatch.setattr(measuring, "measure", counted)
    kept, stops = Kept(), 0
    while True:
        try:
            found = run(drafter, **SHORT, report=halt_after(55), kept=kept)
            break
        except Halt:
            stops += 1
    assert stops > 2 and set(counts.values()) == {1}
    assert to_json(found) == whole
    once = halt_after(len(SHORT["prompts"]))  # nothing is left to do
    again = run(drafter, **SHORT, report=once, kept=kept)
    assert to_json(again) == whole


@pytest.mark.parametrize("kind", [*HEALTHY, "dart that reads a layer twice"])
def test_no_two_trials_have_one_name(kind, monkeypatch):
    made = untaught(kind, monkeypatch) if kind in HEALTHY else dart_at((1, 1, 0))
    subject = Subject(made, language(), 60)
    names = [trial.name for row in MISTAKES for trial in row.trials(subject)]
    assert len(names) == len(set(names)) and "layers in the order [1, 1, 0]" not in names
    if kind not in HEALTHY:
        assert {"layer 2 for 1 in place 1", "layer 2 for 1 in place 2"} <= set(names)


def test_a_drafter_is_its_own_measure_without_a_second_look(monkeypatch):
    looks, real = Counter[str](), measuring.measure

    def counted(drafter, passage, trial, *given):
        looks[trial.name] += len(given[0])
        return real(drafter, passage, trial, *given)

    monkeypatch.setattr(measuring, "measure", counted)
    found = run(eagle3(), **SHORT, expected=Healthy("the one that ships"))
    assert found.verdict == GOOD and "It is the one that ships" in found.said[0]
    first = wiring.EARLY  # places of the first look
    assert looks[CONFIGURED.name] == len(found.units) + first and "the one that ships" not in looks
    beside = run(eagle3(), **SHORT, expected=Healthy("the one that ships", eagle3()))
    assert looks["the one that ships"] == len(found.units)
    np.testing.assert_array_equal(beside.expected.alive, found.expected.alive)


def test_json_holds_the_verdict():
    found = to_json(run(wrong_map()))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["nearest"] == "d2t ignored" and found["faults"]
    assert len(found["configured"]["tvd"]) == DEPTH
    named = [each["name"] for each in found["mistakes"] if each["better"]]
    assert "d2t ignored" in named


class Silent(toys.RandomDrafter):
    """It proposes, and does not say how probable anything is."""

    def begin(self, root, width):
        return FactorisedSession(super().begin(root, width).by_depth)


def test_bad_input_is_one_sentence():
    with pytest.raises(UserError, match="stride"):
        WiringProbe(language(), medusa(), PROMPTS, ProbePlan(stride=0)).run()
    with pytest.raises(UserError, match="longer texts"):
        WiringProbe(language(), medusa(), PROMPTS, ProbePlan(new_tokens=12)).run()
    with pytest.raises(UserError, match="does not tell q"):
        WiringProbe(language(), Silent(), PROMPTS, PLAN).run()


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command_shows_every_trial_and_its_verdict(tmp_path, capsys):
    """A drafter of random weights is bad and nothing is named: an exit code of its own."""
    target, drafter = save_toys(tmp_path)
    words = ["--model", str(target), "--drafter", str(drafter), "--device", "cpu"]
    words = ["diagnose", "ddtree", *words, "--prompt", "hi", "--max-new-tokens", "80"]
    assert main(words) == 3
    shown = capsys.readouterr().out
    assert "as configured" in shown and "layers in reverse order" in shown
    assert "Bad, and no mistake explains it" in shown
    assert shown.index("at 8 places of the first text") < shown.index("as configured")
    assert main([*words[:2], "dflash", *words[2:], "--json"]) == 3
    found, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["method"] == "ddtree" and found["wiring"]["faults"] == []
    assert found["code"] == 3 and other["wiring"] == found["wiring"]  # one drafter
    assert main(["diagnose", "ar"]) == 2
    assert main([*words, "--stride", "0"]) == 2


@pytest.mark.parametrize("marked", [True, False])
def test_a_map_of_token_ids_is_said_once_and_mended_in_what_is_measured(marked, tmp_path, capsys):
    """Opening says it in a sentence; diagnosing goes on as with the map that was meant."""
    target, ids = save_toys(tmp_path)[0], torch.cat([torch.arange(9, 90), torch.arange(150, 250)])
    folder = tmp_path / "eagle"
    found = toys.eagle_drafter(vocab_size=BYTES, ids=ids, dtype=torch.float32)
    save(WithHead(found.model, found.head.weight.detach(), ids), folder)
    words = ["diagnose", f"eagle3@{folder}", "--model", str(target), "--device", "cpu"]
    words += ["--prompt", "hi", "--max-new-tokens", "128", "--json"]
    assert main(words) == 3  # of random weights
    good = json.loads(capsys.readouterr().out)
    state = load_file(folder / "model.safetensors")
    state |= {"d2t": ids}
    save_file(state if marked else {n: t for n, t in state.items() if n != "t2d"},
              folder / "model.safetensors")  # fmt: skip
    assert main(["model", "doctor", str(folder)]) == 1
    assert "d2t holds token ids, and engines add each row's number" in capsys.readouterr().out
    assert main(["run", *words[1:-1]]) == 2
    assert "d2t holds token ids" in capsys.readouterr().err
    assert main(words) == 1
    bad = json.loads(capsys.readouterr().out)
    assert bad["wiring"] == good["wiring"] and bad["wiring"]["places"] > 20
    assert any("d2t holds the token ids" in each["text"] for each in bad["checkpoint"])


def test_the_page_goes_on_with_what_a_stopped_diagnosis_measured(tmp_path):
    target, drafter = save_toys(tmp_path)
    engine = LiveEngine(ModelChoice(str(target), "cpu", str(drafter)))
    engine.prepare(silent)
    request, heard = DiagnoseRequest("dflash", tmp_path / "found.json"), list[str]()

    def report(_: float | None, what: str) -> None:
        heard.append(what)
        if what == "layers in reverse order":
            raise Halt

    with pytest.raises(Halt):
        list(engine.start(request, report).rounds)
    assert not request.path.exists()
    written = [what for what in heard if what.startswith("the target's text")]
    heard.clear()
    list(engine.start(request, lambda _, what: heard.append(what)).rounds)
    assert json.loads(request.path.read_text())["wiring"]["mistakes"]
    again = [what for what in heard if what.startswith("the target's text")]
    assert len(written) > 96 and len(again) == 4  # no token is written twice


def test_a_second_request_for_a_collected_text_finds_the_file(tmp_path):
    """Its path stands for all that it is made of. A page may be reading it."""
    target, drafter = save_toys(tmp_path)
    engine = LiveEngine(ModelChoice(str(target), "cpu", str(drafter)))
    engine.prepare(silent)
    of = Header("dflash", {}, {"name": str(target)}, "abcdefg hijk", ())
    request = CollectRequest(of, tmp_path / "made.safetensors", ("dflash",), 8)
    heard = list[str]()
    list(engine.start(request, lambda _, what: heard.append(what)).rounds)
    assert heard
    made = request.path.stat().st_mtime_ns
    heard.clear()
    list(engine.start(request, lambda _, what: heard.append(what)).rounds)
    assert not heard and request.path.stat().st_mtime_ns == made
