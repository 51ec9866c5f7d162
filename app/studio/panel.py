"""The inputs: a prompt, one method or up to four, what they share, and what Start asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from app.studio.choices import BUDGETS, OWN, Choices, Field
from app.studio.engine import Ask
from app.studio.prompts import EXAMPLES
from app.view.comparison import LETTERS
from core.errors import UserError
from core.methods.registry import BUILDERS

LONGEST_PROMPT = 40_000  # characters
NONE = ""  # no method in this place of a comparison
SHARED = ("max_new_tokens", "temperature", "top_k", "top_p", "seed")
WHOLE = frozenset({"max_new_tokens", "top_k", "seed", "budget"})
QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
COMPARED = (("ddtree", 16), ("treeflash", 16), (NONE, 16), (NONE, 16))


@dataclass(frozen=True)
class Options:
    """A method's builder and own options. ``of`` says what the fields were last filled for: they
    follow the choice of a method a moment later, and Start may be pressed before they do."""

    builder: Component
    of: Component
    fields: Mapping[Field, Component]

    def read(self, method: Any, values: Mapping[Component, Any]) -> dict[Field, Any]:
        """By field; none while the fields are still those of another method or builder."""
        if values[self.of] != _of(method, values[self.builder]):
            return {}
        return {field: values[part] for field, part in self.fields.items()}


@dataclass(frozen=True)
class Slot:
    """One method with its budget, its builder and its own options."""

    method: Component
    budget: Component
    options: Options

    @property
    def components(self) -> set[Component]:
        own = self.options
        return {self.method, self.budget, own.builder, own.of, *own.fields.values()}

    def read(self, values: Mapping[Component, Any]) -> Chosen:
        method = values[self.method]
        return Chosen(
            method,
            values[self.options.builder],
            values[self.budget],
            self.options.read(method, values),
        )


@dataclass(frozen=True)
class Chosen:
    """What a slot's inputs say."""

    method: Any
    builder: Any = OWN
    budget: Any = 64
    options: Mapping[Field, Any] | None = None


@dataclass(frozen=True)
class Panel:
    """The panel's parts: ``shared`` by the name of what they set."""

    prompt: gr.Textbox
    shared: Mapping[str, Component]
    slots: Sequence[Slot]
    start: gr.Button
    stop: gr.Button
    opened: gr.UploadButton

    @property
    def components(self) -> set[Component]:
        return {self.prompt, *self.shared.values()}.union(*(s.components for s in self.slots))

    def asks(self, choices: Choices, values: Mapping[Component, Any]) -> list[Ask]:
        """The runs asked for. Raises UserError with a sentence about what is amiss."""
        shared = {name: values[part] for name, part in self.shared.items()}
        chosen = [slot.read(values) for slot in self.slots]
        return asks(choices, values[self.prompt], shared, chosen)


def asks(
    choices: Choices, prompt: Any, shared: Mapping[str, Any], chosen: Sequence[Chosen]
) -> list[Ask]:
    """What the inputs ask for; everything in them was written by a browser."""
    prompt = checked_prompt(prompt)
    numbers = {name: _number(name, shared[name]) for name in SHARED}
    wanted = [slot for slot in chosen if slot.method not in (NONE, None) or len(chosen) == 1]
    if not wanted:
        raise UserError("choose a method first")
    return [
        Ask(
            prompt,
            choices.name(slot.method, slot.builder),
            budget=_number("budget", slot.budget),
            **numbers,
            options=choices.options(slot.method, slot.builder, slot.options or {}),
        )
        for slot in wanted
    ]


def checked_prompt(prompt: Any) -> str:
    """Raises UserError for none, and for one that is too long."""
    if not (isinstance(prompt, str) and prompt.strip()):
        raise UserError("write a prompt first")
    if len(prompt) > LONGEST_PROMPT:
        raise UserError(f"the prompt is longer than {LONGEST_PROMPT} characters")
    return prompt


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError("fill in every number of the settings")
    return int(value) if name in WHOLE else float(value)


# ── the two panels ───────────────────────────────────────────────────────────────────────────────


def run_panel(choices: Choices) -> Panel:
    """One method, from the prompt down to the traces."""
    prompt = example_prompts("ds")
    method = gr.Radio(choices.titled, value="ddtree", label="Method", elem_id="ds-method")
    options = _options(choices, method, "ds")
    budget = gr.Radio(
        list(BUDGETS), value=choices.budget("ddtree", 64), label="Draft budget B",
        elem_id="ds-budget",
    )  # fmt: skip
    shared = _shared("ds")
    start, stop = go_buttons("ds")
    opened = gr.UploadButton(
        "Open a trace…", elem_id="ds-open", size="sm", min_width=90, file_count="single"
    )
    return Panel(prompt, shared, [Slot(method, budget, options)], start, stop, opened)


