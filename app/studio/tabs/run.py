"""Run: one method on one prompt, live, or a trace replayed. Compare: two to four side by side by
the place in the text. Both are a form in a bar and the same view below it; so is Denoise."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gradio as gr

from analysis.charts.palette import LETTERS
from app.studio import shipped
from app.studio.components import (
    MODULES_JS,
    QUIET,
    REFUSED_JS,
    TAB_JS,
    FormPlaces,
    Studio,
    Tab,
    connect_stop,
    for_upload,
    form_above_view,
    remember,
    view,
)
from app.studio.forms import MethodInputs, RunForm, StartForm, compare_form, options_value, run_form
from app.studio.methods import (
    BUDGETS,
    MAX_PROMPT,
    NONE,
    OWN,
    SHARED,
    Methods,
    is_number,
    mapping,
    option_value,
)
from app.studio.placing import place
from app.studio.questions import OfRuns, Route, Whole, as_question
from app.studio.run import StudioRun
from core import CREATOR
from core.chat import own_prompt
from core.decoding.request import RunRequest
from core.errors import UserError
from core.traces.schema import Header
from core.visible import flowing

MakeForm = Callable[[Methods, FormPlaces], StartForm]
Filling = Mapping[str, Any]  # what is in a form, by the names of ``StartForm.named``
FillingOf = Callable[[Methods, Sequence[Header | RunRequest]], dict[str, Any]]
Updates = Callable[[Any, Methods, Filling], dict[Any, Any]]
FILL_JS = "(filled) => %s.then((all) => all['form.js'].filling('%s', filled))"
MOST_BUDGET = 1024  # what a form offers at most


def build(studio: Studio) -> None:
    """Its view is there from the start, so it also opens the other tabs (its script names one by
    ``wantTab`` of goto.js), and takes files for the whole page."""
    files = {"place": for_upload(partial(place, studio.runs))}
    shown = form_tab(studio, "run", "ds", run_form, files)
    shown.tab(None, None, studio.tabs, js=TAB_JS, **QUIET)


def build_compare(studio: Studio) -> None:
    form_tab(studio, "compare", "ds-c", compare_form, {})


def form_tab(
    studio: Studio,
    name: str,
    prefix: str,
    make_form: MakeForm,
    more: Mapping[str, Route[Any]],
    refilling: tuple[FillingOf, Updates] | None = None,
    denoising: bool = False,
) -> gr.HTML:
    """A form in a bar and the view of its runs. ``more``: routes beside those of runs;
    ``refilling``: as ``of_runs`` and ``updates`` fill the form of ``methods``; ``denoising``: of
    which runs."""
    with form_above_view(prefix) as places:
        form = make_form(studio.methods, places)
        with places.view:
            told = {} if denoising else {"prompts": shipped.RECORDED}
            routes = {**studio.routes.of_runs(denoising), **more}
            shown = view(name, f"{prefix}-scope", routes, told)

    def submit(values: dict[Any, Any]) -> Any:
        """Queue the runs; the view shows them by their tickets, or why there are none: a sentence
        that is new when it happens again."""
        try:
            return {"tickets": studio.runs.submit(*form.requests(studio.methods, values))}
        except UserError as error:
            return {"error": flowing(str(error), 1000), "again": secrets.token_hex(4)}

    connect_refill(studio, form, shown, prefix, *(refilling or (of_runs, updates)))
    pressed = [form.start.click, form.prompt.submit]
    started = gr.on(pressed, submit, {*form.named.values()}, shown, **QUIET)
    started.failure(None, None, shown, js=REFUSED_JS, **QUIET)
    connect_stop(shown, form.stop, prefix)
    return shown


TAB = Tab("run", "Run", build)
COMPARE = Tab("compare", "Compare", build_compare)


# ── filling the form again ────────────────────────────────────────────────────────────────────────
# With what was in it when the page was left, or with the settings of a run. A browser keeps and
# sends the former, so nothing in it is believed.


class Refill(OfRuns, frozen=True):
    """Fill the form as it was kept (``filling``), or as runs on view were started.

    quietly  without a sentence about a method that this page does not offer
    turn     comes back with the answer
    """

    filling: dict[str, Any] | None = None
    quietly: bool = False
    turn: Whole | None = None


def connect_refill(
    studio: Studio,
    form: StartForm,
    view: gr.HTML,
    prefix: str,
    of_runs: FillingOf,
    updates: Updates,
) -> None:
    """Let the browser keep what is in the form, and the view ask for it or for a run's settings.

    ``of_runs`` and ``updates`` are those below, or do the same for another form.
    """

    def refill(asked: gr.EventData) -> dict[Any, Any]:
        """Give the form's values as JSON, and beforehand only what may be chosen there: the browser
        fills it, unless somebody's hand was quicker than the answer."""
        question = as_question(asked._data, Refill)
        filling = question.filling
        if filling is None:
            runs = [studio.runs.get(ticket) for ticket in question.tickets[: len(LETTERS)]]
            told = [said for run in runs if run is not None and (said := _told(run)) is not None]
            try:
                filling = of_runs(studio.methods, told) if told else {}
            except UserError:
                if not question.quietly:
                    raise
                filling = {"prompt": _settings(told[0])["prompt"]}
        found = updates(form, studio.methods, filling)
        said = [_as_update(found.get(part, gr.update())) for part in parts]
        choices = {part: gr.update(choices=found[part]["choices"]) for part in budgets & {*found}}
        return {filled: json.dumps({"turn": question.turn, "updates": said})} | choices

    parts: list[Any] = [*form.named.values()]
    budgets = {inputs.budget for inputs in form.methods} if isinstance(form, RunForm) else set()
    filled = gr.Textbox(visible=False)
    # Gradio drops a question that comes while another is answered; the later one counts here.
    each = {**QUIET, "trigger_mode": "multiple"}
    asked = view.refill(refill, None, [filled, *budgets], **each)
    asked.success(None, filled, parts, js=FILL_JS % (MODULES_JS, prefix), **each)
    remember(prefix, form.named, [form.start.click])


