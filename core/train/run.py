"""The ``train`` command: text → shards → drafter or denoiser → report, each stage resumable.

    python -m app train --out runs/one --prompts prompts.jsonl --synthesise 500 --minutes 90
    python -m app train treeflash --out runs/one --minutes 30
    python -m app train dart --out runs/one --minutes 30
    python -m app train denoiser --out runs/one --minutes 120 --sequences 3
    python -m app train --out runs/two --start shipped --prompts more.jsonl --minutes 90

Everything lies in the ``--out`` folder: ``shards/`` (what the target said, shared by all), and a
folder for each kind with its state, the averaged ``checkpoint/`` in its official format and a
report. The same command again goes on where it stopped; it uses a GPU when there is
one. Text is made once: its options may be left out from then on, and others are refused.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from core.diffusion.adapter import AdapterConfig, load_adapter
from core.drafting import builders
from core.errors import UserError
from core.files import replacing
from core.methods.dart import drafter as dart
from core.methods.dart.drafter import DartConfig
from core.methods.dflash import drafter as dflash
from core.methods.dflash.drafter import DFlashConfig, default_layer_ids
from core.methods.loading import shipped
from core.methods.treeflash import drafter as treeflash
from core.models import embedded
from core.models.language import Language, load_language
from core.models.layers import Rope
from core.train import written
from core.train.asks import chat_prompts, function_prompts
from core.train.collect import Collector, CollectSettings, batches, collect, synthesis_settings
from core.train.denoiser import DENOISER, DenoiserStudent
from core.train.fit import Corpus, Fit, FitSettings
from core.train.options import positive, temperature, whole
from core.train.report import (
    BUDGETS,
    evaluation_texts,
    print_row,
    progress_bar,
    rows,
    score_by_source,
)
from core.train.shards import (
    Document,
    check_record,
    folder_layers,
    read_record,
    shard_paths,
    write_record,
)
from core.train.simulate import Contender, score
from core.train.students import (
    KINDS,
    DartStudent,
    DFlashStudent,
    Student,
    TargetParts,
    TreeFlashStudent,
    initial_dart,
    initial_dflash,
    load_student,
)
from core.train.texts import Overlap, Sample, code_prompts, digest, read_samples

PLAN = "prompts.json"


@dataclass(frozen=True)
class Texts:
    """Where the training text comes from and how it is made: the options its shards depend on."""

    prompts: tuple[Path, ...] = ()
    code: tuple[Path, ...] = ()
    code_limit: int = 1000
    per_file: int = 2000
    synthesise: int = 0
    asks: int = 0
    held_out: Path | None = None
    temperatures: tuple[float, ...] = CollectSettings.temperatures
    batch: int = CollectSettings.batch
    seed: int = CollectSettings.seed

    def record(self, model: str) -> dict[str, Any]:
        """As the shards' record holds it: a file by what it says, wherever it lies.

        Raises UserError for a file that cannot be read.
        """
        return asdict(self) | {
            "model": model,
            "prompts": [digest(read_samples(path)) for path in self.prompts],
            "code": [str(folder.resolve()) for folder in self.code],
            "held_out": self.held_out and digest(read_samples(self.held_out)),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "kind",
        nargs="?",
        default="dflash",
        choices=(*KINDS, DENOISER),
        help="what to train (default dflash)",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; reused to resume"
    )
    parser.add_argument("--model", default=embedded.NAME, help="the target: name, path or hub id")
    parser.add_argument("--device", default="auto")
    _add_text_options(parser)
    _add_fit_options(parser)


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    """The fields of ``Texts``: one that is not given is not there, and stays as it was."""
    text = parser.add_argument_group(
        "text", "made once; left out later, an option stays as it was", argument_default=SUPPRESS
    )
    text.add_argument(
        "--prompts", type=Path, nargs="*", metavar="FILE",
        help=".jsonl with a prompt a line; lines that carry an answer are read, others answered",
    )  # fmt: skip
    text.add_argument(
        "--code", type=Path, nargs="*", metavar="FOLDER",
        help="Python sources: documented functions become 'complete this' prompts",
    )  # fmt: skip
    text.add_argument(
        "--code-limit", type=whole(0), metavar="N",
        help=f"at most so many of these (default {Texts.code_limit})",
    )  # fmt: skip
    text.add_argument(
        "--per-file", type=whole(1), metavar="N",
        help=f"prompts taken from each file (default {Texts.per_file})",
    )  # fmt: skip
    text.add_argument(
        "--synthesise", type=whole(0), metavar="N", help="prompts the target writes itself"
    )
    text.add_argument(
        "--asks", type=whole(0), metavar="N",
        help="prompts made of lists: up to N tasks about topics and N small functions to write",
    )  # fmt: skip
    text.add_argument(
        "--temperatures", type=temperature, nargs="+", metavar="T",
        help="each prompt is answered once at every one of these, 0 is greedy (default 0 0.8)",
    )  # fmt: skip
    text.add_argument(
        "--held-out", type=Path, metavar="FILE",
        help="prompts to report on; texts sharing 13 words in a row with them, or all the words "
        "of a shorter one, are left out",
    )  # fmt: skip
    text.add_argument(
        "--batch", type=whole(1), metavar="N",
        help=f"prompts answered at once, a shard each (default {Texts.batch})",
    )  # fmt: skip
    text.add_argument(
        "--seed", type=whole(0), metavar="N", help="of the text and the fit (default 0)"
    )


def _add_fit_options(parser: argparse.ArgumentParser) -> None:
    fit = parser.add_argument_group("fit")
    fit.add_argument("--minutes", type=positive, default=90, help="of fitting, without collecting")
    fit.add_argument(
        "--start", metavar="FOLDER",
        help="checkpoint of this kind to go on from, or the word shipped (default: a start made "
        "of the target's own layers); its shape is then the checkpoint's",
    )  # fmt: skip
    fit.add_argument("--draft-layers", type=whole(1), default=3, help="of a DFlash drafter")
    fit.add_argument("--block-size", type=whole(2), default=8, help="DFlash drafts one token less")
    fit.add_argument("--target-layers", type=int, nargs="*", help="feature layers of DFlash")
    fit.add_argument("--rank", type=whole(1), default=16, help="of the denoiser's adapter")
    fit.add_argument("--draft-length", type=whole(1), default=7, help="DART drafts one token more")
    fit.add_argument(
        "--backbone", type=Path, metavar="FOLDER",
        help="DFlash checkpoint under TreeFlash's head (default: the run's own, else the shipped)",
    )  # fmt: skip
    fit.add_argument(
        "--joint", action="store_true",
        help="TreeFlash's head and its backbone learn together; the run's DFlash becomes that one",
    )  # fmt: skip
    fit.add_argument(
        "--gamma", type=positive, metavar="G",
        help="depth k weighs exp(−(k − 1)/G) in the loss (default: as the drafter's paper)",
    )  # fmt: skip
    fit.add_argument("--lr", type=positive, default=FitSettings.lr)
    fit.add_argument("--sequences", type=whole(1), default=FitSettings.sequences)
    fit.add_argument("--anchors", type=whole(1), default=FitSettings.anchors)


def main(args: argparse.Namespace) -> int:
    """Run the stages that are not finished. Returns the exit code."""
    shards, folder = args.out / "shards", args.out / args.kind
    if args.joint and args.kind != "treeflash":
        raise UserError(f"--joint is for TreeFlash's head, not for {args.kind}")
    texts = chosen_texts(args, shards)
    held_out = read_samples(texts.held_out) if texts.held_out else []
    args.start = starting_point(args.start, args.kind, args.model)
    named = [folder for folder in (*texts.code, args.start, args.backbone) if folder]
    if missing := [folder for folder in named if not folder.is_dir()]:
        raise UserError(f"there is no folder {missing[0]}")
    logging.disable_progress_bar()
    language = load_language(args.model, args.device, pack=False)
    if args.kind == "dflash" and args.start:
        config = dflash.load_config(args.start)
    else:
        config = dflash_config(language, args.draft_layers, args.block_size, args.target_layers)
    settings = CollectSettings(
        feature_layers(args.kind, config, shards),
        tuple(texts.temperatures), batch=texts.batch, seed=texts.seed,
    )  # fmt: skip
    make_shards(language, settings, texts, shards)
    recipe = FitSettings(
        minutes=args.minutes, lr=args.lr, sequences=args.sequences, anchors=args.anchors,
        seed=texts.seed, gamma=args.gamma,
    )  # fmt: skip
    corpus = Corpus(shards, recipe.held_out)
    if not corpus.train:
        raise UserError(f"{shards} holds no training documents")
    torch.manual_seed(texts.seed)
    student = make_student(args, language, config, corpus)
    fit = Fit(student, corpus, recipe, folder, partial(keep_backbone, args.out))
    run_fit(fit)
    if args.kind == DENOISER:
        own = own_texts(language, held_out, corpus, args.out)
        found = denoiser_report(folder / "checkpoint", args, own)
    else:
        found = report(fit.averaged(), language, held_out, corpus, args.out)
    numbers = {"recipe": asdict(recipe), "steps": fit.step, "tokens": corpus.tokens}
    (folder / "report.json").write_text(json.dumps(numbers | {"scores": found}, indent=1))
    return 0


def chosen_texts(args: argparse.Namespace, shards: Path) -> Texts:
    """What the options say; what they leave open is as the folder's text was made.

    Raises UserError for what cannot be read, and where they ask for other text than is there.
    """
    given = {field.name: getattr(args, field.name) for field in fields(Texts) if field.name in args}
    texts = Texts(**given)
    record = texts.record(args.model)
    if not (shards / PLAN).exists():
        return texts
    check_record(shards, {name: record[name] for name in ("model", *given)})
    kept = read_record(shards)
    settled = {name: kept[name] for name in ("temperatures", "batch", "seed") if name in kept}
    return replace(texts, **settled)


def feature_layers(kind: str, config: DFlashConfig, shards: Path) -> tuple[int, ...]:
    """The layers whose features new shards hold: as those already there, else all that drafters
    of the target may read. Raises UserError when those there lack some that this kind reads."""
    read = {
        "dflash": config.target_layer_ids,
        "dart": dart.feature_layers(config.num_target_layers),
    }
    if not shard_paths(shards):
        return tuple(sorted({layer for layers in read.values() for layer in layers}))
    layers = folder_layers(shards)
    if missing := set(read.get(kind, ())) - set(layers):
        raise UserError(
            f"the text in {shards} holds no features of layer {min(missing)}: name another folder"
        )
    return layers


def starting_point(named: str | None, kind: str, target: str) -> Path | None:
    """The checkpoint folder that ``--start`` names; the word ``shipped`` is the one in assets."""
    if named is None:
        return None
    folder = shipped(kind, target) if named == "shipped" else Path(named)
    if folder is None:
        raise UserError(f"no {kind} ships for {target!r}: name a folder, or leave --start out")
    return folder


def make_student(
    args: argparse.Namespace, language: Language, config: DFlashConfig, corpus: Corpus
) -> Student:
    """The drafter at its start, in float32 on the target's device."""
    parts, device = TargetParts(language.model), language.device
    if args.kind == DENOISER:
        return make_denoiser(args, language, config.mask_token_id)
    if args.kind == "treeflash":
        return make_treeflash(args, language, parts, corpus.layers)
    if args.start:
        return load_student(args.kind, args.start, language.model, corpus.layers)
    if args.kind == "dflash":
        probe = corpus.train[0].tokens[None].long().to(device)
        model = initial_dflash(config, language.model, probe).to(device, torch.float32)
        return DFlashStudent(model, parts, corpus.layers)
    model = initial_dart(dart_config(language, args.draft_length), language.model)
    model = model.to(device, torch.float32)
    return DartStudent(model, parts, corpus.layers, config.num_target_layers)


