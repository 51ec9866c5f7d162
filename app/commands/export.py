"""``export-checkpoint``: the shipped drafter (or another) in the official DFlash format."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.commands.common import EMBEDDED
from core.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a drafter as an official DFlash checkpoint: config.json and bf16\n"
        "model.safetensors, which the reference implementation loads. The shipped file holds int8\n"
        "weights with power-of-two scales; what they stand for are bf16 numbers, so this loses\n"
        "nothing."
    )
    parser.add_argument("out", type=Path, metavar="FOLDER", help="a new or empty folder")
    parser.add_argument(
        "--model", default=EMBEDDED, metavar="NAME", help=f"whose drafter (default {EMBEDDED})"
    )
    parser.add_argument("--drafter", type=Path, metavar="FOLDER", help="another checkpoint folder")


def main(args: argparse.Namespace) -> int:
    import torch

    from core.drafters.dflash import load_model, save_model
    from core.models import shipped_drafter

    folder = args.drafter or shipped_drafter(args.model)
    if folder is None:
        raise UserError(f"no drafter ships for {args.model!r}")
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"{args.out} exists and is not an empty folder")
    model = load_model(folder, torch.bfloat16, "cpu")
    save_model(model, args.out)
    count = sum(p.numel() for p in model.parameters())
    print(f"{args.out}: {count / 1e6:.1f} million parameters, bf16, official DFlash format")
    return 0
