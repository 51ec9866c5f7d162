"""Prompts made of lists: whole, different from each other, and what they say they are."""

from __future__ import annotations

import ast

from core.train.asks import FUNCTIONS, TASKS, TOPICS, chat_prompts, function_prompts


def test_chat_prompts_hold_every_task_with_every_topic_once():
    texts = [sample.user for sample in chat_prompts()]
    assert len(set(texts)) == len(texts) == len(TASKS) * len(TOPICS)
    assert not any("{" in text or "}" in text for text in texts)
    assert all(sample.answer is None for sample in chat_prompts())


def test_a_seed_says_the_order_and_no_other_thing_does():
    assert chat_prompts(3) == chat_prompts(3) != chat_prompts(4)
    assert function_prompts(3) == function_prompts(3) != function_prompts(4)


def test_every_function_is_python_and_asked_for_in_several_forms():
    texts = [sample.user for sample in function_prompts()]
    assert len(set(texts)) == len(texts)
    for line in FUNCTIONS.splitlines():
        name = line.split("|")[0]
        stubs = [text[text.index("def ") :] for text in texts if f"def {name}(" in text]
        assert len(stubs) >= 5
        for stub in stubs:
            (node,) = ast.parse(stub).body
            assert isinstance(node, ast.FunctionDef) and ast.get_docstring(node)


def test_the_examples_of_functions_are_calls_of_them():
    for line in FUNCTIONS.splitlines():
        name, arguments, does, example = line.split("|")
        ast.parse(f"def {name}({arguments}): ...")
        assert does.endswith(".")
        if example:
            call, value = example.split(" = ")
            assert call.startswith(f"{name}(")
            ast.literal_eval(value)
            ast.parse(call)