def make_treeflash(
    args: argparse.Namespace, language: Language, parts: TargetParts, layers: tuple[int, ...]
) -> TreeFlashStudent:
    """A head that changes nothing yet, or the one of ``--start``, on the backbone that
    ``--backbone`` names, else the run's own, else the start's or the shipped one."""
    device = language.device
    own = args.out / "dflash" / "checkpoint"
    folder = args.backbone or (own if own.exists() else None)
    if args.start is None:
        folder = folder or shipped("dflash", language.name)
        if folder is None:
            raise UserError(
                "TreeFlash needs a DFlash backbone: train one first, or give --backbone"
            )
        backbone = dflash.load_model(folder, torch.float32, device)
        model = treeflash.initial_model(backbone)
        return TreeFlashStudent(model, parts, layers, joint=args.joint)
    model = treeflash.load_model(args.start, torch.float32, device)
    if folder is not None:
        backbone = dflash.load_model(folder, torch.float32, device)
        if backbone.config != model.config:
            raise UserError(f"the head in {args.start} is not for the backbone in {folder}")
        model.model.load_state_dict(backbone.state_dict())
    return TreeFlashStudent(model, parts, layers, joint=args.joint)


def keep_backbone(out: Path, averaged: Student) -> None:
    """What learnt jointly with its head is the run's DFlash drafter from then on."""
    if isinstance(averaged, TreeFlashStudent) and averaged.joint:
        dflash.save_model(averaged.model.model, out / "dflash" / "checkpoint")


