"""The inputs of Run and Compare: a prompt, one method or up to four, and what they share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from analysis.charts.palette import LETTERS
from app.studio import shipped
from app.studio.components import QUIET, FormPlaces, view
from app.studio.methods import BUDGETS, NONE, OWN, MethodChoice, Methods, mapping, requests
from app.studio.questions import Question, Route
from core.decoding.request import RunRequest
from core.diffusion.request import DenoiseRequest
from core.methods.names import DEFAULT

Values = Mapping[Any, Any]
CHOSEN_JS = f"(method) => ({{method, builder: '{OWN}', options: {{}}}})"  # as options_value


@dataclass(frozen=True)
class MethodInputs:
    """One method's inputs. ``options`` holds ``options_value``, drawn by app/web/options."""

    method: Component
    budget: Component
    options: gr.HTML

    @property
    def named(self) -> dict[str, Component]:
        return {"method": self.method, "budget": self.budget, "options": self.options}

    def read(self, values: Values) -> MethodChoice:
        """The choice; its options are the defaults while those on the page are still another
        method's: they follow a choice a moment later, and Start may be pressed before they do."""
        method, stated = values[self.method], mapping(values[self.options])
        own = stated if stated.get("method") == method else {}
        options = mapping(own.get("options"))
        return MethodChoice(method, own.get("builder", OWN), values[self.budget], options)


