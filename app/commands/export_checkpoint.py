"""``export-checkpoint``: a shipped drafter (or another) in its official format."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.terminal import quiet_libraries
from core.errors import UserError, first_line
from core.methods.method import DrafterInfo, find_drafter, lazy
from core.methods.names import DRAFTERS
from core.models.embedded import NAME as EMBEDDED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = [n for n in DRAFTERS if (c := find_drafter(n).checkpoint) is not None and c.export]
    parser.description = (
        "Write a drafter as an official checkpoint: config.json and bf16 model.safetensors, which\n"
        "the reference implementation loads. A shipped file holds int8 weights with power-of-two\n"
        "scales, which are exact bf16 numbers, so this loses nothing. What a checkpoint shares\n"
        "with another one or with the target (a backbone, an embedding, a head) is joined with it."
    )
    parser.add_argument("out", type=Path, metavar="FOLDER", help="a new or empty folder")
    parser.add_argument(
        "--kind", default=kinds[0], choices=kinds, help=f"which drafter (default {kinds[0]})"
    )
    parser.add_argument(
        "--model", default=EMBEDDED, metavar="NAME", help=f"whose drafter (default {EMBEDDED})"
    )
    parser.add_argument("--drafter", type=Path, metavar="FOLDER", help="another checkpoint folder")


def main(args: argparse.Namespace) -> int:
    from core.methods.loading import shipped

    folder = args.drafter or shipped(args.kind, args.model)
    if folder is None:
        raise UserError(f"no {args.kind} drafter ships for {args.model!r}")
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out} exists and is not an empty folder")
    count = _export(find_drafter(args.kind), folder, args.out, args.model)
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
