"""Denoise: a block being denoised, plain and by Spiffy, live or from traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from app.studio import shipped
from app.studio.components import QUIET, FormPlaces, Studio, Tab
from app.studio.files import FileJson, tree_file
from app.studio.forms import StartForm, prompt_bar
from app.studio.methods import Methods, mapping
from app.studio.questions import Inches, OfRun, Route
from app.studio.requested import NO_GRAPH, OWN_AHEAD, denoising_of
from app.studio.run import StudioRun
from app.studio.tabs.run import form_tab, shared_updates
from app.view.denoise import DENOISER, CountedGraph, graph_of, outline_dot, outline_view
from app.view.drawing import outline_drawing
from core.decoding.request import RunRequest
from core.diffusion.draft_graph import DraftGraph
from core.diffusion.draft_graph_search import BUDGETS
from core.diffusion.request import DenoiseRequest
from core.errors import UserError
from core.traces.schema import Header

FIXED, THRESHOLD = "k tokens", "all with p ≥ t"
SAY = f"""(graph, pace, tokens, threshold, length) =>
  (graph ? "Spiffy D " + graph : "plain") + " · " + length + " tokens" +
  (pace !== "{FIXED}" ? ", p ≥ " + threshold : tokens > 1 ? ", " + tokens + " a step" : "") + " ⚙"
"""  # what the button above the settings says
MISSING = (
    "The denoiser's weights are not here, so live runs are off; traces of denoising runs open."
)


class Sketched(OfRun, frozen=True, kw_only=True):
    inches: Inches


def build(studio: Studio) -> None:
    own = {
        "outline": Route(OfRun, lambda asked: outline(studio.runs.get(asked.ticket))),
        "sketch": Route(Sketched, lambda q: sketch(studio.runs.get(q.ticket), q.inches)),
    }
    form_tab(studio, "denoise", "ds-d", denoise_form, own, (of_runs, updates), denoising=True)


TAB = Tab("denoise", "Denoise", build, ("view.css", "grid.css", "graph.css"))


# ── the form ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DenoiseForm(StartForm):
    """The form of a prompt that Spiffy and plain denoising both answer."""

    def requests(self, methods: Methods, values: Mapping[Any, Any]) -> list[DenoiseRequest]:
        named = {name: values[part] for name, part in self.named.items()}
        if named.pop("pace") == FIXED:
            del named["threshold"]
        return denoising_of(named)


def denoise_form(_: Methods, places: FormPlaces) -> DenoiseForm:
    prompt, settings, start, stop = prompt_bar("ds-d", places, shipped.DENOISED["code"])
    with places.more:
        inputs = _inputs(settings)
    with places.view:
        if not DENOISER.is_dir():
            gr.HTML(f'<p class="dn-missing">{MISSING}</p>', apply_default_css=False)
    return DenoiseForm(prompt, start, stop, inputs)


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
    settings.value = f"Spiffy D {BUDGETS[-1]} · 64 tokens ⚙"
    return inputs | {"pace": pace, "tokens": tokens, "threshold": threshold}


def of_runs(_: Methods, runs: Sequence[Header | RunRequest]) -> dict[str, Any]:
    """The filling that would start these runs again, plain denoising beside Spiffy.

    Raises UserError for runs of trees alone.
    """
    headers = [run for run in runs if isinstance(run, Header)]
    if not headers:
        raise UserError("this page does not offer the run's method")
    first = headers[0]
    graphs = [graph for header in headers if (graph := graph_of(header.settings))]
    pace = mapping(first.settings.get("pace"))
    return {
        **first.settings,
        **pace,
        "prompt": first.prompt_text,
        "pace": THRESHOLD if "threshold" in pace else FIXED,
        "graph": len(graphs[0]) if graphs else NO_GRAPH,
    }


def updates(form: DenoiseForm, _: Methods, filling: Mapping[str, Any]) -> dict[Any, Any]:
    """Updates of the form's components; one keeps its value where the new one is not allowed."""
    choices = {"pace": (FIXED, THRESHOLD), "graph": (NO_GRAPH, *BUDGETS)}
    found = shared_updates(form, filling, [name for name in form.shared if name not in choices])
    chosen = {name: filling.get(name) for name in choices}
    fits = {n: v for n, v in chosen.items() if isinstance(v, str | int) and v in choices[n]}
    return found | {form.shared[name]: value for name, value in fits.items()}


def outline(run: StudioRun | None) -> dict[str, Any]:
    """A run's draft graph, drawn and as DOT, with what became of its formulas so far."""
    graph, counted = _outline(run)
    return {"graph": outline_view(counted), "dot": outline_dot(graph)}


def sketch(run: StudioRun | None, inches: float) -> FileJson:
    """The same as a picture for a paper so wide."""
    _, counted = _outline(run)
    return tree_file("calibrated", "graph", partial(outline_drawing, counted), inches)


def _outline(run: StudioRun | None) -> tuple[DraftGraph, CountedGraph]:
    graph = graph_of(run.header.settings) if run is not None and run.header else None
    if run is None or graph is None:
        raise UserError("this run has no draft graph")
    return graph, CountedGraph.of(graph, tuple(run.rounds))
