"""The panel: Gradio's own inputs, and what a press on Start asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.components import Component

from app.studio.choices import OWN, Choices, Field
from app.studio.engine import Ask
from app.studio.prompts import EXAMPLES
from core.errors import UserError
from core.methods import BUILDERS

BUDGETS = (1, 4, 16, 64, 256, 1024)
LONGEST_PROMPT = 40_000  # characters
ALONE = ""  # compare with nothing
NUMBERS = ("budget", "max_new_tokens", "temperature", "top_k", "top_p", "seed")
WHOLE = frozenset(NUMBERS) - {"temperature", "top_p"}
QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}


@dataclass(frozen=True)
class Panel:
    """The panel's parts: ``inputs`` by the name of what they set, ``fields`` by option."""

    inputs: Mapping[str, Component]
    fields: Mapping[Field, Component]
    start: gr.Button
    stop: gr.Button
    opened: gr.UploadButton
    beside: gr.UploadButton

    @property
    def components(self) -> set[Component]:
        return {*self.inputs.values(), *self.fields.values()}

    def asks(self, choices: Choices, values: Mapping[Component, Any]) -> list[Ask]:
        """One run, or two to compare. Raises UserError with a sentence about what is amiss."""
        named = {name: values[part] for name, part in self.inputs.items()}
        return asks(choices, named, {field: values[part] for field, part in self.fields.items()})


def asks(choices: Choices, named: Mapping[str, Any], options: Mapping[Field, Any]) -> list[Ask]:
    """What the inputs ask for; everything in them was written by a browser."""
    prompt = named["prompt"]
    if not (isinstance(prompt, str) and prompt.strip()):
        raise UserError("write a prompt first")
    numbers: dict[str, Any] = {name: named[name] for name in NUMBERS}
    if any(n is None or not math.isfinite(n) for n in numbers.values()):
        raise UserError("fill in every number of the settings")
    numbers = {k: int(v) if k in WHOLE else float(v) for k, v in numbers.items()}
    method, builder, against = named["method"], named["builder"], named["against"] or ALONE
    name = choices.name(method, builder)
    one = Ask(prompt, name, **numbers, options=choices.options(method, builder, options))
    if against == ALONE:
        return [one]
    return [one, replace(one, method=choices.name(against, OWN), options=())]


def build_panel(choices: Choices) -> Panel:
    """The inputs, from the prompt down to the traces."""
    prompt = _prompt()
    method = gr.Radio(choices.titled, value="ddtree", label="Method", elem_id="ds-method")
    builder, fields = _options(choices, method)
    against = gr.Dropdown(
        [("nothing", ALONE), *choices.titled],
        value=ALONE,
        label="Compare with",
        elem_id="ds-against",
        filterable=False,
    )
    named = {"prompt": prompt, "method": method, "builder": builder, "against": against}
    inputs = {**named, **_settings()}
    with gr.Row(elem_id="ds-go"):
        start = gr.Button("Start", variant="primary", elem_id="ds-start", min_width=90)
        stop = gr.Button("Stop", interactive=False, elem_id="ds-stop", min_width=70)
    with gr.Row(elem_id="ds-traces"):
        opened = gr.UploadButton(
            "Open a trace…", elem_id="ds-open", size="sm", min_width=90, file_count="single"
        )
        beside = gr.UploadButton(
            "Open a trace to compare…", elem_id="ds-beside", size="sm", min_width=90,
            file_count="single",
        )  # fmt: skip
    return Panel(inputs, fields, start, stop, opened, beside)


def _prompt() -> gr.Textbox:
    prompt = gr.Textbox(
        EXAMPLES[0][1],
        label="Prompt",
        lines=4,
        max_lines=12,
        max_length=LONGEST_PROMPT,
        elem_id="ds-prompt",
        placeholder="Ask the target something",
    )
    with gr.Row(elem_id="ds-examples"):
        for name, text in EXAMPLES:
            example = gr.Button(name, size="sm", min_width=40, scale=0)
            example.click(
                None, outputs=prompt, js=f"() => {json.dumps(text)}", show_progress="hidden"
            )
    return prompt


def _settings() -> dict[str, Component]:
    """The numbers every method has."""
    inputs: dict[str, Component] = {
        "budget": gr.Radio(list(BUDGETS), value=64, label="Draft budget B", elem_id="ds-budget"),
        "max_new_tokens": gr.Slider(
            1, 512, 64, step=1, label="Max new tokens", elem_id="ds-length"
        ),
        "temperature": gr.Slider(
            0, 2, 0, step=0.05, label="Temperature (0 = greedy)", elem_id="ds-temperature"
        ),
    }
    with gr.Accordion("Sampling", open=False, elem_id="ds-more"):
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1)
        top_k = gr.Number(0, label="Top-k (0 = off)", precision=0, minimum=0, maximum=1 << 20)
        top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p (1 = off)")
    return inputs | {"seed": seed, "top_k": top_k, "top_p": top_p}


# ── a method's own options ───────────────────────────────────────────────────────────────────────


def _options(choices: Choices, method: gr.Radio) -> tuple[gr.Dropdown, dict[Field, Component]]:
    """The builder's choice and every method's fields; those of the chosen method are shown."""
    shown = choices.defaults("ddtree", OWN)
    with gr.Accordion("Builder and options", open=False, elem_id="ds-options") as box:
        builder = gr.Dropdown(
            [("as the method's own", OWN), *((name, name) for name in BUILDERS)],
            value=OWN,
            label="Builder",
            elem_id="ds-builder",
            filterable=False,
        )
        fields = {field: _input(field, shown) for field in choices.fields}
    parts = list(fields.values())

    def reset(name: str, own: str) -> list[Any]:
        defaults = choices.defaults(name, own)
        return [gr.update(visible=f in defaults, value=defaults.get(f)) for f in fields]

    def other_method(name: str) -> list[Any]:
        free = choices.exchangeable(name)
        box_update = gr.update(visible=free or bool(choices.defaults(name, OWN)))
        return [box_update, gr.update(value=OWN, visible=free), *reset(name, OWN)]

    method.change(other_method, method, [box, builder, *parts], **QUIET)
    builder.input(reset, [method, builder], parts, **QUIET)
    return builder, fields


def _input(field: Field, shown: Mapping[Field, Any]) -> Component:
    """One option's input; its value is set again whenever a method with it is chosen."""
    usual: dict[str, Any] = {
        "value": shown.get(field),
        "label": field.label,
        "visible": field in shown,
        "elem_classes": "ds-option",
    }
    if field.type is bool:
        return gr.Checkbox(**usual)
    return gr.Number(precision=0 if field.type is int else None, **usual)
