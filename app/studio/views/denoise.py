"""Denoise: a block being denoised, plain and by Spiffy, live or from traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.studio.answers import get, whole
from app.studio.context import Context
from app.studio.desk import Desk, Run
from app.studio.engine import DenoiseAsk
from app.studio.panel import QUIET, checked_prompt, example_prompts, go_buttons
from app.studio.saving import Saving
from app.studio.scope import component
from app.studio.upload import open_upload
from app.studio.workbench import STOP_JS, opens, sentence, stoppable
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
from core.diffusion.calibrate import BUDGETS
from core.diffusion.graph import Pace
from core.errors import UserError
from core.traces.schema import Trace

TITLE = "Denoise"
FIXED, SURE = "k tokens", "all with p ≥ t"
NONE = 0  # no draft graph: plain denoising alone
MISSING = (
    "The denoiser's weights are not here, so live runs are off; traces of denoising runs open."
)
BATCH = 1_000_000  # about this many bytes of calls in one answer
NOT_DENOISED = "this trace is not of a denoising run: open it in Run"


def build(context: Context) -> None:
    """The inputs at the left, the view beside them; runs live in the desk, by ticket."""
    desk = context.desk
    with gr.Row(elem_classes="ds-page", equal_height=False):
        with gr.Column(elem_classes="ds-panel", elem_id="ds-d-panel", scale=0, min_width=280):
            inputs, start, stop, opened = _panel()
        with gr.Column(elem_classes="ds-main", scale=1, min_width=280):
            view = component("denoise", "ds-d-scope", functions(context))

    def submit(values: Mapping[Component, Any]) -> Any:
        """Queue Spiffy and plain denoising of one prompt; what the view shows is their tickets."""
        try:
            asked = asks({name: values[part] for name, part in inputs.items()})
            return {"tickets": desk.submit(*asked)}
        except UserError as error:
            return sentence(str(error))

    gr.on([start.click], submit, set(inputs.values()), view, **QUIET)
    opens(opened, view, lambda files: show(desk, files))
    stop.click(None, js=STOP_JS.format("ds-d"))
    stoppable(view, stop)


# ── the inputs ───────────────────────────────────────────────────────────────────────────────────


def _panel() -> tuple[dict[str, Component], gr.Button, gr.Button, gr.UploadButton]:
    inputs: dict[str, Component] = {"prompt": example_prompts("ds-d")}
    inputs["mode"] = gr.Radio(
        [FIXED, SURE], value=FIXED, label="A step unmasks", elem_id="ds-d-pace"
    )
    inputs["tokens"] = gr.Slider(
        1, 8, 1, step=1, label="Tokens per step (k)", elem_id="ds-d-tokens"
    )
    inputs["threshold"] = gr.Slider(
        0.05,
        1,
        0.9,
        step=0.01,
        label="Sure: p at least (t)",
        visible=False,
        elem_id="ds-d-threshold",
    )
    inputs["graph"] = gr.Radio(
        [("none", NONE), *((str(size), size) for size in BUDGETS)], value=BUDGETS[-1],
        label="Draft graph: drafts per call (D)", elem_id="ds-d-graph",
    )  # fmt: skip
    inputs["length"] = gr.Slider(16, 512, 64, step=16, label="Length", elem_id="ds-d-length")
    with gr.Accordion(
        "Block and sampling", open=False, elem_id="ds-d-more", elem_classes="ds-fold"
    ):
        inputs["block"] = gr.Number(0, label="Block (0 = the model's own)", precision=0, minimum=0)
        inputs["temperature"] = gr.Slider(0, 2, 0, step=0.05, label="Temperature (0 = greedy)")
        inputs["seed"] = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1)
    if not DENOISER.is_dir():
        gr.HTML(f'<p class="dn-missing">{MISSING}</p>', apply_default_css=False)
    start, stop = go_buttons("ds-d")
    opened = gr.UploadButton(
        "Open one trace, or two…", elem_id="ds-d-open", size="sm", min_width=90,
        file_count="multiple",
    )  # fmt: skip
    mode: Any = inputs["mode"]
    mode.change(
        lambda chosen: [gr.update(visible=chosen == FIXED), gr.update(visible=chosen == SURE)],
        mode, [inputs["tokens"], inputs["threshold"]], **QUIET,
    )  # fmt: skip
    return inputs, start, stop, opened


def asks(values: Mapping[str, Any]) -> list[DenoiseAsk]:
    """Spiffy first, then plain; one run without a graph. Everything in it was written by a browser.

    Raises UserError with a sentence about what is amiss.
    """
    prompt = checked_prompt(values["prompt"])
    sure = values["mode"] == SURE
    pace = Pace(threshold=_number(values, "threshold")) if sure else Pace(_whole(values, "tokens"))
    pace.check()
    plain = DenoiseAsk(
        prompt, _whole(values, "length"), _whole(values, "block") or None, pace, None,
        _number(values, "temperature"), _whole(values, "seed"),
    )  # fmt: skip
    nodes = _whole(values, "graph")
    if nodes not in (NONE, *BUDGETS):
        raise UserError("choose one of the draft graphs, or none")
    return [replace(plain, nodes=nodes), plain] if nodes else [plain]


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values[name]
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError("fill in every number of the settings")
    return float(value)


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = _number(values, name)
    if value != int(value):
        raise UserError(f"{name} must be a whole number")
    return int(value)


def show(desk: Desk, files: list[Path]) -> dict[str, Any]:
    """Put one uploaded trace on view, or two side by side."""
    return {"tickets": [desk.show(denoised(open_upload(file).trace())) for file in files[:2]]}


def denoised(trace: Trace) -> Trace:
    """The trace, if it is of a denoising run. Raises UserError."""
    if not is_denoising(trace):
        raise UserError(NOT_DENOISED)
    return trace


# ── what the view asks ───────────────────────────────────────────────────────────────────────────


def functions(context: Context) -> list[Callable[[dict[str, Any]], Any]]:
    """The common server functions, with the calls of denoising runs in place of rounds."""
    desk = context.desk

    def news(asked: dict[str, Any]) -> Any:
        return denoise_news(desk, get(asked, "ticket"), max(0, whole(get(asked, "since")) or 0))

    def differ(asked: dict[str, Any]) -> Any:
        tickets = get(asked, "tickets")
        runs = [desk.run(t) for t in tickets[:2]] if isinstance(tickets, list) else []
        headers = [run.header for run in runs if run is not None and run.header is not None]
        return {"unlike": differences(*headers) if len(headers) == 2 else [], "known": len(headers) == 2}

    def formulas(asked: dict[str, Any]) -> Any:
        return whole_graph(desk.run(get(asked, "ticket")))

    def gallery(asked: dict[str, Any]) -> Any:
        return {"prompts": context.gallery.denoised}

    differ.__name__ = "unlike"  # the name the page asks by
    usual = {each.__name__: each for each in Saving(desk, context.gallery).functions()}
    kept = [usual[name] for name in ("save", "take", "halt", "example", "parquet")]
    return [news, differ, formulas, gallery, *kept]


def whole_graph(run: Run | None) -> dict[str, Any]:
    """The calibrated graph of a run, drawn and as DOT, with what became of its formulas so far."""
    graph = graph_of(run.header.settings) if run is not None and run.header else None
    if run is None or graph is None:
        return {"error": "this run has no draft graph"}
    return {"graph": outline_view(graph, tuple(run.rounds)), "dot": outline_dot(graph)}


def denoise_news(desk: Desk, ticket: object, since: int) -> dict[str, Any]:
    """The model's state, the run's, and its calls from number ``since`` on."""
    answer = desk.news(ticket, 1 << 40)  # its state only: the rounds are told in another form
    run = desk.run(ticket)
    if run is None or answer["run"] is None:
        return answer
    told = answer["run"]
    told["header"] = run_view(run.header) if run.header is not None and since == 0 else None
    told["rounds"], told["more"] = _calls(run, since)
    return answer


def _calls(run: Run, since: int) -> tuple[list[dict[str, Any]], bool]:
    """Calls from ``since`` on, as many as one answer should hold, and whether more are there."""
    rounds = tuple(run.rounds)
    if any(record.block is None for record in rounds):
        return [], False
    taken: list[dict[str, Any]] = []
    size = 0
    for at in range(since, len(rounds)):
        taken.append(call_view(rounds, at))
        size += sum(40 * len(step["ranking"]) for step in taken[-1]["steps"]) + 400
        size += 300 * taken[-1]["drafted"]
        if size > BATCH:
            break
    return taken, since + len(taken) < len(rounds)
