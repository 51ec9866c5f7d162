"""τ of methods on prompts, simulated over the target's own texts (see ``core.train.simulate``).

    python -m core.train.report --prompts prompts-eval.jsonl --work runs/evaluation

The texts are made once, greedy and at T = 1, up to 128 new tokens, and kept in ``--work``; after
that a drafter is judged in minutes. The intervals are 95 % bootstrap intervals over prompts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core.drafting import builders
from core.errors import UserError, as_script
from core.methods.loading import check_temperature, shipped
from core.methods.registry import load_builder, recipe, settle
from core.models import embedded
from core.models.language import Language, load_language
from core.stats import bootstrap
from core.train.collect import Collector, CollectSettings, batches, collect
from core.train.options import whole
from core.train.shards import (
    Document,
    check_record,
    folder_layers,
    read_shard,
    shard_paths,
    write_record,
)
from core.train.simulate import Contender, Score, score
from core.train.students import KINDS, Student, load_student
from core.train.texts import Sample, digest, read_samples

NEW_TOKENS = 128
BUDGETS = (16, 64)
SAMPLINGS = {"greedy": 0.0, "T=1": 1.0}
LONGEST_BLOCK = 16  # tokens of text kept behind the last round's root
METHODS = ("dflash", "ddtree", "treeflash", "dart", "dart+best-first")


@dataclass(frozen=True, eq=False)
class Text:
    """One text the target wrote on a held-out prompt."""

    sampling: str  # a name in SAMPLINGS
    source: str
    document: Document
    layers: tuple[int, ...]  # the feature layers its document holds


def evaluation_texts(
    language: Language,
    layers: tuple[int, ...],
    prompts: Sequence[Sample],
    folder: Path,
    names: Sequence[str],
) -> list[Text]:
    """The target's own texts on the prompts by the named samplings; made once, then read.

    Raises UserError where a folder holds texts made otherwise.
    """
    texts = []
    for name in names:
        texts += _texts(language, layers, prompts, folder / name, name)
    return texts


def _texts(
    language: Language, layers: tuple[int, ...], prompts: Sequence[Sample], folder: Path, name: str
) -> list[Text]:
    settings = CollectSettings(
        layers,
        (SAMPLINGS[name],),
        max_new_tokens=NEW_TOKENS + LONGEST_BLOCK,
        top_k=0,
        max_prompt_tokens=1 << 20,
        cut_loops=False,  # a text to judge on is what a run would write
        cut_last=False,
    )
    samples = [Sample(s.user, None, s.source) for s in prompts]
    made_of = {"model": language.name, "prompts": digest(samples), **asdict(settings)}
    if shard_paths(folder):
        check_record(folder, made_of)
    else:
        write_record(folder, made_of)
    collector = Collector(language.model, language.tokenizer, settings)
    order = batches(settings, samples)
    bar = progress_bar(len(order), f"evaluation texts ({name})", "batch")
    for _ in collect(collector, samples, folder, "text"):
        bar.update()
    bar.close()
    documents = [d for path in shard_paths(folder) for d in read_shard(path)]
    sources = [sample.source for batch in order for sample in batch]
    if len(documents) != len(sources) or folder_layers(folder) != layers:  # older than records
        raise UserError(f"{folder} holds texts of other prompts or layers: name another folder")
    return [Text(name, s, d, layers) for s, d in zip(sources, documents, strict=True)]


def contenders(
    method: str, language: Language, budgets: Sequence[int], options: Mapping[str, Any]
) -> list[Contender]:
    """The method at every budget; a chain has but one."""
    chosen = recipe(method)
    builder = load_builder(chosen, language, settle(method, options))
    if builder is builders.chain:
        return [Contender(method, builder, chosen.budget)]
    return [Contender(f"{method} {budget}", builder, budget) for budget in budgets]


def score_by_source(
    student: Student, texts: Sequence[Text], field: Sequence[Contender]
) -> Iterator[dict[str, Any]]:
    """A row for each contender, sampling and source, and one over all sources."""
    bar = progress_bar(len(texts), f"simulating {student.kind}", "text")
    for sampling in dict.fromkeys(t.sampling for t in texts):
        some = [t for t in texts if t.sampling == sampling]
        scores = {}
        for source in dict.fromkeys(t.source for t in some):
            documents = [t.document for t in some if t.source == source]
            scores[source] = score(student, documents, field, NEW_TOKENS, bar.update)
        scores["all"] = reduce(add, scores.values())
        for source, result in scores.items():
            yield from rows(sampling, source, result)
    bar.close()


def rows(sampling: str, source: str, result: Score) -> Iterator[dict[str, Any]]:
    """One line of the report per contender. ``lengths``: rounds by accepted + 1, from 1 on."""
    for name, runs in result.runs.items():
        low, high = bootstrap(runs)
        counted = Counter(chain.from_iterable(runs))
        yield {
            "method": name, "sampling": sampling, "source": source, "tau": result.tau[name],
            "low": low, "high": high, "lengths": [counted[n] for n in range(1, max(counted) + 1)],
        }  # fmt: skip


def print_row(row: Mapping[str, Any]) -> None:
    print(
        f"{row['method']:20} {row['sampling']:7} {row['source']:10} "
        f"{row['tau']:.3f} [{row['low']:.2f}, {row['high']:.2f}]",
        flush=True,
    )


def progress_bar(total: int, text: str, unit: str) -> tqdm:
    """A bar on a terminal, nothing elsewhere."""
    return tqdm(total=total, desc=text, unit=unit, file=sys.stderr, disable=not sys.stderr.isatty())


def by_drafter(methods: Sequence[str]) -> dict[str, list[str]]:
    """Methods grouped by the kind of their drafter: its proposals are then made once for all."""
    kinds: dict[str, list[str]] = {}
    for method in methods:
        kind = recipe(method).drafter
        if not isinstance(kind, str) or kind not in KINDS:
            raise UserError(f"{method} has no drafter that is trained here ({', '.join(KINDS)})")
        kinds.setdefault(kind, []).append(method)
    return kinds


def drafter_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a method's drafter decodes with. Raises UserError for an option it cannot have."""
    settled: dict[str, Any] = settle(method, options)  # type: ignore[assignment]
    own = {name: settled[name] for name in recipe(method).drafter_options}
    check_temperature(own["temperature"])
    return own


