"""``export-checkpoint``: a shipped drafter (or another) in its official format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.common import EMBEDDED
from core.errors import UserError, first_line
from core.methods.registry import DRAFTERS

if TYPE_CHECKING:
    from torch import nn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a drafter as an official checkpoint: config.json and bf16 model.safetensors, which\n"
        "the reference implementation loads. A shipped file holds int8 weights with power-of-two\n"
        "scales; what they stand for are bf16 numbers, so this loses nothing. A TreeFlash one is\n"
        "joined with its backbone; a DART one with the target's embedding and head."
    )
    parser.add_argument("out", type=Path, metavar="FOLDER", help="a new or empty folder")
    parser.add_argument(
        "--kind", default="dflash", choices=tuple(DRAFTERS), help="which drafter (default dflash)"
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
    model = {"dflash": _dflash, "treeflash": _treeflash, "dart": _dart}[args.kind](folder, args)
    count = sum(p.numel() for p in model.parameters())
    print(f"{args.out}: {count / 1e6:.1f} million parameters, bf16, official {args.kind} format")
    return 0


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raises UserError when files cannot be written; safetensors has an error of its own."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        why = (isinstance(error, OSError) and error.strerror) or first_line(error)
        raise UserError(f"{folder} cannot be written: {why}") from None


def _dflash(folder: Path, args: argparse.Namespace) -> nn.Module:
    import torch

    from core.methods.dflash.drafter import load_model, save_model

    model = load_model(folder, torch.bfloat16, "cpu")
    with _writing(args.out):
        save_model(model, args.out)
    return model


def _treeflash(folder: Path, args: argparse.Namespace) -> nn.Module:
    import torch

    from core.methods.treeflash.drafter import load_model, save_model

    model = load_model(folder, torch.bfloat16, "cpu")
    with _writing(args.out):
        save_model(model, args.out)
    return model


def _dart(folder: Path, args: argparse.Namespace) -> nn.Module:
    import torch

    from app.commands.common import quiet_libraries
    from core.methods.dart.drafter import load_checkpoint, save_official
    from core.models.language import load_language

    quiet_libraries()
    found = load_checkpoint(folder, torch.bfloat16, "cpu")
    if found.head is not None:
        raise UserError(f"{folder} has a head of its own: it is in the official format already")
    language = load_language(args.model, "cpu", pack=False)
    embedding = language.model.get_input_embeddings().weight
    with _writing(args.out):
        save_official(found.model, language.head.weight, embedding, args.out)
    return found.model
