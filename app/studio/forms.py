"""The inputs of Run and Compare: a prompt, one method or up to four, and what they share."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from analysis.charts.palette import LETTERS
from app.studio import shipped
from app.studio.components import QUIET, FormPlaces, start_stop
from app.studio.methods import BUDGETS, NONE, OWN, Key, MethodChoice, Methods, requests
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.method import Option
from core.methods.names import BUILDERS, DEFAULT

Values = Mapping[Any, Any]


@dataclass(frozen=True)
class MethodInputs:
    """One method's inputs.

    box         holds the builder and the options
    filled_for  the method and builder that ``options`` were last filled for: they follow a choice
                a moment later, and Start may be pressed before they do
    """

    method: Component
    budget: Component
    box: gr.Accordion
    builder: Component
    filled_for: Component
    options: Mapping[Key, Component]

    @property
    def components(self) -> set[Component]:
        own = {self.method, self.budget, self.builder, self.filled_for}
        return own | {*self.options.values()}

    def read(self, values: Values) -> MethodChoice:
        """Without options while these are still another method's or builder's."""
        method, builder = values[self.method], values[self.builder]
        current = values[self.filled_for] == _pair(method, builder)
        options = {key: values[part] for key, part in self.options.items()} if current else {}
        return MethodChoice(method, builder, values[self.budget], options)

    def show(
        self,
        methods: Methods,
        before: Any,
        method: str,
        builder: str,
        values: Mapping[Key, Any] | None = None,
    ) -> dict[Any, Any]:
        """Updates that show the options of a method with a builder, at ``values`` or their
        defaults, in place of those of ``before``, what ``filled_for`` held.

        Inputs that stay hidden are left out: each costs the browser milliseconds."""
        shown = self._shown(methods, before)
        free = methods.takes_builders(method)
        options = methods.options(method, builder) if method else {}
        updates: dict[Any, Any] = {
            self.box: gr.update(visible=free or bool(options)),
            self.builder: gr.update(value=builder, visible=free),
            self.filled_for: _pair(method, builder),
        }
        for key, part in self.options.items():
            if key not in shown and key not in options:
                continue
            properties = _properties(options.get(key))
            if key in options and key in (values or {}):
                properties["value"] = (values or {})[key]
            updates[part] = gr.update(**properties)
        return updates

    def _shown(self, methods: Methods, pair: Any) -> Collection[Key]:
        """The options on view for what ``filled_for`` held; all for what it cannot hold: a browser
        sent it."""
        method, _, builder = str(pair).rpartition(" ")
        try:
            return () if (method, builder) == (NONE, OWN) else methods.options(method, builder)
        except UserError:
            return self.options.keys()

    def follow_choices(self, methods: Methods) -> None:
        """Show another method's options when somebody chooses it, or another builder."""
        parts: Any = [self.box, self.builder, self.filled_for, *self.options.values()]
        method: Any = self.method
        builder: Any = self.builder
        before: Any = self.filled_for
        method.input(
            lambda name, was: self.show(methods, was, name, OWN), [method, before], parts, **QUIET
        )
        builder.input(
            lambda name, own, was: self.show(methods, was, name, own),
            [method, builder, before], parts, **QUIET,
        )  # fmt: skip


@dataclass(frozen=True)
class RunForm:
    """A form's parts; ``shared`` by the name of what they set."""

    prompt: gr.Textbox
    shared: Mapping[str, Component]
    methods: Sequence[MethodInputs]
    start: gr.Button
    stop: gr.Button
    upload: gr.UploadButton

    @property
    def components(self) -> set[Component]:
        own = {self.prompt, *self.shared.values()}
        return own.union(*(inputs.components for inputs in self.methods))

    @property
    def named(self) -> dict[str, Component]:
        """Every input by a name that stays: ``temperature``, ``0.budget``, ``0.candidates:int``."""
        found: dict[str, Component] = {"prompt": self.prompt, **self.shared}
        for at, own in enumerate(self.methods):
            parts = {"method": own.method, "budget": own.budget, "builder": own.builder}
            parts |= {f"{name}:{kind.__name__}": p for (name, kind), p in own.options.items()}
            found |= {f"{at}.{name}": part for name, part in parts.items()}
        return found

    def requests(self, methods: Methods, values: Values) -> list[RunRequest]:
        """Raises UserError with a sentence about what is amiss."""
        shared = {name: values[part] for name, part in self.shared.items()}
        choices = [inputs.read(values) for inputs in self.methods]
        return requests(methods, values[self.prompt], shared, choices)


def run_form(methods: Methods, places: FormPlaces) -> RunForm:
    """One method."""
    prompt, settings, start, stop = bar("ds", places)
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
        upload = gr.UploadButton(
            "Open a trace…", elem_id="ds-open", size="sm", min_width=90, file_count="single"
        )
    _say_settings(settings, methods, [inputs], shared["temperature"])
    return RunForm(prompt, shared, [inputs], start, stop, upload)


