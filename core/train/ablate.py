"""What decides how good a drafter gets: one short training for every change to the recipe.

    python -m core.train.ablate --shards runs/one/shards --prompts prompts-eval.jsonl \\
        --work runs/ablate --minutes 6 --texts runs/no-code runs/others

Every variant is a DFlash drafter trained from its own start for the same minutes, then judged by
simulation over the same greedy texts of the target, as a chain and as a tree of 64. A mixture of
text is a folder of shards (links will do) given by ``--texts``: one more variant each. Variants
that are done are not trained again, and a killed one goes on. The table of all that are done is
printed with the 95 % paired bootstrap intervals of the differences to the base, and τ by source.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from core.drafting import builders
from core.errors import UserError, as_script
from core.files import replacing
from core.methods.dflash.drafter import DFlashConfig, DFlashModel
from core.models import embedded
from core.models.language import Language, load_language
from core.stats import difference
from core.train.fit import Corpus, Fit, FitSettings
from core.train.options import positive, whole
from core.train.report import Text, evaluation_texts
from core.train.run import dflash_config, run_fit
from core.train.shards import Document, folder_layers
from core.train.simulate import Contender, loss, score
from core.train.students import Blocks, DFlashStudent, Lesson, TargetParts, initial_dflash
from core.train.texts import read_samples

BUDGET = 64
HELD_OUT = 16  # documents of the shards that the KL is measured on
CHAIN, TREE = "chain", f"tree {BUDGET}"


@dataclass(frozen=True)
class Variant:
    """One training. ``features`` counts from the last of the shards' layers; 0 takes all."""

    name: str
    layers: int = 3
    block: int = 8
    features: int = 0
    random: bool = False  # weights as torch makes them, not the target's last layers
    by_token: bool = False  # learns the text's own next token, not p
    share: int = 1  # trains on every n-th document only
    greedy: bool | None = None  # trains on the greedy answers only; False: on the drawn ones
    text: Path | None = None  # trains on these shards, not on the base's
    fit: Mapping[str, Any] = field(default_factory=dict)  # changed FitSettings

    @property
    def folder(self) -> str:
        """Its run's, in letters that every file system takes."""
        return re.sub(r"\W+", "-", self.name)


BASE = Variant("base")
VARIANTS = (
    BASE,
    Variant("start: random weights", random=True),
    Variant("loss: the text's own token", by_token=True),
    Variant("loss: p's top 4", fit={"top_k": 4}),
    Variant("features: the last layer's", features=1),
    Variant("features: the last three layers'", features=3),
    Variant("block 4", block=4),
    Variant("block 16", block=16),
    Variant("1 layer", layers=1),
    Variant("2 layers", layers=2),
    Variant("5 layers", layers=5),
    Variant("depth weights γ = 2", fit={"gamma": 2.0}),
    Variant("depth weights γ = 8", fit={"gamma": 8.0}),
    Variant("all depths alike", fit={"gamma": 1e9}),
    Variant("a quarter of the text", share=4),
    Variant("a sixteenth of the text", share=16),
    Variant("text: greedy answers", greedy=True),
    Variant("text: drawn answers", greedy=False),
    Variant("no decay, no average", fit={"decay_from": 1.0 - 1e-9, "average": 0.0}),
)


