"""``model export``: a shipped drafter (or another) in its official format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.command_line import REQUIRED, CommandOptions, one_of, option, words
from app.terminal import quiet_libraries
from core.errors import UserError, first_line
from core.files import LOCK
from core.journal import alone
from core.methods.method import DrafterInfo, drafter_source, find_drafter, lazy
from core.methods.names import DRAFTERS
from core.models.embedded import NAME as EMBEDDED
from core.models.hub import Source

KINDS = tuple(n for n in DRAFTERS if (c := find_drafter(n).checkpoint) is not None and c.export)


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Write a drafter as an official checkpoint, which the reference implementation loads.

    The folder gets a config.json and a bf16 model.safetensors. A shipped file holds int8 weights
    with power-of-two scales, which are exact bf16 numbers, so nothing is lost. The command adds
    what the checkpoint shares with another one or with the target (a backbone, an embedding, a
    head).
    """

    kind: str = words(f"which drafter: {', '.join(KINDS)}", KINDS[0], one_of(KINDS))
    out: Path = option(REQUIRED, "a new or empty folder", metavar="FOLDER")
    model: str = option(EMBEDDED, "whose drafter", metavar="NAME")
    drafter: str | None = option(
        None, "another checkpoint: a folder, a GGUF file or a Hugging Face id", metavar="DRAFTER"
    )


def main(args: Options) -> int:
    from core.methods.loading import shipped

    info = find_drafter(args.kind)
    folder = shipped(args.kind, args.model)
    if args.drafter is not None:
        folder = drafter_source(info, Source.checked(args.drafter)).full_folder()
    if folder is None:
        raise UserError(f"no {args.kind} drafter ships for {args.model!r}")
    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"{args.out} exists and is not an empty folder")
    with alone(args.out, "export"):
        if any(file.name != LOCK for file in args.out.iterdir()):
            raise UserError(f"{args.out} exists and is not an empty folder")
        count = _export(info, folder, args.out, args.model)
    print(f"{args.out}: {count / 1e6:.1f} million parameters, bf16, official {args.kind} format")
    return 0


def _export(drafter: DrafterInfo, folder: Path, out: Path, model: str) -> int:
    """Write the official form; returns the number of parameters."""
    from safetensors import SafetensorError

    from core.models.language import load_language

    assert drafter.checkpoint is not None
    quiet_libraries()
    try:
        made = lazy(drafter.checkpoint.export)(
            folder, out, lambda: load_language(model, "cpu", fast=False)
        )
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own
        why = (isinstance(error, OSError) and error.strerror) or first_line(error)
        raise UserError(f"{out} cannot be written: {why}") from None
    return sum(p.numel() for p in made.parameters())
