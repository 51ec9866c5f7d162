"""Denoise: a block being denoised, plain and by Spiffy, live or from traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
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
    value_or_sentence,
    view,
)
from app.studio.files import open_upload
from app.studio.forms import bar
from app.studio.methods import checked_prompt, number
from app.studio.questions import Question
from app.studio.routes import Route
from app.studio.run import StudioRun
from app.studio.runs import Runs
from app.view.denoise import (
    DENOISER,
    call_view,
    differences,
    graph_of,
    is_denoising,
    outline_dot,
    outline_view,
    run_view,
)
from core.diffusion.draft_graph_search import BUDGETS
from core.diffusion.pace import Pace
from core.diffusion.request import DenoiseRequest
from core.errors import UserError

FIXED, THRESHOLD = "k tokens", "all with p ≥ t"
OWN_AHEAD = -1  # an empty number would be shown, and sent, as 0
NO_GRAPH = 0  # plain denoising alone
SAY = f"""(graph, pace, tokens, threshold, length) =>
  (graph ? "D " + graph : "plain") +
  (pace === "{FIXED}" ? " · k " + tokens : " · p ≥ " + threshold) + " · " + length + " tokens ⚙"
"""  # what the button above the settings says
USUAL: dict[str, Any] = {
    "prompt": "", "graph": NO_GRAPH, "length": 64, "block": 0, "tokens": 1, "ahead": OWN_AHEAD,
    "temperature": 0, "seed": 0,
}  # fmt: skip
MISSING = (
    "The denoiser's weights are not here, so live runs are off; traces of denoising runs open."
)
ANSWER_SIZE = 1_000_000  # about this many bytes of calls in one answer


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
            shown = view("denoise", "ds-d-scope", routes(studio))

    def submit(values: Mapping[Component, Any]) -> Any:
        """Queue Spiffy and plain denoising of one prompt; the view shows them by their tickets."""
        named = {name: values[part] for name, part in inputs.items()}
        return value_or_sentence(lambda: {"tickets": runs.submit(*requests(named))})

    connect_start([start.click, prompt.submit], submit, set(inputs.values()), shown)
    connect_upload(upload, shown, lambda files: open_traces(runs, files))
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


def requests(values: Mapping[str, Any]) -> list[DenoiseRequest]:
    """Spiffy first, then plain; one run without a graph. Everything in it was written by a browser.

    Raises UserError with a sentence about what is amiss.
    """
    prompt, by_threshold = checked_prompt(values["prompt"]), values["pace"] == THRESHOLD
    pace = Pace(threshold=number(values["threshold"])) if by_threshold else None
    pace = pace or Pace(_whole(values, "tokens"))
    pace.check()
    nodes = _whole(values, "graph")
    if nodes not in (NO_GRAPH, *BUDGETS):
        raise UserError("choose one of the draft graphs, or none")
    ahead = number(values["ahead"])
    plain = DenoiseRequest(
        prompt,
        _whole(values, "length"),
        _whole(values, "block") or None,
        pace,
        temperature=number(values["temperature"]),
        seed=_whole(values, "seed"),
        ahead=None if ahead == OWN_AHEAD else ahead,
    )
    return [replace(plain, graph=str(nodes)), plain] if nodes else [plain]


def request_of(asked: Mapping[str, Any]) -> DenoiseRequest:
    """The request of an address (``app.studio.requested``), whose values a browser wrote. Raises
    UserError as ``requests``."""
    pace = THRESHOLD if "threshold" in asked else FIXED
    return requests({**USUAL, **asked, "pace": pace})[0]


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = number(values[name])
    if value != int(value):
        raise UserError(f"{name} must be a whole number")
    return int(value)


def open_traces(runs: Runs, files: list[Path]) -> dict[str, Any]:
    """Put one uploaded trace on view, or two side by side. Raises UserError for other traces."""
    traces = [open_upload(file).trace() for file in files[:2]]
    if not all(map(is_denoising, traces)):
        raise UserError("this trace is not of a denoising run: open it in Run")
    return {"tickets": [runs.open(trace) for trace in traces]}


# ── the routes ───────────────────────────────────────────────────────────────────────────────────


def routes(studio: Studio) -> dict[str, Route]:
    """The common ones, with the calls of denoising runs in place of rounds."""
    runs = studio.runs

    def updates(question: Question) -> Any:
        runs.get(question.ticket)  # a page asks: it is there
        return call_updates(runs, question.ticket, max(0, question.since or 0))

    def compare(question: Question) -> Any:
        both = [runs.get(ticket) for ticket in (question.tickets or [])[:2]]
        headers = [run.header for run in both if run is not None and run.header is not None]
        known = len(headers) == 2
        return {"unlike": differences(*headers) if known else [], "known": known}

    def start(question: Question) -> Any:
        asked = [request_of(each) for each in (question.asked or [])[:2]]
        return {"tickets": runs.submit(*asked)}

    common = studio.routes.of_runs()
    shared = ("save", "export", "stop", "example", "parquet", "runs")
    return {name: common[name] for name in shared} | {
        "start": start,
        "updates": updates,
        "differences": compare,
        "outline": lambda question: graph_outline(runs.get(question.ticket)),
        "examples": lambda _: offered(studio),
    }


def offered(studio: Studio) -> dict[str, Any]:
    """The shelf, and what a page without a link opens on: nothing, where files were named."""
    named = studio.examples.files.group(denoising=True)
    first = () if named else shipped.FIRST_DENOISED
    return {"prompts": studio.examples.groups(denoising=True), "first": first}


def graph_outline(run: StudioRun | None) -> dict[str, Any]:
    """A run's draft graph, drawn and as DOT, with what became of its formulas so far."""
    graph = graph_of(run.header.settings) if run is not None and run.header else None
    if run is None or graph is None:
        return {"error": "this run has no draft graph"}
    return {"graph": outline_view(graph, tuple(run.rounds)), "dot": outline_dot(graph)}


def call_updates(runs: Runs, ticket: object, since: int) -> dict[str, Any]:
    """The model's state, the run's, and its calls from number ``since`` on."""
    answer = runs.updates(ticket, 1 << 40)  # without rounds: calls replace them
    run, about = runs.find(ticket), answer["run"]
    if run is not None and about is not None:
        about["header"] = run_view(run.header) if run.header is not None and since == 0 else None
        about["first"] = since
        about["made"] = run.made if since == 0 else None
        about["rounds"], about["more"] = _calls(run, since)
    return answer


def _calls(run: StudioRun, since: int) -> tuple[list[dict[str, Any]], bool]:
    """Calls from ``since`` on, as many as one answer should hold, and whether more are there."""
    rounds = tuple(run.rounds)
    if any(record.block is None for record in rounds):
        return [], False
    calls: list[dict[str, Any]] = []
    size = 0
    for at in range(since, len(rounds)):
        call = call_view(rounds, at)
        calls.append(call)
        size += sum(40 * len(step["ranking"]) for step in call["steps"]) + 400
        size += 300 * call["drafted"]
        if size > ANSWER_SIZE:
            break
    return calls, since + len(calls) < len(rounds)
