"""Prompts made of lists and of Python sources: whole, different, and what they claim to be."""

from __future__ import annotations

import ast

from core.train.prompts import (
    FUNCTIONS,
    TASKS,
    TOPICS,
    code_prompts,
    function_prompts,
    topic_prompts,
)


def test_topic_prompts_hold_every_task_with_every_topic_once():
    texts = [sample.user for sample in topic_prompts()]
    assert len(set(texts)) == len(texts) == len(TASKS) * len(TOPICS)
    assert not any("{" in text or "}" in text for text in texts)
    assert all(sample.answer is None for sample in topic_prompts())


def test_the_order_depends_on_the_seed_alone():
    for make in (topic_prompts, function_prompts):
        assert make(3) == make(3) != make(4)


def test_every_function_is_python_and_asked_for_in_several_forms():
    texts = [sample.user for sample in function_prompts()]
    assert len(set(texts)) == len(texts)
    for line in FUNCTIONS:
        name, arguments, does, example = line.split("|")
        stubs = [text[text.index("def ") :] for text in texts if f"def {name}(" in text]
        assert len(stubs) >= 5 and does.endswith(".")
        for stub in stubs:
            (node,) = ast.parse(stub).body
            assert isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
        ast.parse(f"def {name}({arguments}): ...")
        if example:
            call, value = example.split(" = ")
            assert call.startswith(f"{name}(") and ast.parse(call)
            ast.literal_eval(value)


def test_a_form_feed_in_a_source_moves_no_function(tmp_path):
    doc = "Give back what was given, whatever it may have been before."
    source = f'X = 1\n\x0c\ndef same(x):\n    """{doc}"""\n    y = x\n    return y\n'
    (tmp_path / "a.py").write_text(source)
    (found,) = code_prompts([tmp_path], 9)
    assert f'def same(x):\n    """{doc}"""\n' in found.user