def _as_update(value: Any) -> dict[str, Any]:
    """A component's update as the browser takes it."""
    found = value if isinstance(value, dict) else gr.update(value=value)
    if "choices" not in found:
        return found
    return found | {"choices": [[str(each), each] for each in found["choices"]]}


def _told(run: StudioRun) -> Header | RunRequest | None:
    """Give what tells a run's settings: its request as long as it waits, then its header."""
    asked = run.request if isinstance(run.request, RunRequest) else None
    return run.header if run.header is not None else asked


def of_runs(methods: Methods, runs: Sequence[Header | RunRequest]) -> dict[str, Any]:
    """The filling that would start these runs again. Raises UserError for a method that this page
    does not offer."""
    told = [_settings(run) for run in runs]
    found = {name: told[0].get(name) for name in ("prompt", *SHARED)}
    for at, settings in enumerate(told):
        if (choice := methods.choice(settings["method"])) is None:
            raise UserError("this page does not offer the run's method")
        options = options_value(*choice, settings["options"])
        found |= {f"{at}.method": choice[0], f"{at}.options": options}
        found[f"{at}.budget"] = settings["budget"]
    return found


def _settings(run: Header | RunRequest) -> dict[str, Any]:
    if isinstance(run, RunRequest):
        chosen, settings = run.resolved.chosen, run.resolved.settings
        shared = {name: getattr(run, name) for name in SHARED}
        own = {"method": run.method, "budget": settings.budget, "options": dict(chosen.options)}
        return {**shared, **own, "prompt": run.prompt}
    stated = {name: run.stated(name, int) for name in ("max_new_tokens", "budget")}
    own = {"method": run.method, "options": run.stated("options", dict)}
    typed = run.creator.get("name") == CREATOR["name"]  # it has the prompt as it was asked here
    asked = {"prompt": run.prompt_text if typed else own_prompt(run.prompt_text)}
    return {**(run.stated("sampling", dict) or run.settings), **stated, **own, **asked}


def updates(form: RunForm, methods: Methods, filling: Filling) -> dict[Any, Any]:
    """Updates of the form's components; one keeps its value where the new one is not allowed."""
    found = shared_updates(form, filling, SHARED)
    for at, inputs in enumerate(form.methods):
        own = {k.removeprefix(f"{at}."): v for k, v in filling.items() if k.startswith(f"{at}.")}
        found |= _method(inputs, methods, own, optional=len(form.methods) > 1)
    return found


def shared_updates(form: StartForm, filling: Filling, numbers: Iterable[str]) -> dict[Any, Any]:
    """Updates of the prompt and of the ``numbers`` that a form's runs share."""
    found: dict[Any, Any] = {}
    prompt = filling.get("prompt")
    if isinstance(prompt, str) and len(prompt) <= MAX_PROMPT:
        found[form.prompt] = prompt
    for name in numbers:
        value, part = filling.get(name), form.shared[name]
        if is_number(value) and _within(value, part):
            found[part] = value
    return found


def _method(inputs: MethodInputs, methods: Methods, own: Filling, optional: bool) -> dict[Any, Any]:
    """Updates of one method's inputs; ``optional``: it may be none."""
    name, stated = own.get("method"), mapping(own.get("options"))
    if optional and (name == NONE or not own):
        return {inputs.method: NONE, inputs.options: gr.update(value=options_value(NONE))}
    builder, values = stated.get("builder", OWN), mapping(stated.get("options"))
    try:
        options = [o for o in methods.options(name, builder) if o.name in values]
    except UserError:
        return {}
    known: dict[str, Any] = {}
    for option in options:
        with suppress(UserError):  # one that it cannot have stays at the default
            known[option.name] = option_value(option, values[option.name])
    filled = gr.update(value=options_value(str(name), str(builder), known))
    found: dict[Any, Any] = {inputs.method: name, inputs.options: filled}
    budget = own.get("budget")
    if type(budget) is int and 1 <= budget <= MOST_BUDGET:
        choices = sorted({*BUDGETS, budget})
        found[inputs.budget] = gr.update(choices=choices, value=budget)
    return found


def _within(value: Any, part: Any) -> bool:
    low, high = getattr(part, "minimum", None), getattr(part, "maximum", None)
    return (low is None or value >= low) and (high is None or value <= high)
