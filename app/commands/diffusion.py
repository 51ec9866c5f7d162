"""The settings of denoising that commands share, and the model they load. No torch at the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from app.command_line import CommandOptions, option
from app.terminal import ProgressBar, quiet_libraries
from core.diffusion.request import DenoiseRequest, Pace
from core.errors import UserError
from core.models.embedded import NAME as EMBEDDED
from core.ranges import Range

if TYPE_CHECKING:
    from core.diffusion.models import DiffusionLanguage


def pace(text: str) -> Pace:
    """A pace by its name, such as k2 or t0.9."""
    try:
        found = Pace(int(text[1:])) if text[:1] == "k" else Pace(threshold=float(text[1:]))
        if text[:1] not in "kt" or len(text) < 2:
            raise ValueError
    except ValueError:
        raise ValueError("must be a pace like k2 or t0.9") from None
    found.check()
    return found


@dataclass(frozen=True, kw_only=True)
class Denoising(CommandOptions):
    """The settings of denoising a text."""

    title: ClassVar[str] = "denoising"
    tokens_per_step: int | None = option(None, "tokens set at each step (default 1)", metavar="K")
    threshold: float | None = option(
        None, "set all positions at least this sure instead, and always one", metavar="P"
    )
    block: int | None = option(None, "tokens in a block (default: the model's own)", metavar="L")
    ahead: float | None = option(
        None,
        "confidence a position needs to be set before the first masked one (default: the model's "
        "own)",
        metavar="P",
    )
    length: int = option(128, "tokens to write", metavar="W")
    temperature: float = option(0.0, "0 is greedy", Range(0))
    seed: int = option(0, "same seed, same text")
    go_on: bool = option(False, "also write the blocks after the first end-of-text")


@dataclass(frozen=True, kw_only=True)
class DiffusionModel(CommandOptions):
    """The masked-diffusion model, and where it computes."""

    title: ClassVar[str] = "model"
    model: str = option(
        EMBEDDED, "a preset's denoiser, a folder, or a Hugging Face id", metavar="NAME|PATH"
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:1, …", metavar="DEVICE")
    shared: bool = option(
        False,
        "a bidirectional model's drafts share one context: the paper's mask, not exact",
    )


def load(args: DiffusionModel) -> DiffusionLanguage:
    with ProgressBar("preparing " + args.model) as progress:
        progress.at(None, "loading libraries")
        quiet_libraries()
        from core.diffusion import models

        return models.load_diffusion(args.model, args.device, progress.at, shared=args.shared)


def request_of(args: Denoising, graph: str | None = None) -> DenoiseRequest:
    """The request that the options describe, without its prompt. Raises UserError."""
    return DenoiseRequest(
        prompt="",
        length=args.length,
        block=args.block,
        pace=pace_of(args),
        graph=graph,
        temperature=args.temperature,
        seed=args.seed,
        ahead=args.ahead,
        go_on=args.go_on,
    )


def pace_of(args: Denoising) -> Pace:
    """Raises UserError for both kinds at once."""
    if args.threshold is None:
        return Pace(1 if args.tokens_per_step is None else args.tokens_per_step)
    if args.tokens_per_step is not None:
        raise UserError("name either --tokens-per-step or --threshold")
    return Pace(threshold=args.threshold)
