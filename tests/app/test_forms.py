"""The options in the forms, the requests they state, and the knobs of What-if."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio")

import gradio as gr

from app.studio.components import form_above_view
from app.studio.forms import options_value, run_form
from app.studio.methods import MAX_PROMPT, NONE, OWN, MethodChoice, Methods, requests
from app.studio.requested import denoising_of, said_of
from app.studio.tabs.whatif import knob
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.method import Option, Range
from core.methods.registry import BUILDERS, METHODS, find_method
from tests.helpers.users_files import OWN_FILE


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(OWN_FILE)
    return str(path)


def made(methods: Methods, *more: MethodChoice, **changes: Any) -> list[RunRequest]:
    """Return the requests of one method's inputs, some changed, and ``more`` methods beside it."""
    shared = {"max_new_tokens": 8.0, "temperature": 0, "top_k": 0, "top_p": 1, "seed": 0}
    shared |= {name: changes.pop(name) for name in set(shared) & set(changes)}
    prompt = changes.pop("prompt", "why?")
    own: dict[str, Any] = {"method": "treeflash"} | changes
    first = MethodChoice(**own)
    return requests(methods, prompt, shared, [first, *more])


# ── what is offered ──────────────────────────────────────────────────────────────────────────────


def test_all_methods_are_offered_and_files_after_them(mine: str):
    methods = Methods.of([mine, "dart+best-first"])
    assert methods.names == (*METHODS, mine, "dart+best-first")
    assert ("Mine", mine) in methods.titles
    assert Methods.of([mine], None, ["ar"]).names == ("ar", mine)
    with pytest.raises(UserError, match="unknown method"):
        Methods.of(["nonsense"])


def test_a_presets_budgets_are_where_the_page_begins():
    methods = Methods.of([], {"ddtree": 256, "dart": 60})
    assert [methods.budget(m, 16) for m in ("ddtree", "dart", "treeflash")] == [256, 64, 16]


def test_builders_are_exchanged_by_name(mine: str):
    methods = Methods.of([mine])
    assert methods.name("ddtree", OWN) == methods.name("ddtree", "best-first") == "ddtree"
    assert methods.name("ddtree", "continuity") == "dflash+continuity"
    assert methods.name("ar", "chain") == "ar"
    with pytest.raises(UserError, match="keeps its own builder"):
        methods.name(mine, "best-first")


def test_a_page_is_told_the_options_of_every_choice(mine: str):
    methods = Methods.of([mine])
    told = methods.described()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert tuple(told["methods"]) == tuple(told["about"]) == methods.names
    assert told["about"]["treeflash"] == "TreeFlash: a tree that knows the token before"
    assert told["about"][mine] == ""
    for method, builders in told["methods"].items():
        assert {*builders} == {OWN, *BUILDERS} if methods.takes_builders(method) else {OWN}
        for builder, places in builders.items():
            drawn = [told["options"][at] for at in places]
            assert [(d["name"], d["label"], d["value"]) for d in drawn] == [
                (o.name, o.label, o.default) for o in methods.options(method, builder)
            ]
    luck = next(each for each in told["options"] if each["name"] == "luck")
    assert luck == {
        "name": "luck", "label": "luck", "about": "how lucky · 0 to 1", "value": 0.5, "step": 0.1,
    }  # fmt: skip
    epsilon = next(each for each in told["options"] if each["name"] == "epsilon")
    assert epsilon["step"] == "any"


def test_a_page_names_no_file_and_sets_no_path(mine: str):
    for method in (mine, "../../etc/passwd.py", None, ["ddtree"], "dflash+chain"):
        with pytest.raises(UserError, match="does not offer"):
            made(Methods.of(), method=method)
    with pytest.raises(UserError, match="does not offer"):
        made(Methods.of(), MethodChoice(mine))
    with pytest.raises(UserError, match="keeps its own builder"):
        made(Methods.of(), builder="/tmp/evil.py")
    methods = Methods.of([mine])
    assert [o.name for o in methods.options(mine, OWN)] == ["luck", "tries"]
    assert {type(o["value"]) for o in methods.described()["options"]} == {bool, int, float}


# ── what is stated ───────────────────────────────────────────────────────────────────────────────


