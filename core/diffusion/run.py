"""Denoising runs as a person asks for them: the request, and the header of its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.decoding.engine import Run, environment
from core.diffusion.denoise import Denoising, denoise
from core.diffusion.graph import PLAIN, SPIFFY, DraftGraph, graph_to_json, pace_to_json
from core.diffusion.models import DiffusionLanguage
from core.traces.schema import Header


@dataclass(frozen=True)
class DenoiseRequest:
    """One text to denoise; without a graph, plainly."""

    prompt: str
    settings: Denoising
    graph: DraftGraph | None = None


def start(language: DiffusionLanguage, request: DenoiseRequest) -> Run:
    """Check and begin a run; nothing is computed until it is iterated. Raises UserError."""
    settings, graph = request.settings, request.graph
    settings.check()
    prompt = language.encode_chat(request.prompt)
    return Run(
        _header(language, request, prompt),
        denoise(language.target, prompt, settings, graph),
        language,
    )


def _header(language: DiffusionLanguage, request: DenoiseRequest, prompt: list[int]) -> Header:
    graph = request.graph
    return Header(
        method=SPIFFY if graph else PLAIN,
        settings=settings_to_json(request.settings) | {"graph": graph and graph_to_json(graph)},
        model={"name": language.name, "exact": language.target.exact},
        prompt_text=request.prompt,
        prompt_ids=tuple(prompt),
        seed=request.settings.seed,
        **environment(language),
    )


def settings_to_json(settings: Denoising) -> dict[str, Any]:
    """What a header says of the settings."""
    return {
        "length": settings.length,
        "block": settings.block,
        "pace": pace_to_json(settings.pace),
        "temperature": settings.temperature,
        "seed": settings.seed,
        "go_on": settings.go_on,
    }