def compare_form(methods: Methods, places: FormPlaces) -> RunForm:
    """Two to four methods on one prompt, each with its own budget, builder and options."""
    prompt, settings, start, stop = bar("ds-c", places, shipped.RECORDED["code"])
    with places.more:
        begin = [*shipped.COMPARED, *[(NONE, shipped.COMPARED[-1][1])] * len(LETTERS)]
        slots = [_slot(methods, *place) for place in zip(LETTERS, begin, strict=False)]
        shared = _shared("ds-c")
        upload = gr.UploadButton(
            "Add traces…", elem_id="ds-c-open", size="sm", min_width=90, file_count="multiple"
        )
    _say_settings(settings, methods, slots, shared["temperature"])
    return RunForm(prompt, shared, slots, start, stop, upload)


def bar(
    prefix: str, places: FormPlaces, asked: str = shipped.PROMPTS[0][1]
) -> tuple[gr.Textbox, gr.Button, gr.Button, gr.Button]:
    """The prompt, at first what is ``asked``, the button that says and opens the settings, Start
    and Stop."""
    with places.bar:
        prompt = _prompt(prefix, asked)
        settings = gr.Button("", elem_id=f"{prefix}-open-settings", size="sm", min_width=120)
        start, stop = start_stop(prefix)
    with places.more:
        _prompts(prefix, prompt)
    return prompt, settings, start, stop


def _say_settings(
    button: gr.Button, methods: Methods, slots: Sequence[MethodInputs], temperature: Component
) -> None:
    """The button's words follow the inputs, in the browser: "DDTree 64 · T 0"."""
    names = json.dumps({name: title for title, name in methods.titles})
    words = f"""(...values) => {{
      const names = {names}, temperature = values.pop(), said = [];
      for (let at = 0; at < values.length; at += 2)
        if (values[at]) said.push((names[values[at]] || values[at]) + " " + values[at + 1]);
      return said.join(" · ") + " · T " + temperature + " ⚙";
    }}"""
    inputs: list[Any] = [part for slot in slots for part in (slot.method, slot.budget)]
    inputs.append(temperature)
    changes = [part.change for part in inputs]
    gr.on(changes, None, inputs, button, js=words, **QUIET)
    titles = {name: title for title, name in methods.titles}
    chosen = [f"{titles[s.method.value]} {s.budget.value}" for s in slots if s.method.value]
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


def _prompt(prefix: str, asked: str) -> gr.Textbox:
    return gr.Textbox(
        asked, label="Prompt", lines=1, max_lines=8,
        elem_id=f"{prefix}-prompt", placeholder="Ask the target something",
    )  # fmt: skip


def _prompts(prefix: str, prompt: gr.Textbox) -> None:
    """Buttons that fill in an example."""
    with gr.Row(elem_classes="ds-examples"):
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
    """A method's inputs: below its own two the builder and every method's options, of which those
    of the chosen method are shown."""
    shown = methods.options(begin, OWN) if begin else {}
    with gr.Accordion(
        "Builder and options", open=False, elem_id=f"{prefix}-options", elem_classes="ds-fold",
        visible=bool(begin),
    ) as box:  # fmt: skip
        builder = gr.Dropdown(
            [("as the method's own", OWN), *((name, name) for name in BUILDERS)],
            value=OWN, label="Builder", elem_id=f"{prefix}-builder", filterable=False,
        )  # fmt: skip
        options = {key: _input(o, shown.get(key)) for key, o in methods.all_options().items()}
        filled_for = gr.Textbox(_pair(begin, OWN), visible=False)
    inputs = MethodInputs(method, budget, box, builder, filled_for, options)
    inputs.follow_choices(methods)
    return inputs


def _pair(method: Any, builder: Any) -> str:
    return f"{method} {builder}"


def _input(option: Option, shown: Option | None) -> Component:
    """One option's input; it is filled anew whenever a method with it is chosen."""
    properties = {"label": option.label, "elem_classes": "ds-option", **_properties(shown)}
    if option.type is bool:
        return gr.Checkbox(**properties)
    precision = 0 if option.type is int else None
    step = option.range.step if option.range is not None and not option.range.log else None
    return gr.Number(precision=precision, **({"step": step} if step else {}), **properties)


def _properties(option: Option | None) -> dict[str, Any]:
    """Return an input's properties for an option; it is hidden where the method has none."""
    if option is None:
        return {"visible": False, "value": None}
    words = [option.help] if option.help != option.label else []
    words += [str(option.range)] if option.range is not None else []
    info = " · ".join(filter(None, words)) or None
    return {"visible": True, "value": option.default, "label": option.label, "info": info}