def test_options_that_differ_are_in_the_request():
    (request,) = made(Methods.of(), options={"candidates": 8.0, "siblings": 16, "beam": 3})
    assert request.method == "treeflash" and request.options == (("candidates", 8),)
    assert (request.budget, request.max_new_tokens, request.temperature) == (64, 8, 0.0)
    assert said_of(RunRequest("why?", seed=3)) == {"prompt": "why?", "seed": 3}
    assert find_method(request.method).resolve(dict(request.options))["candidates"] == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"options": {"candidates": None}}, "fill in the option candidates per depth"),
        ({"options": {"candidates": [8]}}, "fill in the option candidates per depth"),
        ({"options": {"candidates": "8"}}, "fill in the option candidates per depth"),
        ({"options": {"candidates": 8.5}}, "whole number"),
        ({"options": {"candidates": 0}}, "must be 1 to 1024"),
        ({"builder": ["chain"]}, "keeps its own builder"),
        ({"seed": None}, "every number"),
        ({"top_p": float("nan")}, "every number"),
        ({"budget": None}, "every number"),
        ({"budget": 10**400}, "every number"),
        ({"temperature": 10**400}, "every number"),
        ({"seed": True}, "every number"),
        ({"budget": "8"}, "every number"),
        ({"budget": 5000}, "budget must be 1 to 1024"),
        ({"prompt": "  "}, "write a prompt"),
        ({"prompt": None}, "write a prompt"),
        ({"prompt": "x" * (MAX_PROMPT + 1)}, "the prompt is longer"),
        ({"method": NONE}, "does not offer"),
    ],
)
def test_what_no_run_can_have_is_one_sentence(changes: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence):
        made(Methods.of(), **changes)


def test_a_comparison_is_a_request_for_each_method_with_its_own_options():
    dart = MethodChoice("dart", budget=16, options={"ngram_weight": 0.0, "candidates": 4.0})
    one, two, three = made(
        Methods.of(), MethodChoice(NONE), dart, MethodChoice("ddtree", "opt-tree"),
        options={"candidates": 4.0}, seed=5,
    )  # fmt: skip
    assert (one.method, two.method, three.method) == ("treeflash", "dart", "dflash+opt-tree")
    assert one.options == (("candidates", 4),) and two.options == (("ngram_weight", 0.0),)
    assert (one.budget, two.budget) == (64, 16)
    assert one.prompt == two.prompt == three.prompt and {one.seed, two.seed, three.seed} == {5}
    with pytest.raises(UserError, match="choose a method"):
        made(Methods.of(), MethodChoice(NONE), method=NONE)


def test_options_that_are_still_another_method_s_are_not_read():
    """They follow the choice of a method a moment later; Start may be pressed before they do."""
    with gr.Blocks(), form_above_view("x") as places:
        (inputs,) = run_form(Methods.of(), places).methods
    stated = options_value("dart", "chain", {"beam": 7})
    values: dict[Any, Any] = {inputs.method: "dart", inputs.budget: 8, inputs.options: stated}
    assert inputs.read(values) == MethodChoice("dart", "chain", 8, {"beam": 7})
    assert inputs.read(values | {inputs.method: "treeflash"}) == MethodChoice("treeflash", OWN, 8)
    for junk in (None, "x", [1], {}, {"method": "dart", "options": [3]}):
        assert inputs.read(values | {inputs.options: junk}) == MethodChoice("dart", OWN, 8)


@pytest.mark.parametrize("prompt", ["", "  ", None, 7, "x" * (MAX_PROMPT + 1)])
def test_denoising_needs_a_prompt_as_every_run_does(prompt: Any):
    with pytest.raises(UserError, match="prompt"):
        denoising_of({"prompt": prompt})


# ── knobs ────────────────────────────────────────────────────────────────────────────────────────


def test_a_knob_takes_its_range_and_step_from_the_declaration():
    for option in find_method("dart").builder_options:
        if option.type in (int, float):
            made, declared = knob(option), option.range
            assert declared is not None and made["label"] == option.label
            assert (made["min"], made["max"], made["step"]) == (
                declared.low, declared.high, declared.step,
            )  # fmt: skip
            low, high, _ = made["slider"]
            place = -10 if made["log"] else option.default  # of 1e-10
            assert low <= place <= high and made["value"] == option.default


@pytest.mark.parametrize(
    ("option", "collected", "slider", "value"),
    [
        (Option("beam", 20, "", "", Range(1, 1024)), None, [1, 80, 1], 20),
        (Option("candidates", 16, "", "", Range(1, 1024)), 12, [1, 12, 1], 12),
        (Option("weight", 0.5, "", "", Range(0, 100, step=0.05)), None, [0, 2, 0.05], 0.5),
        (Option("gain", 0.0, "", "", Range(0, step=0.01)), None, [0, 0.32, 0.01], 0.0),
        (Option("share", 0.5, "", "", Range(0, 1, step=0.1)), None, [0, 1, 0.1], 0.5),
        (Option("most", 400, "", "", Range(1, 1024)), None, [1, 1024, 1], 400),
        (Option("tiny", 1e-9, "", "", Range(0, 1, below=True, log=True)), None, [-11, -1, 1], 1e-9),
    ],
)  # fmt: skip
def test_a_slider_covers_where_people_turn(
    option: Option, collected: int | None, slider: list[float], value: float
):
    made = knob(option, collected)
    assert (made["slider"], made["value"]) == (slider, value)
    assert made["max"] == (None if option.name == "gain" else collected or option.range.high)  # type: ignore[union-attr]
