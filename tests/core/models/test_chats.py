"""Prompts that are chats: how they are told apart, encoded, and shown."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.chat import chat_of, last_message, openings, own_prompt
from core.errors import UserError
from core.models.language import Language, encode_chat
from tests.helpers import toys

SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"n": 2}}}
LONG = [
    SYSTEM,
    {"role": "user", "content": " Hi <|end|>\n"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4", "tool_call_id": "1"},
    {"role": "user", "content": "And <b>é</b>?"},
]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


HI = "Why is\nthe sky <b>blue</b>?"
CHATS = {
    "ChatML": f"<|im_start|>system\nBe user\n<|im_end|>\n<|im_start|>user\n{HI}<|im_end|>\n"
    "<|im_start|>assistant\n",
    "Llama 3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe.<|eot_id|>"
    f"<|start_header_id|>user<|end_header_id|>\n\n{HI}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "Llama 4": f"<|begin_of_text|><|header_start|>user<|header_end|>\n\n{HI}<|eot|>",
    "Gemma": f"<bos><start_of_turn>user\n{HI}<end_of_turn>\n<start_of_turn>model\n",
    "Gemma 4": f"<bos><|turn>system\nBe.<turn|>\n<|turn>user\n{HI}<turn|>\n<|turn>model\n",
    "DeepSeek": f"<｜begin▁of▁sentence｜>Be.<｜User｜>{HI}<｜Assistant｜><think>\n",
    "GLM": f"[gMASK]<sop><|system|>\nBe.<|user|>\n{HI}<|assistant|>\n",
    "Mistral": f"<s>[INST] Hi [/INST] Hi!</s>[INST] {HI} [/INST]",
    "gpt-oss": f"<|start|>system<|message|>Be.<|end|><|start|>user<|message|>{HI}<|end|>"
    "<|start|>assistant",
    "Kimi": f"<|im_system|>system<|im_middle|>Be.<|im_end|><|im_user|>user<|im_middle|>{HI}"
    "<|im_end|><|im_assistant|>assistant<|im_middle|>",
    "Phi": f"<|user|>\n{HI}<|end|>\n<|assistant|>\n",
}


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_the_last_message_of_a_rendered_chat_is_found(chat: str):
    assert last_message(chat) == HI


@pytest.mark.parametrize(
    "prompt",
    ["", HI, "Say <|im_start|>user\nhi", "<b>user</b>", "<|im_start|>system\nBe.<|im_end|>",
     "<|im_start|>user", "<|start|>user<|message|>", "<s>"],
)  # fmt: skip
def test_a_prompt_that_is_no_chat_stays_as_it_is(prompt: str):
    assert last_message(prompt) == prompt


# ── chats in JSON ────────────────────────────────────────────────────────────────────────────────


def test_special_tokens_in_any_message_stay_text():
    ids = encode_chat(toys.tokenizer(), json.dumps(LONG))
    words = [each["content"] for each in LONG]
    special = {*toys.tokenizer().added_tokens_decoder}
    assert sum(i in special for i in ids) == 2 * len(LONG) + 1  # the template's own
    text = toys.tokenizer().decode(ids)
    places = [text.index(word) for word in words if word]
    assert places == sorted(places)


def test_what_apis_write_is_read_as_templates_do():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {**CALL, "function": {"name": "f", "arguments": '{"n": 2}'}}
    asked = [
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": None, "tool_calls": [call], "id": 7},
        {"role": "user", "content": parts},
    ]
    assert list(chat_of(json.dumps(asked)).messages) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "user", "content": "ab"},
    ]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ([SYSTEM, {"role": "assistant", "content": "x"}], "ends with the assistant's message"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "other content than text"),
        ([{"role": "user", "content": {"a": 1}}], "other content than text"),
    ],
)
def test_a_chat_that_no_target_goes_on_from_is_one_sentence(prompt: object, why: str):
    with pytest.raises(UserError, match=why):
        chat_of(json.dumps(prompt))


def test_a_target_without_a_template_takes_no_chat():
    tokenizer = copy.deepcopy(toys.tokenizer())
    tokenizer.chat_template = None
    language = Language("toy", toys.language_model(), tokenizer, None)
    with pytest.raises(UserError, match="no chat template, so it takes no chat"):
        language.encode_chat(json.dumps([SYSTEM, {"role": "user", "content": "Hi"}]))
    assert language.text(language.encode_chat('["a"]')) == '["a"]'


@pytest.mark.parametrize(
    "prompt",
    ["", "[", "[]", "{}", '["a"]', '{"messages": []}', '[{"content": "x"}]', '[{"role": 1}]',
     '[{"role": "user"}, 1]', '{"messages": 1}', '{"prompt": "x"}', "[" * 1000],
)  # fmt: skip
def test_other_json_is_one_turn_of_the_user(prompt: str):
    assert chat_of(prompt).contents == [prompt] == [last_message(prompt)] == [own_prompt(prompt)]


# ── turns of one conversation ────────────────────────────────────────────────────────────────────

ANSWER, NEXT = {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 3?"}
FEW = json.dumps([{"role": "user", "content": "1?"}, ANSWER, NEXT])  # an example and a question


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("2?", json.dumps([{"role": "user", "content": "2?"}, ANSWER, NEXT])),
        (json.dumps([SYSTEM, NEXT]), json.dumps([SYSTEM, NEXT, ANSWER, NEXT, ANSWER, NEXT])),
        ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n",
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
         "<|im_start|>user\nHow?<|im_end|>\n<|im_start|>assistant\n<think>\n"),
        ("<s>[INST] Hi [/INST]", "<s>[INST] Hi [/INST] Yes</s>[INST] How? [/INST]"),
    ],
)  # fmt: skip
def test_a_later_turn_is_of_the_conversation_that_it_goes_on_from(first: str, later: str):
    others = [
        "3?",
        "And 3?",
        FEW,
        "<s>",
        "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
    ]
    for prompts in ([first, later, *others], [*others, later, first]):
        found = openings(prompts)
        assert found[later] == first and all(found[p] == p for p in (first, *others))
    assert openings([later])[later] == later


def test_one_chat_with_two_beginnings_of_an_answer_is_two_prompts():
    chat = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    found = openings([chat, chat + "<think>\n\n</think>\n\n"])
    assert all(prompt == opening for prompt, opening in found.items())


roles = st.sampled_from(["system", "user", "tool", "assistant"])
messages = st.fixed_dictionaries({"role": roles, "content": st.text(max_size=9)})


@given(st.lists(messages, max_size=4), st.text(max_size=9), st.sampled_from([{}, {"tools": TOOLS}]))
def test_the_prompt_of_a_chat_is_that_chat(before, words, variables):
    told = [*before, {"role": "user", "content": words}]
    prompt = json.dumps({"messages": told, **variables} if variables else told)
    chat = chat_of(prompt)
    again = chat_of(chat.prompt)
    assert (list(again.messages), again.variables) == (told, variables)
    assert own_prompt(prompt) == prompt
    said = [m["content"] for m in told if m["role"] == "user" and m["content"]]
    assert last_message(prompt) == (said[-1] if said else prompt)
    if not before and not variables:
        assert chat.prompt == words or chat_of(words).contents != [words]


@pytest.mark.parametrize("words", ["hi", json.dumps([SYSTEM]), json.dumps({"messages": [SYSTEM]})])
def test_words_that_look_like_a_chat_stay_words_in_a_chat(words: str):
    told = json.dumps([{"role": "user", "content": words}])
    assert chat_of(chat_of(told).prompt).contents == [words]
