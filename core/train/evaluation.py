"""The texts that drafters are judged on: the target's own answers to held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from core.errors import UserError
from core.learning.shards import (
    Document,
    check_record,
    folder_layers,
    read_shard,
    shard_paths,
    write_record,
)
from core.models.language import Language
from core.progress import Steps, silent
from core.samples import Sample, digest
from core.train.collect import Collector, CollectSettings, batches, collect_all

NEW_TOKENS = 128
SAMPLINGS = {"greedy": 0.0, "T=1": 1.0}
LONGEST_BLOCK = 16  # tokens of text stored after the last round's root


@dataclass(frozen=True, eq=False)
class HeldOutText:
    """One text the target wrote on a held-out prompt. ``sampling`` is a name in ``SAMPLINGS``."""

    sampling: str
    source: str
    document: Document


def evaluation_texts(
    language: Language,
    layers: tuple[int, ...],
    prompts: Sequence[Sample],
    folder: Path,
    names: Sequence[str] = tuple(SAMPLINGS),
    report: Steps = silent,
) -> list[HeldOutText]:
    """The target's own texts on the prompts by the named samplings; made once, then read.

    Raises UserError for a folder of texts that were made otherwise.
    """
    texts = []
    for name in names:
        texts += _texts(language, _settings(layers, name), prompts, folder / name, name, report)
    return texts


def _settings(layers: tuple[int, ...], name: str) -> CollectSettings:
    """Nothing is cut: a text to judge on is what a run would write."""
    return CollectSettings(
        layers,
        (SAMPLINGS[name],),
        max_new_tokens=NEW_TOKENS + LONGEST_BLOCK,
        top_k=0,
        max_prompt_tokens=1 << 20,
        cut_loops=False,
        cut_last=False,
    )


def _texts(
    language: Language,
    settings: CollectSettings,
    prompts: Sequence[Sample],
    folder: Path,
    name: str,
    report: Steps,
) -> list[HeldOutText]:
    samples = [Sample(s.user, None, s.source) for s in prompts]
    made_of = {"model": language.name, "prompts": digest(samples), **asdict(settings)}
    if shard_paths(folder):
        check_record(folder, made_of)
    else:
        write_record(folder, made_of)
    collector = Collector(language, settings)
    collect_all(collector, samples, folder, "text", name, report)
    documents = [d for path in shard_paths(folder) for d in read_shard(path)]
    sources = [sample.source for batch in batches(settings, samples) for sample in batch]
    if len(documents) != len(sources) or folder_layers(folder) != settings.layers:
        raise UserError(f"{folder} holds texts of other prompts or layers: name another folder")
    pairs = zip(sources, documents, strict=True)
    return [HeldOutText(name, source, document) for source, document in pairs]
