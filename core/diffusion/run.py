"""Starting a denoising run: from a request to the rounds and the header of its trace."""

from __future__ import annotations

from core.decoding.engine import Run, environment
from core.diffusion.denoise import denoise
from core.diffusion.draft_graph import DraftGraph
from core.diffusion.graph_files import graph_to_json
from core.diffusion.models import DiffusionLanguage
from core.diffusion.request import PLAIN, SPIFFY, DenoiseRequest, DenoiseSettings
from core.traces.schema import Header


def start(language: DiffusionLanguage, request: DenoiseRequest) -> Run:
    """Check and begin a run; nothing is computed until it is iterated. Raises UserError."""
    settings = request.settings(language.block, language.ahead)
    graph = request.draft_graph(language.name)
    return begin(language, request.prompt, settings, graph)


def begin(
    language: DiffusionLanguage, prompt: str, settings: DenoiseSettings, graph: DraftGraph | None
) -> Run:
    """``start`` with the settings and the draft graph resolved. Raises UserError."""
    settings.check()
    ids = language.encode_chat(prompt)
    header = Header(
        method=SPIFFY if graph else PLAIN,
        settings=settings.to_json() | {"graph": graph and graph_to_json(graph)},
        model={"name": language.name, "exact": language.target.exact},
        prompt_text=prompt,
        prompt_ids=tuple(ids),
        seed=settings.seed,
        **environment(language),
    )
    return Run(header, denoise(language.target, ids, settings, graph), language)
