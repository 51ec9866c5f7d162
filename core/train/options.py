"""The settings of training that ``train`` has flags for: of the text, of the fit, of the denoiser.
Those of a drafter are in its home. Light: never torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.declared import MAX_COUNT
from core.methods.method import TrainingInfo, option
from core.ranges import Range

DENOISER = "denoiser"  # what is trained beside the drafters
POSITIVE = Range(0, above=True)


@dataclass(frozen=True)
class TextOptions:
    """Where the training text comes from and how it is made: the options its shards depend on."""

    prompts: tuple[Path, ...] = option(
        (),
        ".jsonl or .txt files, a prompt a line; lines with an answer are read, others answered",
    )
    code: tuple[Path, ...] = option(
        (), "folders of Python sources: documented functions become 'complete this' prompts"
    )
    code_limit: int = option(1000, "at most so many prompts from --code", Range(0))
    per_file: int = option(2000, "prompts taken from each file", Range(1))
    synthesise: int = option(0, "prompts that the target writes itself", Range(0))
    tasks: int = option(
        0, "prompts made from lists: N tasks about topics, and N small functions", Range(0)
    )
    held_out: Path | None = option(
        None,
        "prompts to report on; texts that share 13 words in a row with them, or all words of a "
        "shorter one, are left out",
    )
    temperature: tuple[float, ...] = option(
        (0.0, 0.8), "each prompt is answered once at every one of these, 0 is greedy", Range(0)
    )
    batch: int = option(32, "prompts answered at once, a shard each", Range(1))
    seed: int = option(0, "random seed of the text and the fit", Range(0))


@dataclass(frozen=True)
class FitSettings:
    """One training recipe. Fields with a help text are flags of ``train``.

    warmup      steps
    decay_from  the rate is constant until this share of the run, then linear to zero
    top_k       of the stored target probabilities; 0: the text's own next token instead
    frequent, sampled  tokens in the softmax beside those of the step
    average     decay of the exponential average of the weights
    save_every  steps
    held_out    prompts never trained on, but at most a twelfth of all
    """

    minutes: float = option(
        90.0,
        "minutes of fitting, without collecting; the learning rate follows the clock",
        POSITIVE,
    )
    sequences: int = option(8, "documents in a step", Range(1))
    anchors: int = option(32, "anchors in each document of a step", Range(1))
    lr: float = option(1e-3, "the highest learning rate", POSITIVE)
    warmup: int = 40
    decay_from: float = 0.3
    gamma: float | None = option(
        None, "depth k weighs exp(−(k − 1)/γ) (default: as in the drafter's paper)", POSITIVE
    )
    top_k: int = 12
    frequent: int = 4096
    sampled: int = 512
    average: float = 0.995
    seed: int = 0
    save_every: int = 100
    held_out: int = 48


@dataclass(frozen=True)
class DenoiserOptions:
    rank: int = option(16, "rank of the denoiser's adapter", Range(1))
    block_size: int = option(16, "positions of the denoiser's block", Range(2, MAX_COUNT))
    ahead: float = option(
        0.9, "confidence a position needs to be unmasked before the first masked one", Range(0, 1)
    )
    half: bool = option(
        False, "run the denoiser's target in bf16: twice as fast on a CPU that has it"
    )


DENOISER_TRAINING = TrainingInfo("core.train.denoiser:TRAINING", DenoiserOptions)