class ByToken(DFlashStudent):
    """Cross-entropy on the token that stands in the text: what is lost without p."""

    def lesson(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Lesson:
        known = super().lesson(blocks, top_k, rng, gamma)
        index = blocks.anchors[:, None] + 1 + torch.arange(self.depths)
        inside = index < len(blocks.document)
        tokens = blocks.document.tokens[index.clamp(max=len(blocks.document) - 1)].long()
        return replace(
            known,
            ids=tokens[..., None],
            p=torch.ones(*tokens.shape, 1),
            weight=known.weight * inside,
        )


@dataclass(frozen=True)
class Row:
    """What one variant reached. ``lengths``: of each contender, rounds' tokens text by text."""

    name: str
    minutes: float
    steps: int
    parameters: int
    kl: float  # KL(p ‖ q) on held-out documents, mean over its own depths, nats
    sources: list[str]  # where each text's prompt is from
    lengths: dict[str, list[list[int]]]

    def beside(self, minutes: float, texts: int) -> bool:
        """Whether a training of these minutes, judged on so many texts, compares with it."""
        return self.minutes == minutes and len(self.lengths[CHAIN]) == texts

    def tau(self, contender: str, source: str | None = None) -> float:
        """Tokens per round over all texts, or over those of one source."""
        runs = zip(self.sources, self.lengths[contender], strict=True)
        lengths = [n for named, run in runs if source in (None, named) for n in run]
        return sum(lengths) / max(1, len(lengths))

    def gain(self, base: Row, contender: str) -> tuple[float, float]:
        """The interval of τ − the base's."""
        return difference(*self._sums(contender), *base._sums(contender))

    def _sums(self, contender: str) -> tuple[list[int], list[int]]:
        runs = self.lengths[contender]
        return [sum(run) for run in runs], [len(run) for run in runs]


def make_student(variant: Variant, language: Language, corpus: Corpus) -> DFlashStudent:
    """The variant's drafter at its start, in float32 on the target's device."""
    features = corpus.layers[-variant.features :]
    config = dflash_config(language, variant.layers, variant.block, features)
    model = start(config, variant, language, corpus).to(language.device, torch.float32)
    kind = ByToken if variant.by_token else DFlashStudent
    return kind(model, TargetParts(language.model), corpus.layers)


def start(
    config: DFlashConfig, variant: Variant, language: Language, corpus: Corpus
) -> DFlashModel:
    if variant.random:
        return DFlashModel(config)
    probe = corpus.train[0].tokens[None].long().to(language.device)
    return initial_dflash(config, language.model, probe)


def is_greedy(document: Document) -> bool:
    """Whether every token of the answer is the one the target held most probable."""
    first = document.answer
    return torch.equal(document.tokens[first:], document.top_ids[first - 1 : -1, 0])


def corpus_of(variant: Variant, shards: Path, held_out: int) -> Corpus:
    """What the variant trains on; what is held out is of the base's shards, for all the same."""
    corpus = Corpus(shards, held_out)
    if variant.text:
        others = Corpus(variant.text, 0)
        if others.layers != corpus.layers:
            raise UserError(f"{variant.text} holds no text with the features of {shards}")
        corpus.train = [d for d in others.train if not corpus.holds_out(d)]
    if variant.greedy is not None:
        corpus.train = [d for d in corpus.train if is_greedy(d) == variant.greedy]
    corpus.train = corpus.train[:: variant.share]
    return corpus


def train(
    variant: Variant, language: Language, shards: Path, recipe: FitSettings, folder: Path
) -> Fit:
    """The variant's run, to its end."""
    settings = replace(recipe, **variant.fit)
    corpus = corpus_of(variant, shards, settings.held_out)
    torch.manual_seed(settings.seed)
    fit = Fit(make_student(variant, language, corpus), corpus, settings, folder)
    run_fit(fit)
    return fit


def judge(variant: Variant, fit: Fit, texts: Sequence[Text]) -> Row:
    """The averaged drafter over the target's texts, as a chain and as a tree."""
    student = fit.averaged()
    field = [
        Contender(CHAIN, builders.chain, student.depths),
        Contender(TREE, builders.best_first, BUDGET),
    ]
    runs = score(student, [text.document for text in texts], field).runs
    return Row(
        name=variant.name,
        minutes=fit.settings.minutes,
        steps=fit.step,
        parameters=sum(p.numel() for p in student.trained().values()),
        kl=loss(student, fit.corpus.test[:HELD_OUT]),
        sources=[text.source for text in texts],
        lengths={name: [list(run) for run in some] for name, some in runs.items()},
    )


def read_rows(path: Path) -> dict[str, Row]:
    """The rows of a table by name. What stands behind its last newline was cut short: no row."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    rows = [Row(**json.loads(line)) for line in lines]
    return {row.name: row for row in rows}


def add_row(path: Path, row: Row) -> None:
    """Write the table with one row more, whole: a line that was cut short goes."""
    rows = [*read_rows(path).values(), row]
    with replacing(path) as partial:
        partial.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


def print_table(rows: Sequence[Row]) -> None:
    """As Markdown. The first row is the base, if that is done."""
    base = next((row for row in rows if row.name == BASE.name), None)
    sources = sorted({source for row in rows for source in row.sources if source})
    heads = ["variant", "steps", "M parameters", "KL", f"τ {CHAIN}", f"τ {TREE}", *sources]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for row in rows:
        cells = [row.name, str(row.steps), f"{row.parameters / 1e6:.1f}", f"{row.kl:.2f}"]
        for contender in (CHAIN, TREE):
            said = f"{row.tau(contender):.2f}"
            if base and row is not base:
                low, high = row.gain(base, contender)
                said += f" [{low:+.2f}, {high:+.2f}]"
            cells.append(said)
        cells += [f"{row.tau(TREE, source):.2f}" for source in sources]
        print("| " + " | ".join(cells) + " |")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shards", type=Path, required=True, help="text of the train command")
    parser.add_argument("--prompts", type=Path, required=True, help="held out from training")
    parser.add_argument("--work", type=Path, required=True, help="reused to resume")
    parser.add_argument("--minutes", type=positive, default=6, help="of training, each variant")
    parser.add_argument("--every", type=whole(1), default=4, help="judge on every n-th prompt only")
    parser.add_argument(
        "--texts", type=Path, nargs="*", default=[], metavar="FOLDER",
        help="shards to train on instead: one more variant each, named after its folder",
    )  # fmt: skip
    parser.add_argument("--only", nargs="*", metavar="NAME", help="of the variants")
    parser.add_argument("--model", default=embedded.NAME)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def main() -> None:
    args = read_arguments()
    mixtures = [Variant(f"text: {folder.name}", text=folder) for folder in args.texts]
    known = {v.name: v for v in (*VARIANTS, *mixtures)}
    if len({v.folder for v in known.values()}) < len(VARIANTS) + len(mixtures):
        raise UserError("two of --texts are named alike: a variant is named after its folder")
    if unknown := set(args.only or ()) - set(known):
        raise UserError(f"no variant {sorted(unknown)[0]!r}: choose of {', '.join(known)}")
    chosen = [known[name] for name in args.only or known]
    table, prompts = args.work / "table.jsonl", read_samples(args.prompts)
    layers, *_ = [folder_layers(folder) for folder in (args.shards, *args.texts)]
    language = load_language(args.model, args.device, pack=False)
    texts = evaluation_texts(language, layers, prompts, args.work / "evaluation", ("greedy",))
    texts = texts[:: args.every]
    if any(not row.beside(args.minutes, len(texts)) for row in read_rows(table).values()):
        raise UserError(f"{table} is of other minutes or prompts: name another --work")
    recipe = FitSettings(minutes=args.minutes)
    for variant in chosen:
        if variant.name in read_rows(table):
            continue
        print(variant.name, file=sys.stderr, flush=True)
        folder = args.work / variant.folder
        row = judge(variant, train(variant, language, args.shards, recipe, folder), texts)
        add_row(table, row)
    rows = read_rows(table)
    in_order = [name for name in known if name in rows]
    print_table([rows[name] for name in dict.fromkeys([*in_order, *rows])])


if __name__ == "__main__":
    as_script(main)