def compare_panel(choices: Choices) -> Panel:
    """Two to four methods on one prompt, each with its own budget, builder and options."""
    prompt = example_prompts("ds-c")
    slots = [_slot(choices, *place) for place in zip(LETTERS, COMPARED, strict=True)]
    shared = _shared("ds-c")
    start, stop = go_buttons("ds-c")
    opened = gr.UploadButton(
        "Add traces…", elem_id="ds-c-open", size="sm", min_width=90, file_count="multiple"
    )
    return Panel(prompt, shared, slots, start, stop, opened)


def _slot(choices: Choices, letter: str, usual: tuple[str, int]) -> Slot:
    method, budget = usual[0], choices.budget(*usual)
    with gr.Group(elem_classes="ds-slot", elem_id=f"ds-slot-{letter.lower()}"):
        with gr.Row():
            chosen = gr.Dropdown(
                [("none", NONE), *choices.titled], value=method, label=f"{letter}: method",
                filterable=False, scale=3, min_width=110,
            )  # fmt: skip
            nodes = gr.Dropdown(
                list(BUDGETS), value=budget, label="B", filterable=False, scale=2, min_width=70
            )
        options = _options(choices, chosen, f"ds-slot-{letter.lower()}", method)
    return Slot(chosen, nodes, options)


def example_prompts(prefix: str) -> gr.Textbox:
    prompt = gr.Textbox(
        EXAMPLES[0][1],
        label="Prompt",
        lines=3,
        max_lines=12,
        max_length=LONGEST_PROMPT,
        elem_id=f"{prefix}-prompt",
        placeholder="Ask the target something",
    )
    with gr.Row(elem_classes="ds-examples"):
        for name, text in EXAMPLES:
            example = gr.Button(name, size="sm", min_width=40, scale=0)
            example.click(
                None, outputs=prompt, js=f"() => {json.dumps(text)}", show_progress="hidden"
            )
    return prompt


def _shared(prefix: str) -> dict[str, Component]:
    """The numbers that every method of a press on Start has."""
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


def go_buttons(prefix: str) -> tuple[gr.Button, gr.Button]:
    with gr.Row(elem_classes="ds-go"):
        start = gr.Button("Start", variant="primary", elem_id=f"{prefix}-start", min_width=90)
        stop = gr.Button("Stop", interactive=False, elem_id=f"{prefix}-stop", min_width=70)
    return start, stop


# ── a method's own options ───────────────────────────────────────────────────────────────────────


def _options(choices: Choices, method: Component, prefix: str, usual: str = "ddtree") -> Options:
    """The builder's choice and every method's fields; those of the chosen method are shown."""
    shown = choices.defaults(usual, OWN) if usual else {}
    with gr.Accordion(
        "Builder and options", open=False, elem_id=f"{prefix}-options", elem_classes="ds-fold",
        visible=bool(usual),
    ) as box:  # fmt: skip
        builder = gr.Dropdown(
            [("as the method's own", OWN), *((name, name) for name in BUILDERS)],
            value=OWN,
            label="Builder",
            elem_id=f"{prefix}-builder",
            filterable=False,
        )
        fields = {field: _input(field, shown) for field in choices.fields}
        of = gr.Textbox(_of(usual, OWN), visible=False)
    parts = [of, *fields.values()]

    def reset(name: str, own: str) -> list[Any]:
        defaults = choices.defaults(name, own) if name else {}
        news = [gr.update(visible=f in defaults, value=defaults.get(f)) for f in fields]
        return [_of(name, own), *news]

    def other_method(name: str) -> list[Any]:
        free = choices.exchangeable(name)
        own = bool(name) and bool(choices.defaults(name, OWN))
        return [gr.update(visible=free or own), gr.update(value=OWN, visible=free),
                *reset(name, OWN)]  # fmt: skip

    method.change(other_method, method, [box, builder, *parts], **QUIET)  # type: ignore[attr-defined]
    builder.input(reset, [method, builder], parts, **QUIET)
    return Options(builder, of, fields)


def _of(method: Any, builder: Any) -> str:
    return f"{method} {builder}"


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
