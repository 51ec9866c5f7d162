"""Toys of training: a target that writes text, its shards, a student of each kind, a command."""

from __future__ import annotations

import json
from typing import Any

import torch

from core.learning.corpus import Corpus
from core.learning.shards import TOP_K, Document
from core.methods.dart import training as dart
from core.methods.dflash import training as dflash
from core.methods.eagle3 import training as eagle3
from core.methods.eagle3.model import EagleModel
from core.methods.treeflash import model as treeflash
from core.methods.treeflash.training import TreeFlashStudent
from core.models.checkpoint import WithHead
from core.models.language import Language
from core.samples import Sample
from core.train.collect import Collector, CollectSettings, collect
from core.train.fit import Fit
from core.train.options import FitSettings
from tests.helpers import toys
from tests.helpers.toys_on_disk import save_toys

FEATURES = (0, 1, 2)  # what DFlash (0, 2) and DART (1, 1, 0) read
PROMPTS = ["hi", "tell me more", "a longer question about nothing"]


def owner_of_text():
    """A target that writes text until it has had enough."""
    made = toys.language_model()
    made.generation_config.eos_token_id = toys.tokenizer().eos_token_id
    return made


def language_of(owner):
    return Language("toy", owner, toys.tokenizer(), None)


def collector_of(owner):
    settings = CollectSettings(FEATURES, (0.0, 1.0), batch=3, max_new_tokens=30, top_k=20)
    return Collector(language_of(owner), settings)


ENDLESS = FitSettings(
    minutes=1e6, sequences=3, anchors=6, warmup=1, lr=3e-3, frequent=64, sampled=32,
    save_every=10**9, held_out=1, gamma=3.0,
)  # fmt: skip


def write_shards(collector, folder):
    samples = [Sample(f"question {i}", f"answer {i} " * 8) for i in range(6)]
    list(collect(collector, samples, folder, "read"))
    return folder


SIZES = {"vocab_size": toys.LANGUAGE_SIZE, "intermediate_size": 48}
KINDS = ("dflash", "treeflash", "dart", "eagle3")


def a_student(owner, kind="dflash") -> Any:
    """Each drafter as training starts it, on shards that hold the features of every kind."""
    config = toys.dflash_config(mask_token_id=258, **SIZES)
    if kind == "dart":
        made = toys.dart_config(draft_vocab_size=toys.LANGUAGE_SIZE, **SIZES)
        return dart.DartStudent(dart.initial_model(made, owner), owner)
    if kind == "eagle3":
        made = toys.eagle_config(draft_vocab_size=toys.LANGUAGE_SIZE, **SIZES)
        return eagle3.EagleStudent(WithHead(EagleModel(made), None, None), owner, 8)
    torch.manual_seed(0)
    text = torch.arange(20, device=owner.device)[None]
    backbone = dflash.initial_model(config, owner, text).to(owner.device)
    if kind == "dflash":
        return dflash.DFlashStudent(backbone, owner)
    return TreeFlashStudent(treeflash.initial_model(backbone), owner)


def a_fit(owner, shards, folder, settings=ENDLESS, kind="dflash"):
    torch.manual_seed(0)
    corpus = Corpus(shards, settings.held_out)
    return Fit(a_student(owner, kind), corpus, settings, folder)


def losses(fit, count):
    return [status.loss for status, _ in zip(fit.steps(), range(count), strict=False)]


def training_document(seed=2, length=26):
    generator = torch.Generator().manual_seed(seed)
    best = torch.stack([torch.randperm(48, generator=generator)[:TOP_K] for _ in range(length)])
    return Document(
        tokens=torch.randint(0, 48, (length,), generator=generator, dtype=torch.int32),
        answer=3,
        features=torch.randn(length, 64, generator=generator).half(),  # after layers 0 and 1
        top_ids=best.int(),
        top_logp=torch.randn(length, TOP_K, generator=generator)
        .log_softmax(-1)
        .sort(descending=True)
        .values.half(),
        layers=(0, 1),
    )


def train_words(folder):
    """The words of a short training on the toys, which are put into the folder."""
    target, _ = save_toys(folder)
    prompts = folder / "prompts.jsonl"
    lines = [{"prompt": f"Say {i} words about ships."} for i in range(40)]
    lines += [{"question": f"{i} + {i}?", "answer": f"It is <<{i}+{i}={2 * i}>>{2 * i}. " * 3}
              for i in range(30)]  # fmt: skip
    prompts.write_text("\n".join(map(json.dumps, lines)))
    held_out = folder / "held-out.jsonl"
    held_out.write_text(json.dumps({"prompt": "Which of us is new?", "source": "chat"}) + "\n")
    return [
        "train", "--model", str(target), "--device", "cpu", "--prompts", str(prompts),
        "--held-out", str(held_out), "--out", str(folder / "run"), "--minutes", "0.05",
        "--draft-layers", "1", "--block-size", "4", "--target-layers", "0", "1",
        "--sequences", "2", "--anchors", "4", "--tasks", "3", "--temperature", "0", "0.5",
    ]  # fmt: skip