def make_denoiser(args: argparse.Namespace, language: Language, mask: int) -> DenoiserStudent:
    """An adapter that changes nothing yet, or the one of ``--start``."""
    start = load_adapter(args.start) if args.start else None
    config = AdapterConfig(
        args.model, mask, True, "causal", args.block_size, args.rank, float(args.rank)
    )
    if start:
        config = replace(start.config, alpha=float(start.config.rank))
    student = DenoiserStudent(language.model, config, min(language.stop_ids, default=0))
    if start:
        student.model.take(start)
    return student


def report(
    student: Student, language: Language, held_out: Sequence[Sample], corpus: Corpus, out: Path
) -> list[dict]:
    """τ of the averaged drafter on the held-out prompts, or on held-out documents without them.

    Every drafter is judged under best-first, a DFlash one as a chain too: this compares drafters.
    """
    field = [Contender(f"best-first {b}", builders.best_first, b) for b in BUDGETS]
    if student.kind == "dflash":
        field.insert(0, Contender("chain", builders.chain, student.depths))
    if not held_out:
        found = list(rows("held out", "documents", score(student, corpus.test, field)))
    else:
        names = ("greedy", "T=1")
        texts = evaluation_texts(language, corpus.layers, held_out, out / "evaluation", names)
        found = list(score_by_source(student, texts, field))
    for row in found:
        print_row(row)
    return found