def options_value(
    method: str, builder: str = OWN, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The value of a method's options: whose they are, and {option: value} of those that somebody
    set; the others are at their defaults."""
    return {"method": method, "builder": builder, "options": dict(options or {})}


@dataclass(frozen=True)
class StartForm:
    """The parts of a form that starts runs; ``shared``: inputs by the name of what they set."""

    prompt: gr.Textbox
    start: gr.Button
    stop: gr.Button
    shared: Mapping[str, Component]

    @property
    def named(self) -> dict[str, Component]:
        """Every input by a name that stays: ``temperature``, ``0.budget``, ``0.options``."""
        return {"prompt": self.prompt, **self.shared}

    def requests(
        self, methods: Methods, values: Values
    ) -> Sequence[RunRequest] | Sequence[DenoiseRequest]:
        """Raises UserError with a sentence about what is amiss."""
        raise NotImplementedError


@dataclass(frozen=True)
class RunForm(StartForm):
    """The form of one method, or of several in a comparison."""

    methods: Sequence[MethodInputs]

    @property
    def named(self) -> dict[str, Component]:
        found = super().named
        for at, own in enumerate(self.methods):
            found |= {f"{at}.{name}": part for name, part in own.named.items()}
        return found

    def requests(self, methods: Methods, values: Values) -> list[RunRequest]:
        shared = {name: values[part] for name, part in self.shared.items()}
        choices = [inputs.read(values) for inputs in self.methods]
        return requests(methods, values[self.prompt], shared, choices)


def run_form(methods: Methods, places: FormPlaces) -> RunForm:
    """The form of one method."""
    prompt, settings, start, stop = prompt_bar("ds", places, shipped.RECORDED[shipped.FIRST_PROMPT])
    with places.more:
        method = gr.Radio(
            methods.titles, value=DEFAULT, label="Method", elem_id="ds-method",
            elem_classes="ds-choices",
        )  # fmt: skip
        budget = gr.Radio(
            list(BUDGETS), value=methods.budget(DEFAULT, 64), label="Draft budget B",
            elem_id="ds-budget", elem_classes="ds-choices",
        )  # fmt: skip
        shared = _shared("ds")
        inputs = _inputs(methods, method, budget, "ds", DEFAULT)
    _say_settings(settings, methods, [inputs], shared["temperature"])
    return RunForm(prompt, start, stop, shared, [inputs])


def compare_form(methods: Methods, places: FormPlaces) -> RunForm:
    """Two to four methods on one prompt, each with its own budget, builder and options."""
    prompt, settings, start, stop = prompt_bar("ds-c", places, shipped.RECORDED["code"])
    with places.more:
        begin = [*shipped.COMPARED, *[(NONE, shipped.COMPARED[-1][1])] * len(LETTERS)]
        slots = [_slot(methods, *place) for place in zip(LETTERS, begin, strict=False)]
        shared = _shared("ds-c")
    _say_settings(settings, methods, slots, shared["temperature"])
    return RunForm(prompt, start, stop, shared, slots)


def prompt_bar(
    prefix: str, places: FormPlaces, asked: str
) -> tuple[gr.Textbox, gr.Button, gr.Button, gr.Button]:
    """The prompt, at first what is ``asked``, the button that says and opens the settings, Start
    and Stop."""
    with places.bar:
        prompt = gr.Textbox(
            asked, label="Prompt", lines=1, max_lines=8,
            elem_id=f"{prefix}-prompt", placeholder="Ask the target something",
        )  # fmt: skip
        settings = gr.Button("", elem_id=f"{prefix}-open-settings", size="sm", min_width=120)
        with gr.Row(elem_classes="ds-go"):
            start = gr.Button("Start", variant="primary", elem_id=f"{prefix}-start", min_width=90)
            stop = gr.Button("Stop", interactive=False, elem_id=f"{prefix}-stop", min_width=70)
    with places.more:
        _examples(prompt)
    return prompt, settings, start, stop


def _say_settings(
    button: gr.Button, methods: Methods, slots: Sequence[MethodInputs], temperature: Component
) -> None:
    """The button's words follow the inputs, in the browser: "DDTree B 64 · T 0"."""
    names = json.dumps({name: title for title, name in methods.titles})
    words = f"""(...values) => {{
      const names = {names}, temperature = values.pop(), said = [];
      for (let at = 0; at < values.length; at += 2)
        if (values[at]) said.push((names[values[at]] || values[at]) + " B " + values[at + 1]);
      return said.join(" · ") + " · T " + temperature + " ⚙";
    }}"""
    inputs: list[Any] = [part for slot in slots for part in (slot.method, slot.budget)]
    inputs.append(temperature)
    changes = [part.change for part in inputs]
    gr.on(changes, None, inputs, button, js=words, **QUIET)
    titles = {name: title for title, name in methods.titles}
    chosen = [f"{titles[s.method.value]} B {s.budget.value}" for s in slots if s.method.value]
    button.value = f"{' · '.join(chosen)} · T 0 ⚙"


def _slot(methods: Methods, letter: str, begin: tuple[str, int]) -> MethodInputs:
    method, name = begin[0], f"ds-slot-{letter.lower()}"
    with gr.Group(elem_classes="ds-slot", elem_id=name):
        with gr.Row():
            chosen = gr.Dropdown(
                [("none", NONE), *methods.titles], value=method, label=f"{letter}: method",
                filterable=False, scale=3, min_width=110,
            )  # fmt: skip
            budget = gr.Dropdown(
                list(BUDGETS), value=methods.budget(*begin), label="B", filterable=False, scale=2,
                min_width=70,
            )  # fmt: skip
        return _inputs(methods, chosen, budget, name, method)


def _examples(prompt: gr.Textbox) -> None:
    """Buttons that fill in an example."""
    with gr.Row(elem_classes="ds-examples"):
        gr.HTML("Example prompts", padding=False, min_height=0)
        for name, text in shipped.PROMPTS:
            example = gr.Button(name, size="sm", min_width=40, scale=0)
            example.click(
                None, outputs=prompt, js=f"() => {json.dumps(text)}", show_progress="hidden"
            )


def _shared(prefix: str) -> dict[str, Component]:
    """Make the inputs that all methods of a press on Start share."""
    inputs: dict[str, Component] = {
        "max_new_tokens": gr.Slider(
            1, 512, 64, step=1, label="Max new tokens", elem_id=f"{prefix}-length"
        ),
        "temperature": gr.Slider(
            0, 2, 0, step=0.05, label="Temperature (0 = greedy)", elem_id=f"{prefix}-temperature"
        ),
    }
    with gr.Accordion("Sampling", open=False, elem_id=f"{prefix}-more", elem_classes="ds-fold"):
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1)
        top_k = gr.Number(0, label="Top-k (0 = off)", precision=0, minimum=0, maximum=1 << 20)
        top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p (1 = off)")
    return inputs | {"seed": seed, "top_k": top_k, "top_p": top_p}


# ── a method's own options ───────────────────────────────────────────────────────────────────────


def _inputs(
    methods: Methods, method: Component, budget: Component, prefix: str, begin: str
) -> MethodInputs:
    """A method's inputs: below its own two the builder and the options of the chosen method."""
    routes = {"described": Route(Question, lambda _: methods.described())}
    options = view("options", f"{prefix}-options", routes, options_value(begin))
    chosen: Any = method
    chosen.input(None, method, options, js=CHOSEN_JS, **QUIET)
    return MethodInputs(method, budget, options)
