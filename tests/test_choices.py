"""The panel's methods, builders and options: what a page may ask for and what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio")

from app.studio.choices import OWN, Choices, Field
from app.studio.engine import Ask
from app.studio.panel import NONE, Chosen, Options
from app.studio.panel import asks as asked
from core.errors import UserError
from core.methods.registry import BUILDERS, recipe, RECIPES, settle

OWN_FILE = """
from core.methods import Recipe

def drafter(language, luck=0.5, tries=3, note="x"):
    raise NotImplementedError

METHOD = Recipe("Mine", drafter, "chain", options={"luck": 0.5, "tries": 3, "note": "x"})
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(OWN_FILE)
    return str(path)


def asks(choices: Choices, options: Any = None, *more: Chosen, **changes: Any) -> list[Ask]:
    """What one slot's inputs ask for, some of them changed, and ``more`` slots beside it."""
    shared = {"max_new_tokens": 8.0, "temperature": 0, "top_k": 0, "top_p": 1, "seed": 0}
    shared |= {name: changes.pop(name) for name in set(shared) & set(changes)}
    slot = {"method": "treeflash", "builder": OWN, "budget": 64, "options": options or {}}
    prompt = changes.pop("prompt", "why?")
    return asked(choices, prompt, shared, [Chosen(**slot | changes), *more])


def test_all_methods_are_offered_and_files_behind_them(mine: str):
    choices = Choices.of([mine, "dart+best-first"])
    assert choices.methods == (*RECIPES, mine, "dart+best-first")
    assert ("Mine", mine) in choices.titled


def test_a_presets_budgets_are_where_the_page_begins():
    choices = Choices.of([], {"ddtree": 256, "dart": 60})
    assert [choices.budget(m, 16) for m in ("ddtree", "dart", "treeflash")] == [256, 64, 16]
    assert Choices.of().budget("ddtree", 64) == 64


def test_a_file_that_is_no_method_is_refused(tmp_path: Path):
    for name in ("nonsense", str(tmp_path / "missing.py")):
        with pytest.raises(UserError):
            Choices.of([name])


def test_builders_are_exchanged_by_name(mine: str):
    choices = Choices.of([mine])
    assert choices.name("ddtree", OWN) == choices.name("ddtree", "best-first") == "ddtree"
    assert choices.name("ddtree", "continuity") == "dflash+continuity"
    assert choices.name("ar", "chain") == "ar"
    with pytest.raises(UserError, match="keeps its own builder"):
        choices.name(mine, "best-first")
    for method in choices.methods:
        for builder in (OWN, *BUILDERS) if choices.exchangeable(method) else (OWN,):
            recipe(choices.name(method, builder))


def test_a_page_names_no_file(mine: str):
    for method in (mine, "../../etc/passwd.py", None, ["ddtree"], "dflash+chain"):
        with pytest.raises(UserError, match="does not offer"):
            asks(Choices.of(), method=method)
    with pytest.raises(UserError):
        asks(Choices.of(), builder="/tmp/evil.py")
    with pytest.raises(UserError, match="does not offer"):
        asks(Choices.of(), {}, Chosen(mine))


def test_fields_are_numbers_and_flags_only(mine: str):
    choices = Choices.of([mine])
    assert {f.type for f in choices.fields} == {bool, int, float}
    assert not {"ngram", "note"} & {f.name for f in choices.fields}
    assert choices.defaults(mine, OWN) == {Field("luck", float): 0.5, Field("tries", int): 3}
    for method in RECIPES:
        assert set(choices.defaults(method, OWN)) <= set(choices.fields)


def test_only_what_differs_is_asked_for():
    m, s = Field("candidates", int), Field("siblings", int)
    (ask,) = asks(Choices.of(), {m: 8.0, s: 16, Field("beam", int): 3})
    assert ask.method == "treeflash" and ask.options == (("candidates", 8),)
    assert (ask.budget, ask.max_new_tokens, ask.temperature) == (64, 8, 0.0)
    assert settle(ask.method, dict(ask.options))["candidates"] == 8


def test_bad_numbers_are_complained_of_in_a_sentence():
    m = Field("candidates", int)
    with pytest.raises(UserError, match="fill in the option"):
        asks(Choices.of(), {m: None})
    (ask,) = asks(Choices.of(), {m: 8.5})
    with pytest.raises(UserError, match="whole number"):
        settle(ask.method, dict(ask.options))
    for broken in ({"seed": None}, {"top_p": float("nan")}, {"budget": None}, {"budget": "8"}):
        with pytest.raises(UserError, match="every number"):
            asks(Choices.of(), **broken)
    with pytest.raises(UserError, match="write a prompt"):
        asks(Choices.of(), prompt="  ")


def test_a_comparison_is_runs_of_one_request_each_with_its_own_options():
    m, weight = Field("candidates", int), Field("ngram_weight", float)
    dart = Chosen("dart", budget=16, options={weight: 0.0, m: 4.0})
    one, two, three = asks(
        Choices.of(), {m: 4.0}, Chosen(NONE), dart, Chosen("ddtree", "opt-tree"), seed=5
    )
    assert (one.method, two.method, three.method) == ("treeflash", "dart", "dflash+opt-tree")
    assert one.options == (("candidates", 4),) and two.options == (("ngram_weight", 0.0),)
    assert (one.budget, two.budget) == (64, 16)
    assert one.prompt == two.prompt == three.prompt and {one.seed, two.seed, three.seed} == {5}
    with pytest.raises(UserError, match="choose a method"):
        asks(Choices.of(), {}, Chosen(NONE), method=NONE)


def test_fields_still_of_another_method_are_not_read():
    """They follow the choice of a method a moment later; Start may be pressed before they do."""
    import gradio as gr

    width = Field("width", int)
    builder, of, part = gr.Textbox(), gr.Textbox(), gr.Number()
    values = {builder: OWN, of: f"treeflash {OWN}", part: 7}
    options = Options(builder, of, {width: part})
    assert options.read("treeflash", values) == {width: 7}
    assert options.read("dart", values) == {}
    assert options.read("treeflash", values | {builder: "best-first"}) == {}