def own_texts(
    language: Language, held_out: Sequence[Sample], corpus: Corpus, out: Path
) -> dict[str, list[Document]]:
    """The target's own texts, by how they were drawn: what a denoiser's are compared with."""
    if not held_out:
        return {"held-out documents": corpus.test}
    names = ("greedy", "T=1")
    texts = evaluation_texts(language, corpus.layers, held_out, out / "evaluation", names)
    return {f"target, {n}": [t.document for t in texts if t.sampling == n] for n in names}


def denoiser_report(
    folder: Path, args: argparse.Namespace, own: dict[str, list[Document]]
) -> list[dict]:
    """Perplexity under the target of what the denoiser writes, beside the target's own texts."""
    found = [asdict(w) for w in written.compare(folder, args.model, args.device, own)]
    for row in found:
        print(json.dumps(row), flush=True)
    return found


def dart_config(language: Language, draft_length: int) -> DartConfig:
    """A DART drafter as wide as its target, over its whole vocabulary."""
    width = as_the_target(language)
    return DartConfig(
        **width,
        draft_vocab_size=width["vocab_size"],
        draft_length=draft_length,
        target_hidden_size=width["hidden_size"],
    )


def dflash_config(
    language: Language, layers: int, block: int, features: Sequence[int] | None
) -> DFlashConfig:
    """A drafter as wide as its target. The last feature is the one its first layer starts from."""
    c = language.model.config.get_text_config()
    entering = c.num_hidden_layers - layers - 1
    if entering < 0:
        raise UserError(
            f"the target's {c.num_hidden_layers} layers cannot start {layers} of a drafter"
        )
    spread = default_layer_ids(c.num_hidden_layers, 5)[:-1]
    default = sorted({*(i for i in spread if 0 <= i < entering), entering})
    return DFlashConfig(
        **as_the_target(language),
        num_hidden_layers=layers,
        block_size=block,
        num_target_layers=c.num_hidden_layers,
        target_layer_ids=tuple(features or default),
        mask_token_id=_mask_token(language),
    )


