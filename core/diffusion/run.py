"""Starting a denoising run: from a request to the rounds and the header of its trace."""

from __future__ import annotations

from functools import partial

from core.decoding.engine import Run, environment
from core.diffusion.denoise import denoise
from core.diffusion.graph_files import graph_to_json
from core.diffusion.models import DiffusionLanguage
from core.diffusion.nfe import written_tokens
from core.diffusion.request import DenoiseRequest
from core.traces.schema import Header


def start(language: DiffusionLanguage, request: DenoiseRequest) -> Run:
    """Check and begin a run; nothing is computed until it is iterated. Raises UserError."""
    target, settings = language.target, request.settings(language.block, language.ahead)
    graph = request.draft_graph(language.name)
    ids = language.encode_chat(request.prompt)
    header = Header(
        method=request.method,
        settings=settings.to_json() | {"graph": graph and graph_to_json(graph)},
        model={"name": language.name, "exact": target.exact},
        prompt_text=request.prompt,
        prompt_ids=tuple(ids),
        seed=settings.seed,
        **environment(language),
    )
    rounds = denoise(target, ids, settings, graph)
    return Run(header, rounds, language, partial(written_tokens, stop_ids=target.stop_ids))
