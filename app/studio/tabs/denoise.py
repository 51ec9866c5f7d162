"""Denoise: a block being denoised, plain and by Spiffy, live or from traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

from app.studio import shipped
from app.studio.components import (
    QUIET,
    Studio,
    Tab,
    connect_start,
    connect_stop,
    connect_upload,
    form_above_view,
    open_traces,
    value_or_sentence,
    view,
)
from app.studio.forms import bar
from app.studio.requested import NO_GRAPH, OWN_AHEAD, denoising_of
from app.studio.routes import Route
from app.studio.run import StudioRun
from app.view.denoise import DENOISER, graph_of, outline_dot, outline_view
from core.diffusion.draft_graph_search import BUDGETS

FIXED, THRESHOLD = "k tokens", "all with p ≥ t"
SAY = f"""(graph, pace, tokens, threshold, length) =>
  (graph ? "D " + graph : "plain") +
  (pace === "{FIXED}" ? " · k " + tokens : " · p ≥ " + threshold) + " · " + length + " tokens ⚙"
"""  # what the button above the settings says
MISSING = (
    "The denoiser's weights are not here, so live runs are off; traces of denoising runs open."
)


def build(studio: Studio) -> None:
    runs = studio.runs
    with form_above_view("ds-d") as places:
        prompt, settings, start, stop = bar("ds-d", places, shipped.DENOISED["code"])
        with places.more:
            inputs = {"prompt": prompt} | _inputs(settings)
            upload = gr.UploadButton(
                "Open one trace, or two…", elem_id="ds-d-open", size="sm", min_width=90,
                file_count="multiple",
            )  # fmt: skip
        with places.view:
            if not DENOISER.is_dir():
                gr.HTML(f'<p class="dn-missing">{MISSING}</p>', apply_default_css=False)
            own: dict[str, Route] = {"outline": lambda question: outline(runs.get(question.ticket))}
            shown = view("denoise", "ds-d-scope", studio.routes.of_runs(denoising=True) | own)

    def submit(values: Mapping[Component, Any]) -> Any:
        """Queue Spiffy and plain denoising of one prompt; the view shows them by their tickets."""
        named = {name: values[part] for name, part in inputs.items()}
        if named.pop("pace") == FIXED:
            del named["threshold"]
        return value_or_sentence(lambda: {"tickets": runs.submit(*denoising_of(named))})

    connect_start([start.click, prompt.submit], submit, set(inputs.values()), shown)
    connect_upload(
        upload, shown, lambda files: {"tickets": open_traces(runs, files[:2], denoising=True)}
    )
    connect_stop(shown, stop, "ds-d")


TAB = Tab("denoise", "Denoise", build, ("view.css", "grid.css", "graph.css"))


# ── the form ─────────────────────────────────────────────────────────────────────────────────────


def _inputs(settings: gr.Button) -> dict[str, Component]:
    """All inputs but the prompt; ``settings`` says what they are set to."""
    inputs: dict[str, Component] = {}
    pace = gr.Radio(
        [FIXED, THRESHOLD], value=FIXED, label="A step unmasks", elem_id="ds-d-pace",
        elem_classes="ds-choices",
    )  # fmt: skip
    tokens = gr.Slider(1, 8, 1, step=1, label="Tokens per step (k)", elem_id="ds-d-tokens")
    threshold = gr.Slider(
        0.05, 1, 0.9, step=0.01, label="Sure: p at least (t)", visible=False,
        elem_id="ds-d-threshold",
    )  # fmt: skip
    inputs["graph"] = gr.Radio(
        [("none", NO_GRAPH), *((str(size), size) for size in BUDGETS)], value=BUDGETS[-1],
        label="Draft graph: drafts per call (D)", elem_id="ds-d-graph", elem_classes="ds-choices",
    )  # fmt: skip
    inputs["length"] = gr.Slider(16, 512, 64, step=16, label="Length", elem_id="ds-d-length")
    with gr.Accordion(
        "Block and sampling", open=False, elem_id="ds-d-more", elem_classes="ds-fold"
    ):
        inputs["block"] = gr.Number(0, label="Block (0 = the model's own)", precision=0, minimum=0)
        inputs["ahead"] = gr.Number(
            OWN_AHEAD, label="Ahead: p to be set before the first mask (-1 = the model's own)",
            minimum=OWN_AHEAD, maximum=1, step=0.05,
        )  # fmt: skip
        inputs["temperature"] = gr.Slider(0, 2, 0, step=0.05, label="Temperature (0 = greedy)")
        inputs["seed"] = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1)
    pace.change(
        lambda chosen: [gr.update(visible=chosen == FIXED), gr.update(visible=chosen == THRESHOLD)],
        pace, [tokens, threshold], **QUIET,
    )  # fmt: skip
    told: Any = [inputs["graph"], pace, tokens, threshold, inputs["length"]]
    gr.on([part.change for part in told], None, told, settings, js=SAY, **QUIET)
    settings.value = f"D {BUDGETS[-1]} · k 1 · 64 tokens ⚙"
    return inputs | {"pace": pace, "tokens": tokens, "threshold": threshold}


def outline(run: StudioRun | None) -> dict[str, Any]:
    """A run's draft graph, drawn and as DOT, with what became of its formulas so far."""
    graph = graph_of(run.header.settings) if run is not None and run.header else None
    if run is None or graph is None:
        return {"error": "this run has no draft graph"}
    return {"graph": outline_view(graph, tuple(run.rounds)), "dot": outline_dot(graph)}