def load(
    language: Language,
    kind: str,
    folder: Path | None,
    texts: Sequence[Text],
    options: Mapping[str, Any],
) -> Student:
    """The drafter of this kind in ``folder``, or as it ships."""
    folder = folder or shipped(kind, language.name)
    if folder is None:
        raise UserError(f"no {kind} drafter ships for this target: name one with --drafter")
    return load_student(kind, folder, language.model, texts[0].layers, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where the texts are kept")
    parser.add_argument("--model", default=embedded.NAME)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--drafter", type=Path, help="checkpoint folder (default: the shipped one)")
    parser.add_argument("--sampling", nargs="*", default=list(SAMPLINGS), choices=list(SAMPLINGS))
    parser.add_argument("--budget", type=whole(1), nargs="*", default=BUDGETS)
    parser.add_argument("--layers", type=whole(0), nargs="*", help="feature layers of new texts")
    parser.add_argument("--every", type=whole(1), default=1, help="judge on every n-th text only")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a method's option"
    )
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    prompts = read_samples(args.prompts)
    language = load_language(args.model, args.device, pack=False)
    layers = tuple(args.layers or ()) or _layers(args.work, language)
    texts = evaluation_texts(language, layers, prompts, args.work, args.sampling)[:: args.every]
    options = dict(pair.partition("=")[::2] for pair in args.set)
    found = []
    for kind, methods in by_drafter(args.methods).items():
        field = [c for m in methods for c in contenders(m, language, args.budget, options)]
        own = drafter_options(methods[0], options)
        student = load(language, kind, args.drafter, texts, own)
        for row in score_by_source(student, texts, field):
            print_row(row)
            found.append(row | {"options": options})
    if args.json:
        args.json.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")


def _layers(work: Path, language: Language) -> tuple[int, ...]:
    """The feature layers of texts already made, else those of the shipped DFlash drafter."""
    made = [work / name for name in SAMPLINGS if shard_paths(work / name)]
    if made:
        return folder_layers(made[0])
    from core.methods.dflash.drafter import load_config

    if (folder := shipped("dflash", language.name)) is None:
        raise UserError("name the feature layers of the texts with --layers")
    return load_config(folder).target_layer_ids


if __name__ == "__main__":
    as_script(main)