def as_the_target(language: Language) -> dict[str, Any]:
    """The config fields that a drafter made here shares with its target."""
    c = language.model.config.get_text_config()
    rope = getattr(c, "rope_parameters", None) or {}
    return {
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        "vocab_size": c.vocab_size,
        "rms_norm_eps": c.rms_norm_eps,
        "rope": Rope(rope.get("rope_theta", 10000.0)),
        "max_position_embeddings": c.max_position_embeddings,
    }


def _mask_token(language: Language) -> int:
    """A token no text holds: a special one that is neither a frame of the chat nor a stop."""
    used = {*language.encode_chat(""), *language.stop_ids}
    special = sorted(set(language.tokenizer.added_tokens_decoder) - used)
    return special[1] if len(special) > 1 else special[0] if special else 0


def make_shards(language: Language, settings: CollectSettings, texts: Texts, folder: Path) -> None:
    """The collecting stage. The list of prompts is kept, so that a resumed run continues it."""
    plan = folder / PLAN
    if plan.exists():
        samples = [Sample(*pair) for pair in json.loads(plan.read_text())]
    else:
        samples = _samples(language, settings, texts)
        if not samples:
            raise UserError("no training text: give --prompts, --code, --asks or --synthesise")
        write_record(folder, texts.record(language.name))
        with replacing(plan) as path:
            path.write_text(json.dumps([(s.user, s.answer) for s in samples]))
    collector = Collector(language.model, language.tokenizer, settings)
    read = [s for s in samples if s.answer is not None]
    answered = [s for s in samples if s.answer is None]
    for name, some in (("read", read), ("answered", answered)):
        total, tokens = len(batches(settings, some)), 0
        bar = progress_bar(total, f"collecting ({name})", "batch")
        for fresh in collect(collector, some, folder, name):
            tokens += fresh
            bar.set_postfix_str(f"{tokens} answer tokens")
            bar.update()
        bar.close()


def _samples(language: Language, settings: CollectSettings, texts: Texts) -> list[Sample]:
    """Prompts of every kind, interleaved, each once, without what overlaps the held-out ones."""
    held_out = Overlap(s.user for s in read_samples(texts.held_out)) if texts.held_out else ()
    rng = random.Random(settings.seed)
    kinds = [read_samples(path) for path in texts.prompts]
    if texts.code:
        kinds.append(code_prompts(texts.code, texts.code_limit, settings.seed))
    if texts.asks:
        kinds += [make(settings.seed)[: texts.asks] for make in (chat_prompts, function_prompts)]
    if texts.synthesise:
        print(f"the target writes {texts.synthesise} prompts …", file=sys.stderr)
        author = Collector(language.model, language.tokenizer, synthesis_settings(settings))
        kinds.append([Sample(t) for t in author.synthesise(texts.synthesise, settings.seed)])
    kept, known = [], set[Sample]()
    for kind in kinds:
        rng.shuffle(kind)
        plain = dict.fromkeys(Sample(s.user, s.answer) for s in kind)
        apart = (s for s in plain if s.user not in held_out and (s.answer or "") not in held_out)
        fresh = [s for s in apart if s not in known]
        kept.append(fresh[: texts.per_file])
        known.update(kept[-1])
    longest = max(map(len, kept), default=0)
    return [kind[i] for i in range(longest) for kind in kept if i < len(kind)]


def run_fit(fit: Fit, say: Callable[[str], None] = lambda s: print(s, file=sys.stderr)) -> None:
    """Train to the end of the run's minutes, with a bar on a terminal and lines elsewhere."""
    bar = progress_bar(100, "fitting", "%")
    losses: list[float] = []
    said = time.monotonic()
    for status in fit.steps():
        losses = [*losses, status.loss][-50:]
        mean = sum(losses) / len(losses)
        bar.n = round(status.done * 100, 1)
        bar.set_postfix_str(f"step {status.step}, KL {mean:.3f}")
        bar.update(0)
        if bar.disable and time.monotonic() - said > 60:
            said = time.monotonic()
            say(f"fitting {status.done:.1%}: step {status.step}, KL {mean:.3f}")
    bar.close()
