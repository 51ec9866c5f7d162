"""Filling a form again: a run's settings come back, and nothing that a browser makes up."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

pytest.importorskip("gradio")

import gradio as gr
from hypothesis import given
from hypothesis import strategies as st

from app.studio.components import form_above_view
from app.studio.forms import RunForm, compare_form, options_value, run_form
from app.studio.methods import Methods, option_value
from app.studio.tabs.denoise import denoise_form
from app.studio.tabs.denoise import of_runs as denoise_runs
from app.studio.tabs.denoise import updates as denoise_updates
from app.studio.tabs.run import of_runs, updates
from core.decoding.request import RunRequest
from core.diffusion.graph_files import graph_to_json
from core.diffusion.pace import Pace
from core.diffusion.request import DenoiseRequest
from core.errors import UserError
from core.methods.registry import find_method
from core.models import embedded
from tests.helpers.fakes import make_header

METHODS = Methods.of()


def form(make: Any) -> RunForm:
    with gr.Blocks(), form_above_view("x") as places:
        return make(METHODS, places)


RUN, COMPARE = form(run_form), form(compare_form)


def filled(form: RunForm, filling: Any) -> dict[Any, Any]:
    return updates(form, METHODS, filling)


def values_after(form: RunForm, found: dict[Any, Any]) -> dict[Any, Any]:
    """The inputs' values with these updates."""
    values: dict[Any, Any] = {part: part.value for part in form.named.values()}  # type: ignore[attr-defined]
    for part, update in found.items():
        if not isinstance(update, dict):
            values[part] = update
        elif "value" in update:
            values[part] = update["value"]
    return values


def header(request: RunRequest) -> Any:
    settings = asdict(request.resolved.settings)
    options = find_method(request.method).resolve(dict(request.options))
    return make_header(request.prompt, request.method, **settings, options=options)


@pytest.mark.parametrize(
    "request_",
    [
        RunRequest("why?", "ddtree", 16, 32, 0.5, 7, 0.9, 3),
        RunRequest("why?", "eagle3", 60, options=(("depth", 5), ("top_k", 4))),
        RunRequest("why?", "dart", 1024, options=(("beam", 3), ("ngram_weight", 0.0))),
        RunRequest("why?", "eagle3+best-first", 256),
        RunRequest("why?", "ar", 1),
        RunRequest("why?", "caddtree", 64, options=(("measure", True),)),
    ],
)
def test_a_run_s_settings_come_back(request_: RunRequest):
    found = filled(RUN, of_runs(METHODS, [header(request_)]))
    assert filled(RUN, of_runs(METHODS, [request_])) == found  # as long as it waits
    (again,) = RUN.requests(METHODS, values_after(RUN, found))
    assert header(again).settings == header(request_).settings
    assert again.method == request_.method and again.prompt == "why?"


def test_settings_that_an_engine_s_trace_has_outside_of_its_sampling_come_back_too():
    own = replace(
        header(RunRequest("why?", "ddtree", 16)), settings={"temperature": 1, "budget": 8}
    )
    found = filled(RUN, of_runs(METHODS, [own]))
    (again,) = RUN.requests(METHODS, values_after(RUN, found))
    assert (again.temperature, again.budget, again.prompt) == (1, 8, "why?")


def test_a_served_chat_comes_back_as_what_was_asked():
    """A run of the form puts the chat template around its prompt, marks of one in it included."""
    chat = "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n"
    served = make_header(chat, "ddtree")
    typed = replace(served, creator={"name": "draftscope", "version": "0.9.6"})
    prompts = [of_runs(METHODS, [each])["prompt"] for each in (served, typed)]
    assert prompts == ["why?", chat]


def test_compared_runs_come_back_with_empty_places():
    asked = [RunRequest("a", "dart", 4), RunRequest("a", "treeflash", 64)]
    found = filled(COMPARE, of_runs(METHODS, [header(each) for each in asked]))
    again = COMPARE.requests(METHODS, values_after(COMPARE, found))
    assert [(each.method, each.budget) for each in again] == [("dart", 4), ("treeflash", 64)]


def test_a_run_of_a_method_that_is_not_offered_is_said():
    with pytest.raises(UserError, match="does not offer"):
        of_runs(METHODS, [make_header("why?", "/home/ada/mine.py")])


NAMES = st.sampled_from([*RUN.named, "0.method", "0.budget", "0.options", "9.method", "x"])
JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(
    st.integers(), max_size=2
)  # fmt: skip


STATED = JUNK | st.sampled_from(["ar", "dart", "eagle3", "own", "chain"])
OPTIONS = st.dictionaries(st.sampled_from(["beam", "depth", "measure", "x"]), JUNK)
WHOSE = st.dictionaries(st.sampled_from(["method", "builder", "options"]), STATED | OPTIONS)


@given(st.dictionaries(NAMES, STATED | WHOSE))
def test_whatever_a_browser_sends_leaves_a_form_that_can_be_started_or_says_why(filling: Any):
    values = values_after(RUN, filled(RUN, filling))
    try:
        RUN.requests(METHODS, values)
    except UserError as error:
        assert "prompt" in str(error) or "top-p" in str(error) or "temperature" in str(error)


@given(STATED, STATED, OPTIONS)
def test_the_options_are_filled_for_the_method_on_view(name: Any, builder: Any, options: Any):
    asked = {"0.method": name, "0.options": {"builder": builder, "options": options}}
    (inputs,) = RUN.methods
    values = values_after(RUN, filled(RUN, asked))
    stated = values[inputs.options]
    assert stated["method"] == values[inputs.method]
    known = {o.name: o for o in METHODS.options(stated["method"], stated["builder"])}
    assert all(
        option_value(known[name], value) == value for name, value in stated["options"].items()
    )


def test_a_value_that_an_option_cannot_have_leaves_its_default():
    own = {"builder": "own", "options": {"beam": 0, "ngram_weight": 2, "decay": "x", "luck": 1}}
    found = filled(RUN, {"0.method": "dart", "0.options": own})
    stated = found[RUN.methods[0].options]["value"]
    assert stated == options_value("dart", options={"ngram_weight": 2})


def test_what_is_no_filling_changes_nothing():
    assert filled(RUN, {"prompt": 3, "0.method": ["dart"], "seed": 10**400}) == {}


# ── denoising ────────────────────────────────────────────────────────────────────────────────────

DENOISE = form(denoise_form)


@pytest.mark.parametrize(
    "request_",
    [
        DenoiseRequest("why?", 64, 32, Pace(3), "10", 0.5, 7, 0.25),
        DenoiseRequest("why?", 64, 16, Pace(threshold=0.8), None, ahead=0.9),
    ],
)
def test_a_denoising_run_s_settings_come_back(request_: DenoiseRequest):
    settings = request_.settings(16, 0.9).to_json()
    if request_.graph:
        settings["graph"] = graph_to_json(request_.draft_graph(embedded.NAME))
    own = make_header("why?", request_.method, **settings)
    found = denoise_updates(DENOISE, METHODS, denoise_runs(METHODS, [own]))
    again = DENOISE.requests(METHODS, values_after(DENOISE, found))
    assert again[0] == request_ and len(again) == 1 + bool(request_.graph)


@given(st.dictionaries(st.sampled_from([*DENOISE.named, "x"]), JUNK | OPTIONS))
def test_whatever_a_browser_sends_leaves_a_denoising_form_that_says_why(filling: Any):
    values = values_after(DENOISE, denoise_updates(DENOISE, METHODS, filling))
    try:
        assert DENOISE.requests(METHODS, values)
    except UserError as error:
        assert str(error)
